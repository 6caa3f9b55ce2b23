"""How payloads become bytes."""

from __future__ import annotations

import json
from typing import Any, Protocol, cast

__all__ = ("Codec", "JsonCodec", "encoded")


class Codec(Protocol):
    """Turns values into bytes and back.

    Thread safety: used from one thread.
    """

    def encode(self, value: Any, /) -> bytes:
        """Return the bytes of a value; raises `TypeError` or `ValueError` for what it cannot express."""
        ...

    def decode(self, data: bytes, /) -> Any:
        """Return the value."""
        ...


class JsonCodec:
    """Compact JSON in UTF-8; refuses NaN and infinities.

    Thread safety: any.
    """

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
        self._decode = json.JSONDecoder().decode

    def encode(self, value: Any, /) -> bytes:
        """Return the bytes of a value; raises `TypeError` or `ValueError` for what JSON cannot express."""
        return self._encode(value).encode()

    def decode(self, data: bytes, /) -> Any:
        """Return the value."""
        return self._decode(data.decode())


def encoded(codec: Codec, what: str, value: Any) -> bytes:
    """The bytes of a value; `what` names it in errors.

    Raises `TypeError` or `ValueError` for what the codec cannot express, or if it returns no bytes.
    """
    try:
        data = cast("object", codec.encode(value))
    except (TypeError, ValueError) as problem:
        kind = TypeError if isinstance(problem, TypeError) else ValueError
        raise kind(
            f"{what} cannot be encoded: {problem}; open_store(codec=...) takes a codec that can"
        ) from problem
    if not isinstance(data, bytes):
        raise TypeError(f"{what} cannot be encoded: the codec returned {type(data).__name__}, not bytes")
    return bytes(data)
