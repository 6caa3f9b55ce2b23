"""When a failed task is tried again, and how a handler says so itself."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tenure.arguments import check_count, check_number, check_seconds


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
        checked = {
            "attempts": check_count("attempts", self.attempts),
            "backoff": check_seconds("backoff", self.backoff),
            "factor": check_number("factor", self.factor, least=1),
            "max_backoff": check_seconds("max_backoff", self.max_backoff),
            "jitter": check_number("jitter", self.jitter, least=0, most=1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def delay(self, failures: int) -> float:
        """For how many seconds to rest after that many failures (1: the first)."""
        try:
            full = min(self.max_backoff, self.backoff * self.factor ** (failures - 1))
        except OverflowError:
            full = self.max_backoff
        return full * (1 - self.jitter * random.random())


def check_retry(value: object) -> Retry | None:
    """A `Retry`, or None. Raises `TypeError`."""
    if value is not None and not isinstance(value, Retry):
        raise TypeError(f"retry must be a Retry, not {value!r}")
    return value


class RetryLater(Exception):
    """Raise it in a handler: not now, try again after `delay` seconds.

    That is not a failure: it counts neither as an attempt nor as a delivery without a verdict, so nothing bounds how
    often a task is postponed. To bound it, put the task with `expires=`, or count with `task.progress`.
    """

    def __init__(self, delay: float, reason: str = "") -> None:
        self.delay: float = check_seconds("delay", delay)
        super().__init__(reason or f"try again in {self.delay:g} s")


class Discard(Exception):
    """Raise it in a handler: the task is not worth another try and no dead letter either; `reason` is kept."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason: str = str(reason)
