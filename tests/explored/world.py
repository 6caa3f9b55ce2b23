"""The engines that scenarios run on, and stores over them: each is what another process would be."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import sniffio
import trio

from tenure import EngineError, StoreUnavailable, open_store
from tenure.engine import Hint, Notice, RenewSession
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.testing import Fault, FaultyEngine

RATES = {
    Fault.LOST_REQUEST: 0.05,
    Fault.LOST_REPLY: 0.05,
    Fault.CUT: 0.05,
    Fault.DUPLICATE: 0.05,
    Fault.DELAY: 0.1,
    Fault.LOST_HINT: 0.1,
    Fault.DUPLICATE_HINT: 0.1,
}

SOON = 5.0
"""Seconds. Who missed a hint asks again after 20 at least."""


class Link(FaultyEngine):
    """A link that goes wrong on demand, in ways in which no seed would find it at the right time."""

    refuses = ()
    """Operations of these types are answered with an error."""
    deaf = False
    """Hints get lost."""
    cut_after = ()
    """After the next operation of these types, its answer gets lost and nothing more gets through until `resume`."""
    answers_after = 0.0
    """Seconds that answers take; hints do not."""

    async def execute(self, operations):
        refused = [isinstance(operation, self.refuses) for operation in operations]
        accepted = [op for op, no in zip(operations, refused, strict=True) if not no]
        answers = iter(await super().execute(accepted) if accepted else ())
        if any(isinstance(operation, self.cut_after) for operation in accepted):
            self.cut_after = ()
            self.pause(before_effect=True)
            raise StoreUnavailable("cut")
        if self.answers_after:
            await anyio.sleep(self.answers_after)
        return [EngineError("no") if no else next(answers) for no in refused]

    async def serve(self, process, deliver, *, task_status=anyio.TASK_STATUS_IGNORED):
        def heard(hint):
            if not self.deaf:
                deliver(hint)

        self._deliver_to_store = deliver
        await super().serve(process, heard, task_status=task_status)

    def hear_again(self):
        """The subscription is back, and says so."""
        self.deaf = False
        self._deliver_to_store(Hint("", "", "", Notice.MISSED))


class World:
    """One engine, and the links to it; a link for each store if operations travel on wires."""

    def __init__(self, engine, make_link=None, *, faults=False):
        self.engine = engine
        self.links = []
        self.faults = faults
        self.patience = 40.0 if faults else 1.0
        """Seconds after which what can happen has happened: whoever missed a hint asks again after a ttl."""
        self._make_link = make_link

    def open(self, **options):
        """A store, to be entered."""
        if self._make_link is None:
            return open_store(self.engine, **options)
        self.links.append(self._make_link(self.engine))
        return open_store(self.links[-1], **options)

    @asynccontextmanager
    async def group(self):
        """A task group that ends soon: nobody who was hinted waits until it would ask again."""
        start = anyio.current_time()
        async with anyio.create_task_group() as group:
            yield group
        assert self.faults or anyio.current_time() - start <= SOON


@contextmanager
def world(engine, seed=0):
    """A world for one run, to be made in the run's own loop; `seed` draws the faults."""
    with ExitStack() as stack:
        if engine == "memory":
            yield World(MemoryEngine())
        elif engine == "wire":
            yield World(MemoryEngine(cap=1), Link)
        elif engine == "faults":
            yield World(
                MemoryEngine(), partial(FaultyEngine, rates=RATES, delay=0.05, seed=seed), faults=True
            )
        else:
            path = Path(stack.enter_context(TemporaryDirectory())) / "store.db"
            # an engine for each store, as processes have it: hints travel through the file
            yield World(path, partial(SqliteEngine, clock=anyio.current_time, inline=True))


async def at_rest(*stores):
    """Nobody holds or waits any more, and no store remembers anything of those who did."""
    for store in stores:
        await store.ping()  # it reaches the engine after all that was given back before
    for store in stores:
        assert store._handle.entered == {}
        assert not store._handle.acquisitions.by_name and not store._handle.acquisitions.reasker._by_key
        assert len(store._handle.acquisitions) == 0
        assert all(
            isinstance(waiter.want.operation, RenewSession)
            for waiter in store._handle.dispatchers.of("")._callers
        )
        for session in store._handle.sessions:
            assert not session.unreleased, session
        for listener in store._handle._listeners.values():
            _at_rest(listener)


def _at_rest(listener):
    if hasattr(listener, "takers"):
        assert len(listener.takers) == 0 and not listener.takers._settling and not listener.takers._probes
        assert len(listener.producers) == 0 and not listener.producers._queued
        assert listener.watchers._lines == {} and listener.watchers._feeds == {}
    elif hasattr(listener, "sleep"):
        assert len(listener._line) == 0
    else:
        assert not any(spender.lanes.wait for spender in listener._by_key.values())


def block(seconds):
    """Let seconds pass while nothing can run, as when a handler keeps the interpreter's lock."""
    if sniffio.current_async_library() == "trio":
        trio.lowlevel.current_clock().jump(seconds)
    else:
        asyncio.get_running_loop()._virtual.seconds += seconds


async def pause():
    """Long enough for others to come, and to be cancelled."""
    await anyio.sleep(0.01)


async def no_one_waits_behind(gone, served, *, patience):
    """If the one ahead goes while the thing is held, the one behind it is served all the same."""
    with anyio.move_on_after(patience):
        await gone.wait()
    if gone.is_set():
        with anyio.fail_after(patience):
            await served.wait()
