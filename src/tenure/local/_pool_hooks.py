"""Calls of the user's functions by a pool: with a time limit, async or plain, and with every error reported."""

from __future__ import annotations

from inspect import isawaitable
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio

from tenure.arguments import Seconds
from tenure.local._limits import check_callable, seconds
from tenure.observe import Reporter
from tenure.waiting import apart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tenure.observe import Observer

__all__ = ("Hooks", "bounded", "passes_check")

T = TypeVar("T")


async def bounded(
    what: str, seconds: float, function: Callable[..., Any], *args: Any, shield: bool = False
) -> Any:
    """Call `function(*args)`, await the result if it is awaitable, and return it; TimeoutError names `what` took too
    long.

    Cancellation: passed on to the function, unless there is a shield.
    """
    with anyio.move_on_after(seconds, shield=shield):
        outcome = function(*args)
        return await outcome if isawaitable(outcome) else outcome
    raise TimeoutError(f"{what} took longer than {seconds:g} s")


async def passes_check(
    seconds: float,
    function: Callable[..., Any],
    resource: object,
    *,
    shield: bool,
    what: str = "check",
    failed: Callable[[Exception], object],
) -> bool:
    """Return whether a check or a reset succeeded: it did not raise, was in time, and did not return False.

    `failed` is called with what it raised.

    Cancellation: raised, never taken for an answer; kept out by a shield.
    """
    try:
        return await bounded(what, seconds, function, resource, shield=shield) is not False
    except Exception as error:  # noqa: BLE001 - whatever it is, the answer is no
        failed(error)
        return False


class Hooks(Generic[T]):
    """The functions of one pool and their time limits in seconds. Raises ValueError or TypeError for invalid ones.

    Thread safety: none; all on the thread of one loop.
    """

    __slots__ = (
        *("_check_timeout", "_close", "_create", "_create_timeout"),
        *("check", "check_after", "close_timeout", "reporter", "reset"),
    )

    check_after: float
    """A resource used or checked within this time needs no check; infinite without a `check`."""

    def __init__(
        self,
        create: Callable[..., Any],
        *,
        close: Callable[[T], object],
        check: Callable[[T], object] | None,
        reset: Callable[[T], object] | None,
        check_timeout: Seconds | None,
        create_timeout: Seconds | None,
        close_timeout: Seconds | None,
        check_after_idle: Seconds,
        observer: Observer | None,
    ) -> None:
        check_callable("create", create)
        check_callable("close", close)
        check_callable("check", check, optional=True)
        check_callable("reset", reset, optional=True)
        self._create = create
        self._close = close
        self.check = check
        self.reset = reset
        self._check_timeout = seconds("check_timeout", check_timeout)
        self._create_timeout = seconds("create_timeout", create_timeout)
        self.close_timeout: float = seconds("close_timeout", close_timeout)
        check_after = seconds("check_after_idle", check_after_idle, zero=True)
        self.check_after = inf if check is None else check_after
        self.reporter: Reporter = Reporter(observer)

    async def make(self, *key: object) -> T:
        """Call `create`; raises what it raises. Cancellation: passed on to it."""
        return await apart(self._make)(key)

    async def _make(self, key: tuple[object, ...]) -> T:
        return await bounded("create", self._create_timeout, self._create, *key)

    async def pass_over(
        self, hook: Literal["check", "reset"], resource: T, fields: Mapping[str, object], *, shield: bool
    ) -> bool:
        """Call `check` or `reset`; return whether the resource is in order. Cancellation: see `passes_check`."""
        function = self.check if hook == "check" else self.reset
        assert function is not None

        def failed(error: Exception) -> None:
            self.reporter.warn_briefly(f"pool.{hook}_failed", **fields, error=error)

        return await passes_check(
            self._check_timeout, function, resource, shield=shield, what=hook, failed=failed
        )

    async def end(self, resource: T, fields: Mapping[str, object]) -> None:
        """Call `close`. Cancellation: passed on to it."""
        try:
            await bounded("close", self.close_timeout, self._close, resource)
        except Exception as error:  # noqa: BLE001 - it is gone all the same
            self.reporter.warn_briefly("pool.close_failed", **fields, error=error)
