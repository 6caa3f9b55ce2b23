from __future__ import annotations

import asyncio
import gc

import anyio
import pytest

import tenure
from tenure import AcquireTimeout, LeaseLost, Lock, StoreClosed, open_store
from tenure.engine import Hint, Notice
from tenure.engines.memory import MemoryEngine
from tenure.shared import Hold
from tenure.testing import Fault, FaultyEngine, assert_checkpoints

KEY = "tenure:lock:report"


async def test_it_is_held_for_the_block(store, nothing_of):
    lock = Lock(store, "report")
    async with lock as lease:
        (holder,) = [party async for party in lock.holders()]
        assert (holder.token, holder.process) == (lease.token, store.process)
        assert not [party async for party in lock.waiters()]
        assert lease.key == KEY
        assert lease.lost is None
    await nothing_of(store, KEY)


async def test_entering_and_leaving_is_a_checkpoint(store):
    async with Lock(store, "other"):
        pass
    with assert_checkpoints():
        async with Lock(store, "report"):
            pass


async def test_names_and_namespaces_part(open_store_on):
    async with open_store_on() as one, open_store_on(namespace="else") as two, open_store_on() as three:
        async with Lock(one, "a").hold(0), Lock(one, "b").hold(0), Lock(two, "a").hold(0):
            with pytest.raises(AcquireTimeout):
                async with Lock(three, "a", ttl=5).hold(0):
                    pytest.fail("held twice")


async def test_what_waits_is_shown(store, virtual_clock):
    lock = Lock(store, "report")

    async def wait():
        async with lock:
            pass

    async with anyio.create_task_group() as group:
        async with lock as lease:
            group.start_soon(wait)
            await virtual_clock.advance(2)
            (holder,) = [party async for party in lock.holders()]
            (waiter,) = [party async for party in lock.waiters()]
    assert (holder.token, holder.weight, waiter.token, waiter.weight) == (lease.token, 1, 0, 1)
    assert holder.seconds == pytest.approx(2, abs=0.01)
    assert waiter.seconds == pytest.approx(2, abs=0.01)


async def test_zero_tries_once(store, virtual_clock):
    lock = Lock(store, "report")
    async with lock.hold(timeout=0):

        async def other():
            with pytest.raises(
                AcquireTimeout, match=r"tenure:lock:report: not acquired within 0 s; held$"
            ) as caught:
                async with lock.hold(timeout=0):
                    pytest.fail("held twice")
            assert (caught.value.key, caught.value.seconds, caught.value.position) == (KEY, 0, None)
            assert isinstance(caught.value, TimeoutError)

        async with anyio.create_task_group() as group:
            group.start_soon(other)
        assert (await lock.waiters().page()).records == []
    assert virtual_clock.now() == 0


async def test_a_timeout_reports_the_position(store, virtual_clock, nothing_of):
    lock = Lock(store, "report")
    caught = []

    async def other(timeout):
        with pytest.raises(AcquireTimeout) as error:
            async with lock.hold(timeout=timeout):
                pytest.fail("held twice")
        place = str(error.value).partition("; ")[2]
        caught.append((error.value.position, place, virtual_clock.now()))

    async with anyio.create_task_group() as group:
        async with lock:
            for timeout in (3, 2, 1):
                group.start_soon(other, timeout)
                await virtual_clock.settle()
            await virtual_clock.advance(4)
    assert caught == [
        (2, "at most 2 waiters were before it", 1),
        (1, "at most 1 waiter was before it", 2),
        (0, "it was first in line", 3),
    ]
    await nothing_of(store, KEY)


@pytest.mark.parametrize("how", ["lock", "hold"])
async def test_the_same_task_gets_an_error_instead_of_waiting_for_itself(store, how):
    lock = Lock(store, "report")
    async with lock:
        with pytest.raises(RuntimeError, match="tenure:lock:report: this task holds it already"):
            async with lock if how == "lock" else Lock(store, "report").hold(timeout=1):
                pytest.fail("held twice")
    async with lock:
        pass


async def test_a_hold_is_for_one_use(store):
    hold = Lock(store, "report").hold()
    with pytest.raises(RuntimeError, match="was not entered"):
        await hold.__aexit__(None, None, None)
    async with hold:
        pass
    with pytest.raises(RuntimeError, match="lock:report: this block was left before"):
        await hold.__aexit__(None, None, None)
    with pytest.raises(RuntimeError, match="entered before"):
        async with hold:
            pass
    with pytest.raises(RuntimeError, match="not held by this task"):
        await Lock(store, "report").__aexit__(None, None, None)


async def test_wrong_arguments_are_named(store):
    with pytest.raises(TypeError, match="name must be a str, not int"):
        Lock(store, 5)
    with pytest.raises(ValueError, match="name must not be empty"):
        Lock(store, "")
    for wrong in (0.4, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ttl must be"):
            Lock(store, "report", ttl=wrong)
    with pytest.raises(TypeError, match="ttl must be a number of seconds or a timedelta, not str"):
        Lock(store, "report", ttl="5")
    for wrong in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="timeout must be"):
            Lock(store, "report").hold(timeout=wrong)
    with pytest.raises(TypeError, match="timeout must be a number of seconds or a timedelta, not str"):
        Lock(store, "report").hold(timeout="soon")


async def test_before_and_after_the_store_is_open():
    store = open_store("memory:")
    lock = Lock(store, "report")
    with pytest.raises(RuntimeError, match="not open"):
        async with lock:
            pass
    async with store:
        async with lock:
            pass
    for call in (lock.__aenter__, lock.hold(timeout=0).__aenter__, lock.holders().page):
        with pytest.raises(StoreClosed):
            await call()


async def test_several_ttls_live_side_by_side(faulty, faulty_store, virtual_clock):
    ended = {}

    async def hold(ttl):
        with pytest.raises(LeaseLost):
            async with Lock(faulty_store, f"ttl {ttl}", ttl=ttl) as lease:
                assert lease.remaining() == pytest.approx(ttl - max(0.1 * ttl, 0.05), abs=0.02)
                await anyio.sleep_forever()
        ended[ttl] = virtual_clock.now()

    async with anyio.create_task_group() as group:
        for ttl in (0.5, 3.0, 10.0):
            group.start_soon(hold, ttl)
        await virtual_clock.settle()
        assert (await faulty_store.statistics()).sessions == 3
        faulty.pause()
        await virtual_clock.advance(20)
        faulty.resume()
    # 50 ms are the least margin; no exit waits any longer for an acknowledgement that does not come
    assert ended == pytest.approx({0.5: 0.45, 3.0: 2.7, 10.0: 9.0})


async def test_one_that_leaves_an_inner_lock_while_the_engine_is_away_holds_the_outer_no_longer_than_its_lease(
    virtual_clock,
):
    engine, order = MemoryEngine(), []
    link = FaultyEngine(engine)

    async def follow(store):
        async with Lock(store, "outer"):
            order.append("next")

    async with open_store(engine, ttl=3.0) as other, anyio.create_task_group() as group:
        async with open_store(link, ttl=3.0) as store:
            with pytest.raises(LeaseLost):
                async with Lock(store, "outer"):
                    group.start_soon(follow, other)
                    async with Lock(store, "inner"):
                        await anyio.sleep(0.9)
                        link.pause(before_effect=True)
                        await anyio.sleep(1.7)
                    order.append("first")
                    await anyio.sleep_forever()
            link.resume()
    assert order == ["first", "next"]


# what the sketch of seed 003 and others got wrong


async def test_a_waiter_does_not_poll(faulty, faulty_store, virtual_clock):
    lock = Lock(faulty_store, "report", ttl=30)

    async def wait():
        async with lock:
            pass

    async with anyio.create_task_group() as group:
        async with lock:
            group.start_soon(wait)
            await virtual_clock.settle()
            before = faulty.batches
            await virtual_clock.advance(300)
            # a heartbeat every ten seconds, and now and then the question whether somebody has died
            assert faulty.batches - before <= 30 + 300 / 20 + 1


async def test_the_wall_clock_does_not_matter(store, virtual_clock, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 0.0)
    async with Lock(store, "report") as lease:
        monkeypatch.setattr("time.time", lambda: 1e10)
        await anyio.sleep(10)
        lease.check()


async def test_nothing_is_kept_of_names_that_are_not_in_use(virtual_clock):
    engine = MemoryEngine()
    async with open_store(engine) as store:

        async def work(number):
            async with Lock(store, f"name {number % 50}"):
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            for number in range(500):
                group.start_soon(work, number)
        assert (
            len(store._handle.acquisitions.by_name)
            == len(store._handle.acquisitions.reasker._by_key)
            == len(store._handle.entered)
            == 0
        )
        assert len(store._handle._timers._heap) <= 500
        await anyio.sleep(100)
        assert len(store._handle._timers._heap) == len(store._handle.acquisitions.reasker._due) == 0


@pytest.mark.parametrize(
    "engine", [MemoryEngine, lambda: FaultyEngine(MemoryEngine())], ids=["memory", "wire"]
)
async def test_nothing_is_left_to_the_garbage_collector(engine):
    async with open_store(engine()) as store:
        lock = Lock(store, "report")
        async with lock:
            pass
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                async with lock:
                    pass
            left = gc.collect()
            holds = sum(type(thing) is Hold for thing in gc.get_objects())
        finally:
            gc.enable()
    assert (left, holds) == (0, 0)


@pytest.mark.backends("asyncio", "uvloop")
async def test_it_works_in_a_program_of_plain_asyncio():
    def run():
        async def main():
            async with open_store("memory:") as store:
                lock = Lock(store, "report")

                async def forgetful():
                    await lock.hold().__aenter__()

                async with lock:
                    pass
                await asyncio.create_task(forgetful())
                # the task is gone, so the lock is free
                async with asyncio.timeout(5), lock:
                    return True

        return asyncio.run(main())

    assert await anyio.to_thread.run_sync(run)


def test_repr():
    store = open_store("memory:")
    assert repr(Lock(store, "report")) == "<Lock 'report'>"
    assert tenure.Lock is Lock


# ------------------------------------------------------------------------------------------------------ a stuck holder


async def test_a_broken_holder_that_missed_the_hint_learns_of_it_with_the_next_connection(virtual_clock):
    engine = FaultyEngine(MemoryEngine(), rates={Fault.LOST_HINT: 1.0})
    async with tenure.open_store(engine, ttl=300) as store, tenure.open_store(engine, ttl=300) as other:
        reasons = []

        async def stuck():
            try:
                async with Lock(store, "x").hold():
                    await anyio.sleep_forever()
            except LeaseLost as error:
                reasons.append(error.reason)

        async with anyio.create_task_group() as group:
            group.start_soon(stuck)
            await anyio.sleep(1)
            (holder,) = (await Lock(other, "x").holders().page()).records
            assert await Lock(other, "x").break_holder(holder.token)
            await anyio.sleep(1)
            assert reasons == []
            store._handle.on_hint(Hint(store.process, "", "", Notice.MISSED))
        assert reasons == ["gone"]


async def test_breaking_is_reported_on_both_sides(open_store_on, caplog):
    events = []

    class Notes:
        def notice(self, event, /, **fields):
            events.append((event, fields.get("token"), fields.get("reason")))

    async with open_store_on(observer=Notes()) as a, open_store_on(observer=Notes()) as b:
        held, tokens = anyio.Event(), []

        async def stuck():
            with pytest.raises(LeaseLost):
                async with Lock(a, "x") as lease:
                    tokens.append(lease.token)
                    held.set()
                    await anyio.sleep_forever()

        async with anyio.create_task_group() as group:
            group.start_soon(stuck)
            await held.wait()
            assert await Lock(b, "x").break_holder(tokens[0])
    assert ("lock.broken", tokens[0], None) in events
    assert ("lease.lost", tokens[0], "broken") in events
    warned = {record.getMessage().split()[0] for record in caplog.records if record.levelname == "WARNING"}
    assert warned == {"lock.broken", "lease.lost"}


@pytest.mark.parametrize("token", [0, -1, True, 1.5, "1", None, 2**63])
async def test_a_token_that_is_none(store, token):
    with pytest.raises((TypeError, ValueError), match="token must be"):
        await Lock(store, "x").break_holder(token)


async def test_anybody_may_ask_whether_it_is_locked(open_store_on):
    async with open_store_on() as store, open_store_on() as elsewhere:
        lock = Lock(store, "held")
        assert await lock.locked() is False
        async with lock:
            assert await lock.locked() is await Lock(elsewhere, "held").locked() is True
        assert await lock.locked() is False
