"""The states of a circuit breaker: a machine without I/O, without a clock, and without tasks.

    closed --a rate is reached--> open --open_seconds pass, a call comes--> half_open --good probes--> closed
                                   ^                                            |
                                   +----------------bad probes-----------------+

A call that is admitted gets a *permit*, a number, and hands it back when it ends. While closed it is the number of
this *era*, which ends with the state; a probe gets a number of its own. So a stale outcome is recognised and dropped.
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias

from tenure.local._breaker_window import SLOW, CountWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.local._breaker_settings import Settings
    from tenure.local._breaker_window import TimeWindow

State: TypeAlias = Literal["closed", "open", "half_open", "forced_open", "disabled", "metrics_only"]

REFUSED = 0
ROUNDING = 1e-6  # a caller that slept for `retry_after` must not be too early
UNSEEN = -1  # the permit of a disabled breaker: the outcome is not recorded


class States:
    __slots__ = (
        "_backoff",
        "_era",
        "_numbers",
        "_on_change",
        "_open_for",
        "_opened_at",
        "_slow_seconds",
        "dropped",
        "opened",
        "passing",
        "probes",
        "refused",
        "settings",
        "state",
        "timed",
        "window",
    )

    state: State
    """The state as the last call left it: an open breaker becomes half open when a call comes after its time."""
    passing: int
    """The permit of each call in a state that lets all calls in, else REFUSED."""
    timed: bool
    """True if the times of all calls count in this state.

    Otherwise the beginnings of calls may be any numbers, and the ends of successful calls while no call in the window
    has failed.
    """
    window: CountWindow | TimeWindow
    """The calls of this era: the probes while half open, the calls that opened it while open."""
    probes: dict[int, float]
    """The permits of the probes that are under way, and since when, the eldest first."""
    refused: int
    dropped: int
    opened: int

    def __init__(self, settings: Settings, on_change: Callable[[State, State], None]) -> None:
        self.settings = settings
        self._slow_seconds = settings.slow_call_seconds
        self._on_change = on_change
        self._numbers = count(1)
        self.probes = {}
        self.refused = self.dropped = self.opened = 0
        self._opened_at = self._open_for = 0.0
        self.state = "closed"
        self._begin("closed")

    @property
    def enough_calls(self) -> int:
        if self.state == "open":
            return 1  # they have been judged; probes are before all of them have ended
        return self.settings.probes if self.state == "half_open" else self.settings.enough_calls

    def admit(self, now: float) -> int:
        """Admit a call and return its permit; REFUSED (0, the only false one) if it is refused."""
        if self.passing:
            return self.passing
        if self.state == "open":
            # another loop may have another clock: never longer than was meant
            self._opened_at = min(self._opened_at, now)
            if self.retry_after(now) <= ROUNDING:
                self._begin("half_open")
        if self.state == "half_open":
            self._take_back(now)
            if len(self.probes) + self.window.calls < self.settings.probes:
                permit = next(self._numbers)
                self.probes[permit] = now
                return permit
        self.refused += 1
        return REFUSED

    def settle(self, permit: int, since: float, now: float, failed: bool | None) -> None:
        if permit != self._era:
            self._settle_probe(permit, since, now, failed)
        elif failed is not None:
            window = self.window
            mark = failed if now - since <= self._slow_seconds else failed | SLOW
            window.add(mark, now)
            if (window.failures or window.slow) and self.state == "closed":
                self._judge(window, now)

    def change(self, state: Literal["closed", "forced_open", "disabled", "metrics_only"]) -> None:
        self._begin(state)

    def retry_after(self, now: float) -> float:
        """Seconds until a call that is refused at `now` may be let in; while half open, at most these."""
        if self.state == "open":
            return max(0.0, self._opened_at + self._open_for - now)
        if self.probes:
            return max(0.0, next(iter(self.probes.values())) + self.settings.probe_seconds - now)
        return inf

    def _begin(self, state: State) -> None:
        old, self.state = self.state, state
        self.probes.clear()
        self._era = next(self._numbers)
        self.passing = REFUSED
        if state in {"closed", "metrics_only"}:
            self.passing = self._era
        elif state == "disabled":
            self.passing = UNSEEN
        self.timed = not self.passing or self.settings.timed
        if state not in {"open", "half_open"}:
            self._backoff = self.settings.open_seconds
            self.window = self.settings.empty_window()
        elif state == "half_open":
            self.window = CountWindow(self.settings.probes)
        if old != state:
            self._on_change(old, state)

    def _judge(self, window: CountWindow | TimeWindow, now: float) -> None:
        settings = self.settings
        if window.calls >= settings.enough_calls and settings.reached(
            window.calls, window.failures, window.slow
        ):
            self._open(now)

    def _open(self, now: float) -> None:
        settings = self.settings
        self.opened += 1
        self._opened_at = now
        self._open_for = self._backoff
        self._backoff = min(self._backoff * settings.open_factor, settings.max_open_seconds or inf)
        self._begin("open")

    def _take_back(self, now: float) -> None:
        while self.probes and self.retry_after(now) <= ROUNDING:
            del self.probes[next(iter(self.probes))]

    def _settle_probe(self, permit: int, since: float, now: float, failed: bool | None) -> None:
        if permit not in self.probes:
            self.dropped += permit != UNSEEN and failed is not None
            return
        del self.probes[permit]
        if failed is None:
            return
        window, settings = self.window, self.settings
        window.add(failed if now - since <= self._slow_seconds else failed | SLOW, now)
        # decided as soon as the outcomes that are still missing cannot change it
        missing = settings.probes - window.calls
        if settings.reached(settings.probes, window.failures, window.slow):
            self._open(now)
        elif not settings.reached(settings.probes, window.failures + missing, window.slow + missing):
            self._begin("closed")
