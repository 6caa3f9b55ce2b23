from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from tenure.waiting import loop_caller


class Pulse:
    """Asks the loop on which it was made for a sign of life, which brings the result of `problem()` there.

    Thread safety: `ask` belongs to one thread; the rest is for any.
    """

    def __init__(self, problem: Callable[[], str | None]) -> None:
        self._problem = problem
        self._on_loop = loop_caller()
        self._asked: float | None = None
        self.seen: str | None = "starting"

    def ask(self) -> None:
        """Ask for a sign of life, unless one is awaited already. Raises `RuntimeError` when the loop has ended."""
        if self._asked is None:
            self._asked = monotonic()
            self._on_loop(self._answer)

    def silence(self) -> float:
        """The seconds for which the loop has not answered; 0 if no answer is awaited."""
        asked = self._asked
        return 0.0 if asked is None else monotonic() - asked

    def _answer(self) -> None:
        self.seen = self._problem()
        self._asked = None
