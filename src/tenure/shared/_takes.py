"""Takers: settling what was taken and taking more, in one exchange for all of this process.

Group commit without a timer: an exchange leaves when there is something to settle or somebody to serve and none is on
its way; what gathers meanwhile leaves with the next. A process without work has its want registered on the engine and is
hinted when there is some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from random import uniform
from typing import Any, Protocol

import anyio

from tenure.engine import CAP, Exchange, Exchanged, Operation, Settle, Taken, Verdict
from tenure.errors import StoreClosed
from tenure.local._line import Line, Waiter
from tenure.store import Session, Store, Turns

OnSettled = Callable[[bool], object]


class Dismissed(Exception):  # noqa: N818 a message from worker to runner
    """A group of takers shall take no more."""


class Holder(Protocol):
    """One who has a task."""

    def stop(self) -> None:
        """The cancellation of the task was requested."""
        ...


class Takers:
    """All of this process's takers of one queue.

    Thread safety: none.
    """

    def __init__(self, store: Store, key: str) -> None:
        self.aging: float | None = None
        self.max_deliveries = 20
        self.keep = False
        self.holders: dict[int, Holder] = {}
        self._store = store
        self._key = key
        self._line: Line[object, tuple[Session, Taken]] = Line(self._left)
        self._turns = Turns(store, store.ttl, self)
        self._settling: deque[tuple[Session, Settle, OnSettled]] = deque()
        self._sent: list[tuple[Session, Settle, OnSettled]] = []
        self._wanted = 0
        self._registered = 0
        self._registered_in: Session | None = None
        self._hinted = False
        self._next_ask = 0.0
        self._probes: dict[Waiter[object, tuple[Session, Taken]], bool] = {}

    def __len__(self) -> int:
        return len(self._line)

    async def take(self, group: object = None) -> tuple[Session, Taken]:
        """Take the next task. Raises `StoreClosed`, `EngineError`; `Dismissed` when the group is dismissed meanwhile.

        Cancellation: what was taken is given back.
        """
        waiter = self._line.join(group)
        if len(self._line) > self._registered:
            self._turns.kick()
        return await self._line.wait(waiter)

    async def take_at_once(self) -> tuple[Session, Taken] | None:
        """Take the next task if there is one now. Raises and cancellation as for `take`."""
        waiter = self._line.join(None)
        self._probes[waiter] = False
        self._turns.kick()
        try:
            return await self._line.wait(waiter)
        except anyio.WouldBlock:
            return None
        finally:
            self._probes.pop(waiter, None)

    def settle(self, session: Session, settle: Settle, on_settled: OnSettled) -> None:
        """Hand over a verdict; `on_settled` is told whether it was accepted."""
        self._settling.append((session, settle, on_settled))
        self._turns.kick()

    def look_again(self) -> None:
        """There may be tasks."""
        self._hinted = True  # also if the answer to an older question is still to come
        self._registered = 0
        if len(self._line):
            self._turns.kick()

    def dismiss(self, group: object) -> None:
        """End the wait of the takers of a group."""
        for waiter in self._line:
            if waiter.want is group:
                self._line.fail(waiter, Dismissed())

    # what Turns asks

    def next_operation(self, session: Session, n: int) -> Operation[Any] | None:
        self._sent = []
        while self._settling and len(self._sent) < CAP:
            entry = self._settling.popleft()
            if entry[0] is session:
                self._sent.append(entry)
            else:  # its session is over, and the engine has taken the task back
                entry[2](False)
        want = min(len(self._line), CAP)
        if not self._sent and want <= self._registered and not self._probes:
            return None
        self._probes = dict.fromkeys(self._probes, True)
        self._wanted, self._hinted = want, False
        return Exchange(
            session.id,
            n,
            self._key,
            tuple(entry[1] for entry in self._sent),
            want,
            True,
            self.aging,
            self.max_deliveries,
            self.keep,
        )

    def on_answer(self, session: Session, answer: Exchanged) -> None:
        sent, self._sent = self._sent, []
        for _, settle, on_settled in sent:
            on_settled(settle.token not in answer.refused)
        for taken in answer.tasks:
            taker = self._line.head()
            if session.lost is not None:
                break  # the engine takes them back with the session
            if taker is None or not self._line.grant(taker, (session, taken)):
                self._give_back(session, taken)
        for probe in [probe for probe, asked in self._probes.items() if asked]:
            self._line.fail(probe, anyio.WouldBlock())
        for token in answer.stop:
            self.stop(token)
        self._register(session, 0 if self._hinted else self._wanted - len(answer.tasks))
        if len(self._line):
            self._ask_later(answer.ask_again_in)
        self._go_on()

    def on_gone(self, *, resent: bool) -> None:
        del resent
        self._registered = 0
        sent, self._sent = self._sent, []
        for _, _, on_settled in sent:
            on_settled(False)
        self._go_on()

    def on_error(self, error: Exception) -> None:
        self._registered = 0
        sent, self._sent = self._sent, []
        for _, _, on_settled in sent:
            on_settled(False)
        self._line.fail_all(lambda: type(error)(str(error)))

    # hints

    def stop(self, token: int) -> None:
        """The cancellation of a task that is held here was requested."""
        if (holder := self.holders.get(token)) is not None:
            holder.stop()

    def close(self) -> None:
        """The store closes; settlements go on."""
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    def lose(self, reason: str) -> None:
        """The session under which this process is registered as idle is lost."""
        del reason
        if self._registered_in is not None:
            session, self._registered_in = self._registered_in, None
            session.drop(self)
        self.look_again()

    # inside

    def _register(self, session: Session, want: int) -> None:
        self._registered = want
        if session.lost is not None:
            self._registered = 0
        elif want > 0 and self._registered_in is not session:
            self._registered_in = session
            session.add(self)

    def _left(self, waiter: Waiter[object, tuple[Session, Taken]]) -> None:
        if waiter.granted:
            session, taken = waiter.value
            self._give_back(session, taken)

    def _give_back(self, session: Session, taken: Taken) -> None:
        self.settle(session, Settle(taken.id, taken.token, Verdict.GIVE_BACK), lambda _: None)

    def _ask_later(self, seconds: float) -> None:
        if seconds == inf:
            return
        pause = max(0.02, seconds)
        when = anyio.current_time() + pause + uniform(0, min(0.1 * pause, 0.2))
        if self._next_ask <= anyio.current_time() or when < self._next_ask:
            self._next_ask = when
            self._store.call_at(when, self._on_time)

    def _on_time(self) -> None:
        if anyio.current_time() >= self._next_ask:
            self.look_again()

    def _go_on(self) -> None:
        if self._settling or self._probes or len(self._line) > self._registered:
            self._turns.kick()
