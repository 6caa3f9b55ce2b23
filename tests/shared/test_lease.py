from __future__ import annotations

import asyncio
import math

import anyio
import pytest

from tenure import AcquireTimeout, EngineError, LeaseLost, Lock, open_store
from tenure.engine import (
    HOLDERS,
    Acquire,
    CloseSession,
    Granted,
    Hint,
    Notice,
    OpenSession,
    RenewSession,
    Scan,
)
from tenure.engines.memory import MemoryEngine
from tenure.testing import Fault

KEY = "tenure:lock:report"

# The stores of these tests have a ttl of 3 seconds and so a margin of 0.3: they beat every second, and what got
# through at t is trusted until t + 2.7.


def lost(caught):
    return caught.value.key, caught.value.reason


# losing it


async def test_it_is_kept_for_as_long_as_the_block_lasts(store, virtual_clock):
    async with Lock(store, "report") as lease:
        for _ in range(60):
            await anyio.sleep(1)
            lease.check()
            assert 1.699 <= lease.remaining() <= 2.7
    assert lease.lost is None


@pytest.mark.parametrize("trouble", ["stalled", "down", "refused"])
@pytest.mark.parametrize("beats", [0, 1, 20])
async def test_missed_renewals_lose_it_when_the_last_has_run_out_and_not_before(
    faulty, faulty_store, virtual_clock, trouble, beats
):
    with pytest.raises(LeaseLost) as caught:
        async with Lock(faulty_store, "report") as lease:
            await anyio.sleep(beats + 0.5)
            if trouble == "stalled":
                faulty.pause()
            elif trouble == "down":
                faulty.down = True
            else:
                faulty.refused = RenewSession
            await anyio.sleep_until(beats + 2.69)
            lease.check()
            assert lease.remaining() == pytest.approx(0.01)
            try:
                await anyio.sleep_forever()
            finally:
                assert virtual_clock.now() == pytest.approx(beats + 2.7)
                assert (lease.lost, lease.remaining()) == ("expired", 0)
                faulty.down = False
                faulty.resume()
    assert lost(caught) == (KEY, "expired")
    assert virtual_clock.now() <= beats + 4.5


async def test_what_counts_is_when_the_renewal_was_sent(faulty, faulty_store, virtual_clock):
    async with Lock(faulty_store, "report") as lease:
        faulty.plan(Fault.DELAY, on=RenewSession)  # by a second: sent at 1, answered at 2
        await anyio.sleep_until(1.99)
        assert lease.remaining() == pytest.approx(0.71)
        await anyio.sleep_until(2.001)
        # that one got it until 3.7, and the next went out at once
        assert lease.remaining() == pytest.approx(2.699, abs=0.01)


@pytest.mark.parametrize("taken", [False, True])
async def test_a_session_that_the_engine_has_ended_loses_it(store, open_store_on, virtual_clock, taken):
    async with open_store_on() as other:
        with pytest.raises(LeaseLost) as caught:
            async with Lock(store, "report") as lease:
                await other._handle.call(CloseSession(lease._session.id))
                if taken:
                    async with Lock(other, "report").hold(timeout=0) as next_lease:
                        assert next_lease.token > lease.token
                await anyio.sleep_forever()
        assert lost(caught) == (KEY, "gone")
        assert virtual_clock.now() == pytest.approx(1)


async def test_a_session_found_gone_by_an_operation_loses_it_at_once(store, virtual_clock):
    with pytest.raises(LeaseLost, match="gone"):
        async with Lock(store, "report") as lease:
            await store._handle.call(CloseSession(lease._session.id))
            async with Lock(store, "other") as other:  # under a new session
                assert lease.lost == "gone"
                other.check()
            await anyio.sleep_forever()
    assert virtual_clock.now() == 0


async def test_a_loss_ends_only_what_was_lost(faulty, virtual_clock):
    # two ttls are two sessions
    ended = []

    async def hold(store, name, ttl):
        with pytest.raises(LeaseLost):
            async with Lock(store, name, ttl=ttl):
                await anyio.sleep_forever()
        ended.append(name)

    async with open_store(faulty) as store, anyio.create_task_group() as group:
        for name, ttl in (("a", 3), ("b", 3), ("c", 30)):
            group.start_soon(hold, store, name, ttl)
        await virtual_clock.settle()
        (gone,) = (session for session in store._handle.sessions if session.ttl == 3)
        await store._handle.call(CloseSession(gone.id))
        await virtual_clock.advance(5)
        assert sorted(ended) == ["a", "b"]
        (left,) = (session for session in store._handle.sessions if session.held)
        await store._handle.call(CloseSession(left.id))


async def test_the_body_is_waited_for(faulty, faulty_store, virtual_clock):
    with pytest.raises(LeaseLost):
        async with Lock(faulty_store, "report") as lease:
            faulty.down = True
            try:
                await anyio.sleep_forever()
            finally:
                faulty.down = False
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(10)
                with pytest.raises(LeaseLost, match="expired"):
                    lease.check()
    assert 12.7 <= virtual_clock.now() <= 12.8


async def test_a_body_that_does_not_notice_is_reported_when_it_leaves(faulty, faulty_store, freeze):
    with pytest.raises(LeaseLost, match="expired"):
        async with Lock(faulty_store, "report") as lease:
            freeze(5)
    assert lease.lost == "expired"


async def test_held_for_twenty_ttls_there_is_one_heartbeat(faulty, faulty_store, virtual_clock):
    async with Lock(faulty_store, "a"), Lock(faulty_store, "b"), Lock(faulty_store, "c"):
        before = faulty.batches
        await anyio.sleep(60)
        assert faulty.batches - before == pytest.approx(60, abs=2)
        assert sum("heartbeat" in name for name in (await faulty_store.statistics()).jobs) == 1


# check and remaining


async def test_check_sees_that_the_time_has_passed_before_the_loop_does(store, freeze, virtual_clock):
    with pytest.raises(LeaseLost, match="expired"):
        async with Lock(store, "report") as lease:
            freeze(2.69)
            lease.check()
            freeze(0.011)
            assert lease.lost is None
            assert lease.remaining() == 0
            lease.check()
    assert lease.lost == "expired"


async def test_after_a_freeze_check_says_so_before_anything_else_does(store, freeze):
    checked = []
    with pytest.raises(LeaseLost, match="expired"):
        async with Lock(store, "report") as lease:
            freeze(100)
            with pytest.raises(LeaseLost, match="expired"):
                lease.check()
            checked.append(lease.lost)
    assert checked == ["expired"]


async def test_check_sees_that_the_machine_slept(sleep_of_the_machine, store, virtual_clock):
    with pytest.raises(LeaseLost) as caught:
        async with Lock(store, "report") as lease:
            sleep_of_the_machine(1.6)
            lease.check()
            await anyio.sleep(1.5)  # a renewal
            sleep_of_the_machine(3)
            assert lease.remaining() == 0
            lease.check()
    assert lost(caught) == (KEY, "suspended")
    assert virtual_clock.now() == 1.5


async def test_the_heartbeat_sees_that_the_machine_slept(sleep_of_the_machine, store, virtual_clock):
    with pytest.raises(LeaseLost, match="suspended"):
        async with Lock(store, "report"):
            sleep_of_the_machine(3)
            await anyio.sleep_forever()
    assert virtual_clock.now() == pytest.approx(1)


async def test_a_lease_is_of_no_use_after_its_block(store):
    async with Lock(store, "report") as lease:
        lease.check()
        assert repr(lease) == f"<Lease {KEY} token={lease.token} held>"
    with pytest.raises(LeaseLost, match="released"):
        lease.check()
    assert lease.lost is None
    assert lease.remaining() == 0
    assert repr(lease) == f"<Lease {KEY} token={lease.token} released>"


async def test_repr_of_a_lost_lease(store):
    with pytest.raises(LeaseLost):
        async with Lock(store, "report") as lease:
            lease._session.lose("gone")
            assert repr(lease) == f"<Lease {KEY} token={lease.token} lost='gone'>"


async def test_the_body_sees_no_deadline(store):
    async with Lock(store, "report"):
        assert anyio.current_effective_deadline() == math.inf
    with anyio.fail_after(100):
        outer = anyio.current_effective_deadline()
        async with Lock(store, "report").hold(timeout=5):
            assert anyio.current_effective_deadline() == outer


# what leaves the block


async def test_the_bodys_own_error_leaves_with_a_note(faulty, faulty_store, virtual_clock):
    with pytest.raises(KeyError) as caught:
        async with Lock(faulty_store, "report") as lease:
            faulty.down = True
            try:
                await anyio.sleep_forever()
            finally:
                faulty.down = False
                raise KeyError("mine")
    assert caught.value.__notes__ == [f"{KEY} was lost meanwhile (expired)"]
    assert lease.lost == "expired"


async def test_an_error_without_a_loss_leaves_as_it_is(store, nothing_of):
    with pytest.raises(KeyError) as caught:
        async with Lock(store, "report") as lease:
            raise KeyError("mine")
    assert not hasattr(caught.value, "__notes__")
    assert lease.lost is None
    await nothing_of(store, KEY)


async def test_groups_lose_the_cancellation_and_keep_their_errors(store, virtual_clock):
    async def child():
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyError("mine")

    with pytest.RaisesGroup(pytest.RaisesExc(KeyError)) as caught:
        async with Lock(store, "report") as lease:
            async with anyio.create_task_group() as group:
                group.start_soon(child)
                group.start_soon(anyio.sleep_forever)
                await virtual_clock.settle()
                lease._session.lose("gone")
                await anyio.sleep_forever()
    assert caught.value.__notes__ == [f"{KEY} was lost meanwhile (gone)"]


async def test_a_group_that_was_only_cancelled_is_a_loss(store, virtual_clock):
    with pytest.raises(LeaseLost):
        async with Lock(store, "report") as lease:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                await virtual_clock.settle()
                lease._session.lose("gone")


@pytest.mark.parametrize("first", ["loss", "outside", "outside, then loss while cleaning up"])
async def test_a_cancellation_from_outside_is_never_replaced(store, virtual_clock, first):
    after = []
    with anyio.CancelScope() as outside:
        async with Lock(store, "report") as lease:
            actions = [lambda: lease._session.lose("gone"), outside.cancel]
            if first != "loss":
                actions.reverse()
            actions[0]()
            if "while" not in first:
                actions[1]()
            try:
                await anyio.sleep_forever()
            finally:
                if "while" in first:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(1)
                        actions[1]()
                        await anyio.sleep(1)
        after.append("the block")
    assert outside.cancelled_caught
    assert after == []
    assert lease.lost == "gone"


@pytest.mark.backends("asyncio")
async def test_a_native_cancellation_is_never_replaced(store, virtual_clock, nothing_of):
    async def body():
        async with Lock(store, "report"):
            await anyio.sleep_forever()

    task = asyncio.create_task(body())
    await virtual_clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_of(store, KEY)


@pytest.mark.backends("asyncio")
async def test_a_native_cancellation_in_the_turn_of_the_loss_is_not_lost(store, virtual_clock):
    leases = []

    async def body():
        async with Lock(store, "report") as lease:
            leases.append(lease)
            await anyio.sleep_forever()

    task = asyncio.create_task(body())
    await virtual_clock.settle()
    leases[0]._session.lose("gone")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_around_the_block_is_that_timeout(store, virtual_clock, nothing_of):
    with pytest.raises(TimeoutError) as caught:
        with anyio.fail_after(5):
            async with Lock(store, "report"):
                await anyio.sleep_forever()
    assert not isinstance(caught.value, AcquireTimeout)
    assert virtual_clock.now() == 5
    await nothing_of(store, KEY)


@pytest.mark.parametrize("how", ["lock", "hold"])
async def test_left_in_another_task_it_is_released_and_reported(store, virtual_clock, nothing_of, how):
    entered, left = anyio.Event(), anyio.Event()
    block = Lock(store, "report")
    if how == "hold":
        block = block.hold()
    leases = []

    async def enter():
        leases.append(await block.__aenter__())
        entered.set()
        await left.wait()
        if how == "hold":  # what it left to others can still be left properly
            await block.__aexit__(None, None, None)

    async def leave():
        await entered.wait()
        with pytest.raises(
            RuntimeError, match="left from another task than it was entered in; it has been given back"
        ):
            await block.__aexit__(None, None, None)
        await nothing_of(store, KEY)
        left.set()

    if how == "hold":
        async with anyio.create_task_group() as group:
            group.start_soon(enter)
            group.start_soon(leave)
    else:
        with pytest.RaisesGroup(RuntimeError):  # the loops complain of the scope that was not left
            async with anyio.create_task_group() as group:
                group.start_soon(enter)
                group.start_soon(leave)
    with pytest.raises(LeaseLost, match="released"):
        leases[0].check()
    assert not store._handle.entered


async def test_a_cancelled_program_keeps_its_lease_while_it_cleans_up(store, open_store_on, virtual_clock):
    got_it = []

    async def other():
        async with open_store_on(ttl=3.0) as theirs, Lock(theirs, "report"):
            got_it.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as program:
            async with open_store_on(ttl=3.0) as ours, Lock(ours, "report") as lease:
                group.start_soon(other)
                await anyio.sleep(1)
                program.cancel()
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(20)
                        lease.check()
    assert got_it == pytest.approx([21])


# giving back


async def test_it_is_given_back_before_the_first_await_of_leaving(nothing_of):
    async with open_store("memory:") as store:
        hold = Lock(store, "report").hold()
        await hold.__aenter__()
        assert_done(hold.__aexit__(None, None, None))
        await nothing_of(store, KEY)


# the windows of cancellation while waiting


def assert_done(coroutine):
    with pytest.raises(StopIteration):
        coroutine.send(None)


@pytest.mark.parametrize("link", ["memory", "wire"])
async def test_one_that_was_stopped_after_the_grant_does_not_enter_with_a_dead_session(
    faulty, virtual_clock, freeze, link
):
    entered = []
    engine = faulty if link == "wire" else MemoryEngine()

    async def wait(store):
        async with Lock(store, "report") as lease:
            lease.check()
            entered.append(lease._session.id)

    async with open_store(engine, ttl=3.0) as store, open_store(engine, ttl=60.0) as other:
        async with anyio.create_task_group() as group:
            hold = Lock(other, "report").hold()
            await hold.__aenter__()
            group.start_soon(wait, store)
            await virtual_clock.settle()
            (before,) = (session.id for session in store._handle.sessions)
            if link == "memory":
                assert_done(hold.__aexit__(None, None, None))
            else:
                faulty.pause()  # the engine grants, and the hint is held back
                await hold.__aexit__(None, None, None)
                faulty.resume()
            freeze(5)
    assert len(entered) == 1
    assert entered != [before]


async def test_when_hints_may_be_lost_it_asks_at_once(faulty, faulty_store, virtual_clock):
    lock = Lock(faulty_store, "report")
    entered = []

    async def other():
        async with lock:
            entered.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        async with lock:
            for _ in range(3):
                group.start_soon(other)
            await virtual_clock.settle()
            faulty.plan(Fault.LOST_HINT)
        faulty_store._handle.on_hint(Hint(faulty_store.process, "", "", Notice.MISSED))
    assert entered == [0, 0, 0]


# hints


async def test_a_grant_that_nobody_waits_for_is_given_back(store, virtual_clock, nothing_of):
    async with Lock(store, "other") as lease:
        session = lease._session.id
        granted = await store._handle.call(Acquire(session, KEY, "stranger", 1))
        store._handle.on_hint(Hint(store.process, KEY, "stranger", granted))
        await nothing_of(store, KEY)
        # and no word about what nobody holds does any harm
        for news in (Granted(7), Notice.ASK, Notice.CHANGED, Notice.STOP):
            store._handle.on_hint(Hint(store.process, KEY, "nobody", news))
        await nothing_of(store, KEY)


# faults on the way


async def test_an_engine_that_refuses_to_grant_says_why(faulty, faulty_store, virtual_clock, nothing_of):
    faulty.refused = Acquire
    with pytest.raises(EngineError, match="refused"):
        async with Lock(faulty_store, "report"):
            pytest.fail("not granted")
    faulty.refused = OpenSession
    with pytest.raises(EngineError, match="refused"):
        async with Lock(faulty_store, "report", ttl=5):
            pytest.fail("not granted")
    faulty.refused = ()
    async with Lock(faulty_store, "report", ttl=5):
        pass
    await nothing_of(faulty_store, KEY)


async def test_closing_the_store_ends_the_body_and_waits_for_it(store, open_store_on, virtual_clock):
    log = []

    async def work(theirs, entered):
        try:
            async with Lock(theirs, "report") as lease:
                entered.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(4)  # longer than the ttl: what it cleans up, it still holds
                        assert not (await store._handle.call(Scan(HOLDERS, KEY))).waiting
                        (holder,) = (await store._handle.call(Scan(HOLDERS, KEY))).holders
                        assert holder.token == lease.token
        except LeaseLost as error:
            log.append((error.reason, virtual_clock.now()))

    async with anyio.create_task_group() as group:
        async with open_store_on(ttl=3.0, close_timeout=5) as theirs:
            entered = anyio.Event()
            group.start_soon(work, theirs, entered)
            await entered.wait()
        log.append(("closed", virtual_clock.now()))
    assert log == [("closed", 4), ("closed", 4)]


async def test_a_body_that_takes_too_long_is_not_waited_for(open_store_on, virtual_clock):
    caught = []

    async def work(store, entered):
        try:
            async with Lock(store, "report") as lease:
                entered.set()
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(100)
                with pytest.raises(LeaseLost):
                    lease.check()
        except LeaseLost as error:
            caught.append(error.reason)

    async with anyio.create_task_group() as group:
        async with open_store_on(ttl=3.0, close_timeout=5) as store:
            entered = anyio.Event()
            group.start_soon(work, store, entered)
            await entered.wait()
        assert virtual_clock.now() == pytest.approx(5, abs=0.01)
    assert caught == ["closed"]


async def test_the_observer_learns_of_it(open_store_on, virtual_clock):
    seen = []

    class Observer:
        def notice(self, event, /, **fields):
            seen.append((event, fields))

    async with open_store_on(ttl=3.0, observer=Observer()) as store:
        async with Lock(store, "report") as lease:
            await anyio.sleep(2)
        with pytest.raises(LeaseLost):
            async with Lock(store, "report") as second:
                second._session.lose("gone")
    token, session = lease.token, second._session.id
    about = {"key": KEY, "token": second.token}
    assert seen[:3] == [
        ("session.opened", {"session": session, "ttl": 3.0}),
        ("lease.acquired", {"key": KEY, "token": token, "waited": 0}),
        ("lease.released", {"key": KEY, "token": token, "held": 2}),
    ]
    assert seen[4][0] == "session.lost"
    (name, fields) = seen[5]
    assert (name, fields) == ("lease.lost", {**about, "reason": "gone", "error": fields["error"]})
    assert isinstance(fields["error"], LeaseLost)
