"""Sessions: this process's life signs on the engine, one for each ttl, each with one heartbeat.

A session may be trusted until `sent + ttl - margin`: `sent` was read on the loop's clock before the renewal that the
engine acknowledged was first sent, so that the engine cannot end it earlier. When that moment passes, or the engine
says that the session has gone, it is lost for good, and with it all that it held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from math import inf
from threading import get_ident
from typing import Protocol

import anyio

from tenure.engine import CloseSession, OpenSession, RenewSession, Reply
from tenure.errors import EngineError, StoreClosed
from tenure.local._line import Line
from tenure.local._park import now
from tenure.upkeep import Job, Upkeep

from ._wire import Wire
from ._wires import Wires

LEAST_TTL = 0.5
_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


# of numbered operations, one series for all: those of an object must rise, also when its turns are made anew
numbers = count(1)


def boot_time() -> float:
    """Seconds on a clock that, where there is one, also runs while the machine is suspended."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


class Held:
    """What a session holds or waits for.

    Thread safety: none.
    """

    __slots__ = ()

    @property
    def granted_as(self) -> tuple[str, int] | None:
        """The name under which the engine has granted it, and the token; None for what it need not have."""
        return None

    def lose(self, reason: str) -> None:
        """It is lost, or the session is, or the store closes: once or several times. Synchronous; must not raise."""
        raise NotImplementedError


class Unsettled(Protocol):
    """Something that is being given back and that the engine has not acknowledged."""

    def send_again(self) -> None:
        """Send it once more if the engine has refused it."""
        ...


class Session:
    """One life sign. `lost` is why it is over, or None.

    Thread safety: none.
    """

    def __init__(self, name: str, ttl: float, wire: Wire) -> None:
        self.id = name
        self.ttl = ttl
        self.margin = max(0.1 * ttl, 0.05)
        self.deadline = -inf
        self.lost: str | None = None
        self.held: dict[Held, None] = {}
        self.unsettled: dict[Unsettled, float] = {}
        """What was given back and is not acknowledged, and since when."""
        self._told = False
        self._boot_deadline = -inf
        self._thread = get_ident()
        self.wire = wire
        self._line: Line[None, None] = Line(lambda _: None)
        self._leaving: Line[None, None] = Line(lambda _: None)
        self._numbers = count(1)

    def __repr__(self) -> str:
        return f"<Session {self.id} ttl={self.ttl:g} held={len(self.held)} lost={self.lost}>"

    def new_name(self) -> str:
        """A name that nobody has used before, for a holder or a producer."""
        return f"{self.id}.{next(self._numbers)}"

    @property
    def usable(self) -> bool:
        """Whether it has been opened and is not over."""
        return self.deadline > -inf and self.look() is None

    def remaining(self) -> float:
        """Seconds for which the session may still be trusted; 0 when it may not."""
        if self.lost is not None:
            return 0.0
        return max(0.0, min(self.deadline - anyio.current_time(), self._boot_deadline - boot_time()))

    def look(self) -> str | None:
        """Why the session is over, or None; notices by itself when its time has passed."""
        if self.lost is None and self.deadline > -inf:
            if now() >= self.deadline:
                self.lose("expired")
            elif boot_time() >= self._boot_deadline:
                self.lose("suspended")
        return self.lost

    def is_over(self) -> bool:
        """Whether it may no longer be trusted; from any thread, without effect."""
        if self.lost is not None or boot_time() >= self._boot_deadline:
            return True
        # another thread has no loop, or one with a clock of its own: there the boot clock alone has to do
        return get_ident() == self._thread and anyio.current_time() >= self.deadline

    def add(self, held: Held) -> None:
        """Something is held, or waited for, under this session."""
        self.held[held] = None

    def drop(self, held: Held) -> None:
        """It is not any more. When the last has left a lost session, the engine is told that it is over."""
        self.held.pop(held, None)
        if self._told:
            self._close_if_left()

    def dismiss(self, reason: str) -> None:
        """Tell all who hold or wait under it that it is over for them; the session itself lasts until it is lost."""
        if not self._told:
            self._told = True
            for held in list(self.held):
                held.lose(reason)
            self._wake_openers()

    def lose(self, reason: str) -> None:
        """End it for good; whoever holds or waits under it is told."""
        if self.lost is None:
            self.lost = reason
            self.dismiss(reason)
            self._close_if_left()

    def _close_if_left(self) -> None:
        # not before: bodies that are being cancelled may still be at work
        if not self.held:
            if self.lost is not None:
                self.wire.send(CloseSession(self.id), lambda _: None)
            for waiter in self._leaving:
                self._leaving.grant(waiter, None)

    async def opened(self) -> None:
        """Wait until it can be used, or is lost. Cancellation: has no effect."""
        await self._line.wait(self._line.join(None))

    async def left(self) -> None:
        """Wait until nothing is held under it any more. Cancellation: has no effect."""
        while self.held:
            await self._leaving.wait(self._leaving.join(None))

    async def keep(self) -> None:
        """Open the session and renew it until it is lost. Cancellation: it is no longer renewed."""
        sent, boot = anyio.current_time(), boot_time()
        try:
            await self.wire.call(OpenSession(self.id, self.id.rpartition("/")[0], self.ttl), urgent=True)
        except (EngineError, StoreClosed) as problem:
            self.fail(problem)
            return
        while True:
            self._extend(sent, boot)
            await anyio.sleep_until(sent + self.ttl / 3)
            self._look_after_the_unsettled()
            if self.look() is not None:
                return
            sent, boot = anyio.current_time(), boot_time()
            with anyio.CancelScope(deadline=self.deadline):
                if not await self._renew():
                    self.lose("gone")
            if self.look() is not None:
                return

    async def _renew(self) -> bool:
        while True:
            try:
                return await self.wire.call(RenewSession(self.id), urgent=True) is Reply.OK
            except EngineError:  # the engine is there but cannot: as good as a failure in transit
                await anyio.sleep(self.margin / 2)

    def _extend(self, sent: float, boot: float) -> None:
        self.deadline = sent + self.ttl - self.margin
        self._boot_deadline = boot + self.ttl - self.margin
        if self.deadline > anyio.current_time():
            self._wake_openers()

    def _look_after_the_unsettled(self) -> None:
        if anyio.current_time() - next(iter(self.unsettled.values()), inf) > self.ttl:
            self.lose("unacknowledged")
        for unsettled in list(self.unsettled):
            unsettled.send_again()

    def _wake_openers(self) -> None:
        for waiter in self._line:
            self._line.grant(waiter, None)

    def fail(self, problem: Exception) -> None:
        """It could not be opened."""
        self.lost = "refused"
        for waiter in self._line:
            self._line.fail(waiter, type(problem)(*problem.args))


class Sessions:
    """The sessions of one store, one for each ttl in use and each lane of the engine.

    Thread safety: none.
    """

    def __init__(self, process: str, wires: Wires, upkeep: Callable[[], Upkeep]) -> None:
        self.process = process
        self._wires = wires
        self._upkeep = upkeep
        self._current: dict[tuple[Wire, float], Session] = {}
        self._jobs: dict[Session, Job] = {}
        self._numbers = count(1)
        self.closed = False

    def __iter__(self) -> Iterator[Session]:
        """All that are alive, or were lost and still have somebody who has not left."""
        return (session for session in list(self._jobs) if session.lost is None or session.held)

    def current(self, ttl: float, key: str = "") -> Session | None:
        """The session for this ttl and key if it can be used at once."""
        session = self._current.get((self._wire(key), ttl))
        return session if session is not None and session.usable else None

    async def get(self, ttl: float, key: str = "") -> Session:
        """The session for this ttl and key, opened if need be. Raises `EngineError`, `StoreClosed`.

        Cancellation: a session that is being opened is opened for others.
        """
        wire = self._wire(key)
        while True:
            if self.closed:
                raise StoreClosed("the store was closed")
            session = self._current.get((wire, ttl))
            if session is None or session.look() is not None:
                self._jobs = {
                    s: job for s, job in self._jobs.items() if s.lost is None or s.held or not job.ended
                }
                session = self._current[wire, ttl] = Session(self._new_name(wire), ttl, wire)
                self._jobs[session] = self._upkeep().start(f"heartbeat {session.id}", session.keep)
            elif session.deadline > -inf:
                return session
            await session.opened()

    def _wire(self, key: str) -> Wire:
        return self._wires.of(key or self.process)

    def _new_name(self, wire: Wire) -> str:
        # an engine with lanes tells them by the name
        while self._wires.of(name := f"{self.process}/{next(self._numbers)}") is not wire:
            pass
        return name

    async def end(self) -> None:
        """End the heartbeats. Cancellation: they end all the same."""
        for job in list(self._jobs.values()):
            await job.end()
