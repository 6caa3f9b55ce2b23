"""Work that takes time but no processor."""

from __future__ import annotations

import anyio


async def nap(seconds: float | str) -> float:
    """Sleep for so many seconds. Raises `ValueError` for what is no number. Cancellation: it wakes up at once."""
    duration = float(seconds)
    await anyio.sleep(duration)
    return duration
