"""A handler that sleeps: it takes time but no processor."""

from __future__ import annotations

import anyio


async def nap(seconds: float | str) -> float:
    """Sleep for the given number of seconds. Raises `ValueError` for anything else. Cancellation: it wakes up."""
    duration = float(seconds)
    await anyio.sleep(duration)
    return duration
