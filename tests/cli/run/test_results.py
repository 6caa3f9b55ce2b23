"""The results file says what the store says, each ending once, wherever its writer was stopped."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import tenure
from tenure.cli._errors import UsageError
from tenure.cli.run._results import Results, line_of


@pytest.fixture
async def store(here):
    async with tenure.open_store("sqlite:///tenure.db") as opened:
        yield opened


@pytest.fixture
def queue(store):
    return tenure.WorkQueue(
        store, "run:x", keep=tenure.Keep(results=None, payloads=True), retry=tenure.Retry(attempts=1)
    )


async def work(queue, count):
    """Put so many tasks and do them: every seventh dies."""
    await queue.put_many(range(count))
    for _ in range(count):
        try:
            async with queue.take() as task:
                if task.payload % 7 == 3:
                    raise OSError("bad luck")
                task.set_result({"n": task.payload})
        except OSError:
            pass


async def write_all(queue, path="r.jsonl"):
    """Write all that has ended, as a new process would."""
    over = anyio.Event()
    over.set()
    async with tenure.Lock(queue.store, "run:x") as lease:
        await Results(Path(path)).follow(queue, lease, over)
    return Path(path).read_bytes()


async def test_lines(queue, read):
    await work(queue, 5)
    await write_all(queue)
    assert read(Path("r.jsonl")) == [
        {"input": n, "status": "done", "result": {"n": n}, "error": None, "attempts": 1}
        if n != 3
        else {"input": 3, "status": "dead", "result": None, "error": "OSError: bad luck", "attempts": 1}
        for n in range(5)
    ]


async def test_attempts_are_tries(store, read):
    queue = tenure.WorkQueue(
        store, "run:x", keep=tenure.Keep(results=None, payloads=True), retry=tenure.Retry(3, backoff=0)
    )
    await queue.put_many(["second time", "discarded", "never"])
    for _ in range(6):
        try:
            async with queue.take() as task:
                if task.payload == "discarded":
                    raise tenure.Discard("not worth it")
                if task.payload == "never" or task.attempt == 1:
                    raise OSError
        except OSError:
            pass
    await write_all(queue)
    found = {v["input"]: (v["status"], v["error"], v["attempts"]) for v in read(Path("r.jsonl"))}
    assert found == {
        "second time": ("done", None, 2),
        "discarded": ("discarded", "not worth it", 1),
        "never": ("dead", "OSError", 3),
    }


async def test_whatever_stood_there_the_file_becomes_what_the_store_says(queue, monkeypatch):
    monkeypatch.setattr("tenure.cli.run._results._PAGE", 8)
    await work(queue, 60)
    whole = await write_all(queue, "whole.jsonl")
    assert whole == b"".join([line_of(r) for r in (await queue.tasks("ended").page(limit=1000)).records])
    path = Path("r.jsonl")
    first = b"".join([line_of(r) for r in (await queue.tasks("ended").page(limit=10)).records])
    last = (await queue.tasks("ended").page(limit=10)).records[-1]
    for there in (b"", first, first + b"not recorded", first + whole[len(first) :], first[:50], whole * 2):
        path.write_bytes(there)
        await queue.put_many([], cursor=(f"results:{path.resolve()}", [len(first), last.rank, last.id]))
        assert await write_all(queue) == whole
        assert await Results(path).is_complete(queue)
    path.unlink()
    assert not await Results(path).is_complete(queue)
    assert await write_all(queue) == whole


async def test_a_writer_that_was_frozen_writes_what_is_there_already(queue, monkeypatch):
    """It read its position and its page, froze, and wakes up when the next one has written everything."""
    monkeypatch.setattr("tenure.cli.run._results._PAGE", 8)
    await work(queue, 40)
    late = Results(Path("r.jsonl"))
    Path("r.jsonl").touch()
    page = (await queue.tasks("ended").page(limit=8)).records
    whole = await write_all(queue)
    async with tenure.Lock(queue.store, "other") as lease:
        with Path("r.jsonl").open("r+b", buffering=0) as file:
            await late._append(queue, file, page, lease)
    assert Path("r.jsonl").read_bytes() == whole


async def test_nothing_is_written_without_the_lock(queue):
    await work(queue, 3)
    over = anyio.Event()
    over.set()
    async with tenure.Lock(queue.store, "run:x") as lease:
        pass
    with pytest.raises(tenure.LeaseLost):
        await Results(Path("r.jsonl")).follow(queue, lease, over)
    assert not Path("r.jsonl").exists()


async def test_what_ends_meanwhile_is_written_meanwhile(queue):
    over = anyio.Event()

    async def follow():
        async with tenure.Lock(queue.store, "run:x") as lease:
            await Results(Path("r.jsonl")).follow(queue, lease, over)

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await work(queue, 4)
        with anyio.fail_after(50):
            while not (Path("r.jsonl").exists() and Path("r.jsonl").read_bytes().count(b"\n") == 4):
                await anyio.sleep(0.01)
        over.set()


@pytest.mark.one_loop
async def test_endings_whose_ranks_come_again_are_not_missing(here, own_redis_server, read):
    """The server loses the last two endings, and gives their ranks to the endings of other tasks."""
    server, path, over = own_redis_server(), Path("r.jsonl"), anyio.Event()

    async def end(count, *inputs):
        for _ in range(count):
            async with queue.take() as task:
                task.set_result(task.payload)
        with anyio.fail_after(50):
            while not path.exists() or [value["input"] for value in read(path)] != [*inputs]:
                await anyio.sleep(0.01)

    async def follow():
        async with tenure.Lock(store, "run:x") as lease:
            await Results(path).follow(queue, lease, over)

    async with tenure.open_store(server.url, ttl=60) as store, anyio.create_task_group() as group:
        queue = tenure.WorkQueue(store, "run:x", keep=tenure.Keep(results=None, payloads=True))
        tasks = await queue.put_many(range(6))
        group.start_soon(follow)
        await end(2, 0, 1)
        server("SAVE")
        await end(2, 0, 1, 2, 3)
        server.kill()
        server.start()
        for task in tasks[4:]:
            await queue.edit(task, priority=1)
        await end(4, 0, 1, 4, 5, 2, 3)
        over.set()


async def test_a_file_of_others_is_not_touched(queue):
    Path("r.jsonl").write_text("precious\n")
    with pytest.raises(UsageError, match="is not of this run"):
        await Results(Path("r.jsonl")).check(queue)
    await queue.put_many([], cursor=(f"results:{Path('r.jsonl').resolve()}", [0, 0, 0]))
    await Results(Path("r.jsonl")).check(queue)


async def test_pages_of_large_results_are_small(queue):
    await queue.put_many(range(20))
    for _ in range(20):
        async with queue.take() as task:
            task.set_result("x" * 500_000)
    results = Results(Path("r.jsonl"))
    over = anyio.Event()
    over.set()
    async with tenure.Lock(queue.store, "run:x") as lease:
        await results.follow(queue, lease, over)
    assert results._page <= 8
    assert Path("r.jsonl").read_bytes().count(b"\n") == 20
