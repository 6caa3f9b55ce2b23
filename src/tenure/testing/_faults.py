"""An engine whose link fails, whose hints get lost, and whose clock leaps."""

from __future__ import annotations

import math
from collections import Counter, deque
from enum import Enum
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.lowlevel
from anyio import TASK_STATUS_IGNORED

import tenure.engine as e
from tenure.arguments import Seconds, seconds_of
from tenure.errors import StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._batch_link import BatchLink
from ._failover import Failover

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from anyio.abc import TaskStatus

    import tenure.engine as e


class Fault(Enum):
    """A fault of a batch of operations on its way, or of a hint."""

    LOST_REQUEST = "lost request"
    """The batch never arrives, so it fails before the effect: the sender learns that the engine is unreachable."""

    CUT = "cut"
    """The link breaks in the middle: the first few operations are applied, the sender gets no answer at all."""

    LOST_REPLY = "lost reply"
    """The batch is applied, but the sender gets no answer: it fails after the effect."""

    DUPLICATE = "duplicate"
    """The batch arrives twice: all of it is applied twice, and the second answers count."""

    DELAY = "delay"
    """The batch arrives late."""

    REORDER = "reorder"
    """The next batch of another sender overtakes the batch; without such a batch, it arrives late."""

    FAILOVER = "failover"
    """The server goes down before the batch arrives, and another takes over that has missed the last moments, as a
    Redis replica may: what was acknowledged then is forgotten. It needs `FaultyEngine(lose=...)`.
    """

    LOST_HINT = "lost hint"
    """A hint is not delivered."""

    DUPLICATE_HINT = "duplicate hint"
    """A hint is delivered twice."""


_OF_HINTS = (Fault.LOST_HINT, Fault.DUPLICATE_HINT)

_NAMES = ("session", "key", "watch", "holder", "producer")
"""The fields of operations that name the sender."""


class _Planned(NamedTuple):
    fault: Fault
    on: type[e.Operation[Any]] | None


class LeapingClock:
    """A clock that can leap, for engines that take one: `MemoryEngine(clock=clock)`, `SqliteEngine(path, clock=clock)`.

    It shows what `clock` shows (by default the time of the running event loop) plus the sum of its leaps. Hand it to a
    `FaultyEngine` too, for its `jump`.

    Thread safety: as `clock`'s; the loop's time can only be read on the loop's thread.
    """

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._clock() + self._ahead

    def jump(self, seconds: Seconds) -> None:
        """Leap forwards, or backwards by a negative number of seconds."""
        seconds = seconds_of(seconds)
        if not math.isfinite(seconds):
            raise ValueError(f"seconds: a finite number, not {seconds!r}")
        self._ahead += seconds

    def __repr__(self) -> str:
        return f"<LeapingClock {self._ahead:+g} s>"


class FaultyEngine(e.Engine):
    """An engine around another engine: it passes everything on, except for the requested faults.

        link = FaultyEngine(MemoryEngine(), rates={Fault.LOST_REPLY: 0.1}, seed=7)
        async with open_store(link) as store:
            link.plan(Fault.DELAY)

    - `rates`: the probability with which each fault hits a batch (or a hint). A planned fault goes first; at most one
      hits a batch.
    - `seed`: the same seed repeats the same draws.
    - `delay`: the seconds of a `Fault.DELAY`, of waiting to be overtaken, and of a `Fault.FAILOVER` without an answer.
    - `lose`: the most seconds that a failover forgets; the engine inside must be a `MemoryEngine` that nothing else
      uses.
    - `clock`: the clock of the engine inside, for `jump`.

    `pause` freezes the link until `resume`, `pause_session` the part of one process. `batches` counts the batches that
    were sent, `suffered` their faults. `execute` sends one batch, without any link.
    """

    def __init__(
        self,
        engine: e.Engine,
        *,
        seed: int = 0,
        rates: Mapping[Fault, float] | None = None,
        delay: Seconds = 1.0,
        lose: Seconds | None = None,
        clock: LeapingClock | None = None,
    ) -> None:
        rates = dict(rates or {})
        if lose is None and Fault.FAILOVER in rates:
            raise ValueError("rates: for Fault.FAILOVER, pass lose=, the seconds that it forgets")
        for kinds, name in ((_OF_HINTS, "hints"), (set(Fault) - set(_OF_HINTS), "batches")):
            if (
                not 0 <= sum(rates.get(fault, 0) for fault in kinds) <= 1
                or min(rates.values(), default=0) < 0
            ):
                raise ValueError(
                    f"rates: shares between 0 and 1, for all faults of {name} together, not {rates!r}"
                )
        delay, lose = seconds_of(delay), seconds_of(lose)
        if not delay >= 0:
            raise ValueError(f"delay: seconds, zero or more, not {delay!r}")
        self.url: str = engine.url
        self.shards: int = engine.shards
        self.families: bool = engine.families
        self.batches: int = 0
        self.suffered: Counter[Fault] = Counter()
        self._engine = engine
        self._rates = rates
        self._delay = delay
        self._clock = clock
        self._random = Random(seed)
        self._failover = None if lose is None else Failover(engine, clock, lose, delay)
        self._planned: deque[_Planned] = deque()
        self._paused: anyio.Event | None = None
        self._before_effect = False
        self._frozen: dict[str, anyio.Event] = {}
        self._overtaking: anyio.Event | None = None
        self._held_back: list[tuple[Callable[[e.Hint], None], e.Hint]] = []

    @property
    def unreachable(self) -> StoreUnavailable | None:
        """The error with which the engine inside cannot be reached, apart from the faults of this object."""
        return self._engine.unreachable if self._failover is None else self._failover.down

    def shard(self, name: str) -> int:
        return self._engine.shard(name)

    def plan(self, fault: Fault, *, on: type[e.Operation[Any]] | None = None, times: int = 1) -> None:
        """Let `fault` hit the next batch, or the next that has an operation of type `on`; `times` times.

        Plans are carried out in the order in which they were made, as far as their batches come along.
        """
        if times < 1:
            raise ValueError(f"times: at least 1, not {times!r}")
        if fault is Fault.FAILOVER and self._failover is None:
            raise ValueError("fault: for Fault.FAILOVER, pass lose= to the FaultyEngine")
        self._planned.extend([_Planned(fault, on)] * times)

    def pause(self, *, before_effect: bool = False) -> None:
        """Hold back all answers and hints from now on, as a network that stalls does.

        With `before_effect` the operations themselves wait too, as in the buffer of a server that is stopped: they take
        effect, in their order, when it goes on.
        """
        self._paused = self._paused or anyio.Event()
        self._before_effect = before_effect

    def pause_session(self, session: str) -> None:
        """Hold back what comes from one session, and the hints for its process, as if the process was frozen (SIGSTOP).

        What it sends takes effect when it goes on, however late; what the same store sends later waits behind it.
        `session` is the id of a session, or the name of a process (`store.process`) for all of its sessions.
        """
        self._frozen.setdefault(session, anyio.Event())

    def resume_session(self, session: str) -> None:
        """Let go what was held back of a session."""
        if (frozen := self._frozen.pop(session, None)) is not None:
            frozen.set()
            self._deliver_held_back()

    def resume(self) -> None:
        """Let everything that was held back go, of all sessions too, and the link work again."""
        paused, self._paused = self._paused, None
        self._before_effect = False
        if paused is not None:
            paused.set()
        for session in list(self._frozen):
            self.resume_session(session)
        self._deliver_held_back()

    def jump(self, seconds: Seconds) -> None:
        """Have the clock of the engine inside leap, forwards or (below 0) backwards; the stores' clock stays.

        Raises `RuntimeError` if this object was made without `clock`. A server's clock cannot be moved from here.
        """
        if self._clock is None:
            raise RuntimeError(
                f"jump: the clock of {self.url} cannot be moved; pass the same clock=LeapingClock() to an engine that"
                " takes one and to the FaultyEngine"
            )
        self._clock.jump(seconds)

    def link(self) -> BatchLink:
        """A link for one store."""
        return BatchLink(self)

    def submit(self, operation: e.Operation[Any], on_answer: Callable[[Any], object], /) -> None:
        """Refuse: a store submits to a link of its own. Raises `RuntimeError`."""
        del on_answer
        raise RuntimeError(f"{self.url}: submit {operation!r} to a link of this engine, which `link()` makes")

    async def execute(self, operations: Sequence[e.Operation[Any]], /) -> Sequence[Any]:
        """Apply one batch as far as the faults let it. Raises `StoreUnavailable`.

        Cancellation: they may or may not have been applied.
        """
        self.batches += 1
        fault = self._next(operations)
        if fault is Fault.DELAY:
            await anyio.sleep(self._delay)
        if fault is Fault.REORDER:
            self._overtaking = self._overtaking or anyio.Event()
            with anyio.move_on_after(self._delay):
                await self._overtaking.wait()
        while (held := self._holding(operations)) is not None:
            await held.wait()
        if self._failover is not None:
            if fault is Fault.FAILOVER:
                self._engine = self._failover.replica(self._random, self.url)
            await self._failover.up()
        if fault in {Fault.LOST_REQUEST, Fault.CUT, Fault.FAILOVER}:
            if fault is Fault.CUT:
                await self._apply(operations[: self._random.randrange(len(operations))])
            else:
                await anyio.lowlevel.checkpoint()
            raise StoreUnavailable(f"{self.url}: {fault.value}")
        answers = await self._apply(operations)
        if self._overtaking is not None:
            self._overtaking.set()
            self._overtaking = None
        if fault is Fault.DUPLICATE:
            answers = await self._apply(operations)
        while self._paused is not None:
            await self._paused.wait()
        if fault is Fault.LOST_REPLY:
            raise StoreUnavailable(f"{self.url}: {fault.value}")
        return answers

    async def serve(
        self,
        process: str,
        deliver: Callable[[e.Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Deliver the hints for `process`, apart from those that get lost.

        Cancellation: this is how it ends.
        """
        hints = partial(self._deliver, deliver)
        if (failover := self._failover) is None:
            await self._engine.serve(process, hints, task_status=task_status)
            return
        is_open = False
        while True:
            async with unwrapped_task_group() as group:
                over = failover.over
                await group.start(self._engine.serve, process, hints)
                if is_open:
                    deliver(e.Hint(process, "", "", e.Notice.MISSED))
                else:
                    is_open = True
                    task_status.started()
                await over.wait()
                group.cancel_scope.cancel()
            deliver(e.Hint(process, "", "", e.Notice.LOST))
            await failover.up()

    def __repr__(self) -> str:
        state = " paused" if self._paused or self._frozen else ""
        return f"<FaultyEngine{state} batches={self.batches} suffered={dict(self.suffered)} over {self._engine!r}>"

    async def _apply(self, operations: Sequence[e.Operation[Any]]) -> Sequence[Any]:
        if self._failover is not None:
            self._failover.note(operations)
        return await self._engine.execute(operations)

    def _holding(self, operations: Sequence[e.Operation[Any]]) -> anyio.Event | None:
        if self._before_effect:
            return self._paused
        for session, frozen in self._frozen.items():
            if any(_is_of(session, operation) for operation in operations):
                return frozen
        return None

    def _deliver(self, deliver: Callable[[e.Hint], None], hint: e.Hint) -> None:
        fault = self._next(())
        if fault is Fault.LOST_HINT:
            return
        for _ in range(2 if fault is Fault.DUPLICATE_HINT else 1):
            self._pass_on(deliver, hint)

    def _pass_on(self, deliver: Callable[[e.Hint], None], hint: e.Hint) -> None:
        if self._paused is not None or any(_is_for(hint, session) for session in self._frozen):
            self._held_back.append((deliver, hint))
        else:
            deliver(hint)

    def _deliver_held_back(self) -> None:
        held_back, self._held_back = self._held_back, []
        for deliver, hint in held_back:
            self._pass_on(deliver, hint)

    def _next(self, operations: Sequence[e.Operation[Any]]) -> Fault | None:
        fault = self._next_planned(operations) or self._draw(hint=not operations)
        if fault is not None:
            self.suffered[fault] += 1
        return fault

    def _next_planned(self, operations: Sequence[e.Operation[Any]]) -> Fault | None:
        for planned in self._planned:
            if (planned.fault in _OF_HINTS) == (not operations) and (
                planned.on is None or any(isinstance(operation, planned.on) for operation in operations)
            ):
                self._planned.remove(planned)
                return planned.fault
        return None

    def _draw(self, *, hint: bool) -> Fault | None:
        share = self._random.random()
        for fault, rate in self._rates.items():
            if (fault in _OF_HINTS) == hint:
                share -= rate
                if share < 0:
                    return fault
        return None


def _is_of(session: str, operation: e.Operation[Any]) -> bool:
    names = (getattr(operation, field, "") for field in _NAMES)
    # As stores make them: process/session.name
    return any(name == session or name.startswith((f"{session}.", f"{session}/")) for name in names)


def _is_for(hint: e.Hint, session: str) -> bool:
    return session == hint.process or session.startswith(f"{hint.process}/")
