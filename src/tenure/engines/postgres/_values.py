"""Values in PostgreSQL's binary format: names, durations, metadata, arrays."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from types import NoneType
from typing import Any, NamedTuple, TypeVar, cast, overload

import tenure.engine as e
from tenure.arguments import LONGEST

T = TypeVar("T")

_BYTES, _INT, _TEXT, _FLOAT = 17, 20, 25, 701
_OF_INTS = struct.Struct("!iiiii")
_float = struct.Struct("!d")
_size = struct.Struct("!i")
_EIGHT = _size.pack(8)


class Ints(list[int]): ...


class Texts(list[str]): ...


class Floats(list[float]): ...


class Blobs(list["bytes | None"]): ...


class Columns(NamedTuple):
    kind: str
    arrays: tuple[Value, ...]


Value = bytes | str | int | float | bool | Ints | Floats | Texts | Blobs | None


Argument = Value | Columns


def packed(value: object) -> tuple[int, Any]:
    kind, pack = _FORMATS.get(type(value)) or _format_of(type(value))
    return kind, value if pack is None else pack(value)


def _format_of(derived: type) -> _Format:
    for base in derived.__mro__:
        if base in _FORMATS:
            return _FORMATS[base]
    raise TypeError(f"no type for a {derived.__name__}")


def _packed_ints(items: Sequence[int]) -> bytes:
    if not items:
        return _array(_INT, ())
    # as `_array` does, but there are many, and all are of one size
    numbers = [number.to_bytes(8, "big", signed=True) for number in items]
    return _OF_INTS.pack(1, 1, _INT, len(items), 1) + _EIGHT + _EIGHT.join(numbers)


def _array(element: int, items: Sequence[bytes | None]) -> bytes:
    if not items:
        return struct.pack("!iii", 0, 0, element)
    parts = [_OF_INTS.pack(1, 1, element, len(items), 1)]
    for item in items:
        if item is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts += (_size.pack(len(item)), item)
    return b"".join(parts)


_Format = tuple[int, Callable[[Any], bytes] | None]
_FORMATS: dict[type, _Format] = {
    # 0 leaves the type to the server
    NoneType: (0, None),
    bool: (16, struct.Struct("!?").pack),
    int: (_INT, struct.Struct("!q").pack),
    float: (_FLOAT, _float.pack),
    bytes: (_BYTES, None),
    str: (_TEXT, lambda text: text.encode("utf-8", "surrogatepass")),
    Ints: (1016, _packed_ints),
    Floats: (1022, lambda items: _array(_FLOAT, [_float.pack(number) for number in items])),
    Texts: (1009, lambda items: _array(_TEXT, [text.encode() for text in items])),
    Blobs: (1001, partial(_array, _BYTES)),
}
"""The number of the type on the server, by class of a value, and the function that makes bytes.

The function is None for a value that is bytes already, or NULL.
"""


def numbers(raw: bytes | None) -> list[int]:
    if raw is None or len(raw) < 20:
        return []
    # each has four bytes of length before it, which are always 8
    return [item for _, item in struct.iter_unpack("!iq", raw[20:])]


def blobs(raw: bytes | None) -> list[bytes | None]:
    items: list[bytes | None] = []
    at = 20
    while raw is not None and at < len(raw):
        size = cast("int", _size.unpack_from(raw, at)[0])
        at += 4
        items.append(None if size < 0 else raw[at : at + size])
        at += max(size, 0)
    return items


def name(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def seconds(micros: int) -> float:
    """A duration in microseconds, as a function returns it; below zero it is infinite."""
    return inf if micros < 0 else micros / 1e6


@overload
def microseconds(duration: float) -> int: ...
@overload
def microseconds(duration: float | None, none: T) -> int | T: ...
def microseconds(duration: float | None, none: Any = None) -> Any:
    """A duration in seconds, as a function takes it: at most `LONGEST`. Raises `ValueError` for NaN.

    `none` takes the place of None.
    """
    if duration is None:
        return none
    return round(max(min(duration, LONGEST), -LONGEST) * 1e6) if duration else 0


def fields(metadata: e.Metadata) -> Blobs:
    """Each field as one string of bytes: the length of the name in four bytes, the name, the value."""
    return Blobs(len(name(field)).to_bytes(4, "big") + name(field) + value for field, value in metadata)


def metadata(raw: Iterable[bytes]) -> e.Metadata:
    return tuple(
        (text(field[4:end]), field[end:]) for field in raw for end in [4 + int.from_bytes(field[:4], "big")]
    )
