"""A digest of a file: four figures about its content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypedDict

_CHUNK = 2**20


class Digest(TypedDict):
    """A file in four figures; `words` are parted by white space, `lines` are counted by their ends."""

    sha256: str
    words: int
    lines: int
    bytes: int


def digest(name: str) -> Digest:
    """Digest and count the file of that name, in bounded memory however long it is. Raises `OSError`."""
    sha256 = hashlib.sha256()
    words = lines = size = 0
    inside = False  # whether the last chunk ended within a word
    with Path(name).open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            size += len(chunk)
            lines += chunk.count(b"\n")
            words += len(chunk.split()) - (inside and not chunk[:1].isspace())
            inside = not chunk[-1:].isspace()
    return Digest(sha256=sha256.hexdigest(), words=words, lines=lines, bytes=size)
