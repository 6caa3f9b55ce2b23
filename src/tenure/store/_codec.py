"""How payloads become bytes."""

from __future__ import annotations

import json
from typing import Any, Protocol

__all__ = ("Codec", "JsonCodec")


class Codec(Protocol):
    """Turns values into bytes and back.

    Thread safety: used from one thread.
    """

    def encode(self, value: Any, /) -> bytes:
        """Give the bytes of a value; raises `TypeError` or `ValueError` for what it cannot express."""
        ...

    def decode(self, data: bytes, /) -> Any:
        """Give back the value."""
        ...


class JsonCodec:
    """Compact JSON in UTF-8; refuses NaN and infinities.

    Thread safety: any.
    """

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
        self._decode = json.JSONDecoder().decode

    def encode(self, value: Any, /) -> bytes:
        """Give the bytes of a value; raises `TypeError` or `ValueError` for what JSON cannot express."""
        return self._encode(value).encode()

    def decode(self, data: bytes, /) -> Any:
        """Give back the value."""
        return self._decode(data.decode())
