"""Handlers in processes: killed when a try has to stop, and gone with their worker and its process."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

import tenure
from tenure import BatchWorker, Job, Retry, Selection, Worker, WorkQueue
from tenure.handlers._processes import _PROGRAM

from . import called_in_a_process as called, slow_to_import as slow


def is_there(pid):
    try:
        os.kill(pid, 0)
        # the parent may not have waited for its end yet
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def until(condition):
    with anyio.fail_after(50):
        while not condition():
            await anyio.sleep(0.01)


@pytest.fixture
async def queue():
    async with tenure.open_store("memory:") as store:
        yield WorkQueue(store, "jobs", retry=Retry(attempts=1))


async def work_off(queue, handler, payloads, executor="process", **options):
    tasks = await queue.put_many(payloads)
    make = BatchWorker if "size" in options else Worker
    worker = make(queue, handler, executor=executor, **options)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(50):
            await queue.join()
            await worker.drain()
    return [await queue.get(task) for task in tasks]


async def test_one_process_calls_the_handler_for_task_after_task_and_ends_with_the_worker(queue):
    first, second = await work_off(queue, called.double, [1, 2], concurrency=1)
    assert [first.result[1], second.result[1]] == [2, 4]
    assert first.result[0] == second.result[0] != os.getpid()
    assert not is_there(first.result[0])


@pytest.mark.backends("asyncio")
async def test_a_process_that_was_killed_between_two_tasks_is_replaced(queue):
    worker = Worker(queue, called.double, executor="process", concurrency=1)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        first = (await queue.result(await queue.put(1)))[0]
        os.kill(first, signal.SIGKILL)
        process = worker._processes[0]._process
        await until(lambda: process.returncode is not None)
        second = await queue.result(await queue.put(2))
        await worker.drain()
    assert second[1] == 4
    assert second[0] != first


@pytest.mark.backends("trio")
async def test_a_batch_is_handled_in_a_process(queue, tmp_path, monkeypatch):
    monkeypatch.setenv("TENURE_TEST_TOTAL", str(tmp_path / "total"))
    records = await work_off(queue, called.total, [1, 2, 3], size=3, concurrency=1)
    assert {record.state for record in records} == {"done"}
    assert (tmp_path / "total").read_text() == "6"


@pytest.mark.backends("asyncio")
async def test_the_function_of_a_job_is_called_in_a_process(queue):
    job = Job(queue, called.double)
    task = await job.put(n=4)
    worker = Worker(job, executor="process", concurrency=1)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        assert (await job.result(task))[1] == 8
        await worker.drain()


async def test_a_try_that_takes_too_long_is_killed(queue, tmp_path):
    (record,) = await work_off(queue, called.hangs, [str(tmp_path / "pid")], timeout=5, concurrency=1)
    assert record.error == "TimeoutError: not done within 5 s"
    assert not is_there(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("how", ["cancelled", "lost", "worker"])
async def test_a_try_that_is_interrupted_is_killed(queue, tmp_path, how):
    path = tmp_path / "pid"
    task = await queue.put(str(path))
    worker = Worker(queue, called.hangs, executor="process", concurrency=1)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await until(lambda: path.exists() and path.read_text())
        pid = int(path.read_text())
        if how == "cancelled":
            await queue.cancel(task)
        elif how == "lost":
            for session in queue.store._handle.sessions:
                session.lose("expired")
        else:
            group.cancel_scope.cancel()
        await until(lambda: not is_there(pid))
        group.cancel_scope.cancel()
    assert not is_there(pid)


@pytest.mark.backends("asyncio")
async def test_whatever_ends_the_call_is_on_record(queue):
    errors = {
        "exit": "RuntimeError: handler ends: its process ended with exit code 3",
        "kill": "RuntimeError: handler ends: its process was killed by signal 9",
        "odd": "Odd: a text",
        "system exit": "SystemExit: 5",
        "dead": "no use",
        "later": "RetryLater: try again in 0 s",
        "result": "ends returned function, which cannot be the result: Can't ",
    }
    records = await work_off(queue, called.ends, list(errors), concurrency=1)
    assert {record.state for record in records} == {"dead"}
    for record, error in zip(records, errors.values(), strict=True):
        assert record.error.startswith(error)


# A rule, and how often what is tried by it, and its error.
RULES = [
    (
        {},
        {
            "declined": (3, "Declined: 402 no money"),
            "dead from": (1, "Declined: 402 no money"),
            "dead from odd": (1, "Local: of a function"),
            "dead in a group": (1, "no use"),
            "own dead": (1, "of the 5th kind"),
            "twice": (3, "Twice: 1 a"),
        },
    ),
    (
        {"never": (called.Declined,)},
        {
            # first: an error within it is selected by its name too
            "group": (1, "ExceptionGroup: two (2 sub-exceptions) [OSError: 1; Declined: 402 n"),
            "declined": (1, "Declined: 402 no money"),
        },
    ),
    (
        {"never": (called.PaymentError,)},
        {"declined": (1, "Declined: 402 no money"), "local": (1, "Local: of a function")},
    ),
    pytest.param(
        {"on": (called.Declined,)}, {"declined": (3, "Declined: 402 no money")}, marks=pytest.mark.full
    ),
    ({"on": (OSError,)}, {"declined": (1, "Declined: 402 no money")}),
    (
        {"on": (called.PaymentError,)},
        {"local": (3, "Local: of a function"), "unpicklable": (3, "PaymentError: with a lock")},
    ),
    (
        {"on": (OSError, called.PaymentError)},
        {"group": (3, "ExceptionGroup: two (2 sub-exceptions) [OSError: 1; Decli")},
    ),
]


@pytest.mark.parametrize(("rule", "cases"), RULES)
async def test_an_error_of_a_process_is_judged_as_one_of_a_thread(queue, rule, cases):
    queue.retry = Retry(attempts=3, backoff=0, **rule)
    of_thread, of_process = [
        await work_off(queue, called.raises, list(cases), executor=executor, concurrency=1)
        for executor in ("thread", "process")
    ]
    for one, other, (tries, error) in zip(of_thread, of_process, cases.values(), strict=True):
        assert other.error == one.error
        assert other.error.startswith(error)
        assert other.attempts == one.attempts == tries
        assert other.state == "dead"
    for name, count in Counter(error.partition(":")[0] for _, error in cases.values()).items():
        assert await queue.requeue(where=Selection(error=name)) == 2 * count


def lambda_of():
    return lambda n: n


async def of_a_coroutine(n: int): ...


@pytest.mark.parametrize(
    ("handler", "executor", "error", "message"),
    [
        (lambda_of(), "process", TypeError, "write it at the top level of a module"),
        (of_a_coroutine, "process", TypeError, "executor is for synchronous handlers"),
        (of_a_coroutine, "thread", TypeError, "executor is for synchronous handlers"),
        (called.of_a_task, "process", TypeError, "a task stays in the process of its worker"),
        (called.double, "fork", ValueError, "executor must be"),
    ],
)
async def test_a_handler_that_cannot_run_there_is_refused(queue, handler, executor, error, message):
    with pytest.raises(error, match=message):
        Worker(queue, handler, executor=executor)


async def test_the_time_of_a_try_begins_when_its_process_has_imported_the_handler(queue, monkeypatch):
    monkeypatch.setenv("TENURE_TEST_IMPORT", "0.8")
    records = await work_off(queue, slow.quick, [0, 50, 0], timeout=0.5, concurrency=1)
    assert [record.state for record in records] == ["done", "dead", "done"]
    assert records[1].error == "TimeoutError: not done within 0.5 s"


async def test_the_time_of_a_batch_begins_when_its_process_has_imported_the_handler(
    queue, monkeypatch, tmp_path
):
    monkeypatch.setenv("TENURE_TEST_IMPORT", "0.8")
    paths = [str(tmp_path / name) for name in "ab"]
    records = await work_off(queue, slow.quick_batch, paths, size=2, linger=0.05, timeout=0.5, concurrency=1)
    assert [record.state for record in records] == ["done", "done"]
    assert all(map(os.path.exists, paths))


async def test_a_process_that_does_not_start_in_time_fails_the_try_and_says_so(queue, monkeypatch):
    monkeypatch.setenv("TENURE_TEST_IMPORT", "50")
    monkeypatch.setattr("tenure.handlers._processes._START_LIMIT", 0.5)
    records = await work_off(queue, slow.quick, [0, 0], concurrency=1)
    error = "RuntimeError: handler quick: its process has not started: importing the handler took longer than 0.5 s"
    assert [record.error for record in records] == [error, error]


@pytest.mark.backends("asyncio")
async def test_a_process_that_ends_in_its_import_fails_the_try_and_says_so(queue, monkeypatch):
    monkeypatch.setenv("TENURE_TEST_IMPORT", "exits")
    (record,) = await work_off(queue, slow.quick, [0], concurrency=1)
    error = "RuntimeError: handler quick: its process has not started: it ended with exit code 3"
    assert record.error == error


@pytest.mark.backends("trio")
async def test_a_handler_that_cannot_be_imported_fails_tries_until_it_can(queue, monkeypatch):
    monkeypatch.setenv("TENURE_TEST_IMPORT", "fails")
    worker = Worker(queue, slow.quick, executor="process", concurrency=1)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        task = await queue.put(0)
        with pytest.raises(tenure.TaskFailed, match="cannot be imported in its process: OSError"):
            await queue.result(task)
        monkeypatch.delenv("TENURE_TEST_IMPORT")
        # the process that was to replace the first may have failed meanwhile, which fails one task more
        await queue.put_many([0, 0, 0])
        with anyio.fail_after(50):
            await queue.join()
        await worker.drain()
    assert worker.statistics().done >= 2


async def test_a_process_that_was_killed_is_replaced_before_the_next_task(queue):
    worker = Worker(queue, slow.quick, executor="process", concurrency=1, timeout=0.5)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        first = await queue.result(await queue.put(0))
        with pytest.raises(tenure.TaskFailed, match="not done within"):
            await queue.result(await queue.put(50))
        await until(lambda: not worker._processes[0]._was_ended)
        second = worker._processes[0]._process.pid
        assert await queue.result(await queue.put(0)) == second != first
        await worker.drain()


@pytest.mark.backends("trio")
async def test_what_a_call_sets_is_not_there_in_later_calls(queue):
    records = await work_off(queue, called.sets, ["ann", "ben"], concurrency=1)
    assert [record.result for record in records] == [["nobody", 28]] * 2


async def test_a_call_outlives_the_thread_that_has_started_its_process(queue, monkeypatch):
    # trio starts processes in threads, which end when they have been idle for so long
    monkeypatch.setattr("trio._core._thread_cache.IDLE_TIMEOUT", 0.1)
    (record,) = await work_off(queue, called.waits, [1.0], concurrency=1)
    assert (record.state, record.result) == ("done", "done")


async def test_a_process_that_ends_while_a_fork_of_it_lives_has_failed(queue, tmp_path):
    path = tmp_path / "pid"
    try:
        with anyio.fail_after(20):
            (record,) = await work_off(queue, called.forks, [str(path)], concurrency=1)
    finally:
        os.kill(int(path.read_text()), signal.SIGKILL)
    assert record.error == "RuntimeError: handler forks: its process was killed by signal 9"


@pytest.mark.backends("trio")
async def test_a_fork_that_returns_from_the_handler_ends_and_answers_nothing(queue):
    records = await work_off(
        queue, called.returns_twice, ["return", "exit", "error", "return"], concurrency=1
    )
    assert [record.result for record in records] == [0, 3, 1, 0]


PROGRAM = """
import sys, anyio, tenure
sys.path.insert(0, sys.argv[1])
from handlers import called_in_a_process as called

async def main():
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(store, "jobs")
        await queue.put(sys.argv[2])
        await tenure.Worker(queue, called.hangs, executor="process", concurrency=1).run()

anyio.run(main)
"""


FORKS = """
import os, time
if not os.fork():
    while not os.path.exists(sys.argv[2] + ".over"):
        time.sleep(0.01)
    os._exit(0)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("forks", [False, True])
async def test_a_process_ends_when_its_parent_is_killed(tmp_path, backend, forks):
    path = tmp_path / "pid"
    program = PROGRAM.replace("anyio.run(main)", f"anyio.run(main, backend={backend!r})")
    if forks:  # the fork keeps the pipe to the process open
        program = program.replace("async def main", "FORK = " + repr(FORKS) + "\nasync def main")
        program = program.replace(
            "        await tenure.Worker",
            "        async def fork():\n"
            "            while not __import__('os').path.exists(sys.argv[2]):\n"
            "                await anyio.sleep(0.01)\n"
            "            exec(FORK)\n"
            "        async with anyio.create_task_group() as group:\n"
            "          group.start_soon(fork)\n"
            "          await tenure.Worker",
        )
    command = [sys.executable, "-c", program, str(Path(__file__).parents[1]), str(path)]
    parent = subprocess.Popen(command)
    try:
        await until(lambda: path.exists() and path.read_text())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    try:
        await until(lambda: not is_there(int(path.read_text())))
    finally:
        Path(f"{path}.over").touch()


def test_a_process_whose_parent_ends_before_the_reply_says_nothing():
    command = [sys.executable, "-c", _PROGRAM, *sys.path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:

        def send(*parts):
            for data in map(pickle.dumps, parts):
                process.stdin.write(len(data).to_bytes(8) + data)
            process.stdin.flush()

        send((os.getpid(), {}), len)
        process.stdout.read(int.from_bytes(process.stdout.read(8)))
        process.stdout.close()
        send((["payload"], {}))
        assert (process.stderr.read(), process.wait()) == (b"", 1)


def test_a_process_finds_what_its_parent_finds_by_a_path_of_its_own(tmp_path):
    (tmp_path / "tenure").symlink_to(Path(tenure.__file__).parent)
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        + PROGRAM.replace("called.hangs", "called.vendored").replace("sys.argv[2]", "1")
    ).replace(
        'await tenure.Worker(queue, called.vendored, executor="process", concurrency=1).run()',
        'worker = tenure.Worker(queue, called.vendored, executor="process", concurrency=1)\n'
        "        async with anyio.create_task_group() as group:\n"
        "            group.start_soon(worker.run)\n"
        "            print(await queue.result(task_id))\n"
        "            await worker.drain()",
    )
    program = program.replace("await queue.put", "task_id = await queue.put")
    command = [sys.executable, "-c", program, str(tmp_path), str(Path(__file__).parents[1])]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=50, check=True, env=environment, cwd=tmp_path.parent
    )
    assert done.stdout == f"{tmp_path}/tenure/__init__.py\n"


@pytest.mark.backends("asyncio")
async def test_what_a_handler_prints_goes_to_standard_error(queue, capfd):
    await work_off(queue, called.prints, ["ann"], concurrency=1)
    assert capfd.readouterr() == ("", "payload ann\n")
