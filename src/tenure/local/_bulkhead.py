# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING

from tenure.arguments import AsyncBlock, NotAwaited, Seconds, check_count
from tenure.errors import AcquireTimeout, BulkheadFull
from tenure.local._limits import seconds
from tenure.waiting import Expired, Home, Line, checkpoint, this_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from types import TracebackType

    from tenure.waiting import Waiter


@dataclass(frozen=True, slots=True)
class BulkheadKindStatistics:
    """The calls of one kind in a `Bulkhead` at one moment."""

    share: float
    """The kind's share, as it was given."""
    in_use: int
    """The number of calls inside."""
    tasks_waiting: int
    """The number of tasks that wait in line."""
    refused: int
    """The number of calls that were refused so far because the line was full."""


@dataclass(frozen=True, slots=True)
class BulkheadStatistics:
    """The state of a `Bulkhead` at one moment, in numbers of calls."""

    limit: int
    """The number of calls that may be inside at once."""
    max_waiting: int | None
    """The number of tasks of each kind that may wait in line; None is any number."""
    in_use: int
    """The number of calls inside; calls that were let in but have not run yet count."""
    tasks_waiting: int
    """The number of tasks that wait in line, of all kinds."""
    refused: int
    """The number of calls that were refused so far because their line was full."""
    kinds: Mapping[Hashable, BulkheadKindStatistics]
    """The same for each kind; without shares there is one, None."""


class _Kind:
    __slots__ = ("in_use", "line", "name", "refused", "share")

    def __init__(
        self, name: str, share: float, left: Callable[[_Kind, Waiter[int, None]], None], home: Home
    ) -> None:
        self.name = name
        self.share = share
        self.line: Line[int, None] = Line(partial(left, self), home)
        self.in_use = 0
        self.refused = 0


class Bulkhead:
    """Lets at most `limit` calls in at once; the others wait in line, first come first served.

    `max_waiting` bounds the line (None: any number; 0: no call waits): a call that finds it full is refused with
    `BulkheadFull`.

    With `shares`, a mapping of kinds to weights (such as ``{"checkout": 3, "search": 1}``), each kind has a line of
    its own, with room for `max_waiting`. Free places are lent to any kind, so one kind alone may have all of them.
    A place that becomes free goes to the kind that has the least for its weight, and among equals to the call that has
    waited longest.

    Source: Nygard, "Release It!"; the sharing is max-min fairness with weights.
    """

    __slots__ = ("_arrivals", "_home", "_in_use", "_kinds", "_limit", "_max_waiting")

    def __init__(
        self,
        limit: int,
        *,
        max_waiting: int | None = None,
        shares: Mapping[Hashable, float] | None = None,
    ) -> None:
        if shares is not None and not shares:
            raise ValueError("shares must have at least one kind, or be None")
        self._limit = check_count("limit", limit)
        self._max_waiting = None if max_waiting is None else check_count("max_waiting", max_waiting, least=0)
        self._in_use = 0
        self._home = Home(self)
        self._arrivals = count()
        self._kinds: dict[Hashable, _Kind] = {}
        for kind, share in ({None: 1} if shares is None else shares).items():
            if not 0 < share < inf:
                raise ValueError(f"shares must be numbers of more than 0, not {share!r} for {kind!r}")
            name = "bulkhead" if kind is None else f"bulkhead {kind!r}"
            self._kinds[kind] = _Kind(name, share, self._left, self._home)

    def enter(
        self, kind: Hashable = None, timeout: Seconds | None = None
    ) -> AbstractAsyncContextManager[None, None]:
        """Be inside for a block: ``async with bulkhead.enter():``.

        `kind` is a kind of `shares`, and None without shares; any other is a `ValueError`. `timeout` in seconds
        limits the wait (None: for ever; 0: one try). Entering raises `BulkheadFull` if the line is full, and
        `AcquireTimeout`; it is always a checkpoint. Leaving is none.

        Cancellation: while waiting, the place in the line is lost and nothing was taken.
        """
        state = self._kinds.get(kind)
        if state is None:
            raise ValueError(f"kind must be one of {', '.join(map(repr, self._kinds))}, not {kind!r}")
        # without a call where there is nothing to check
        limit = inf if timeout is None else seconds("timeout", timeout, zero=True)
        return _Entrance(self, state, limit)

    def statistics(self) -> BulkheadStatistics:
        """The current state."""
        kinds = {
            kind: BulkheadKindStatistics(state.share, state.in_use, len(state.line), state.refused)
            for kind, state in self._kinds.items()
        }
        return BulkheadStatistics(
            limit=self._limit,
            max_waiting=self._max_waiting,
            in_use=self._in_use,
            tasks_waiting=sum(state.tasks_waiting for state in kinds.values()),
            refused=sum(state.refused for state in kinds.values()),
            kinds=MappingProxyType(kinds),
        )

    def __repr__(self) -> str:
        waiting = sum(len(state.line) for state in self._kinds.values())
        return f"<Bulkhead {self._in_use}/{self._limit} in use, {waiting} waiting>"

    def _leave(self, state: _Kind) -> None:
        self._in_use -= 1
        state.in_use -= 1
        # to the kind that has the least for its share, and among equals to the call that came first
        first: tuple[float, int, _Kind, Waiter[int, None]] | None = None
        for other in self._kinds.values():
            head = other.line.head()
            if head is not None:
                place = (other.in_use / other.share, head.want, other, head)
                if first is None or place < first:
                    first = place
        if first is not None:
            *_, chosen, head = first
            self._take(chosen)
            chosen.line.grant(head, None)

    def _take(self, state: _Kind) -> None:
        self._in_use += 1
        state.in_use += 1

    def _left(self, state: _Kind, waiter: Waiter[int, None]) -> None:
        # a call that leaves without a place admits no other: the calls behind it wait for the same
        if waiter.granted:
            self._leave(state)


class _Entrance(AsyncBlock, NotAwaited, AbstractAsyncContextManager[None, None]):
    __slots__ = ("_bulkhead", "_state", "_timeout")

    def __init__(self, bulkhead: Bulkhead, state: _Kind, timeout: float) -> None:
        self._bulkhead = bulkhead
        self._state = state
        self._timeout = timeout

    async def __aenter__(self) -> None:
        bulkhead, state = self._bulkhead, self._state
        # while a call waits nothing is free, so a call that finds a free place overtakes none
        if bulkhead._in_use < bulkhead._limit:
            # a waiter elsewhere has to know; on trio by the thread, since asking for the loop costs more
            if (
                not bulkhead._in_use
                and bulkhead._home.run is not (loop := this_loop())
                and (loop is not None or bulkhead._home.thread != get_ident())
            ):
                bulkhead._home.hold()
            bulkhead._take(state)
            try:
                await checkpoint()
            except BaseException:
                bulkhead._leave(state)
                raise
            return
        line = state.line
        # unlinks those before it that were cancelled in this turn: they are no reason to refuse anybody
        line.head()
        if bulkhead._max_waiting is not None and len(line) >= bulkhead._max_waiting:
            state.refused += 1
            waiting = len(line)
            await checkpoint()
            message = f"{state.name}: {bulkhead._limit} are inside and {waiting} wait already"
            raise BulkheadFull(message, limit=bulkhead._limit, waiting=waiting)
        waiter = line.join(next(bulkhead._arrivals))
        try:
            await line.wait(waiter, self._timeout)
        except Expired:
            raise AcquireTimeout(state.name, self._timeout) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bulkhead._leave(self._state)
