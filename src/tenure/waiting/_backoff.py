from __future__ import annotations

from random import uniform

import anyio


class Backoff:
    """Pauses of `first` seconds, then twice as long each time up to `longest`; each is shortened by up to half.

    Source: AWS's "Exponential Backoff and Jitter" (Brooker).
    """

    __slots__ = ("_first", "_longest", "_next")

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    async def pause(self) -> None:
        seconds, self._next = self._next, min(2 * self._next, self._longest)
        await anyio.sleep(seconds * uniform(0.5, 1))
