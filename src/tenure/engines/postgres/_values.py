"""Names, durations and metadata, as functions take and return them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from tenure.engine import Metadata

from ._binary import Blobs


def name(text: str) -> bytes:
    """A name, as it is stored: PostgreSQL's texts have no NUL."""
    return text.encode("utf-8", "surrogatepass")


def text(raw: bytes) -> str:
    """A name again."""
    return raw.decode("utf-8", "surrogatepass")


def seconds(micros: int) -> float:
    """A duration in microseconds, as a function returns it; below zero it is infinite."""
    return inf if micros < 0 else micros / 1e6


def microseconds(duration: float) -> int:
    """A duration in seconds, as a function takes it; an endless duration lasts as long as can be."""
    return min(round(min(duration, 1e12) * 1e6), 2**61) if duration else 0


def fields(metadata: Metadata) -> Blobs:
    """Each field as one string of bytes: the length of the name in four bytes, the name, the value."""
    return Blobs(len(name(field)).to_bytes(4, "big") + name(field) + value for field, value in metadata)


def metadata(raw: Iterable[bytes]) -> Metadata:
    """The fields again."""
    return tuple(
        (text(field[4:end]), field[end:]) for field in raw for end in [4 + int.from_bytes(field[:4], "big")]
    )
