"""Sessions: this process's registrations on the engine, one for each ttl and shard, each with one heartbeat.

A session may be trusted until `sent + ttl - margin`: `sent` was read on the loop's clock before the renewal that the
engine acknowledged was first sent, so that the engine cannot end it earlier. Then it is lost for good, and with it all
that it held.

| state     | `deadline` | `lost`  | event                                      | goes to                              |
|-----------|------------|---------|--------------------------------------------|--------------------------------------|
| new       | -inf       | None    | `OpenSession` is acknowledged              | open                                 |
|           |            |         | it is refused, or the store closes         | lost ("refused")                     |
| open      | a time     | None    | `RenewSession` is acknowledged             | open, with a later `deadline`        |
|           |            |         | it may rest                                | resting                              |
|           |            |         | the store begins to close                  | dismissed                            |
|           |            |         | the deadline passes                        | lost ("expired")                     |
|           |            |         | the deadline passes on the boot clock      | lost ("suspended")                   |
|           |            |         | any answer is GONE                         | lost ("gone")                        |
|           |            |         | a release is not acknowledged for a ttl    | lost ("unacknowledged")              |
|           |            |         | the loop is blocked for `max_block`        | lost ("blocked")                     |
| resting   | a time     | None    | an operation is about to use it            | open, with an earlier `deadline`     |
| dismissed | a time     | None    | as open                                    | as open; once the store closed: lost |
| lost      | any        | why     | the last that was held under it has left   | `CloseSession` is sent               |

Holders are notified once, when the session is dismissed or lost.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from math import inf
from random import uniform
from threading import get_ident
from typing import Any, Protocol

import anyio
from anyio import CancelScope

import tenure.engine as e
from tenure.errors import EngineError, StoreClosed
from tenure.observe import Reporter
from tenure.upkeep import BackgroundTask
from tenure.waiting import Line, now

from ._dispatch import Dispatcher, Dispatchers

LEAST_TTL = 0.5
_FORGOTTEN = (
    "the server no longer knows this session: its data were deleted, it restarted or failed over without them, or it"
    " ended the session before its time; tasks and locks of other processes may be gone as well"
)
_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


# of numbered operations, one series for all: the numbers of an object must rise, also when its batcher is made anew
numbers: count[int] = count(1)


# no function of our own: it is read several times for each lease
boot_time: Callable[[], float] = (
    time.monotonic if _BOOT_CLOCK is None else partial(time.clock_gettime, _BOOT_CLOCK)
)
"""Seconds on a clock that, where there is one, also runs while the machine is suspended."""


class Held:
    __slots__ = ()

    @property
    def _rests(self) -> bool:
        """True for idle takers, which the engine hints: the session may rest."""
        return False

    def _rest(self, seconds: float) -> None:
        """Note that the session rests; with 0 seconds, ask the engine now."""

    @property
    def _granted_as(self) -> tuple[str, int] | None:
        """The name under which the engine has granted it, and the token; None for what it need not have."""
        return None

    def _lose(self, reason: str) -> None:
        """End the hold: it, its session or the store is lost. Synchronous; must not raise, nor mind a second call."""
        raise NotImplementedError

    def _fail_from_outside(self, problem: Exception) -> e.Operation[Any] | None:
        """The operation that records the failure of the holder; None if giving back says all. From any thread."""
        del problem
        return None


class Unreleased(Protocol):
    def send_again(self) -> None: ...

    def wake(self) -> None: ...


class Session:
    """A registration at the engine. `lost` is the reason why it is over, or None."""

    def __init__(
        self, name: str, ttl: float, dispatcher: Dispatcher, reporter: Reporter | None = None
    ) -> None:
        self.id = name
        self.reporter: Reporter = reporter or Reporter()
        self.ttl = ttl
        self.margin: float = max(0.1 * ttl, 0.05)
        self.deadline: float = -inf
        self.beat: float = -inf
        """The time of the last heartbeat, on the boot clock."""
        self.lost: str | None = None
        self.held: dict[Held, None] = {}
        self.unreleased: dict[Unreleased, float] = {}
        """The releases that are not acknowledged, with the time since when."""
        self.resting: bool = False
        """True if the last renewal asked for a rest, and nothing has used the session since."""
        self._renew_at = -inf
        self._watch: Callable[[], object]
        self._sleep: CancelScope | None = None
        self._dismissed = False
        self._boot_deadline = -inf
        self._offset: float = 0.0
        self._thread = get_ident()
        self.dispatcher = dispatcher
        self._line: Line[None, None] = Line(owner="the store")
        self._leaving: Line[None, None] = Line(owner="the store")
        self._numbers = count(1)

    def __repr__(self) -> str:
        return f"<Session {self.id} ttl={self.ttl:g} held={len(self.held)} lost={self.lost}>"

    def new_name(self) -> str:
        return f"{self.id}.{next(self._numbers)}"

    @property
    def usable(self) -> bool:
        return self.deadline > -inf and self.check() is None

    def remaining(self) -> float:
        if self.lost is not None:
            return 0.0
        return max(0.0, min(self.deadline - now(), self._boot_deadline - boot_time()))

    def check(self, time: float | None = None) -> str | None:
        """The reason why the session is over, or None; loses it if its time has passed."""
        if self.lost is None and self.deadline > -inf:
            if (now() if time is None else time) >= self.deadline:
                self.lose("expired")
            elif boot_time() >= self._boot_deadline:
                self.lose("suspended")
        return self.lost

    def is_over(self) -> bool:
        """True once the session may no longer be trusted; from any thread, without effect."""
        if self.lost is not None or boot_time() >= self._boot_deadline:
            return True
        # another thread has no loop, or one with a clock of its own: there the boot clock alone has to do
        return get_ident() == self._thread and now() >= self.deadline

    def add(self, held: Held) -> None:
        self.held[held] = None

    def drop(self, held: Held) -> None:
        self.held.pop(held, None)
        if self._dismissed:
            self._close_if_left()

    def dismiss(self, reason: str) -> None:
        if not self._dismissed:
            self._dismissed = True
            for held in list(self.held):
                held._lose(reason)
            self._wake_openers()

    def lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            self._notify_all(reason)

    def _notify_all(self, reason: str) -> None:
        self._report_end(reason)
        self.dismiss(reason)
        # a body around the waiting one may hold something under this session, and has to end with it
        for unreleased in self.unreleased:
            unreleased.wake()
        self._close_if_left()

    # while the loop is blocked; the watchdog calls these, in its thread

    def extend_from_outside(self, sent: float) -> None:
        """Note an acknowledged renewal, sent at this time of the boot clock. A deadline that has passed stays."""
        if not self.is_over():
            seconds = self.ttl - self.margin
            self.deadline, self._boot_deadline = sent + self._offset + seconds, sent + seconds

    def abandon(self) -> None:
        """End the session for good; `notify_of_block`, on the loop, notifies all that is held under it."""
        self.lost = self.lost or "blocked"

    def notify_of_block(self) -> None:
        if self.lost == "blocked" and not self._dismissed:
            self._notify_all("blocked")

    def _close_if_left(self) -> None:
        # not before: bodies that are being cancelled may still be at work
        if not self.held:
            if self.lost is not None:
                self.dispatcher.send(e.CloseSession(self.id), lambda _: None)
            for waiter in self._leaving:
                self._leaving.grant(waiter, None)

    def _report_end(self, reason: str) -> None:
        if reason != "gone":
            self.reporter.notice("session.lost", session=self.id, reason=reason)
            return
        holds = sum(held._granted_as is not None for held in self.held)
        self.reporter.warn("session.lost", session=self.id, reason=reason, holds=holds, meaning=_FORGOTTEN)

    def report_loss(self, event: str, reason: str, **fields: object) -> None:
        said = reason == "closed" or (event == "task.lost" and reason == self.lost == "gone")
        report = self.reporter.notice if said else self.reporter.warn
        report(event, **fields, reason=reason)

    async def opened(self) -> None:
        await self._line.wait(self._line.join(None))

    async def left(self) -> None:
        while self.held:
            await self._leaving.wait(self._leaving.join(None))

    async def keep(self, on_open: Callable[[], object] = lambda: None) -> None:
        sent, boot = now(), boot_time()
        try:
            await self.dispatcher.call(
                e.OpenSession(self.id, self.id.rpartition("/")[0], self.ttl), urgent=True
            )
        except (EngineError, StoreClosed) as problem:
            self.fail(problem)
            return
        self.reporter.notice("session.opened", session=self.id, ttl=self.ttl)
        self._extend(sent, boot)
        self.beat = boot
        self._watch = on_open
        on_open()
        self._renew_at = sent + self.ttl / 3
        while True:
            while now() < self._renew_at:
                with CancelScope(deadline=self._renew_at) as self._sleep:
                    await anyio.sleep_forever()
            self._look_after_the_unreleased()
            if self.check() is not None:
                return
            sent, boot = now(), boot_time()
            self.beat = boot
            self._renew_at = sent + self.ttl / 3
            self.resting = not self.unreleased and all(held._rests for held in self.held)
            with CancelScope(deadline=self.deadline) as scope:
                await self._renew(sent, boot)
            if self.check() is not None:
                return
            if scope.cancelled_caught:  # the watchdog has extended the deadline meanwhile
                self.resting = False

    async def _renew(self, sent: float, boot: float) -> None:
        while True:
            renewal = e.RenewSession(self.id, e.SILENCE if self.resting else 0.0)
            try:
                answer = await self.dispatcher.call(renewal, urgent=True)
            except EngineError:  # the engine is there but cannot: as good as a failure in transit
                await anyio.sleep(self.margin / 2)
            else:
                break
        if answer is e.Reply.GONE:
            self.lose("gone")
        elif not renewal.rest or self.resting:  # else it is awake again, by a renewal behind this one
            self.resting = isinstance(answer, e.Resting)
            seconds = answer.seconds if isinstance(answer, e.Resting) else 0.0
            self._extend(sent, boot, seconds)
            if self.resting:
                self._renew_at = sent + max(self.ttl / 3, seconds)
                for held in list(self.held):
                    held._rest(seconds)

    def wake(self) -> None:
        """End the rest, before an operation uses the session: from this renewal on, the engine grants a ttl alone."""
        self.resting = False
        sent, boot = now(), boot_time()
        self.beat = boot
        self.deadline = min(self.deadline, sent + self.ttl - self.margin)
        self._boot_deadline = min(self._boot_deadline, boot + self.ttl - self.margin)
        self._watch()
        self._sleep_until(sent + self.ttl / 3)
        self.dispatcher.send(e.RenewSession(self.id), partial(self._on_awake, sent, boot))

    def _on_awake(self, sent: float, boot: float, answer: object) -> None:
        if answer is e.Reply.OK:
            if self.check() is None:
                # after an outage, a heartbeat that asks for a rest goes before this renewal, whenever it was made
                self.resting = False
                self._extend(sent, boot)
                self._sleep_until(sent + self.ttl / 3)
        elif answer is e.Reply.GONE:
            self.lose("gone")
        else:
            self._sleep_until(now())

    def on_wake(self) -> None:
        """Renew soon, and rest on: another session is awake, and has to be watched."""
        if self.resting:
            self._sleep_until(min(self._renew_at, now() + uniform(0, self.ttl / 3)))

    def _sleep_until(self, time: float) -> None:
        self._renew_at = time
        if self._sleep is not None:
            self._sleep.deadline = time

    def _extend(self, sent: float, boot: float, rest: float = 0.0) -> None:
        seconds = rest + self.ttl - self.margin
        self._offset = sent - boot
        self.deadline = sent + seconds
        self._boot_deadline = boot + seconds
        if self.deadline > now():
            self._wake_openers()

    def _look_after_the_unreleased(self) -> None:
        if now() - next(iter(self.unreleased.values()), inf) > self.ttl:
            self.lose("unacknowledged")
        for unreleased in list(self.unreleased):
            unreleased.send_again()

    def _wake_openers(self) -> None:
        for waiter in self._line:
            self._line.grant(waiter, None)

    def fail(self, problem: Exception) -> None:
        self.lost = "refused"
        for waiter in self._line:
            self._line.fail(waiter, type(problem)(*problem.args))


class Sessions:
    def __init__(
        self,
        process: str,
        dispatchers: Dispatchers,
        reporter: Reporter | None = None,
        on_open: Callable[[], object] = lambda: None,
    ) -> None:
        self.process = process
        self._on_open = on_open
        self._reporter = reporter
        self._dispatchers = dispatchers
        self._home = dispatchers.home
        self._current: dict[tuple[Dispatcher, float], Session] = {}
        self._jobs: dict[Session, BackgroundTask] = {}
        self._numbers = count(1)

    def __iter__(self) -> Iterator[Session]:
        return (session for session in list(self._jobs) if session.lost is None or session.held)

    def current(self, ttl: float, key: str = "") -> Session | None:
        session = self._current.get((self._dispatchers.of(key or self.process), ttl))
        if session is None or session.deadline == -inf or session.check() is not None:
            return None
        if session.resting:
            session.wake()
        return session

    async def get(self, ttl: float, key: str = "") -> Session:
        dispatcher = self._dispatchers.of(key or self.process)
        while True:
            if self._home.closed:
                raise StoreClosed("the store was closed")
            session = self._current.get((dispatcher, ttl))
            if session is None or session.check() is not None:
                self._jobs = {
                    s: job for s, job in self._jobs.items() if s.lost is None or s.held or not job.ended
                }
                session = self._current[dispatcher, ttl] = Session(
                    self._new_name(dispatcher), ttl, dispatcher, self._reporter
                )
                self._jobs[session] = self._home.running().start(
                    f"heartbeat {session.id}", session.keep, self._on_open
                )
            elif session.deadline > -inf:
                if session.resting:
                    session.wake()
                return session
            await session.opened()

    def _new_name(self, dispatcher: Dispatcher) -> str:
        # the name decides on the shard
        while self._dispatchers.of(name := f"{self.process}/{next(self._numbers)}") is not dispatcher:
            pass
        return name

    def lose_one(self, name: str, reason: str) -> None:
        for session in self:
            for held in list(session.held):
                if (granted := held._granted_as) is not None and granted[0] == name:
                    held._lose(reason)

    async def end(self) -> None:
        for job in list(self._jobs.values()):
            await job.end()
