"""Running a scenario under many schedules, on both loops, and reporting the schedule that breaks it."""

from __future__ import annotations

import binascii
import gc
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from time import monotonic

from tenure.arguments import Seconds, seconds_of
from tenure.upkeep import leaves

from ._chance import ChanceDirector
from ._report import first_line, report
from ._runs import ASYNCIOS_OWN, By, checked_backends, is_asyncios_own, run_once, why_alone, without_asyncio
from ._shrink import Made, shrunk

SEEDS = 200
Scenario = Callable[[], Awaitable[object]]


class ScheduleFailed(AssertionError):
    """A scenario failed under a schedule that was found for it; the scenario's own error is the `__cause__`.

    `replay()` takes `seed` and `backend` to repeat it. `schedule` is the shortest schedule found that fails in the same
    way, and may replace the seed; `trace` shows the run under it.
    """

    def __init__(self, message: str, *, seed: int | str, schedule: str, backend: str, trace: str) -> None:
        super().__init__(message)
        self.seed = seed
        self.schedule = schedule
        self.backend = backend
        self.trace = trace


@dataclass(frozen=True)
class Exploration:
    """The size of an exploration that found nothing: runs on the `backends`, and all the steps of tasks in them.

    `interleavings` counts, for each loop, the different orders in which tasks took their steps and were cancelled;
    `newest` is the last run (from 1) that showed a new one. `note` says why trio was left out, if nobody asked for
    that.
    """

    runs: int
    steps: int
    backends: tuple[str, ...]
    note: str = ""
    interleavings: Mapping[str, int] = field(default_factory=dict[str, int])
    newest: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class _Ways:
    strict: bool
    cancel: By

    def director(
        self, backend: str, choose: Callable[[int], int], *, tracing: bool = False
    ) -> ChanceDirector:
        return ChanceDirector(
            choose,
            # Trio promises no order even without us.
            reorder=not self.strict or backend == "trio",
            scoped=self.cancel in {True, "scope"},
            native=self.cancel in {True, "native"} and backend == "asyncio",
            tracing=tracing,
        )

    def __str__(self) -> str:
        return (", strict=True" if self.strict else "") + (
            "" if self.cancel is True else f", cancel={self.cancel!r}"
        )


def explore(
    scenario: Scenario,
    *,
    seeds: int | Iterable[int] | None = None,
    seconds: Seconds | None = None,
    backends: Sequence[str] | None = None,
    strict: bool = False,
    cancel: By = True,
) -> Exploration:
    """Run `scenario` under many schedules, in virtual time, and raise `ScheduleFailed` for the first that breaks it.

        def test_nobody_waits_for_ever():
            explore(scenario, seeds=500)

    - `scenario`: an async function without arguments that makes everything anew, and asserts. It fails by any error, by
      a deadlock, by not ending, or by leaving a task behind.
    - `seeds`: the number of schedules on each loop, or the seeds; the same seed is the same schedule. 200 without
      `seconds`.
    - `seconds`: how long to try, in real time.
    - `backends`: "asyncio", "trio"; by default those that are installed.
    - `strict` keeps asyncio's order of ready tasks, and varies only time and cancellation.
    - `cancel`: blocks marked by `cancellable()` are cancelled, and in one run of four the scenario; "scope" and
      "native" leave out the other way.

    Raises `ValueError` for bad arguments, `ModuleNotFoundError` for trio where it is missing, and `RuntimeError` inside
    of a running loop.

    Source: Coyote, Shuttle and trio's own deterministic scheduling; the cancellations of python/cpython#90155, anyio
    #947, #1145.
    """
    __tracebackhide__ = True
    seconds = seconds_of(seconds)
    numbers, loops = _checked(seeds, seconds), checked_backends(backends, cancel)
    note = why_alone(backends, loops, cancel)
    ways = _Ways(strict, cancel)
    share = math.inf if seconds is None else seconds / len(loops)
    runs = steps = 0
    interleavings: dict[str, int] = {}
    newest: dict[str, int] = {}
    for backend in loops:
        seen: set[int] = set()
        until = monotonic() + share
        with without_asyncio(backend):
            for number, seed in enumerate(numbers(), 1):
                director, error, choices = _run(scenario, backend, ways, _drawing(seed))
                if error is not None:
                    if not is_asyncios_own(backends, backend, error):
                        raise _failure(scenario, seed, backend, ways, error, choices, note) from error
                    loops, note, error = ("asyncio",), ASYNCIOS_OWN, None
                    # Now, while nobody is warned of coroutines that it could not start.
                    gc.collect()
                    break
                runs += 1
                steps += director.steps
                if director.interleaving not in seen:
                    seen.add(director.interleaving)
                    interleavings[backend], newest[backend] = len(seen), number
                if monotonic() > until:
                    break
    return Exploration(runs, steps, loops, note, interleavings, newest)


def replay(
    scenario: Scenario, seed: int | str, backend: str, *, strict: bool = False, cancel: By = True
) -> str:
    """Run `scenario` once, under the schedule of a seed (or of `ScheduleFailed.schedule`), and return the trace.

    The other arguments are those of `explore()`. Raises `ScheduleFailed` if it fails again.
    """
    __tracebackhide__ = True
    checked_backends([backend], cancel)
    ways = _Ways(strict, cancel)
    choose = _drawing(seed) if isinstance(seed, int) else _repeating(_decoded(seed))
    director, error, choices = _run(scenario, backend, ways, choose, tracing=True)
    schedule = _encoded(choices)
    if error is not None:
        message = report(error, backend, director.trace, notes=[f"seed={seed!r}"])
        raise ScheduleFailed(
            message, seed=seed, schedule=schedule, backend=backend, trace=_text(director)
        ) from error
    return _text(director)


def _run(
    scenario: Scenario, backend: str, ways: _Ways, choose: Callable[[int], int], *, tracing: bool = False
) -> tuple[ChanceDirector, BaseException | None, list[int]]:
    choices: list[int] = []

    def chosen(n: int) -> int:
        if n <= 1:
            return 0
        choice = choose(n)
        choices.append(choice)
        return choice

    director = ways.director(backend, chosen, tracing=tracing)
    return director, run_once(scenario, backend, director), choices


def _failure(
    scenario: Scenario,
    seed: int,
    backend: str,
    ways: _Ways,
    error: BaseException,
    choices: list[int],
    note: str,
) -> ScheduleFailed:
    kinds = {type(each) for each in leaves(error)}

    def fails(choices: Sequence[int]) -> Made | None:
        director, problem, made = _run(scenario, backend, ways, _repeating(choices))
        same = problem is not None and type(next(leaves(problem))) in kinds
        return (director.switches, made) if same else None

    shortest = choices
    if (first := fails(choices)) is not None:
        shortest = shrunk(fails, first)
    director, again, choices = _run(scenario, backend, ways, _repeating(shortest), tracing=True)
    schedule = _encoded(choices)
    notes = [
        f"repeat it with: replay(scenario, {schedule!r}, {backend!r}{ways})",
        f"found by seed={seed}: replay(scenario, {seed}, {backend!r}{ways})",
    ]
    if again is None:
        notes.append("this time it did not fail: the scenario depends on something besides the schedule")
    elif first_line(again) != (then := first_line(error)):
        notes.append(f"found with another error: {then}")
    if note:
        notes.append(note)
    message = report(again or error, backend, director.trace, notes=notes)
    return ScheduleFailed(message, seed=seed, schedule=schedule, backend=backend, trace=_text(director))


def _drawing(seed: int) -> Callable[[int], int]:
    draw = Random(seed).random
    return lambda n: int(draw() * n)


def _repeating(choices: Sequence[int]) -> Callable[[int], int]:
    remaining = iter(choices)
    return lambda n: min(next(remaining, 0), n - 1)


def _encoded(choices: Sequence[int]) -> str:
    numbers = bytes(min(choice, 255) for choice in choices).rstrip(b"\0") or b"\0"
    return urlsafe_b64encode(numbers).decode().rstrip("=")


def _decoded(schedule: str) -> bytes:
    try:
        return urlsafe_b64decode(schedule + "=" * (-len(schedule) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(
            f"seed: a number, or a schedule as ScheduleFailed reports it, not {schedule!r}"
        ) from error


def _text(director: ChanceDirector) -> str:
    return "" if director.trace is None else director.trace.text()


def _checked(seeds: int | Iterable[int] | None, seconds: float | None) -> Callable[[], Iterable[int]]:
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds: more than zero, not {seconds!r}")
    if seeds is None and seconds is not None:
        return count
    numbers = list(range(SEEDS if seeds is None else seeds) if isinstance(seeds, int | None) else seeds)
    if not numbers:
        raise ValueError(f"seeds: how many (at least 1) or which, not {seeds!r}")
    return lambda: numbers
