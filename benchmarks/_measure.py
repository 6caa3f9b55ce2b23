"""How a figure comes about: rounds in which ours and the peers take turns, and the median of each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

T = TypeVar("T")

LOOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
ROUNDS = 3


@dataclass(frozen=True)
class Figure:
    """The median of what a contestant gave, and of the CPU seconds of this process that a round cost."""

    value: float
    cpu: float


def on_loop(loop: str, fn: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
    """Run `fn(*args, **options)` on one of LOOPS and return what it returns."""
    backend, backend_options = LOOPS[loop]
    return anyio.run(partial(fn, *args, **options), backend=backend, backend_options=backend_options)


def interleaved(contestants: Mapping[str, Callable[[], float]], *, rounds: int = ROUNDS) -> dict[str, Figure]:
    """Let every contestant give its figure once a round, in turn, and take the median of each."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            began = time.process_time()
            value = contestant()
            seen[name].append((value, time.process_time() - began))
    return {
        name: Figure(median(value for value, _ in each), median(cpu for _, cpu in each))
        for name, each in seen.items()
    }


def row(
    work: str,
    loop: str,
    figures: Mapping[str, Figure],
    peer_name: str,
    *,
    unit: str = "1/s",
    less_is_better: bool = False,
    goal: str = "",
) -> dict[str, Any]:
    """One line of the table: the figure called "ours" beside that of `peer_name`; a ratio above 1 is better."""
    ours, peer = figures["ours"], figures[peer_name]
    return {
        "work": work,
        "loop": loop,
        "ours": ours.value,
        "peer": peer.value,
        "peer_name": peer_name,
        "ratio": peer.value / ours.value if less_is_better else ours.value / peer.value,
        "unit": unit,
        "goal": goal,
        "cpu": ours.cpu,
        "peer_cpu": peer.cpu,
    }
