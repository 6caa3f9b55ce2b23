"""A director that leaves everything to chance, or to a record of choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._director import Director

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._director import Block

LATENESS = 0.1
# How likely it is, in runs of each kind, that something is cancelled in one turn of the loop: one in this many.
INTENSITIES = (0, 16, 3)
# In which turn the whole scenario is cancelled, where it is.
FIRST_TURNS = 24


class ChanceDirector(Director):
    """Draws what happens by calls of `choose(n)`, which answers from 0 to n-1; always 0 is the most natural run.

    `reorder`: the tasks that are ready take their steps in any order. `scoped` and `native`: cancellations happen, by
    scopes and by the tasks' own `cancel()`.
    """

    newcomers_wait = False
    lateness = LATENESS

    def __init__(
        self,
        choose: Callable[[int], int],
        *,
        reorder: bool,
        scoped: bool,
        native: bool,
        tracing: bool = False,
    ) -> None:
        super().__init__(tracing=tracing)
        self._choose = choose
        self._reorder = reorder
        self._scoped = scoped
        self._native = native
        cancel = scoped or native
        self._intensity = INTENSITIES[choose(len(INTENSITIES))] if cancel else 0
        self._whole_in = choose(FIRST_TURNS) if cancel and choose(4) == 3 else -1
        self._victim: Block | None = None
        self._steps_before = 0

    @property
    def choose(self) -> Callable[[int], int] | None:
        return self._choose

    def arrange(self, tasks: Sequence[object | None], *, now: float) -> Sequence[int]:
        super().arrange(tasks, now=now)
        order = self._shuffled(tasks) if self._reorder else range(len(tasks))
        self._victim = self._drawn_victim()
        if self._victim is not None:
            self._steps_before = self._choose(len(tasks))
        return order

    def before_step(self, task: object | None, *, now: float) -> None:
        if self._victim is not None:
            if self._steps_before == 0:
                self._cancel()
            self._steps_before -= 1
        super().before_step(task, now=now)

    def idle(self) -> bool:
        self._victim = self._drawn_victim()
        return self._cancel()

    def late(self, timers: Sequence[float]) -> int:
        return self._choose(len(timers))

    def hurry(self, timers: Sequence[float]) -> int | None:
        # Natural is that no time passes; the more, the less likely.
        chosen = self._choose(2 + 2 * len(timers)) - 2 - len(timers)
        return chosen if chosen >= 0 else None

    def _shuffled(self, tasks: Sequence[object | None]) -> list[int]:
        # What the loop calls itself keeps its order; the tasks stand in the order of their creation.
        callbacks = [place for place, task in enumerate(tasks) if task is None]
        steps = sorted(
            (place for place, task in enumerate(tasks) if task is not None),
            key=lambda place: self.number(tasks[place]),
        )
        callbacks.reverse()
        order: list[int] = []
        for _ in tasks:
            chosen = self._choose(len(steps) + bool(callbacks)) - bool(callbacks)
            order.append(callbacks.pop() if chosen < 0 else steps.pop(chosen))
        return order

    def _drawn_victim(self) -> Block | None:
        if self._whole_in >= 0 and not any(block.cancelled_natively for block in self.blocks):
            self._whole_in -= 1
            if self._whole_in < 0:
                return self.whole
        if self._intensity:
            victims = [block for block in self.blocks if not block.cancel_called]
            if victims and self._choose(self._intensity) == self._intensity - 1:
                return victims[self._choose(len(victims))]
        return None

    def _cancel(self) -> bool:
        victim, self._victim = self._victim, None
        if victim is None or victim.cancel_called:
            return False
        if victim is self.whole:
            native = not self._scoped
        elif victim in self.blocks:
            native = self._native and self._natively()
        else:
            return False
        self.cancel(victim, native=native)
        return True

    def _natively(self) -> bool:
        if not self._scoped:
            return True
        # Never both kinds at once: asyncio would make one error of them.
        whole = self.whole is not None and self.whole.cancel_called
        return not whole and self._choose(3) == 2
