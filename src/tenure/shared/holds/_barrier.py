"""The barrier. The engine trips a generation in the step of the last arrival, and so answers a withdrawal exactly.

Barriers made of counters lack this (CURATOR-318).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Literal, NamedTuple

import anyio

import tenure.engine as e
from tenure.arguments import Seconds, check_count
from tenure.errors import BarrierBroken, CapacityMismatch, OutcomeUnknown, TenureError
from tenure.shared._lease import HoldRequest
from tenure.store import Acquisition, Session, Store, check_ttl, handle_of, read_pages
from tenure.waiting import checkpoint, now


class Arrival(NamedTuple):
    """The arrival of all parties: in this `generation` of the barrier, this party at `place`, from 0 to `parties` - 1.

    Later generations have greater numbers.
    """

    generation: int
    place: int


@dataclass(frozen=True, slots=True)
class BarrierStatistics:
    """A barrier at one moment: `waiting` of its `parties` wait (0 if no party waits), unless it is `broken`."""

    parties: int
    waiting: int
    broken: bool


class Barrier:
    """A meeting point for `parties` calls of `wait` over all processes of the store: when all have come, all return.

    `on_departure` of a party applies if it is cancelled, before its arrival or later, or dies while it waits, which is
    noticed after its `ttl` in seconds:

    - "break" breaks the generation: all calls get `BarrierBroken`, present and later ones, until `reset`;
    - "drop" forgets the party, and the others wait for another.

    A party that fails or dies before it calls `wait` is not noticed: call `abort` for it, or limit the wait. All
    parties must agree on `parties` (`CapacityMismatch`).

    Source: the broken state comes from Java's `CyclicBarrier`.
    """

    __slots__ = ("_request", "_store", "_ttl", "name", "on_departure", "parties")

    def __init__(
        self,
        store: Store,
        name: str,
        parties: int,
        *,
        ttl: Seconds | None = None,
        on_departure: Literal["break", "drop"] = "break",
    ) -> None:
        if on_departure not in ("break", "drop"):
            raise ValueError(f'on_departure must be "break" or "drop", not {on_departure!r}')
        self._store = handle_of(store)
        self.parties: int = check_count("parties", parties)
        key, value = self._store.key("barrier", name), e.DROP if on_departure == "drop" else b""
        self._request = HoldRequest(key, self.parties, 0, value)  # of no weight: an arrival
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self.name: str = name
        self.on_departure: Literal["break", "drop"] = on_departure

    def __repr__(self) -> str:
        return f"<Barrier {self.name!r} parties={self.parties} on_departure={self.on_departure!r}>"

    async def wait(self) -> Arrival:
        """Arrive, and wait until all parties have arrived.

        Raises `BarrierBroken` (a party was cancelled or died, or the barrier was aborted or reset),
        `CapacityMismatch`, `StoreClosed`, `EngineError`. Raises `OutcomeUnknown` if this process lost its session and
        the generation may have tripped before.
        Cancellation: before all have come, also before this party has, it breaks the generation unless parties are
        dropped. Once the generation has tripped, the call returns as for all parties, and the next checkpoint raises;
        only asyncio's native ``task.cancel()`` is raised even then. The call waits at most `settle_timeout` for the
        engine's answer.
        """
        while True:
            session = await self._come()
            attempt = self._store.acquisitions.attempt(self._request, session)
            try:
                outcome = await attempt.answer(e.Notice)
                if outcome is e.Reply.GONE:
                    outcome = await self._after_the_loss(attempt)
            except BaseException as problem:
                outcome = await self._leave(attempt)
                if not (isinstance(outcome, e.Granted) and _gives_way(problem)):
                    raise
            else:
                attempt.withdraw()  # the engine need not remember the outcome any longer
            finally:
                attempt.forget()  # not before: a release of what was granted meanwhile would take the answer
            match outcome:
                case e.Granted(token):
                    place = token % self.parties
                    return Arrival(token - place, place)
                case e.Mismatch() if outcome.stored != e.BROKEN:
                    raise CapacityMismatch(self._request.key, asked=self.parties, stored=outcome.stored)
                case e.Reply() if outcome is e.Reply.GONE or self.on_departure == "drop":
                    session.lose("gone")  # and arrive under another one
                case _:
                    raise BarrierBroken(
                        f"{self._request.key}: broken: a party left or died, or it was aborted or reset"
                    )

    async def abort(self) -> None:
        """Break the barrier: calls of `wait`, present and later ones, get `BarrierBroken` until `reset`.

        Raises `EngineError`, `StoreClosed`, `StoreUnavailable`.
        Cancellation: no effect, since the call waits in a shield; asyncio's native cancellation may prevent it.
        """
        self._store.home.running()
        with anyio.CancelScope(shield=True):
            await self._store.call(e.Resize(self._request.key, e.BROKEN))

    async def reset(self) -> None:
        """Begin a new generation, broken or not: present calls of `wait` get `BarrierBroken`, later calls do not.

        Raises `EngineError`, `StoreClosed`. Cancellation: it may or may not be applied, or the barrier stays broken.
        """
        await self._store.call(e.Resize(self._request.key, e.BROKEN))
        await self._store.call(e.Resize(self._request.key, 0))

    async def statistics(self) -> BarrierStatistics:
        """The state of the barrier. Raises `EngineError`, `StoreClosed`."""
        page = await read_pages(self._store, e.Scan(e.HOLDERS, self._request.key))
        waiting = len(page.waiting)
        return BarrierStatistics(page.capacity if waiting else 0, waiting, page.capacity == e.BROKEN)

    async def _come(self) -> Session:
        try:
            session = await self._store.session(self._ttl, self._request.key)
            await checkpoint()
            if anyio.current_effective_deadline() <= now():
                await anyio.sleep_forever()  # asyncio cancels a turn after the deadline
        except anyio.get_cancelled_exc_class():
            await self._depart()
            raise
        return session

    async def _depart(self) -> None:
        if self.on_departure == "break":
            answered = anyio.Event()
            operation = e.Resize(self._request.key, e.BROKEN)
            call = self._store.send(operation, lambda _: answered.set())
            with anyio.move_on_after(self._store.settle_timeout, shield=True):
                await answered.wait()
            if not answered.is_set():
                # a session would have ended by then, and the others would know
                self._store.call_at(now() + self._ttl, partial(setattr, call, "wanted", False))

    async def _leave(self, attempt: Acquisition) -> Any:
        if attempt.never_applied and not attempt.ended:
            attempt.end()
            return await self._depart()
        withdrawal = attempt.withdraw()
        await withdrawal.wait(self._store.settle_timeout)
        return withdrawal.answer

    async def _after_the_loss(self, attempt: Acquisition) -> e.Granted | e.Reply:
        never_applied, waited = attempt.never_applied, attempt.queued
        attempt.end()
        if never_applied:
            return e.Reply.GONE
        answer = await self._store.call(e.Release(self._request.key, attempt.name), patient=True)
        if answer is not e.Reply.UNKNOWN:
            return answer
        # it went with the session; before the parties met, if the others still wait, or were told
        now = await read_pages(self._store, e.Scan(e.HOLDERS, self._request.key), 1, patient=True)
        if waited is not None and waited.meeting == now.meeting:
            return e.Reply.LEFT
        raise OutcomeUnknown(self._request.key, "arriving")


def _gives_way(problem: BaseException) -> bool:
    """True if the outcome may replace the exception: a cancelled scope raises anew at the next checkpoint."""
    if isinstance(problem, anyio.get_cancelled_exc_class()):
        return anyio.current_effective_deadline() == -inf
    return isinstance(problem, TenureError)
