from __future__ import annotations

from typing import Any, Generic, overload

from tenure.lazy import extra

from ._codec import T


class MsgspecCodec(Generic[T]):
    """JSON of one type, checked on its way in and out: a `msgspec.Struct`, a dataclass, `list[int]`, a union.

    Raises `TypeError` for a type that msgspec does not know, and `ModuleNotFoundError` if the extra `msgspec` is not
    installed.

    Thread safety: any.
    """

    @overload
    def __init__(self, type: type[T]) -> None: ...
    @overload
    def __init__(self, type: Any) -> None: ...
    def __init__(self, type: Any) -> None:  # noqa: A002
        msgspec = extra("msgspec", "msgspec")
        self._type = type
        self._error: Any = msgspec.MsgspecError
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(type).decode

    def __repr__(self) -> str:
        return f"MsgspecCodec({self._type!r})"

    def encode(self, value: T, /) -> bytes:
        """Return the bytes of a value; raises `TypeError` or `ValueError` for a value of another type."""
        try:
            data: bytes = self._encode(value)
        except self._error as problem:
            raise ValueError(str(problem)) from problem
        self.decode(data)  # a Struct is not checked when it is made
        return data

    def decode(self, data: bytes, /) -> T:
        """Return the value; raises `ValueError` for bytes of something else."""
        try:
            return self._decode(data)
        except self._error as problem:
            raise ValueError(str(problem)) from problem
