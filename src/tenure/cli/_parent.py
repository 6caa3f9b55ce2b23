"""The end of the process that has started this one."""

from __future__ import annotations

import os

import anyio

_POLLING_PERIOD = 0.5
"""Seconds between two checks of the parent."""


async def parent_ended(parent: int) -> None:
    """Return once the parent of this process is no longer that process. Cancellation: no effect."""
    while os.getppid() == parent:  # noqa: ASYNC110 - the system reports it in no other way
        await anyio.sleep(_POLLING_PERIOD)
