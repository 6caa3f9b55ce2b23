from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    # checkers know it on every Python, so that a bare `Codec` is `Codec[Any]`
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

# RecursionError: a value may be nested more deeply than Python's stack allows
_REFUSALS = (TypeError, ValueError, RecursionError)


class Codec(Protocol[T]):
    """Turns values into bytes and back.

    Thread safety: used from one thread.
    """

    def encode(self, value: T, /) -> bytes:
        """Return the bytes of a value; raises `TypeError` or `ValueError` for what it cannot express."""
        ...

    def decode(self, data: bytes, /) -> T:
        """Return the value; raises `TypeError` or `ValueError` for bytes of something else."""
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
        """Return the value of these bytes."""
        return self._decode(data.decode())


def check_codec(codec: Codec[T] | None) -> Codec[T] | None:
    methods = (getattr(codec, name, None) for name in ("encode", "decode"))
    if codec is not None and (isinstance(codec, type) or not all(map(callable, methods))):
        raise TypeError(f"codec must be an object with the methods encode and decode, not {codec!r}")
    return codec


def encoded(codec: Codec[T], what: str, value: T) -> bytes:
    try:
        data = cast("object", codec.encode(value))
    except _REFUSALS as problem:
        kind = TypeError if isinstance(problem, TypeError) else ValueError
        hint = "; open_store(codec=...) takes a codec that can, and WorkQueue(codec=...) for payloads"
        hint = hint if isinstance(codec, JsonCodec) else ""
        raise kind(f"{what} cannot be encoded: {_reason(problem)}{hint}") from problem
    if not isinstance(data, bytes):
        raise TypeError(f"{what} cannot be encoded: the codec returned {type(data).__name__}, not bytes")
    return bytes(data)


def decoded(codec: Codec[T], what: str, data: bytes) -> T:
    try:
        return codec.decode(data)
    except _REFUSALS as problem:
        raise ValueError(f"{what} cannot be decoded: {_reason(problem)}") from problem


def _reason(problem: Exception) -> object:
    return "it is nested too deeply" if isinstance(problem, RecursionError) else problem
