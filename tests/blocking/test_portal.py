"""The thread of the process: what ends it, and what must not."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from weakref import ref

import pytest
import sniffio

import tenure
from tenure import blocking
from tenure.blocking._portal import portal_for
from tenure.waiting import this_task, this_task_end


class Failing:
    """An observer or codec whose failure is no `Exception`."""

    def encode(self, value):
        raise SystemExit(value)

    def decode(self, data):
        raise KeyboardInterrupt


def test_what_is_raised_in_the_thread_is_raised_by_the_call():
    with blocking.open_store("memory:", codec=Failing()) as store:
        queue = blocking.WorkQueue(store, "mail")
        with pytest.raises(SystemExit, match="7"):
            queue.put(7)
        assert queue.statistics().put == 0


def test_a_thread_that_has_ended_is_replaced():
    with blocking.open_store("memory:") as store, blocking.open_store("memory:") as other:
        store.ping()
        portal = portal_for(store)
        portal.end()
        assert portal.ended
        assert blocking.WorkQueue(store, "mail").put(1)
        assert other.ping() > 0


@pytest.mark.parametrize("name", ["asyncio", "uvloop", "trio", None])
def test_the_environment_names_the_loop_of_the_thread(monkeypatch, name):
    if name in ("uvloop", None):
        pytest.importorskip("uvloop")

    async def runs():
        trio = sniffio.current_async_library() == "trio"
        return "trio" if trio else type(asyncio.get_running_loop()).__module__.partition(".")[0]

    if name is None:
        monkeypatch.delenv("TENURE_BLOCKING_LOOP", raising=False)
    else:
        monkeypatch.setenv("TENURE_BLOCKING_LOOP", name)
    with blocking.open_store("memory:") as store:
        assert portal_for(store).call(runs) == (name or "uvloop")
        with blocking.Lock(store, "report"):
            assert blocking.WorkQueue(store, "mail").put(1)
        assert store.ping() > 0


def test_an_unknown_loop_is_an_error_of_the_call(monkeypatch):
    monkeypatch.setenv("TENURE_BLOCKING_LOOP", "curio")
    with pytest.raises(ValueError, match="TENURE_BLOCKING_LOOP must be asyncio, uvloop or trio, not 'curio'"):
        blocking.open_store("memory:").ping()


def test_a_call_that_meets_the_closing_gets_an_error():
    for _ in range(30):
        with blocking.open_store("memory:"):
            store = blocking.open_store("memory:")
            queue = blocking.WorkQueue(store, "mail")
            outcomes = []

            def put(queue=queue, outcomes=outcomes):
                try:
                    for n in range(1000):
                        queue.put(n)
                except tenure.StoreClosed as problem:
                    outcomes.append(problem)

            threads = [threading.Thread(target=put) for _ in range(3)]
            for thread in threads:
                thread.start()
            store.close()
            for thread in threads:
                thread.join()
            assert len(outcomes) == 3


def test_calls_are_made_by_tasks_that_are_kept_and_keep_nothing():
    async def look(store):
        return this_task(), this_task_end()

    async def pass_on(argument):
        pass

    with blocking.open_store("memory:") as store:
        task = store._call(look)
        with blocking.Lock(store, "report"):
            other = store._call(look)
            assert other != task, "the lock has the first one"
        assert store._call(look) in (task, other)
        argument, portal = Failing(), portal_for(store)
        alive = ref(argument)
        portal.call(partial(pass_on, argument))
        del argument
        portal.call_plain(int)
        assert alive() is None


def test_an_open_store_keeps_nothing_of_the_context_of_the_call_that_opened_it():
    variable = ContextVar("variable")
    store = blocking.open_store("memory:")

    def call():
        value = Failing()
        variable.set(value)
        store.ping()
        return ref(value)

    with ThreadPoolExecutor(1) as threads:
        alive = threads.submit(call).result()
    del threads  # from Python 3.14 on, a thread that has ended keeps its context
    store.ping()
    gc.collect()
    try:
        assert alive() is None
    finally:
        store.close()
