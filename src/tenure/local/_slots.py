"""Weighted slots over a `Line`, first come first served: heavy waiters hold up light waiters behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import WouldBlock

from tenure.arguments import check_count
from tenure.waiting import Line, checkpoint

if TYPE_CHECKING:
    from tenure.waiting import Waiter


class Slots:
    """`limit` slots; each task takes `n` of them and gives back as many."""

    __slots__ = ("_in_use", "_limit", "_line")

    def __init__(self, limit: int, owner: object = None) -> None:
        self._limit = check_count("limit", limit)
        self._in_use = 0
        self._line: Line[int, None] = Line(self._left, owner)

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def in_use(self) -> int:
        """The number of taken slots, including slots of waiters that were granted but have not run yet."""
        return self._in_use

    @property
    def waiting(self) -> int:
        return len(self._line)

    def fits(self, n: int = 1) -> bool:
        return self._in_use + n <= self._limit and not self._line

    def take_nowait(self, n: int = 1) -> None:
        """Take `n` slots now or raise `anyio.WouldBlock`; `ValueError` for an `n` that can never be had."""
        if not 1 <= n <= self._limit:
            self._refuse(n)
        if not self.fits(n):
            raise WouldBlock
        self._begin(n)

    async def take(self, n: int = 1) -> None:
        """Take `n` slots, after all earlier tasks. Raises `ValueError` for an `n` that can never be had."""
        if not 1 <= n <= self._limit:
            self._refuse(n)
        if self._in_use + n > self._limit or self._line:
            await self._line.wait(self._line.join(n))
            return
        self._begin(n)
        try:
            await checkpoint()
        except BaseException:
            self.give_back(n)
            raise

    def give_back(self, n: int = 1) -> None:
        """Give `n` slots back; they belong to the next in line when this returns. No checkpoint."""
        if not 1 <= n <= self._in_use:
            raise ValueError(f"n must be between 1 and the {self._in_use} slots in use, not {n!r}")
        self._in_use -= n
        self._let_in()

    def __repr__(self) -> str:
        return f"<Slots {self._in_use}/{self._limit} in use, {len(self._line)} waiting>"

    def _begin(self, n: int) -> None:
        if not self._in_use:
            self._line.home.hold()  # a waiter elsewhere has to know
        self._in_use += n

    def _let_in(self) -> None:
        line = self._line
        # no task wants less than one: while all are in use there is no need to look at the line
        while (
            self._in_use < self._limit
            and (waiter := line.head()) is not None
            and self._in_use + waiter.want <= self._limit
        ):
            self._in_use += waiter.want
            line.grant(waiter, None)

    def _left(self, waiter: Waiter[int, None]) -> None:
        if waiter.granted:
            self._in_use -= waiter.want
        self._let_in()

    def _refuse(self, n: int) -> None:
        raise ValueError(f"n must be between 1 and the limit of {self._limit}, not {n!r}")
