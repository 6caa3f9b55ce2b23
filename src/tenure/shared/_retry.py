"""When a failed task is tried again, and how a handler says so itself."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a task is tried, and how long it rests in between.

    `attempts` are tries in total. After the k-th failure it rests for `backoff * factor ** (k - 1)` seconds, at most
    `max_backoff`; `jitter` is the share of that by which it is shortened at random (0: never, 1: down to nothing).

    Thread safety: any. Source: exponential backoff with jitter as in AWS's "Exponential Backoff and Jitter" (Brooker).
    """

    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    max_backoff: float = 60.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"attempts must be an int, at least 1: {self.attempts!r}")
        if not 0 <= self.backoff < inf:
            raise ValueError(f"backoff must be a number of seconds, not below 0: {self.backoff!r}")
        if not 1 <= self.factor < inf:
            raise ValueError(f"factor must be a number, at least 1: {self.factor!r}")
        if not 0 <= self.max_backoff < inf:
            raise ValueError(f"max_backoff must be a number of seconds, not below 0: {self.max_backoff!r}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be a share from 0 to 1: {self.jitter!r}")

    def delay(self, failures: int) -> float:
        """For how many seconds to rest after that many failures (1: the first)."""
        try:
            full = min(self.max_backoff, self.backoff * self.factor ** (failures - 1))
        except OverflowError:
            full = self.max_backoff
        return full * (1 - self.jitter * random.random())


class RetryLater(Exception):
    """Raise it in a handler: not now, try again after `delay` seconds.

    That is no failure: it counts neither as an attempt nor as a delivery without a verdict, so nothing bounds how often
    a task is postponed. To bound it, put the task with `expires=`, or count with `task.progress`.
    """

    def __init__(self, delay: float, reason: str = "") -> None:
        if not 0 <= delay < inf:
            raise ValueError(f"delay must be a number of seconds, not below 0: {delay!r}")
        super().__init__(reason or f"try again in {delay:g} s")
        self.delay = delay


class Discard(Exception):
    """Raise it in a handler: the task is not worth another try and no dead letter either; `reason` is kept."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)
