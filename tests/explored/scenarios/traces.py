"""Traces: whatever becomes of a try, its span ends once and says what that was."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import anyio
from explored.catalogue import on_a_wire, on_every_engine
from explored.scenarios.losses import AWAY
from explored.scenarios.queues import all_is_done
from explored.world import pause
from opentelemetry import trace
from traced import spans

from tenure import Discard, LeaseLost, Lock, Retry, RetryLater, Task, Worker, WorkQueue
from tenure.testing import cancellable

RETRY = Retry(attempts=2, backoff=0.1, jitter=0.0)


class Entered:
    """The spans in which handlers and blocks began: one for each try, and no others."""

    def __init__(self, traced):
        self._traced = traced
        self._ids = Counter()

    def note(self):
        self._ids[trace.get_current_span().get_span_context().span_id] += 1

    def check(self):
        self._traced.check()
        tries = Counter(span.context.span_id for span in self._traced.tries)
        assert self._ids <= tries  # a try may be cancelled before its handler begins
        # OpenTelemetry ignores an id for no span
        assert all(span.links[0].context.is_valid for span in self._traced.tries)


@contextmanager
def entered():
    """Checks at the end, also of what was cancelled."""
    with spans() as traced:
        noted = Entered(traced)
        try:
            yield traced, noted
        finally:
            noted.check()


@on_every_engine("shared.Worker.run", "shared.Worker.drain", "shared.WorkQueue.put_many")
async def each_try_has_one_span_that_ends_once(world):
    with entered() as (traced, noted):
        options = {"observer": traced.observer()}
        async with world.open(**options) as store, world.open(**options) as elsewhere:
            queue, other = WorkQueue(store, "q", retry=RETRY), WorkQueue(elsewhere, "q", retry=RETRY)
            later = []

            async def handle(task: Task):
                noted.note()
                await pause()
                match task.payload:
                    case "fails":
                        raise KeyError
                    case "later" if not later:
                        later.append(1)
                        raise RetryLater(0.1, counts=False)
                    case "discard":
                        raise Discard("no")
                    case "cancelled":
                        assert await queue.cancel(task.id)
                        await anyio.sleep_forever()

            worker, dying = Worker(queue, handle, concurrency=2), Worker(other, handle, prefetch=2)

            async def victim():
                with cancellable():
                    await dying.run()

            async with world.group() as group:
                group.start_soon(victim)
                group.start_soon(worker.run)
                await queue.put_many(["done", "fails", "later", "discard", "cancelled", "done"])
                await queue.join()
                for running in (worker, dying):
                    group.start_soon(running.drain)
            await all_is_done(queue, store, elsewhere, done=3, dead=1, discarded=1, cancelled=1)


@on_a_wire("shared.WorkQueue.take", "shared.WorkQueue.put")
async def a_try_that_is_lost_has_a_span_that_says_so(world):
    with entered() as (traced, noted):
        options = {"observer": traced.observer()}
        async with world.open(**options) as store, world.open(**options) as elsewhere:
            link, queue, other = world.links[0], WorkQueue(store, "q"), WorkQueue(elsewhere, "q")

            async def loser():
                with cancellable():
                    try:
                        async with queue.take(), Lock(store, "x"):
                            noted.note()
                            await anyio.sleep(100)
                    except LeaseLost:
                        pass

            async def taker():
                async with other.take():
                    noted.note()
                    await pause()

            async with anyio.create_task_group() as group:
                await queue.put("work")
                group.start_soon(loser)
                await anyio.sleep(1)
                link.pause()
                group.start_soon(taker)
                await anyio.sleep(AWAY)
                link.resume()
            assert traced.verdicts.count("done") == 1
            assert set(traced.verdicts) <= {"lost", "given_back", "done"}
            await all_is_done(queue, store, elsewhere, done=1)
