"""A handler that fails now and then, to watch retries."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import anyio.lowlevel

from tenure.shared import Task


async def flaky(task: Task) -> Any:
    """Give the input back; every fifth fails at its first try, and an input that holds the word "never" at each.

    Raises `RuntimeError`. Cancellation: nothing has happened.
    """
    await anyio.lowlevel.checkpoint()
    text = str(task.payload)
    if "never" in text:
        raise RuntimeError("this one never works")
    if task.attempt == 1 and crc32(text.encode()) % 5 == 0:
        raise RuntimeError("this one works at the second try")
    return task.payload
