"""Checks of arguments and blocks: one message for each mistake, and plain values behind the front door.

Each check returns a plain `int`, `float` or `str`: an `IntEnum` or a number of numpy's never reaches an engine. The
wrong type raises `TypeError`, the wrong value `ValueError`. The classes say what to write in place of wrong code; type
checkers do not see them, so that they find the mistake.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, SupportsIndex, TypeAlias, TypeVar, cast, overload

Params = ParamSpec("Params")
F = TypeVar("F", bound=Callable[..., Any])

Seconds: TypeAlias = float | timedelta
"""A duration: a number of seconds or a `timedelta`."""

LONGEST = 1e9
"""Seconds: no duration may be longer (31 years). An engine can add it to any time of its clock."""

LARGEST = 2**31 - 1

LONGEST_NAME = 512
"""Bytes in UTF-8: no name may be longer. An index of PostgreSQL takes 2704 bytes for a whole row."""


def check_count(name: str, value: object, *, least: int = 1, most: int = LARGEST) -> int:
    """A whole number from `least` to `most`; no bool."""
    number = _whole(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    if number > most:
        raise ValueError(f"{name} must be at most {most}, not {number}")
    return number


def check_task_id(name: str, value: object) -> int:
    """The id of a task: an int above 0, below 2**63."""
    number = _whole(name, value)
    if not 0 < number < 2**63:
        raise ValueError(f"{name} must be the id of a task, above 0 and below 2**63, not {number}")
    return number


def check_number(
    name: str, value: object, *, least: float | None = None, most: float = 1e12, unit: str = ""
) -> float:
    """A finite number from `least` (None: above 0) to `most`; no bool."""
    if type(value) is not float:
        if unit and isinstance(value, timedelta):
            value = seconds_of(value)
        elif isinstance(value, bool) or not isinstance(value, Real):
            kind = f"a number of{unit} or a timedelta" if unit else "a number"
            raise TypeError(f"{name} must be {kind}, not {type(value).__name__}")
        try:
            value = float(value)
        except OverflowError:
            value = float("inf")
    # also false for nan
    if least is None and not value > 0:
        raise ValueError(f"{name} must be above 0{unit}, not {value:g}")
    if least is not None and not value >= least:
        raise ValueError(f"{name} must be at least {least:g}{unit}, not {value:g}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:g}{unit}, not {value:g}")
    return value


def check_seconds(name: str, value: object, *, least: float | None = 0) -> float:
    """A duration from `least` seconds (None: above 0) to `LONGEST`, in seconds."""
    return check_number(name, value, least=least, most=LONGEST, unit=" seconds")


@overload
def seconds_of(duration: Seconds) -> float: ...
@overload
def seconds_of(duration: Seconds | None) -> float | None: ...
def seconds_of(duration: Seconds | None) -> float | None:
    """The seconds of a duration, which nothing has checked."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def check_timeout(name: str, value: object, *, least: float | None = 0) -> float | None:
    """A duration as of `check_seconds`, or None for no limit."""
    if value is None:
        return None
    try:
        return check_seconds(name, value, least=least)
    except (TypeError, ValueError) as problem:
        raise type(problem)(f"{problem}; None means no limit") from None


def check_text(name: str, value: object, *, most: int) -> str:
    """A text of 1 to `most` bytes in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} must not have lone surrogates: {value[:50]!r}") from None
    if size > most:
        raise ValueError(f"{name} must have at most {most} bytes in UTF-8, not {size}: {value[:50]!r}...")
    # the hint of a subclass may say something else
    return value if type(value) is str else str.__str__(value)


def check_flag(name: str, value: object) -> bool:
    """True or False, and no other object."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def check_name(name: str, value: object) -> str:
    """A name: a text of 1 to `LONGEST_NAME` bytes."""
    return check_text(name, value, most=LONGEST_NAME)


def _whole(name: str, value: object) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return int(operator.index(value))


class AsyncBlock:
    """An asynchronous context manager that refuses `with`, and says what to write."""

    __slots__ = ()

    if not TYPE_CHECKING:
        _instead = ""
        """The code to write instead in synchronous programs."""

        def __enter__(self) -> NoReturn:
            instead = self._instead and f"; in synchronous code use {self._instead}"
            raise TypeError(f"{_name_of(self)}: write `async with`, not `with`{instead}")

        def __exit__(self, *_: object) -> None:
            """Do nothing: `__enter__` has raised."""


class SyncBlock:
    """A context manager for synchronous code that refuses `async with`, and says what to write."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise TypeError(
                f"{_name_of(self)}: write `with`, not `async with`; in async code use tenure, not tenure.blocking"
            )

        def __aexit__(self, *_: object) -> None:
            """Do nothing: `__aenter__` has raised."""


class NotABlock:
    """A pattern that refuses `async with` and `with`, and says which of its methods is for a block."""

    __slots__ = ()

    if not TYPE_CHECKING:
        _blocks = ""
        """The code to write instead, such as "lock.read()"."""

        def __aenter__(self) -> NoReturn:
            raise TypeError(f"{_name_of(self)}: write `async with {self._blocks}`")

        def __aexit__(self, *_: object) -> None:
            """Do nothing: `__aenter__` has raised."""

        __enter__, __exit__ = __aenter__, __aexit__


class NotAwaited:
    """A block, for one use, that refuses `await`, and says what to write.

    Containers for dependencies ask `inspect.isawaitable`, and would await a lock or a store.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __await__(self) -> NoReturn:
            word = "with" if isinstance(self, SyncBlock) else "async with"
            raise TypeError(f"{_name_of(self)}: write `{word} ...:`, not `await ...`: it is for a block")


def hinted(**hints: str) -> Callable[[Callable[Params, None]], Callable[Params, None]]:
    """Have an `__init__` that is called with wrong arguments say what to write, by a word of Python's message."""

    def decorated(init: Callable[Params, None]) -> Callable[Params, None]:
        @wraps(init)
        def __init__(*args: Params.args, **kwargs: Params.kwargs) -> None:  # noqa: N807
            try:
                init(*args, **kwargs)
            except TypeError as problem:
                for word, hint in hints.items():
                    if f"argument '{word}'" in str(problem) or f"{word} argument" in str(problem):
                        raise TypeError(f"{problem}: {hint}") from None
                raise

        vars(__init__)["hint"] = decorated  # for the classes that are made from this one
        return __init__

    return decorated


def _name_of(block: Any) -> str:
    name = getattr(block, "_name", None)
    return name if isinstance(name, str) else type(block).__name__.strip("_")


def shows_options(options: Any, **defaults: object) -> Callable[[F], F]:
    """Show the fields of `options`, a `TypedDict`, in place of `**options`; `defaults` that are not given are None."""

    def show(function: F) -> F:
        signature = inspect.signature(function)
        *own, _ = signature.parameters.values()
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=hint.__forward_arg__,
            )
            for name, hint in options.__annotations__.items()
        ]
        cast("Any", function).__signature__ = signature.replace(parameters=[*own, *named])
        return function

    return show
