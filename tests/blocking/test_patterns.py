"""The patterns, called from synchronous code, on each engine."""

from __future__ import annotations

import contextlib
import gc
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import anyio
import pytest

import tenure
from tenure import blocking
from tenure.store import Session


def in_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(20)


def test_a_lock_is_held_for_a_block(store):
    lock = blocking.Lock(store, "report")
    with lock as first:
        assert lock.locked()
        assert first.remaining() > 0
        first.check()
        (holder,) = lock.holders().page().records
        assert holder.token == first.token
        with pytest.raises(tenure.AcquireTimeout):
            in_thread(lambda: lock.hold(timeout=0).__enter__())
    with lock.hold(timeout=5) as second:
        assert second.token > first.token
    with pytest.raises(tenure.LeaseLost, match="released"):
        first.check()


def test_one_thread_after_another_holds_a_lock(store):
    lock, inside, most = blocking.Lock(store, "report"), 0, 0

    def work():
        nonlocal inside, most
        for _ in range(5):
            with lock:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


@pytest.mark.parametrize("enter", [lambda lock: lock, lambda lock: lock.hold()])
def test_a_thread_that_would_wait_for_itself_gets_an_error(store, enter):
    lock = blocking.Lock(store, "report")
    with lock, pytest.raises(RuntimeError, match="report: this thread holds it already"):
        enter(lock).__enter__()
    rw = blocking.RWLock(store, "report")
    with rw.read(), pytest.raises(RuntimeError, match="report: this thread holds it already"):
        rw.write().__enter__()
    with lock, rw.write():
        pass


def test_a_lease_that_is_lost_ends_no_body_but_the_block_raises(store):
    lock = blocking.Lock(store, "report")
    goes_on = False
    with pytest.raises(tenure.LeaseLost, match="broken"):
        with lock as lease:
            assert lock.break_holder(lease.token)
            while lease.lost is None:
                pass
            with pytest.raises(tenure.LeaseLost, match="broken"):
                lease.check()
            goes_on = True
    assert goes_on


@pytest.mark.parametrize("kind", ["lock", "task"])
def test_a_body_does_not_begin_in_a_thread_that_was_kept_from_running_for_too_long(store, kind, monkeypatch):
    queue = blocking.WorkQueue(store, "jobs")
    block = blocking.Lock(store, "report").hold() if kind == "lock" else queue.take()
    queue.put(1)
    judged = []

    def is_over(session):
        judged.append(session.id)
        return len(judged) == 1

    monkeypatch.setattr(Session, "is_over", is_over)
    with block as held:
        assert len(judged) == 2
        if kind == "task":
            assert (held.attempt, held.deliveries) == (1, 1)
    assert not (blocking.Lock(store, "report").holders().page().records or queue.statistics().leased)


def test_the_error_of_a_block_is_not_kept(store):
    lock, errors = blocking.Lock(store, "report"), []
    gc.disable()
    try:
        try:
            with lock as lease:
                lock.break_holder(lease.token)
                while lease.lost is None:
                    pass
        except tenure.LeaseLost as lost:
            errors.append(ref(lost))
        del lease
        assert errors[0]() is None, "it is no part of a circle of references"
    finally:
        gc.enable()


def test_what_the_body_raises_leaves_the_block(store):
    lock = blocking.Lock(store, "report")
    with pytest.raises(KeyError) as raised:
        with lock as lease:
            lock.break_holder(lease.token)
            while lease.lost is None:
                pass
            raise KeyError("mine")
    assert "lost meanwhile (broken)" in raised.value.__notes__[0]
    with pytest.raises(KeyboardInterrupt):
        with lock:
            raise KeyboardInterrupt
    assert not lock.locked()


def test_a_limiter_of_several_units(store):
    limits = [tenure.Limit(3, per=1000), tenure.Limit(500, per=1000, unit="tokens")]
    limiter = blocking.RateLimiter(store, "llm", *limits)
    with limiter.spend({"tokens": 400}) as spending:
        assert spending.cost == {"requests": 1, "tokens": 400}
        spending.correct({"tokens": 450})
    assert not limiter.try_acquire({"tokens": 100})
    state = limiter.state()
    assert state.available == pytest.approx(2, abs=0.1)
    assert state.available["tokens"] == pytest.approx(50, abs=5)
    with pytest.raises(ZeroDivisionError), limiter.spend() as spending:
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="'bytes'"):
        limiter.spend({"bytes": 1})
    limiter.hold_off(1000)
    assert not limiter.try_acquire()
    assert limiter.state().held_off == pytest.approx(1000, abs=100)


def test_a_semaphore_and_a_limiter(store):
    semaphore = blocking.Semaphore(store, "api", 3)
    with semaphore, semaphore, semaphore.hold(1, timeout=1):
        with pytest.raises(tenure.AcquireTimeout):
            semaphore.hold(timeout=0).__enter__()
    semaphore.resize(4)
    assert semaphore.permits == 4
    limiter = blocking.RateLimiter(store, "api", tenure.Limit(3, per=1000))
    with limiter:
        limiter.acquire()
    assert limiter.try_acquire()
    assert not limiter.try_acquire()
    with pytest.raises(ValueError, match="cost must be at most"):
        limiter.acquire(4)


def test_threads_meet_at_a_barrier(store):
    barrier = blocking.Barrier(store, "start", 2)
    assert (barrier.name, barrier.parties, barrier.on_departure) == ("start", 2, "break")
    with ThreadPoolExecutor() as pool:
        arrivals = [pool.submit(barrier.wait) for _ in range(2)]
        (generation, _), (other, _) = places = [arrival.result() for arrival in arrivals]
        assert generation == other and sorted(place for _, place in places) == [0, 1]
        waiting = pool.submit(barrier.wait)
        while not barrier.statistics().waiting:
            pass
        barrier.abort()
        for wait in (waiting.result, barrier.wait):
            with pytest.raises(tenure.BarrierBroken):
                wait()
    barrier.reset()
    assert not barrier.statistics().broken


def test_tasks_are_put_and_worked_on(store):
    queue = blocking.WorkQueue(store, "mail", max_size=3)
    one = queue.put({"to": "ann"}, priority=1, key="ann", meta={"for": "docs"})
    with pytest.raises(tenure.DuplicateTask):
        queue.put({"to": "ann"}, key="ann")
    two, three = queue.put_many([{"to": "bob"}, tenure.Item({"to": "cy"}, priority=2)])
    with pytest.raises(tenure.QueueFull):
        queue.try_put({})
    assert queue.get(one).meta == {"for": "docs"}
    assert queue.statistics().waiting == 3
    with queue.take(timeout=5) as task:
        assert task.id == three
        task.check()
        task.progress("half")
        task.set_result("sent")
    assert queue.result(three) == "sent"
    with pytest.raises(KeyError), queue.take() as task:
        raise KeyError("mine")
    with queue.take() as task:
        assert (task.id, task.payload, task.last_progress) == (two, {"to": "bob"}, None)
        raise tenure.Discard("wrong")
    assert queue.cancel(one)
    assert queue.verify().problems == ()
    assert queue.store is store


def test_listings_are_iterated_and_paged_by_plain_calls(store):
    queue = blocking.WorkQueue(store, "mail")
    queue.put_many(range(300))
    listing = queue.tasks("waiting")
    assert [record.payload for record in listing] == list(range(300))
    assert [record.payload for record in queue.tasks(limit=270)] == list(range(270))
    first = listing.page(limit=10)
    assert [record.payload for record in listing.page(first.next, 5).records] == [10, 11, 12, 13, 14]
    assert [group.waiting for group in queue.groups()] == []
    assert list(queue.children(1)) == list(blocking.Lock(store, "x").waiters()) == []
    with pytest.raises(ValueError, match="state must be"):
        queue.tasks("odd")
    with pytest.raises(ValueError, match="limit must be"):
        listing.page(limit=0)


def test_a_task_that_is_cancelled_ends_no_body(store):
    queue = blocking.WorkQueue(store, "mail")
    queue.put(1)
    with queue.take() as task:
        assert queue.cancel(task.id)
        while not task.cancelled:
            task.progress("not yet")
        raise tenure.Discard("nobody wants it")
    assert queue.get(task.id).state == "discarded"


def test_a_task_names_what_is_undone_when_it_ends(store):
    queue, undone = blocking.WorkQueue(store, "pulls"), blocking.WorkQueue(store, "undone")
    queue.put(1)
    with queue.take() as task:
        first, kept = task.at_end("first", undone), task.at_end("kept", undone, unless_done=True)
        assert task.keep("kept") and kept.thing != first.thing
    assert queue.get(task.id).state == "ending"
    with undone.take() as release:
        assert release.payload == release.thing == first.thing
    assert queue.get(task.id).state == "done"
    assert undone.statistics().put == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_body_that_a_signal_interrupts_gives_its_task_back(store, kind):
    queue = blocking.WorkQueue(store, "mail")
    queue.put(1)

    def interrupt(*_):
        raise kind

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(kind), queue.take():
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(kind), queue.take() as task:
        assert task.attempt == 1
        raise kind
    with queue.take(timeout=5) as task:
        assert task.attempt == 2


def send_mail(user: int, text: str = "hello") -> bool:
    return bool(text[user:])


def test_a_job_is_put_with_the_arguments_of_its_function(store):
    job = blocking.Job(blocking.WorkQueue(store, "mail"), send_mail)
    first = job.put(1, text="hi")
    second = job.options(priority=3).put(user=2)
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        job.put(to=1)
    assert job.queue.get(first).payload == {"user": 1, "text": "hi"}
    assert (job.queue.get(second).payload, job.queue.get(second).priority) == ({"user": 2}, 3)
    with job.queue.take() as task:
        task.set_result(send_mail(**task.payload))
    assert job.result(second)


def test_a_task_is_put_in_a_transaction_of_the_callers(tmp_path):
    path = tmp_path / "mine.db"
    with blocking.open_store(f"sqlite:///{path}") as store:
        queue = blocking.WorkQueue(store, "mail")
        queue.put(0)
        connection = sqlite3.connect(path)
        connection.execute("BEGIN IMMEDIATE")
        number = queue.put_in_sync(connection, 1)
        connection.rollback()
        assert queue.get(number) is None
        connection.execute("BEGIN IMMEDIATE")
        number = queue.put_in_sync(connection, 2)
        connection.commit()
        connection.close()
        assert queue.get(number).payload == 2


def test_the_first_call_is_in_a_transaction_of_the_callers(tmp_path):
    """Opening the store would wait for the lock that the caller has."""
    path = tmp_path / "mine.db"
    with blocking.open_store(f"sqlite:///{path}"):
        pass
    store = blocking.open_store(f"sqlite:///{path}")
    queue = blocking.WorkQueue(store, "mail")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE sale (id INTEGER)")
        connection.execute("INSERT INTO sale VALUES (1)")
        queue.put_in_sync(connection, 1)
    with queue.take(0) as task:
        assert task.payload == 1
    store.close()


def test_wrong_arguments_are_refused_at_once(store):
    for wrong in (
        lambda: blocking.open_store("nowhere:"),
        lambda: blocking.open_store("memory:", ttl=0),
        lambda: blocking.Lock(store, ""),
        lambda: blocking.Lock(store, "x", ttl=0),
        lambda: blocking.Lock(store, "x").hold(timeout=-1),
        lambda: blocking.Semaphore(store, "x", 0),
        lambda: blocking.WorkQueue(store, "x").take(timeout=-1),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError, match="store must be made by tenure.blocking, not Store"):
        blocking.Lock(tenure.open_store("memory:"), "x")
    with pytest.raises(TypeError):
        blocking.Lock(store)
    with pytest.raises(TypeError):
        blocking.Job(store, send_mail)


@pytest.mark.parametrize("wait", ["lock", "take", "result", "acquire"])
def test_a_wait_that_is_interrupted_is_withdrawn(store, wait):
    """As by Ctrl-C: the handler of a signal raises in the thread that waits."""
    queue, lock = blocking.WorkQueue(store, "mail"), blocking.Lock(store, "report")
    limiter = blocking.RateLimiter(store, "api", tenure.Limit(1, per=1000))
    number = queue.put(1, delay=1000)
    entered, left = threading.Event(), threading.Event()

    def hold():
        with lock:
            entered.set()
            left.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(20)
    limiter.acquire()

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    left_of_the_test = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            match wait:
                case "lock":
                    lock.hold().__enter__()
                case "take":
                    queue.take().__enter__()
                case "result":
                    queue.result(number)
                case "acquire":
                    limiter.acquire()
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left_of_the_test)
    assert not lock.waiters().page().records
    left.set()
    holder.join()
    with lock.hold(timeout=5):
        pass


async def test_it_works_under_a_loop_that_runs(url, anyio_backend):
    def call():
        with blocking.open_store(url) as store:
            queue = blocking.WorkQueue(store, "mail")
            with blocking.Lock(store, "report"):
                return queue.get(queue.put(1)).payload

    assert call() == 1  # it blocks this loop
    assert await anyio.to_thread.run_sync(call) == 1


def test_a_codec_that_calls_back_gets_an_error():
    class Codec:
        def encode(self, value):
            return str(queue.statistics()).encode()

        def decode(self, data):
            return data

    with blocking.open_store("memory:", codec=Codec()) as store:
        queue = blocking.WorkQueue(store, "mail")
        with pytest.raises(RuntimeError, match="would wait for itself"):
            queue.put(1)
