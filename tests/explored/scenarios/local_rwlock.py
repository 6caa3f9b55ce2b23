"""The readers-writer lock of one process."""

from __future__ import annotations

from contextlib import suppress

import anyio
from explored.catalogue import scenario
from explored.referees import Fair
from explored.world import no_one_waits_behind, pause

from tenure.local import RWLock
from tenure.testing import Machine, at_rest, cancellable, rule

MANY = 10


TURNS = [f"local.{turn}Turn.__{way}__" for turn in ("Read", "Write") for way in ("aenter", "aexit")]
covers = scenario(
    *("local.RWLock.read", "local.RWLock.write", "local.RWLock.read_nowait", "local.RWLock.write_nowait"),
    *(*TURNS, "local.TakenTurn.__aenter__", "local.TakenTurn.__aexit__"),
)


@covers
class FairRWLock(Machine):
    """Readers weigh 1, a writer as much as many of them."""

    policy = "fair"

    def __init__(self):
        self.lock, self.fair = RWLock(self.policy), Fair(MANY)

    async def use(self, turn, weight, *, steady=False):
        place = self.fair.came(weight, steady=steady and self.policy == "fair")
        async with turn:
            with self.fair.inside(place):
                await pause()

    @rule()
    async def write_at_once(self):
        with suppress(anyio.WouldBlock):
            await self.use(self.lock.write_nowait(), MANY)

    @rule(cancel=False)
    async def read(self):
        await self.use(self.lock.read(), 1, steady=True)

    @rule(cancel=False)
    async def write(self):
        await self.use(self.lock.write(), MANY, steady=True)

    @rule()
    async def give_up_reading(self):
        await self.use(self.lock.read(), 1)

    @rule()
    async def give_up_writing(self):
        await self.use(self.lock.write(), MANY)

    @rule()
    async def read_at_once(self):
        with suppress(anyio.WouldBlock):
            await self.use(self.lock.read_nowait(), 1)

    @at_rest
    def is_free(self):
        with self.lock.write_nowait():
            pass
        state = self.lock.statistics()
        assert (state.readers, state.writers, state.tasks_waiting, state.broken) == (0, 0, 0, False)


@covers
class RWLockForReaders(FairRWLock):
    policy = "readers"


@covers
class RWLockForWriters(FairRWLock):
    policy = "writers"


@scenario("local.RWLock.read", "local.RWLock.write")
async def a_local_reader_goes_in_when_the_writer_ahead_gives_up():
    lock, gone, served = RWLock(), anyio.Event(), anyio.Event()

    async def writer():
        with cancellable():
            async with lock.write():
                pass
        gone.set()

    async def reader():
        async with lock.read():
            served.set()

    async with anyio.create_task_group() as group:
        async with lock.read():
            group.start_soon(writer)
            group.start_soon(reader)
            await no_one_waits_behind(gone, served, patience=1)
    with lock.write_nowait():
        pass
