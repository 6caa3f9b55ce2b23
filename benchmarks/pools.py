"""The pool: checking out and returning, waiting for one's turn, and calls that are cancelled.

Of the peers for any kind of resource, generic-connection-pool is the complete one; it runs on asyncio alone, so on trio
the figures stand beside the bare checkpoint. The churn has no peer: it cancels callers at any step, in creations,
checks and bodies, and fails if a slot is lost or anything is closed while it is lent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from generic_connection_pool.asyncio import BaseConnectionManager, ConnectionPool

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local._pool import Pool

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

PEER = "generic-connection-pool"
CHECKPOINT = "bare checkpoint"
SLOTS = 10
CALLERS = 30


class Connection:
    """A resource that knows who has it."""

    def __init__(self) -> None:
        self.lent = self.closed = False


async def connect(_: object = None) -> Connection:
    """Make one, in no time."""
    return Connection()


async def disconnect(connection: Connection) -> None:
    """Close one, in no time."""
    connection.closed = True


class Manager(BaseConnectionManager[str, Connection]):
    """The same for the peer."""

    create = staticmethod(connect)

    @staticmethod
    async def dispose(_: object, connection: Connection) -> None:
        """Close one."""
        await disconnect(connection)


async def ours(calls: int, tasks: int) -> float:
    """Calls a second on our pool."""
    async with Pool(connect, close=disconnect, max_size=SLOTS) as pool:
        return await _called(pool.acquire, calls, tasks)


async def peers(calls: int, tasks: int) -> float:
    """Calls a second on the peer's pool."""
    pool = ConnectionPool(Manager(), max_size=SLOTS)
    try:
        return await _called(partial(pool.connection, "one"), calls, tasks)
    finally:
        await pool.close()


async def checkpoints(calls: int, _: int) -> float:
    """Bare checkpoints a second."""
    start = perf_counter()
    for _ in range(calls):
        await anyio.lowlevel.checkpoint()
    return calls / (perf_counter() - start)


async def _called(acquire: Any, calls: int, tasks: int) -> float:
    async def caller() -> None:
        for _ in range(calls // tasks):
            async with acquire():
                if tasks > SLOTS:
                    await anyio.lowlevel.checkpoint()  # so that the others have to wait

    async with acquire():
        pass
    start = perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(caller)
    return calls / (perf_counter() - start)


class Churn:
    """Callers that are cancelled again and again, at any step, until so many calls have ended by it."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.cancelled = 0
        self.open = self.most_open = 0
        self.scopes = [anyio.CancelScope() for _ in range(CALLERS)]
        self.random = random.Random(calls)

    async def run(self) -> float:
        """Cancelled calls a second; AssertionError if a slot is lost."""
        pool = Pool(self.create, close=self.close, check=self.check, max_size=SLOTS, check_after_idle=0)
        start = perf_counter()
        async with pool:
            async with anyio.create_task_group() as group:
                for place in range(CALLERS):
                    group.start_soon(self.caller, pool, place)
                group.start_soon(self.canceller)
            seconds = perf_counter() - start
            await self.all_slots_are_there(pool)
        assert self.open == 0, f"{self.open} were never closed"
        assert self.most_open <= SLOTS, f"{self.most_open} were open at once"
        return self.calls / seconds

    async def caller(self, pool: Pool[Connection], place: int) -> None:
        """Call until there were enough."""
        while self.cancelled < self.calls:
            with anyio.CancelScope() as scope:
                self.scopes[place] = scope
                async with self.lent(pool.acquire()):
                    await anyio.lowlevel.checkpoint()
            self.cancelled += scope.cancelled_caught

    def lent(self, loan: AbstractAsyncContextManager[Connection]) -> _Watched:
        """Watch over one loan."""
        return _Watched(loan)

    async def canceller(self) -> None:
        """Cancel some of them in each turn of the loop."""
        while self.cancelled < self.calls:
            for scope in self.random.sample(self.scopes, CALLERS // 3):
                scope.cancel()
            await anyio.lowlevel.checkpoint()

    async def all_slots_are_there(self, pool: Pool[Connection]) -> None:
        """Borrow as many as there are slots, at once."""
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                everybody = anyio.Event()
                here = 0

                async def borrow() -> None:
                    nonlocal here
                    async with pool.acquire():
                        here += 1
                        if here == SLOTS:
                            everybody.set()
                        await everybody.wait()

                for _ in range(SLOTS):
                    group.start_soon(borrow)
        statistics = pool.statistics()
        assert (statistics.lent, statistics.tasks_waiting) == (0, 0), statistics

    async def create(self) -> Connection:
        """Make one, with a step in between."""
        await anyio.lowlevel.checkpoint()
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        return Connection()

    async def check(self, connection: Connection) -> None:
        """Look at one, with a step in between."""
        assert not connection.closed
        await anyio.lowlevel.checkpoint()

    async def close(self, connection: Connection) -> None:
        """Close one, with a step in between."""
        assert not connection.lent, "closed while it was lent"
        assert not connection.closed, "closed twice"
        connection.closed = True
        await anyio.lowlevel.checkpoint()
        self.open -= 1


class _Watched:
    """A loan, with an eye on who has the resource."""

    def __init__(self, loan: AbstractAsyncContextManager[Connection]) -> None:
        self.loan = loan

    async def __aenter__(self) -> None:
        self.connection = await self.loan.__aenter__()
        assert not self.connection.lent, "lent twice"
        assert not self.connection.closed, "lent after it was closed"
        self.connection.lent = True

    async def __aexit__(self, *error: object) -> None:
        self.connection.lent = False
        await self.loan.__aexit__(*error)


async def churned(calls: int) -> float:
    """Cancelled calls a second."""
    return await Churn(calls).run()


def run(size: Size) -> Iterator[Row]:
    calls = size.of(200, 4_000, 20_000)
    for work, tasks, goal in (
        ("check out and return, one task", 1, ">= 10x"),
        (f"100 tasks on {SLOTS} resources", 100, ""),
    ):
        for loop in LOOPS:
            contestants = {"ours": partial(on_loop, loop, ours, calls, tasks)}
            if loop == "trio":
                contestants[CHECKPOINT] = partial(on_loop, loop, checkpoints, calls, tasks)
            else:
                contestants[PEER] = partial(on_loop, loop, peers, calls // 4, tasks)
            figures = interleaved(contestants, size)
            peer = CHECKPOINT if loop == "trio" else PEER
            yield row(work, loop, figures, peer, goal="" if loop == "trio" else goal)
    cancelled = size.of(500, 10_000, 200_000)
    for loop in LOOPS:
        figures = interleaved(
            {
                "ours": partial(on_loop, loop, churned, cancelled),
                CHECKPOINT: partial(on_loop, loop, checkpoints, calls, 1),
            },
            size,
            rounds=1,
        )
        yield row(
            f"{cancelled:,} cancelled calls", loop, figures, CHECKPOINT, goal="no slot lost, or it fails"
        )
