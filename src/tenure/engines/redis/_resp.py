"""The wire format, RESP3, as hiredis speaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import hiredis

Command = Sequence[bytes | str | int | float]

# its stub describes a tuple of one element
pack_one = cast("Callable[[tuple[bytes | str | int | float, ...]], bytes]", vars(hiredis)["pack_command"])


def pack(commands: Iterable[Command]) -> bytes:
    """Commands as they go over the wire. Raises `UnicodeEncodeError`."""
    return b"".join([pack_one(tuple(command)) for command in commands])
