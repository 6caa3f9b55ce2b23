"""The line of waiters against anyio's locks: taking a free slot, handing over, and leaving in masses.

All figures are medians of three rounds in which ours and the peers take turns. ``ratio`` says how many times
as good as the peer we are, above 1 is better; the bare checkpoint is a floor that no lock with a full
checkpoint can pass.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from tenure.local._slots import Slots

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Pair = tuple[Callable[[], Awaitable[None]], Callable[[], None]]
    Work = tuple[str, Callable[..., Awaitable[float]], int, str, dict[str, Callable[[], Pair]]]

LOOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
ROUNDS = 3
OURS = "ours"


def ours() -> Pair:
    """One slot of ours."""
    slots = Slots(1)
    return slots.take, slots.give_back


def anyio_lock() -> Pair:
    """The lock of anyio."""
    lock = anyio.Lock()
    return lock.acquire, lock.release


def anyio_semaphore() -> Pair:
    """A semaphore of anyio, of one."""
    semaphore = anyio.Semaphore(1)
    return semaphore.acquire, semaphore.release


def bare_checkpoint() -> Pair:
    """No lock at all."""
    return anyio.lowlevel.checkpoint, lambda: None


async def uncontended(make: Callable[[], Pair], times: int) -> float:
    """Take and give back in one task, per second."""
    take, give_back = make()
    start = perf_counter()
    for _ in range(times):
        await take()
        give_back()
    return times / (perf_counter() - start)


async def handed_over(make: Callable[[], Pair], waiters: int) -> float:
    """Let tasks that wait already go one by one, per second."""
    take, give_back = make()

    async def wait() -> None:
        await take()
        give_back()

    await take()
    async with anyio.create_task_group() as group:
        for _ in range(waiters):
            group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        start = perf_counter()
        give_back()
    return waiters / (perf_counter() - start)


async def cancelled(make: Callable[[], Pair], waiters: int) -> float:
    """Cancel all who wait, the last first: seconds until they are gone."""
    take, give_back = make()
    scopes: list[anyio.CancelScope] = []

    async def wait() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await take()

    await take()
    async with anyio.create_task_group() as group:
        for _ in range(waiters):
            group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        start = perf_counter()
        for scope in reversed(scopes):
            scope.cancel()
    seconds = perf_counter() - start
    give_back()
    return seconds


def works(*, smoke: bool) -> list[Work]:
    """What is measured: name, function, size, unit, and the peers by name."""
    less = 100 if smoke else 1
    lock = {"anyio.Lock": anyio_lock}
    return [
        (
            "take and give back",
            uncontended,
            50_000 // less,
            "1/s",
            lock | {"bare checkpoint": bare_checkpoint},
        ),
        (
            "20,000 cancelled backwards",
            cancelled,
            20_000 // less,
            "s",
            lock | {"anyio.Semaphore": anyio_semaphore},
        ),
        ("1,000 handed over", handed_over, 1_000 // less, "1/s", lock),
        ("10,000 handed over", handed_over, 10_000 // less, "1/s", lock),
    ]


def run(smoke: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for work, measure, size, unit, peers in works(smoke=smoke):
        for loop, (backend, options) in LOOPS.items():
            figures: dict[str, list[float]] = {name: [] for name in (OURS, *peers)}
            for _ in range(1 if smoke else ROUNDS):
                for name, make in {OURS: ours, **peers}.items():
                    figure = anyio.run(measure, make, size, backend=backend, backend_options=options)
                    figures[name].append(figure)
            mine = median(figures[OURS])
            for name in peers:
                peer = median(figures[name])
                ratio = peer / mine if unit == "s" else mine / peer
                rows.append(
                    {
                        "work": work,
                        "loop": loop,
                        "ours": mine,
                        "peer": peer,
                        "peer_name": name,
                        "ratio": ratio,
                        "unit": unit,
                    }
                )
    return rows


def main() -> None:
    """Print a table."""
    print(f"{'work':28}{'loop':9}{'ours':>12}{'peer':>12}  {'unit':5}{'ratio':>6}  peer")
    for row in run(smoke=False):
        digits = ",.3f" if row["unit"] == "s" else ",.0f"
        mine, peer = format(row["ours"], digits), format(row["peer"], digits)
        print(
            f"{row['work']:28}{row['loop']:9}{mine:>12}{peer:>12}  {row['unit']:5}"
            f"{row['ratio']:>6.2f}  {row['peer_name']}"
        )


if __name__ == "__main__":
    main()
