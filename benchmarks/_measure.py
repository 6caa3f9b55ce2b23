"""How a figure comes about: rounds in which ours and the peers take turns, the median of each, and the rows."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isnan, nan
from statistics import median
from typing import Any, TypeVar

import anyio

T = TypeVar("T")
Row = dict[str, Any]
Result = dict[str, Any]
"""The figures of a contestant that runs in a process of its own; "missing" says why there are none."""

LONG = bool(os.environ.get("TENURE_LONG"))
"""Whether to measure what takes an hour in all."""

LOOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}


@dataclass(frozen=True)
class Size:
    """How much a run measures: "smoke" only sees that all works, "quick" is small, "full" is what counts."""

    name: str
    rounds: int
    peers: bool = True
    """False: only ours is measured; the figures of peers are NaN."""

    @property
    def smoke(self) -> bool:
        return self.name == "smoke"

    def of(self, smoke: T, quick: T, full: T) -> T:
        """The one of three that belongs to this size."""
        return {"smoke": smoke, "quick": quick, "full": full}[self.name]

    @property
    def loops(self) -> list[str]:
        """The loops for works that take long: all in a full run only."""
        return list(LOOPS) if self.name == "full" else ["asyncio"]


SIZES = {size.name: size for size in (Size("smoke", 1), Size("quick", 2), Size("full", 3))}


@dataclass(frozen=True)
class Figure:
    """What a contestant gave in each round, and the CPU seconds of this process that the round cost."""

    values: Sequence[float]
    cpus: Sequence[float] = ()

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def cpu(self) -> float | None:
        return median(self.cpus) if self.cpus else None


MISSING = Figure([nan])
NOBODY = "no peer"


def below_noise(figure: Figure) -> bool:
    """Whether a difference is not above zero by more than its rounds differ; a missing figure is not."""
    if figure is MISSING:
        return False
    if any(map(isnan, figure.values)):
        return True
    return figure.value <= max(figure.values) - min(figure.values)


def on_loop(loop: str, fn: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
    """Run `fn(*args, **options)` on one of LOOPS and return what it returns."""
    backend, backend_options = LOOPS[loop]
    return anyio.run(partial(fn, *args, **options), backend=backend, backend_options=backend_options)


def interleaved(
    contestants: Mapping[str, Callable[[], float]], size: Size, *, rounds: int | None = None
) -> dict[str, Figure]:
    """Let every contestant give its figure once a round, in turn.

    The names of ours begin with "ours".
    """
    measured = {name: one for name, one in contestants.items() if size.peers or name.startswith("ours")}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    for _ in range(rounds or size.rounds):
        for name, contestant in measured.items():
            began = time.process_time()
            value = contestant()
            seen[name].append((value, time.process_time() - began))
    figures = {name: Figure(*zip(*each, strict=True)) for name, each in seen.items()}
    return {name: figures.get(name, MISSING) for name in contestants}


def row(
    work: str,
    loop: str,
    figures: Mapping[str, Figure],
    peer_name: str,
    *,
    unit: str = "1/s",
    less_is_better: bool = False,
    goal: str = "",
    missing: str = "",
    shown: str = "",
    x: float | None = None,
    difference: bool = False,
) -> Row:
    """One line: the figure called "ours" beside that of `peer_name`; a ratio above 1 is better.

    `missing` says in a word or two why the peer has no figure, `shown` is another name for it, and `x` is what
    grows from line to line. Figures that are a `difference` of two are left out if they are below the noise.
    """
    ours, peer = figures["ours"], figures[peer_name]
    if difference:
        if not missing and below_noise(ours):
            missing = "ours is below the noise"
        elif not missing and below_noise(peer):
            missing = "below the noise"
        ours, peer = (MISSING if below_noise(figure) else figure for figure in (ours, peer))
    ratios = [
        _ratio(theirs, own) if less_is_better else _ratio(own, theirs)
        for own, theirs in zip(ours.values, peer.values, strict=False)
    ]
    made: Row = {
        "work": work,
        "loop": loop,
        "ours": ours.value,
        "peer": peer.value,
        "peer_name": shown or peer_name,
        "ratio": _ratio(peer.value, ours.value) if less_is_better else _ratio(ours.value, peer.value),
        "unit": unit,
        "less_is_better": less_is_better,
        "goal": goal,
        "ours_range": [min(ours.values), max(ours.values)],
    }
    if len(ratios) > 1:
        made["ratio_range"] = [min(ratios), max(ratios)]
    if difference:
        made["difference"] = True
    more = {"cpu": ours.cpu, "peer_cpu": peer.cpu, "missing": missing or None, "x": x}
    return made | {key: value for key, value in more.items() if value is not None}


def alone(
    work: str,
    loop: str,
    values: Sequence[float],
    *,
    unit: str = "",
    goal: str = "",
    x: float | None = None,
) -> Row:
    """A line without a peer."""
    figures = {"ours": Figure(values), NOBODY: MISSING}
    return row(work, loop, figures, NOBODY, unit=unit, less_is_better=unit != "1/s", goal=goal, x=x)


def _ratio(above: float, below: float) -> float:
    if below == 0:
        return 1.0 if above == 0 else inf
    return above / below


def in_turn(
    contestants: Sequence[tuple[str, str]], measure: Callable[[str, str], Result], rounds: int
) -> dict[tuple[str, str], list[Result]]:
    """The results of (module, loop) in each round; a contestant that could not run is not asked again."""
    seen: dict[tuple[str, str], list[Result]] = {contestant: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant, results in seen.items():
            if not (results and "missing" in results[-1]):
                results.append(measure(*contestant))
    return seen


def figure_of(results: Sequence[Result], key: str, scale: float = 1) -> Figure:
    """One of the figures of a contestant that ran in a process of its own."""
    values = [scale * result[key] for result in results if key in result]
    return Figure(values) if values else MISSING
