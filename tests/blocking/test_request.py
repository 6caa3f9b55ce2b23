"""Exceptions from the handlers of signals: at any moment, nothing is left held and no thread hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path

import depth
import pytest

import tenure
from tenure import blocking

FOLDER = Path(__file__).parent


def run(program, *words):
    done = subprocess.run(
        [sys.executable, "-W", "error", FOLDER / program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    # stderr may tell of an exception in a function of the standard library that Python calls to free an object
    assert done.returncode == 0, done.stderr


def test_a_storm_of_signals_leaves_nothing_held(url):
    run("storm.py", url, 1, depth.share(500))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the program knows the bytecode of Python 3.11")
@pytest.mark.parametrize(
    "url", ["memory", "sqlite", "redis", "postgres"] if depth.full else ["memory"], indirect=True
)
def test_an_interruption_at_each_place_leaves_nothing_held(url):
    run("interrupt_each.py", url, 2 if depth.full else 3)


def test_ctrl_c_ends_a_wait(process_url):
    code = """
import os, signal, sys, threading
from tenure import blocking
with blocking.open_store(sys.argv[1]) as store:
    lock, held, interrupted = blocking.Lock(store, "report"), threading.Event(), threading.Event()
    def press():
        with lock:
            held.set()
            while not lock.waiters().page().records:
                pass
            os.kill(os.getpid(), signal.SIGINT)
            interrupted.wait(20)
    threading.Thread(target=press).start()
    held.wait(20)
    try:
        lock.__enter__()
    except KeyboardInterrupt:
        assert not lock.waiters().page().records
        interrupted.set()
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code, process_url], check=True, timeout=50)


def test_the_handler_of_a_signal_may_call(store):
    lock, queue = blocking.Lock(store, "report"), blocking.WorkQueue(store, "mail")
    before = signal.signal(signal.SIGUSR1, lambda *_: queue.put(1))
    try:
        with lock:
            signal.raise_signal(signal.SIGUSR1)
            waiting = threading.Thread(target=lambda: signal.pthread_kill(main, signal.SIGUSR1))
            main = threading.get_ident()
            waiting.start()
            with queue.take(), queue.take(timeout=20):
                pass
            waiting.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_block_that_nobody_refers_to_is_given_back(store):
    lock = blocking.Lock(store, "report")
    block = lock.hold()
    lease = block.__enter__()
    lease.check()
    del block
    with blocking.Semaphore(store, "other", 1), lock.hold(timeout=20):
        with pytest.raises(tenure.LeaseLost):
            lease.check()


def test_what_a_thread_has_entered_by_a_plain_call_is_held_until_the_thread_ends(store):
    lock = blocking.Lock(store, "report")
    lock.__enter__()
    assert lock.locked()
    lock.__exit__(None, None, None)
    assert not lock.locked()
    thread = threading.Thread(target=lock.__enter__)
    thread.start()
    thread.join()
    with lock.hold(timeout=20):
        pass


def test_a_stack_enters_and_leaves(store):
    lock = blocking.Lock(store, "report")
    with ExitStack() as stack:
        stack.enter_context(lock).check()
        stack.enter_context(blocking.Semaphore(store, "api", 1)).check()
    assert not lock.locked()


def test_leaving_twice_and_leaving_what_was_not_entered_are_refused(store):
    lock, queue = blocking.Lock(store, "report"), blocking.WorkQueue(store, "mail")
    queue.put(1)
    for block in (lock.hold(), queue.take(), blocking.RWLock(store, "index").read()):
        with pytest.raises(RuntimeError, match="this block was not entered"):
            block.__exit__(None, None, None)
        with block:
            pass
        with pytest.raises(RuntimeError, match="this block was left before"):
            block.__exit__(None, None, None)
    for pattern in (lock, blocking.Semaphore(store, "api", 1)):
        with pattern:
            pass
        with pytest.raises(RuntimeError, match="not held by this thread"):
            pattern.__exit__(None, None, None)


def test_a_loop_that_cannot_be_started_is_an_error_of_the_call(monkeypatch):
    def fail(function, **_):
        raise OSError("too many open files")

    store = blocking.open_store("memory:")
    with monkeypatch.context() as patched:
        patched.setattr("anyio.run", fail)
        with pytest.raises(OSError, match="too many open files"):
            store.ping()
    assert store.ping() >= 0
    store.close()


def test_a_call_runs_in_the_context_of_its_thread():
    user = ContextVar("user")

    class Codec:
        def encode(self, value):
            return f"{value} {user.get()}".encode()

        def decode(self, data):
            return data

    with blocking.open_store("memory:", codec=Codec()) as store:
        queue = blocking.WorkQueue(store, "mail")
        for name in ("ann", "bob"):
            user.set(name)
            assert queue.get(queue.put(1)).payload == f"1 {name}".encode()
