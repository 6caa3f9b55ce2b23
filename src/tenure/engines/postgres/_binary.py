"""PostgreSQL's binary format, for the few types of arguments and answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

_BYTES, _BOOL, _INT, _TEXT, _FLOAT = 17, 16, 20, 25, 701
_INTS, _FLOATS, _TEXTS, _BLOBS = 1016, 1022, 1009, 1001
_OF_INTS = struct.Struct("!iiiii")
_float = struct.Struct("!d")
_size = struct.Struct("!i")
_EIGHT = _size.pack(8)


class Ints(list[int]):
    """An array of numbers: also when it is empty."""


class Texts(list[str]):
    """An array of texts."""


class Floats(list[float]):
    """An array of floats."""


class Blobs(list["bytes | None"]):
    """An array of bytes: also when it is empty."""


class Columns(NamedTuple):
    """Arrays that belong together: one argument, of a composite type of the schema."""

    kind: str
    arrays: tuple[Value, ...]


Value = bytes | str | int | float | bool | Ints | Floats | Texts | Blobs | None


Argument = Value | Columns


def oid(value: Any) -> int:
    """The type as which a value travels; 0 leaves it to the server."""
    match value:
        case bool():
            return _BOOL
        case int():
            return _INT
        case float():
            return _FLOAT
        case bytes():
            return _BYTES
        case str():
            return _TEXT
        case Ints():
            return _INTS
        case Floats():
            return _FLOATS
        case Texts():
            return _TEXTS
        case Blobs():
            return _BLOBS
        case _:
            return 0


def packed(value: Any) -> bytes | None:
    """A value in the binary format. Raises `OverflowError` for a number beyond 64 bits."""
    match value:
        case None | bytes():
            return value
        case bool():
            return b"\1" if value else b"\0"
        case int():
            return value.to_bytes(8, "big", signed=True)
        case float():
            return _float.pack(value)
        case str():
            return value.encode("utf-8", "surrogatepass")
        case Ints():
            return _packed_ints(value)
        case Floats():
            return _array(_FLOAT, [_float.pack(number) for number in value])
        case Texts():
            return _array(_TEXT, [text.encode() for text in value])
        case Blobs():
            return _array(_BYTES, value)
        case _:
            raise TypeError(f"no type for {value!r}")


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


def numbers(raw: bytes | None) -> list[int]:
    """A bigint[]; NULL is empty."""
    if raw is None or len(raw) < 20:
        return []
    # each has four bytes of length before it, which are always 8
    return [item for _, item in struct.iter_unpack("!iq", raw[20:])]


def blobs(raw: bytes | None) -> list[bytes | None]:
    """A bytea[]; NULL is empty."""
    items: list[bytes | None] = []
    at = 20
    while raw is not None and at < len(raw):
        size = cast("int", _size.unpack_from(raw, at)[0])
        at += 4
        items.append(None if size < 0 else raw[at : at + size])
        at += max(size, 0)
    return items
