"""A store with something of everything that the page shows: for its tests, and for the pictures in its docs."""

from __future__ import annotations

import contextlib

import anyio

import tenure
from tenure.engines.memory import MemoryEngine


async def ids_of(queue):
    """The ids of the tasks of a queue, in the order in which they were put."""
    states = ("waiting", "delayed", "leased", "suspended", "ending", "ended")
    return sorted([record.id for state in states for record in (await queue.tasks(state).page()).records])


async def fails(queue, number):
    """Take and fail that many tasks."""
    for _ in range(number):
        with contextlib.suppress(ConnectionError, KeyError):
            async with queue.take(timeout=10) as task:
                city = task.payload["to"]
                if task.payload["n"] % 3 == 0:
                    raise KeyError(city)
                raise ConnectionError(f"no route to {city}")


@contextlib.asynccontextmanager
async def filled():
    """A store of this process, and others that hold and wait, over one engine."""
    engine = MemoryEngine()
    async with (
        tenure.open_store(engine) as eye,
        tenure.open_store(engine) as one,
        tenure.open_store(engine) as other,
        tenure.open_store(engine) as third,
        anyio.create_task_group() as group,
    ):
        mails = tenure.WorkQueue(one, "mails", retry=tenure.Retry(attempts=1))
        for n in range(7):
            await mails.put(
                {"to": f"city-{n}", "n": n, "password": "hidden"}, key=f"order-{n}", meta={"tenant": "acme"}
            )
        await fails(mails, 7)
        images = tenure.WorkQueue(one, "images", retry=tenure.Retry(attempts=3, backoff=600))
        await images.put({"to": "attic", "n": 1})
        await fails(images, 1)
        for n in range(40):
            await images.put({"n": n}, group="globex" if n < 29 else "acme" if n < 36 else "initech")
        await tenure.WorkQueue(one, "reports").put({"n": 1}, delay=3600)
        pool = tenure.ResourcePool(one, "api keys")
        for n in range(3):
            await pool.add(f"key-{n}")

        async def hold(*contexts, ready=None, go=None):
            # its lock may be broken from the page
            with contextlib.suppress(tenure.LeaseLost):
                await hold_all(contexts, ready, go)

        async def hold_all(contexts, ready, go):
            async with contextlib.AsyncExitStack() as held:
                for context in contexts:
                    await held.enter_async_context(context)
                    if ready is not None:
                        ready.set()
                        await go.wait()
                await anyio.sleep_forever()

        async def work():
            async with images.take() as task:
                await task.progress({"percent": 40})
                await anyio.sleep_forever()

        first, second = anyio.Event(), anyio.Event()
        ready = [anyio.Event() for _ in range(3)]

        async def ordered(store, names, mine, others):
            async with tenure.Lock(store, names[0]):
                mine.set()
                await others.wait()
                async with tenure.Lock(store, names[1]):
                    await anyio.sleep_forever()

        group.start_soon(ordered, one, ("accounts", "ledger"), first, second)
        group.start_soon(ordered, other, ("ledger", "accounts"), second, first)
        for event, context in zip(
            ready,
            (tenure.Lock(third, "nightly report"), tenure.Semaphore(third, "render", 4), pool.claim()),
            strict=True,
        ):
            group.start_soon(lambda c=context, e=event: hold(c, ready=e, go=e))
        for event in (first, second, *ready):
            await event.wait()
        group.start_soon(hold, tenure.Lock(other, "nightly report"))
        group.start_soon(hold, tenure.Lock(one, "nightly report"))
        api = tenure.RateLimiter(third, "api", tenure.Limit(10, burst=20), tenure.Limit(1000, unit="tokens"))
        await api.acquire({"requests": 3, "tokens": 500})
        await api.hold_off(600)
        group.start_soon(api.acquire)
        group.start_soon(work)
        group.start_soon(hold, tenure.Election(third, "scheduler", node="node-a").term())
        while not (await tenure.Lock(eye, "nightly report").waiters().page()).records[1:]:
            await anyio.sleep(0.01)
        yield eye
        group.cancel_scope.cancel()
