from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import cast

from tenure.arguments import Seconds, check_count, check_flag, check_number, check_seconds, seconds_of
from tenure.handlers import NotBegun, describe
from tenure.upkeep import leaves


@dataclass(frozen=True, slots=True)
class Retry:
    """The number of tries of a task, and the delays in between.

    `attempts` are tries in total. After the k-th failure the task is delayed for `backoff * factor ** (k - 1)`
    seconds, at most `max_backoff`; `jitter` is the share by which the delay is shortened at random (0: never, 1: down
    to nothing).

    `on` and `never` are types of exceptions: an exception that is not in `on`, or that is in `never`, makes the task a
    dead letter at once. A try that takes too long raises `TimeoutError`. An exception group is tried again only if
    each exception in it is. Types of the same module and name are the same. Raises `ValueError` and `TypeError`.

    Thread safety: any. Source: AWS's "Exponential Backoff and Jitter" (Brooker).
    """

    attempts: int = 3
    backoff: Seconds = 1.0
    factor: float = 2.0
    max_backoff: Seconds = 60.0
    jitter: float = 0.5
    on: tuple[type[BaseException], ...] = (BaseException,)
    never: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "attempts": check_count("attempts", self.attempts),
            "backoff": check_seconds("backoff", self.backoff),
            "factor": check_number("factor", self.factor, least=1),
            "max_backoff": check_seconds("max_backoff", self.max_backoff),
            "jitter": check_number("jitter", self.jitter, least=0, most=1),
            "on": _check_types("on", self.on),
            "never": _check_types("never", self.never),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        name_of = attrgetter("__name__")
        options = (f"{option.name}={_shown(getattr(self, option.name), name_of)}" for option in fields(self))
        return f"Retry({', '.join(options)})"

    def delay(self, failures: int) -> float:
        """The seconds to rest after that many failures (1: the first)."""
        most = seconds_of(self.max_backoff)
        try:
            full = min(most, seconds_of(self.backoff) * self.factor ** (failures - 1))
        except OverflowError:
            full = most
        return full * (1 - self.jitter * random.random())

    def refusal(self, error: BaseException) -> str | None:
        """The reason why no further try follows this error, even with attempts left; None if a try may follow."""
        for leaf in leaves(error):
            if are_messages(leaf):
                continue
            if _is_one_of(leaf, self.never):
                return f"{NOT_AGAIN}{_full_name(type(leaf))} is in never={_shown(self.never)}"
            if not _is_one_of(leaf, self.on):
                return f"{NOT_AGAIN}{_full_name(type(leaf))} is not in on={_shown(self.on)}"
        return None


def check_retry(value: object) -> Retry | None:
    if value is not None and not isinstance(value, Retry):
        raise TypeError(f"retry must be a Retry, not {value!r}")
    return value


class RetryLater(Exception):
    """Raise it in a handler: not now, try again after `delay` seconds.

    The try counts as failed: the task is dead when its attempts are used up. With `counts=False`, the task is
    postponed: the try counts neither as an attempt nor as a delivery without a verdict, and only `deadline=` at the
    put bounds how often. With `resets`, the task is postponed, and no earlier failure counts any longer.
    """

    def __init__(
        self, delay: Seconds, reason: str = "", *, counts: bool = True, resets: bool = False
    ) -> None:
        self.delay: float = check_seconds("delay", delay)
        self.reason: str = str(reason)
        self.resets: bool = check_flag("resets", resets)
        self.counts: bool = check_flag("counts", counts) and not resets
        super().__init__(self.delay, self.reason)  # with which it is unpickled

    def __str__(self) -> str:
        return self.reason or f"try again in {self.delay:g} s"


class Discard(Exception):
    """Raise it in a handler: the task is not worth another try and no dead letter either; `reason` is kept."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason: str = str(reason)


class Dead(Exception):
    """Raise it in a handler: no further try can help. The task is a dead letter at once, with `reason` as its error.

    `raise Dead("no such user") from error` keeps the traceback of `error` too, which is the reason if none is given.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason: str = str(reason)


NOT_AGAIN = "not tried again: "
CANNOT_BE_KEPT, IS_UNKNOWN = "cannot be kept", "is unknown"
"""The ends of the reason why a task whose work is, or may be, done is not tried again: a try would repeat the work."""
CANNOT_BE_RESULT = "which cannot be the result"


def are_messages(error: BaseException) -> bool:
    return all(isinstance(part, (RetryLater, Discard, Dead)) for part in leaves(error))


def decisive(error: BaseException) -> BaseException:
    """The exception of a group that decides about the task.

    It is a `Dead`, the group if there are other errors in it, the `RetryLater` with the longest delay, or a `Discard`.
    """
    for part in leaves(error):
        if isinstance(part, Dead):
            return part
    return max(leaves(error), key=_weight) if are_messages(error) else error


def _weight(message: BaseException) -> tuple[bool, float]:
    return (message.counts, message.delay) if isinstance(message, RetryLater) else (False, -1.0)


def is_failure(error: BaseException) -> bool:
    error = decisive(error)
    return not (
        isinstance(error, (Discard, NotBegun)) or (isinstance(error, RetryLater) and not error.counts)
    )


def error_of(failure: BaseException) -> str:
    if not isinstance(failure, (Dead, RetryLater)):
        return describe(failure)
    return failure.reason or describe(failure.__cause__ or failure)


def _check_types(name: str, types: object) -> tuple[type[BaseException], ...]:
    if not isinstance(types, tuple):
        raise TypeError(f"{name} must be a tuple of exception types, not {types!r}")
    for kind in cast("tuple[object, ...]", types):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{name} must be a tuple of exception types, and {kind!r} is none")
    return cast("tuple[type[BaseException], ...]", types)


def _is_one_of(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, kinds):
        return True
    names = {_full_name(kind) for kind in type(error).__mro__}
    return not names.isdisjoint(map(_full_name, kinds))


def _full_name(kind: type) -> str:
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _shown(option: object, name_of: Callable[[type], str] = _full_name) -> str:
    if not isinstance(option, tuple):
        return repr(option)
    names = [name_of(kind) for kind in cast("tuple[type[BaseException], ...]", option)]
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def out_of_time(seconds: float) -> str:
    return f"not done within {seconds:g} s"
