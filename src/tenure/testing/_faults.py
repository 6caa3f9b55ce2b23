"""An engine whose link fails: slow, cut before or after the effect, doubled, paused; and whose hints get lost."""

from __future__ import annotations

from collections import Counter, deque
from enum import Enum
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import anyio
import anyio.lowlevel
from anyio import TASK_STATUS_IGNORED

from tenure.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from anyio.abc import TaskStatus

    from tenure.engine import A, Engine, Hint, Operation


class Fault(Enum):
    """What can happen to a batch of operations on its way, or to a hint."""

    LOST_REQUEST = "lost request"
    """It never arrives: nothing is applied, the sender is told that the engine is unreachable."""

    CUT = "cut"
    """The link breaks in the middle: the first few operations are applied, the sender gets no answer at all."""

    LOST_REPLY = "lost reply"
    """All of it is applied, but the sender gets no answer."""

    DUPLICATE = "duplicate"
    """It arrives twice: all of it is applied, then all of it again, and the second answers are the ones that count."""

    DELAY = "delay"
    """It arrives late."""

    LOST_HINT = "lost hint"
    """A hint is not delivered."""

    DUPLICATE_HINT = "duplicate hint"
    """A hint is delivered twice."""


_OF_HINTS = (Fault.LOST_HINT, Fault.DUPLICATE_HINT)


class _Planned(NamedTuple):
    fault: Fault
    on: type[Operation[Any]] | None


class FaultyEngine:
    """An engine around another one that passes everything on, except for the faults that were asked for.

    Faults come planned, one by one (`plan`), or at random: `rates` gives for each fault how likely it is to hit a batch
    (or a hint), and the same `seed` repeats the same draws. A planned fault goes first. At most one fault hits a batch.
    `delay` is how many seconds `Fault.DELAY` takes. `pause` freezes the link until `resume`.

    It is never immediate: over the memory engine too, operations travel in batches and can be cancelled on their way.
    `batches` counts what was sent, `suffered` what happened to it.

    Thread safety: none; it belongs to the event loop of the engine inside.
    """

    immediate = False

    def __init__(
        self, engine: Engine, *, seed: int = 0, rates: Mapping[Fault, float] | None = None, delay: float = 1.0
    ) -> None:
        rates = dict(rates or {})
        for kinds, name in ((_OF_HINTS, "hints"), (set(Fault) - set(_OF_HINTS), "batches")):
            if (
                not 0 <= sum(rates.get(fault, 0) for fault in kinds) <= 1
                or min(rates.values(), default=0) < 0
            ):
                raise ValueError(
                    f"rates: shares between 0 and 1, for all faults of {name} together, not {rates!r}"
                )
        if not delay >= 0:
            raise ValueError(f"delay: seconds, zero or more, not {delay!r}")
        self.batches = 0
        self.suffered: Counter[Fault] = Counter()
        self._engine = engine
        self._rates = rates
        self._delay = delay
        self._random = Random(seed)
        self._planned: deque[_Planned] = deque()
        self._paused: anyio.Event | None = None
        self._before_effect = False
        self._held_back: list[Callable[[], None]] = []

    @property
    def url(self) -> str:
        """Where the engine inside keeps its state."""
        return self._engine.url

    def plan(self, fault: Fault, *, on: type[Operation[Any]] | None = None, times: int = 1) -> None:
        """Let `fault` hit the next batch, or the next that has an operation of type `on`; `times` times.

        Plans are carried out in the order in which they were made, as far as their batches come along.
        """
        if times < 1:
            raise ValueError(f"times: at least 1, not {times!r}")
        self._planned.extend([_Planned(fault, on)] * times)

    def pause(self, *, before_effect: bool = False) -> None:
        """Hold back all answers and hints from now on, as a network that stalls does.

        With `before_effect` the operations themselves wait too, as in the buffer of a server that is stopped: they take
        effect, in their order, when it goes on.
        """
        self._paused = self._paused or anyio.Event()
        self._before_effect = before_effect

    def resume(self) -> None:
        """Let everything that was held back go, and the link work again."""
        paused, self._paused = self._paused, None
        self._before_effect = False
        held_back, self._held_back = self._held_back, []
        if paused is not None:
            paused.set()
        for deliver in held_back:
            deliver()

    def apply(self, operation: Operation[A], /) -> NoReturn:
        """Refuse: only immediate engines apply at once. Raises `RuntimeError`."""
        raise RuntimeError(f"a faulty engine is not immediate: execute {operation!r}")

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations as far as the faults let it. Raises `StoreUnavailable`.

        Cancellation: they may or may not have been applied.
        """
        self.batches += 1
        fault = self._next(operations)
        if self._before_effect:
            await self._resumed()
        if fault is Fault.DELAY:
            await anyio.sleep(self._delay)
        if fault in {Fault.LOST_REQUEST, Fault.CUT}:
            if fault is Fault.CUT:
                await self._engine.execute(operations[: self._random.randrange(len(operations))])
            else:
                await anyio.lowlevel.checkpoint()
            raise StoreUnavailable(f"{self.url}: {fault.value}")
        answers = await self._engine.execute(operations)
        if fault is Fault.DUPLICATE:
            answers = await self._engine.execute(operations)
        await self._resumed()
        if fault is Fault.LOST_REPLY:
            raise StoreUnavailable(f"{self.url}: {fault.value}")
        return answers

    async def serve(
        self,
        process: str,
        deliver: Callable[[Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Deliver the hints for `process`, apart from those that get lost.

        Cancellation: this is how it ends.
        """
        await self._engine.serve(process, partial(self._deliver, deliver), task_status=task_status)

    def __repr__(self) -> str:
        state = " paused" if self._paused else ""
        return f"<FaultyEngine{state} batches={self.batches} suffered={dict(self.suffered)} over {self._engine!r}>"

    async def _resumed(self) -> None:
        while self._paused is not None:
            await self._paused.wait()

    def _deliver(self, deliver: Callable[[Hint], None], hint: Hint) -> None:
        fault = self._next(())
        if fault is Fault.LOST_HINT:
            return
        for _ in range(2 if fault is Fault.DUPLICATE_HINT else 1):
            if self._paused is None:
                deliver(hint)
            else:
                self._held_back.append(partial(deliver, hint))

    def _next(self, operations: Sequence[Operation[Any]]) -> Fault | None:
        """The fault that hits this batch; no operations: this hint."""
        fault = self._next_planned(operations) or self._draw(hint=not operations)
        if fault is not None:
            self.suffered[fault] += 1
        return fault

    def _next_planned(self, operations: Sequence[Operation[Any]]) -> Fault | None:
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
