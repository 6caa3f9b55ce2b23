"""Opening and closing: connections are shared, the thread ends with the last store."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

import pytest

import tenure
from tenure import blocking


def portals():
    return sum(thread.name == "tenure.blocking" for thread in threading.enumerate())


def test_a_store_that_is_kept_opens_at_the_first_call(shared_url):
    store = blocking.open_store(shared_url)
    queue = blocking.WorkQueue(store, "mail")
    assert portals() == 0
    queue.put(1)
    assert portals() == 1
    assert store.statistics().pending == 0
    assert store.ping() > 0
    store.close()
    store.close()
    assert portals() == 0
    with pytest.raises(tenure.StoreClosed):
        queue.put(1)


def test_stores_with_equal_arguments_share_a_connection(shared_url):
    with blocking.open_store(shared_url) as one:
        with blocking.open_store(shared_url) as two, blocking.open_store(shared_url, ttl=5) as three:
            assert one.statistics().process == two.statistics().process != three.statistics().process
            assert portals() == 1
        assert blocking.WorkQueue(one, "mail").put(1)
        with pytest.raises(tenure.StoreClosed):
            two.ping()


def test_stores_in_memory_are_separate():
    with blocking.open_store("memory:") as one, blocking.open_store("memory:") as two:
        blocking.WorkQueue(one, "mail").put(1)
        assert blocking.WorkQueue(two, "mail").statistics().waiting == 0


def test_many_threads_open_and_close(shared_url):
    problems = []

    def work(number):
        try:
            for _ in range(3):
                with blocking.open_store(shared_url) as store:
                    blocking.WorkQueue(store, "mail").put(number)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with blocking.open_store(shared_url) as store:
        assert blocking.WorkQueue(store, "mail").statistics().waiting == 18


def test_closing_ends_waits_and_leases_of_other_threads():
    store = blocking.open_store("memory:", close_timeout=0.2)
    lock = blocking.Lock(store, "report")
    entered, closed, ended = threading.Event(), threading.Event(), []

    def hold():
        try:
            with lock as lease:
                entered.set()
                assert closed.wait(20)
                with pytest.raises(tenure.LeaseLost, match="closed"):
                    lease.check()
        except tenure.LeaseLost as problem:
            ended.append(problem.reason)

    def wait():
        try:
            lock.hold().__enter__()
        except tenure.StoreClosed:
            ended.append("refused")

    holder, waiter = threading.Thread(target=hold), threading.Thread(target=wait)
    holder.start()
    assert entered.wait(20)
    waiter.start()
    while not lock.waiters().page().records:
        pass
    store.close()
    closed.set()
    holder.join()
    waiter.join()
    assert sorted(ended) == ["closed", "refused"]


def test_a_server_that_is_away_is_an_error_of_entering(tmp_path):
    with pytest.raises(tenure.StoreUnavailable), blocking.open_store(f"unix://{tmp_path}/nobody.sock"):
        pass
    store = blocking.open_store(f"unix://{tmp_path}/nobody.sock")
    for _ in range(2):
        with pytest.raises(tenure.StoreUnavailable):
            store.ping()
    store.close()


def test_a_store_that_has_ended_by_a_fault_is_opened_again(tmp_path, caplog):
    path = tmp_path / "it.db"
    with blocking.open_store(f"sqlite:///{path}") as store:
        queue = blocking.WorkQueue(store, "mail")
        queue.put(1)
        for file in tmp_path.iterdir():
            file.unlink()
        # a fault between two calls is none of theirs: the second one opens another store
        with suppress(tenure.StoreClosed, tenure.EngineError):
            while "ended by a fault" not in caplog.text:
                queue.statistics()
        while "ended by a fault" not in caplog.text:
            pass
        assert queue.statistics().waiting == 0
        queue.put(2)
        assert queue.statistics().waiting == 1


def test_the_address_may_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TENURE_STORE", f"sqlite:///{tmp_path}/it.db")
    with blocking.open_store() as store:
        assert "it.db" in store.url
    monkeypatch.delenv("TENURE_STORE")
    with pytest.raises(ValueError, match="TENURE_STORE"):
        blocking.open_store()


def end_of(code, said="", *, told=False):
    """Run it in a process, which has to end without an error, unless the store has `told` of one."""
    line = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, bool(done.stderr), done.stdout) == (0, told, said), done.stderr


ENDINGS = {
    "in a body": "lock.__enter__()",
    "with a thread in a body": "start(lambda: (lock.__enter__(), time.sleep(1000)))",
    "with a thread that waits": "lock.__enter__(); start(wait)",
    "with another in atexit": "import atexit; atexit.register(lambda: (queue.put(2), lock.__enter__()))",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_without_a_word(process_url, ending):
    code = f"""
import threading, time, tenure
from contextlib import suppress
from tenure import blocking
def start(function):
    threading.Thread(target=function, daemon=True).start()
    time.sleep(0.3)
def wait():
    with suppress(tenure.StoreClosed):
        lock.__enter__()
store = blocking.open_store({process_url!r}, close_timeout=0.2)
lock, queue = blocking.Lock(store, "report"), blocking.WorkQueue(store, "mail")
queue.put(1)
{ENDINGS[ending]}
"""
    end_of(code)


THREADS = {
    "a thread": "threading.Thread(target=wait, args=(call,)).start()",
    "a pool": "pool.submit(wait, call)",
}


@pytest.mark.parametrize("thread", THREADS)
def test_a_thread_that_waits_does_not_keep_the_process(process_url, thread):
    """Also if it is no daemon: Python joins it, after the main thread has ended."""
    code = f"""
import sys, threading, tenure
from tenure import blocking
from concurrent.futures import ThreadPoolExecutor
store = blocking.open_store({process_url!r}, close_timeout=0.2)
lock = blocking.Lock(store, "report")
empty, later, full = (blocking.WorkQueue(store, name, max_size=3) for name in ("empty", "later", "full"))
def again_and_again():
    while True:
        with empty.take():
            pass
calls = [
    empty.take().__enter__,
    lock.__enter__,
    lambda: later.result(later.put(1, delay=1000)),
    lambda: [full.put(n) for n in range(9)],
    again_and_again,
]
begun, pool = threading.Barrier(1 + len(calls)), ThreadPoolExecutor()
def wait(call):
    begun.wait(20)
    try:
        call()
    except tenure.StoreClosed as problem:
        sys.stdout.write(f"{{problem}}\\n")
block = lock.hold()
block.__enter__()
for call in calls:
    {THREADS[thread]}
begun.wait(20)
"""
    end_of(code, "the store is closed: the process is ending\n" * 5)


def test_a_call_that_is_sent_when_the_main_thread_is_over_does_not_keep_the_process(process_url):
    """The thread has asked for the portal before."""
    code = f"""
import threading, tenure
from tenure import blocking
from tenure.blocking._portal import Portal
store = blocking.open_store({process_url!r}, close_timeout=0.2)
queue = blocking.WorkQueue(store, "mail")
with blocking.Lock(store, "report"):
    pass
asked = threading.Event()
def check(portal):
    asked.set()
    threading.main_thread().join()
Portal.check = check
def wait():
    try:
        queue.take().__enter__()
    except tenure.StoreClosed as problem:
        print(problem)
threading.Thread(target=wait).start()
assert asked.wait(20)
"""
    end_of(code, "the store is closed: the process is ending\n")


def test_a_body_in_another_thread_ends_before_the_process(process_url):
    """It may use what it holds, but begin nothing."""
    code = f"""
import threading, time, tenure
from tenure import blocking
store = blocking.open_store({process_url!r}, close_timeout=0.2)
queue = blocking.WorkQueue(store, "mail")
queue.put_many([1, 2])
taken = threading.Event()
def work():
    with queue.take() as task:
        taken.set()
        threading.main_thread().join()
        while True:
            try:
                queue.statistics()
            except tenure.StoreClosed:
                break
        task.progress("half")
threading.Thread(target=work).start()
assert taken.wait(20)
"""
    end_of(code)
    with blocking.open_store(process_url) as store:
        queue = blocking.WorkQueue(store, "mail")
        assert (queue.statistics().done, queue.statistics().waiting) == (1, 1)


CALLS = {
    "is answered": ("await report(task, value)", "to the end\n"),
    "ends with its lease": ("task._session.lose('expired'); await anyio.sleep_forever()", "expired\n"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_uses_a_hold_when_the_main_thread_ends(process_url, call):
    """The end of the main thread reaches the loop while the call is under way."""
    rest, words = CALLS[call]
    code = f"""
import anyio, threading, tenure
from tenure import blocking
store = blocking.open_store({process_url!r}, close_timeout=0.2)
queue = blocking.WorkQueue(store, "mail")
queue.put(1)
begun, report = threading.Event(), tenure.Task.progress
async def progress(task, value):
    begun.set()
    while threading.main_thread().is_alive():
        await anyio.sleep(0)
    {rest}
tenure.Task.progress = progress
def work():
    try:
        with queue.take() as task:
            task.progress("half")
            print("to the end")
    except tenure.LeaseLost as problem:
        print(problem.reason)
threading.Thread(target=work).start()
assert begun.wait(20)
"""
    end_of(code, words, told=call != "is answered")
    with blocking.open_store(process_url) as store:
        assert blocking.WorkQueue(store, "mail").statistics().done == (call == "is answered")


def test_without_the_private_function_of_threading_a_process_still_ends(process_url):
    code = f"""
import concurrent.futures.thread, threading
del threading._register_atexit
from tenure import blocking
blocking.WorkQueue(blocking.open_store({process_url!r}), "mail").put(1)
"""
    end_of(code)


def test_stores_of_files_share_by_the_file_not_by_its_relative_path(tmp_path, monkeypatch):
    for name in ("one", "two %41"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with blocking.open_store("sqlite:///it.db") as one, blocking.open_store("sqlite:///it.db") as same:
        late = blocking.open_store("sqlite:///late.db")
        blocking.WorkQueue(one, "mail").put(1)
        assert blocking.WorkQueue(same, "mail").statistics().waiting == 1
        monkeypatch.chdir(tmp_path / "two %41")
        with late, blocking.open_store("sqlite:///it.db") as two:
            assert blocking.WorkQueue(two, "mail").statistics().waiting == 0
            late.ping()
    assert (tmp_path / "two %41" / "it.db").exists()
    assert (tmp_path / "one" / "late.db").exists()
    for wrong in ("sqlite:///:memory:", "sqlite:///", "sqlite:///it.db?mode=ro"):
        with pytest.raises(ValueError, match="sqlite|memory"):
            blocking.open_store(wrong)


def test_a_task_whose_body_outlives_the_process_is_given_back(process_url):
    code = f"""
import threading, time
from tenure import blocking
store = blocking.open_store({process_url!r}, close_timeout=0.2)
queue = blocking.WorkQueue(store, "mail")
queue.put(1)
taken = threading.Event()
def work():
    with queue.take():
        taken.set()
        time.sleep(1000)
threading.Thread(target=work, daemon=True).start()
assert taken.wait(20)
"""
    end_of(code)
    with blocking.open_store(process_url) as store:
        with blocking.WorkQueue(store, "mail").take(timeout=5) as task:
            assert (task.payload, task.attempt) == (1, 1)


def test_it_is_not_loaded_unless_it_is_used():
    code = "import sys, tenure; assert 'tenure.blocking' not in sys.modules; tenure.blocking.open_store"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
