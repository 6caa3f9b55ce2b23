"""Tasks that may have killed their process run apart from all others, and only a task that ran alone is buried."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

import tenure
from tenure import BatchWorker, Processor, Worker, WorkQueue
from tenure.engine import Taken, Verdict
from tenure.shared.queue._failures import noted, read
from tenure.shared.queue._suspects import LEEWAY, PATIENCE, Suspects, room

TTL = 3.0
pytestmark = pytest.mark.usefixtures("virtual_clock")
in_process = pytest.mark.parametrize("engine", ["memory", "wire"], indirect=True)
"""For what is not the engine's concern."""


class Handler:
    """Innocent tasks take a second. A poison ends the session of all tasks of its store, as a dead process does."""

    def __init__(self, store):
        self.store = store
        self.deaths = 0
        self.running = []
        self.beside = {}
        """What ran beside each task that had two deliveries without a verdict or more."""
        self.done = []

    async def __call__(self, task: tenure.Task):
        await self.work([task])

    async def batch(self, tasks: list[tenure.Task]):
        await self.work(tasks)

    async def work(self, tasks):
        names = [task.payload for task in tasks]
        self.running += names
        for task in tasks:
            if task.deliveries - task.attempt >= 2:
                beside = self.beside.setdefault((task.payload, task.deliveries), set())
                beside.update(name for name in self.running if name != task.payload)
        try:
            if any(
                "poison" in task.payload or (task.payload, task.deliveries) == ("once", 1) for task in tasks
            ):
                await anyio.sleep(0.1)
                self.deaths += 1
                (await self.store._handle.session(TTL)).lose("expired")
                await anyio.sleep(100)
            await anyio.sleep(1)
            self.done += names
        finally:
            for name in names:
                self.running.remove(name)


@asynccontextmanager
async def running(*runs):
    async with anyio.create_task_group() as group:
        for run in runs:
            group.start_soon(run)
        yield
        group.cancel_scope.cancel()


async def given_up(queue, handler, *, within=300):
    """Wait until nothing is unfinished; the dead letters."""
    with anyio.fail_after(within):
        await queue.join()
    assert await queue.verify()
    assert not room.is_closed()
    return {letter.payload: letter for letter in (await queue.tasks("dead").page()).records}


KINDS = {
    "one by one": lambda queue, handler: Worker(queue, handler, concurrency=10),
    "prefetched": lambda queue, handler: Worker(queue, handler, concurrency=2, prefetch=4),
    "batches": lambda queue, handler: BatchWorker(queue, handler.batch, size=4, concurrency=2, linger=0.2),
    "processor": lambda queue, handler: Processor(queue.store, "jobs", handler, workers=10),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [0, 3, 6])
async def test_a_task_that_kills_its_process_is_dead_and_those_beside_it_are_done(store, kind, at):
    queue = WorkQueue(store, "jobs", max_deliveries=3)
    handler = Handler(store)
    innocent = [f"innocent {n}" for n in range(6)]
    await queue.put_many([*innocent[:at], "poison", *innocent[at:]])
    async with running(KINDS[kind](queue, handler).run):
        letters = await given_up(queue, handler)
    assert sorted(handler.done) == innocent
    assert list(letters) == ["poison"]
    error = letters["poison"].error
    process = (await store._handle.session(TTL)).id.rsplit("/", 1)[0]
    assert error == (
        f"delivered 3 times without a verdict: process {process} died or lost its session"
        " while the task ran alone in it"
    )
    assert handler.deaths == 3
    # with three deliveries, the third has to be alone
    assert not {who: beside for who, beside in handler.beside.items() if beside}


@in_process
@pytest.mark.parametrize("poisons", [1, 2])
@pytest.mark.parametrize("innocents", [5, 20])
async def test_its_company_is_halved_by_each_death(store, poisons, innocents):
    queue = WorkQueue(store, "jobs")
    handler = Handler(store)
    await queue.put_many(
        [f"poison {n}" for n in range(poisons)] + [f"innocent {n}" for n in range(innocents)]
    )
    async with running(Worker(queue, handler, concurrency=30).run):
        letters = await given_up(queue, handler)
    assert sorted(letters) == [f"poison {n}" for n in range(poisons)]
    assert len(handler.done) == innocents
    assert all("alone" in letter.error for letter in letters.values())
    number = poisons + innocents
    for (_, deliveries), beside in handler.beside.items():
        assert len(beside) < max(2, number >> (deliveries - 2))
    assert handler.deaths <= poisons * (5 + number.bit_length() - 2)


@in_process
async def test_the_first_death_costs_nothing(store):
    queue = WorkQueue(store, "jobs")
    handler = Handler(store)
    await queue.put_many(["once"] + [f"innocent {n}" for n in range(9)])
    async with running(Worker(queue, handler, concurrency=10).run):
        await given_up(queue, handler, within=2)
    assert (len(handler.done), handler.deaths) == (10, 1)
    assert not handler.beside


@in_process
async def test_what_ran_beside_another_is_never_buried_for_it(store, open_store_on):
    """Other clients do not know suspects: a task ends sometime, but says that it was not alone."""
    queue = WorkQueue(store, "jobs", max_deliveries=3)
    await queue.put("poison")
    queue._takers.suspects.first = 1000
    for _ in range(3 + LEEWAY):
        with pytest.raises(tenure.LeaseLost):
            async with queue.take():
                (await store._handle.session(TTL)).lose("expired")
                await anyio.sleep(100)
    (letter,) = (await queue.tasks("dead").page()).records
    assert letter.error.startswith(f"delivered {3 + LEEWAY} times without a verdict: process ")
    assert "alone" not in letter.error


async def test_only_deaths_while_it_runs_alone_are_charged_to_a_task(store):
    """Kills from outside, which hit any task: those beside others and those before it begins bury nobody."""
    queue = WorkQueue(store, "jobs")
    running_now, alone = [], {}

    async def handler(payload):
        running_now.append(payload)
        try:
            await anyio.sleep(10)
        finally:
            running_now.remove(payload)

    await queue.put_many(range(4))
    async with running(Worker(queue, handler).run):
        while (await queue.statistics()).unfinished:
            with anyio.fail_after(10):
                while not running_now:
                    await anyio.sleep(0.1)
            await anyio.sleep(0.5)
            if len(running_now) == 1:
                alone[running_now[0]] = alone.get(running_now[0], 0) + 1
            (await store._handle.session(TTL)).lose("expired")
            await anyio.sleep(0.1)
            dead = {letter.payload for letter in (await queue.tasks("dead").page()).records}
            assert dead == {payload for payload, deaths in alone.items() if deaths == 3}


async def a_suspect(store, queue, payload="suspect", *, deliveries=2):
    """Put a task, of which so many deliveries end without a verdict."""
    task_id = await queue.put(payload)
    for _ in range(deliveries):
        with pytest.raises(tenure.LeaseLost):
            async with queue.take():
                (await store._handle.session(TTL)).lose("expired")
                await anyio.sleep(100)
    return task_id


async def test_it_runs_when_all_others_of_the_process_have_ended(store, open_store_on):
    running_now, seen = [], {}

    async def handler(payload):
        running_now.append(payload)
        await anyio.sleep(1 if payload == "suspect" else 5)
        seen[payload] = set(running_now) - {payload}
        running_now.remove(payload)

    async with open_store_on(ttl=TTL) as second:
        queue, other = WorkQueue(store, "jobs"), WorkQueue(second, "others")
        await a_suspect(store, queue)
        await other.put_many(["other 1", "other 2"])
        workers = Worker(other, handler, concurrency=1), Worker(queue, handler)
        async with running(*(worker.run for worker in workers)):
            await anyio.sleep(1)
            await queue.put_many(["late 1", "late 2"])
            await anyio.sleep(3)
            assert running_now == ["other 1"]
            assert all(worker.unready is None for worker in workers)
            with anyio.fail_after(60):
                await queue.join()
                await other.join()
    assert not seen["suspect"]
    assert len(seen) == 5
    assert not room.is_closed()


async def test_a_verdict_clears_it(store):
    queue = WorkQueue(store, "jobs", retry=tenure.Retry(attempts=3, backoff=0.1, jitter=0))
    await a_suspect(store, queue)
    deliveries = []

    async def handler(task: tenure.Task):
        deliveries.append((task.attempt, task.deliveries))
        if len(deliveries) == 1:
            raise ValueError
        if len(deliveries) == 2:
            raise tenure.RetryLater(0.1, counts=False)

    async with running(Worker(queue, handler).run):
        await given_up(queue, handler)
    assert deliveries == [(1, 3), (2, 2), (2, 2)]


@in_process
@pytest.mark.parametrize("end", ["drain", "cancel the task", "cancel the worker"])
async def test_one_that_waits_for_the_others_goes_back(store, open_store_on, end):
    begun = []

    async def handler(payload):
        begun.append(payload)
        await anyio.sleep(20)

    async with open_store_on(ttl=TTL) as second, anyio.create_task_group() as group:
        queue, other = WorkQueue(second, "jobs"), WorkQueue(store, "others")
        task_id = await a_suspect(second, queue)
        await other.put("other")
        group.start_soon(Worker(other, handler).run)
        await anyio.sleep(1)
        worker = Worker(queue, handler)
        with anyio.CancelScope() as scope:
            async with running(worker.run):
                await anyio.sleep(1)
                assert room.is_closed()
                assert (await queue.statistics()).leased == 1
                if end == "drain":
                    with anyio.fail_after(1):
                        await worker.drain()
                elif end == "cancel the task":
                    await queue.cancel(task_id)
                    await anyio.sleep(0.5)
                else:
                    scope.cancel()
        await anyio.sleep(1)
        seen = await WorkQueue(store, "jobs").statistics()
        assert (seen.leased, seen.waiting, seen.cancelled) == (0, int("task" not in end), int("task" in end))
        assert begun == ["other"]
        assert not room.is_closed()
        group.cancel_scope.cancel()


async def test_a_store_that_closes_gives_back_the_suspect_that_waits(store, open_store_on):
    async def until_closed(queue):
        with pytest.raises(tenure.StoreClosed):
            await Worker(queue, Handler(queue.store)).run()

    async with anyio.create_task_group() as group:
        other = WorkQueue(store, "others")
        async with open_store_on(ttl=TTL) as second:
            queue = WorkQueue(second, "jobs")
            await a_suspect(second, queue)
            await other.put("other")
            group.start_soon(Worker(other, Handler(store)).run)
            group.start_soon(until_closed, queue)
            await anyio.sleep(0.5)
            assert room.is_closed()
            closes = anyio.current_time()
        assert anyio.current_time() - closes < 0.2
        seen = await WorkQueue(store, "jobs").statistics()
        assert (seen.leased, seen.waiting) == (0, 1)
        assert not room.is_closed()
        group.cancel_scope.cancel()


async def test_one_that_waits_while_its_session_is_lost_runs_later(store, open_store_on):
    async with open_store_on(ttl=TTL) as second:
        queue, other = WorkQueue(second, "jobs"), WorkQueue(store, "others")
        handler = Handler(second)
        await a_suspect(second, queue)
        await other.put("other")
        async with other.take(), running(Worker(queue, handler).run):
            await anyio.sleep(0.5)
            assert room.is_closed()
            (await second._handle.session(TTL)).lose("expired")
            await anyio.sleep(0.5)
        async with running(Worker(queue, handler).run):
            with anyio.fail_after(PATIENCE):
                await queue.join()
        assert handler.done == ["suspect"]
        assert queue._takers.in_hand == 0


@pytest.mark.parametrize("deliveries", [2, 4])
async def test_one_can_be_taken_at_once(store, deliveries):
    queue = WorkQueue(store, "jobs")
    await a_suspect(store, queue, deliveries=deliveries)
    async with queue.take(timeout=0) as task:
        assert task.payload == "suspect"
    assert not (await queue.statistics()).unfinished


@in_process
async def test_it_is_put_off_if_the_others_do_not_end(store):
    """The other task may wait for a third, which nobody takes meanwhile."""
    queue, begun = WorkQueue(store, "jobs"), {}
    await queue.put("waits for a third")
    third = []

    async def handler(task: tenure.Task):
        begun[task.payload] = anyio.current_time() - start
        if task.payload == "waits for a third":
            await anyio.sleep(1)
            third.append(await queue.put("third"))
            await queue.result(third[0])

    await a_suspect(store, other := WorkQueue(store, "others"))
    start = anyio.current_time()
    async with running(Worker(queue, handler).run):
        await anyio.sleep(0.1)
        async with running(Worker(other, handler).run):
            with anyio.fail_after(3 * PATIENCE):
                await queue.join()
                await other.join()
    assert begun["suspect"] >= PATIENCE
    assert not room.is_closed()


@in_process
async def test_one_for_which_the_others_wait_begins_beside_them_in_the_end(store):
    queue, other = WorkQueue(store, "jobs"), WorkQueue(store, "others")
    suspect = await a_suspect(store, queue)
    begun = []

    async def handler(payload):
        begun.append(payload)
        if payload == "waits for it":
            await queue.result(suspect)

    await other.put("waits for it")
    async with running(Worker(other, handler).run):
        await anyio.sleep(0.1)
        async with running(Worker(queue, handler).run):
            with anyio.fail_after(10 * PATIENCE):
                await other.join()
    assert begun == ["waits for it", "suspect"]
    assert not room.is_closed()


@in_process
async def test_one_beside_tasks_that_last_long_waits_longer_the_second_time(store):
    """Each of the others lasts longer than a suspect waits, and one of them is always running."""
    queue, other = WorkQueue(store, "jobs"), WorkQueue(store, "others")
    await a_suspect(store, queue)
    beside, running_now = [], []

    async def handler(payload):
        running_now.append(payload)
        await anyio.sleep(1.9 * PATIENCE)
        running_now.remove(payload)

    async def suspect(payload):
        beside.extend(running_now)

    await other.put_many(range(20))
    async with running(Worker(other, handler, concurrency=2).run):
        await anyio.sleep(PATIENCE / 2)
        async with running(Worker(queue, suspect).run):
            with anyio.fail_after(6 * PATIENCE):
                await queue.join()
    assert not beside


class Dummy:
    """Takers, or a session, of which a class without a store needs no more."""

    in_hand = 0

    def is_over(self):
        return False


def taken(token, silent, *alone):
    return Taken(token, token, b"", 0, 0, silent + 1, 0.0, b"", noted(b"", alone), b"", "")


@pytest.mark.parametrize(
    ("limit", "silent", "kept", "marks"),
    [
        (5, [2] * 8, 4, []),
        (5, [3] * 8, 2, []),
        (5, [4] * 8, 1, [(4,)]),
        # many deaths, but none alone
        (5, [6], 1, [(6,)]),
        (5, [(6, 5)], 1, [(5, 6)]),
        (5, [(4, 2, 3)], 1, ["alone"]),
        (4, [(3, 2)], 1, ["alone"]),
        (5, [(3, 2)] * 8, 1, [(2, 3)]),
        # what is on record from before a verdict
        (5, [(2, 2, 3)] * 4, 2, [(), ()]),
        (5, [(3, 0, 1, 3, 4)], 1, [(3,)]),
        (5, [2, 0, 1, 2], 2, []),
        (5, [0] * 7 + [2], 1, [(2,)]),
        (5, [2, 2, 4, 2], 2, []),
        (5, [4, 2, 2, 2], 1, [(4,)]),
        (3, [2] * 8, 1, ["alone"]),
        (2, [1] * 8, 1, ["alone"]),
        (2, [0, 1], 1, ["alone"]),
    ],
)
async def test_so_many_are_kept(limit, silent, kept, marks):
    suspects = Suspects(Dummy())
    suspects.limit(limit)
    tasks = [taken(n, *each) if isinstance(each, tuple) else taken(n, each) for n, each in enumerate(silent)]
    try:
        back = suspects.keep(Dummy(), tasks)
        assert len(suspects.kept) == kept
        assert sorted([*back, *(each for _, each in suspects.kept)], key=tasks.index) == tasks
        assert all(each.deliveries - 1 >= suspects.first for _, each in suspects.kept)
        settles = [settle for _, settle in suspects.to_mark()]
        assert [
            read(settle.failure).alone if settle.verdict is Verdict.NOTE else settle.verdict.value
            for settle in settles
        ] == marks
        assert suspects.to_mark() == []
        assert room.is_closed()
        # nothing else comes in
        assert Suspects(Dummy()).keep(Dummy(), tasks) == tasks
    finally:
        suspects.leave()
    assert not room.is_closed()
