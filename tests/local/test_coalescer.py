"""Coalescing: few flushes for many puts, nothing flushed twice, nobody left without an answer."""

import asyncio
import gc
import weakref

import anyio
import anyio.lowlevel
import pytest
from callers import EVERY_WAY
from hypothesis import given, strategies as st

from tenure.local._coalescer import Coalescer
from tenure.testing import assert_checkpoints, run
from tenure.waiting import this_task


class Sink:
    """Remembers what was flushed and when; may be slow, and fail."""

    def __init__(self, seconds=0.0, errors=()):
        self.seconds = seconds
        self.errors = list(errors)
        self.flushes = []
        self.inside = False

    async def __call__(self, batch):
        assert not self.inside, "one at a time"
        assert batch, "an empty batch"
        self.inside = True
        try:
            self.flushes.append((anyio.current_time(), dict(batch)))
            await anyio.sleep(self.seconds)
            if self.errors and (error := self.errors.pop(0)):
                raise error
        finally:
            self.inside = False

    @property
    def batches(self):
        return [batch for _, batch in self.flushes]


class Putter:
    """A task that puts at a time, and can be cancelled by its scope or, on asyncio, natively."""

    def __init__(self, coalescer, at, key, value, how="scope"):
        self.coalescer, self.at, self.item, self.how = coalescer, at, (key, value), how
        self.scope = anyio.CancelScope()
        self.outcome = None

    async def run(self):
        self.task = this_task()
        with self.scope:
            await anyio.sleep(self.at)
            try:
                await self.coalescer.put(*self.item)
                self.outcome = anyio.current_time()
            except anyio.get_cancelled_exc_class():
                self.outcome = "cancelled"
                if self.how == "scope":
                    raise
            except Exception as error:
                self.outcome = error

    def cancel(self):
        if self.how == "native":
            self.task.cancel()
        else:
            self.scope.cancel()


async def put_all(coalescer, *puts):
    """Put `(at, key, value)`, and give what came of each: the time at which it returned, or its error."""
    putters = [Putter(coalescer, *put) for put in puts]
    async with coalescer, anyio.create_task_group() as group:
        for putter in putters:
            group.start_soon(putter.run)
            await anyio.lowlevel.checkpoint()
    return [putter.outcome for putter in putters]


async def test_none_leads_while_others_are_gathered(virtual_clock):
    sink = Sink(seconds=10)
    puts = [(0, "a", 1), (0.5, "b", 2), (5, "c", 3), (9.5, "d", 4)]
    await put_all(Coalescer(sink, window=1, leading=True), *puts)
    assert sink.flushes == [(0, {"a": 1}), (10.5, {"b": 2, "c": 3, "d": 4})]


async def test_what_is_put_during_a_flush_is_gathered_for_the_next(virtual_clock):
    sink = Sink(seconds=10)
    puts = [(0, "a", 1), (2, "a", 2), (5, "a", 3)]
    assert await put_all(Coalescer(sink, window=1), *puts) == [11, 21, 21]
    assert sink.flushes == [(1, {"a": 1}), (11, {"a": 3})]


async def test_values_of_a_key_are_merged_in_the_order_of_the_puts(virtual_clock):
    sink = Sink()
    puts = [(0, "a", [1]), (0.1, "b", [2]), (0.2, "a", [3]), (0.3, "a", [4])]
    await put_all(Coalescer(sink, window=1, merge=lambda earlier, later: earlier + later), *puts)
    assert sink.batches == [{"a": [1, 3, 4], "b": [2]}]


async def test_an_error_goes_to_all_of_the_batch_and_to_nobody_else(virtual_clock):
    error = KeyError("refused")
    sink = Sink(errors=[error, None])
    coalescer = Coalescer(sink, window=1)
    outcomes = await put_all(coalescer, (0, "a", 1), (0.5, "b", 2), (5, "c", 3))
    assert outcomes == [error, error, 6]
    state = coalescer.statistics()
    assert (state.flushed, state.failed) == (1, 1)


async def test_an_error_of_merge_goes_to_all_of_the_batch(virtual_clock):
    sink = Sink()
    outcomes = await put_all(
        Coalescer(sink, window=1, merge=lambda a, b: a + b), (0, "a", 1), (0, "a", "x"), (0, "b", 1)
    )
    assert [type(outcome) for outcome in outcomes] == [TypeError] * 3
    assert sink.flushes == []


@EVERY_WAY
async def test_one_that_is_cancelled_takes_only_its_own_value_out(how, virtual_clock):
    sink = Sink()
    coalescer = Coalescer(sink, window=1, merge=lambda a, b: a + b)
    async with coalescer, anyio.create_task_group() as group:
        puts = ((0, "a", 1), (0, "a", 10), (0, "a", 100), (0, "b", 1000))
        _, second, _, last = putters = [Putter(coalescer, *put, how) for put in puts]
        for putter in putters:
            group.start_soon(putter.run)
        await anyio.sleep(0.5)
        second.cancel()
        last.cancel()
    assert sink.batches == [{"a": 101}]
    assert [putter.outcome for putter in putters] == [1, "cancelled", 1, "cancelled"]


@pytest.mark.backends("asyncio")  # trio's tasks have no order within a turn
async def test_w2_one_that_is_cancelled_in_the_turn_in_which_its_batch_is_due_is_not_flushed(virtual_clock):
    sink = Sink()
    async with Coalescer(sink, window=100, max_items=2) as coalescer, anyio.create_task_group() as group:
        victim = Putter(coalescer, 0, "a", 1)
        group.start_soon(victim.run)
        await virtual_clock.settle()

        async def cancel():
            victim.cancel()

        group.start_soon(coalescer.put, "b", 2)
        group.start_soon(cancel)
    assert victim.outcome == "cancelled"
    assert sink.batches == [{"b": 2}]


@EVERY_WAY
async def test_a_batch_that_all_have_left_is_not_flushed_and_leaves_no_trace(how, virtual_clock):
    sink = Sink()
    coalescer = Coalescer(sink, window=1, max_wait=2)
    async with coalescer, anyio.create_task_group() as group:
        first = Putter(coalescer, 0, "a", 1, how)
        group.start_soon(first.run)
        await anyio.sleep(0.9)
        first.cancel()
        await virtual_clock.settle()
        assert coalescer.statistics().tasks_waiting == 0
        putters = [Putter(coalescer, at, "b", at) for at in (0, 0.8, 1.6)]
        for putter in putters:
            group.start_soon(putter.run)
        await anyio.sleep(0.9)
        assert repr(coalescer) == "<Coalescer open, 2 waiting in 1 batches>"
    assert sink.flushes == [(pytest.approx(2.9), {"b": 1.6})]
    assert coalescer.statistics().flushed == 1


@EVERY_WAY
async def test_one_that_is_cancelled_while_it_is_flushed_leaves_and_its_value_goes_with_the_others(
    how, virtual_clock
):
    sink = Sink(seconds=10)
    coalescer = Coalescer(sink, window=1)
    async with coalescer, anyio.create_task_group() as group:
        first, second = (Putter(coalescer, 0, key, key, how) for key in "ab")
        group.start_soon(first.run)
        group.start_soon(second.run)
        await anyio.sleep(5)
        first.cancel()
        await virtual_clock.settle()
        assert first.outcome == "cancelled"
    assert sink.batches == [{"a": "a", "b": "b"}]
    assert second.outcome == 11


async def test_an_error_of_a_flush_that_all_have_left_is_logged(virtual_clock, caplog):
    sink = Sink(seconds=10, errors=[KeyError("one"), KeyError("two")])
    async with Coalescer(sink, window=1) as coalescer:
        with anyio.move_on_after(5):
            await coalescer.put("a", 1)
        await anyio.sleep(10)
        with pytest.raises(KeyError, match="two"):
            await coalescer.put("a", 1)
    (record,) = caplog.records
    assert record.message == "coalescer.flush_failed error=KeyError('one')"
    assert (record.name, record.levelname, record.exc_info[0]) == ("tenure", "WARNING", KeyError)


@pytest.mark.backends("asyncio")  # trio's own frames make circles
async def test_an_error_does_not_wait_for_the_garbage_collector(virtual_clock):
    class Big(KeyError):
        pass

    async def flush(_):
        raise Big

    async with Coalescer(flush, window=1) as coalescer:
        gc.collect()
        gc.disable()
        try:
            try:
                await coalescer.put("a", 1)
            except Big as error:
                gone = weakref.ref(error)
            assert gone() is None
        finally:
            gc.enable()


async def test_leaving_the_block_flushes_what_is_gathered_and_refuses_more(virtual_clock):
    sink = Sink(seconds=1)
    coalescer = Coalescer(sink, window=100)
    async with anyio.create_task_group() as group:
        async with coalescer:
            putters = [Putter(coalescer, at, at, at) for at in (0, 2.5)]
            for putter in putters:
                group.start_soon(putter.run)
            await anyio.sleep(2)
        with pytest.raises(anyio.ClosedResourceError):
            await coalescer.put("late", 1)
    assert sink.flushes == [(2, {0: 0})]
    assert putters[0].outcome == 3
    assert isinstance(putters[1].outcome, anyio.ClosedResourceError)
    async with coalescer, anyio.create_task_group() as group:
        group.start_soon(coalescer.put, "again", 1)
        await virtual_clock.settle()
    assert sink.batches[1:] == [{"again": 1}]


async def test_a_cancelled_block_still_flushes_under_a_shield(virtual_clock):
    sink = Sink(seconds=3)
    coalescer = Coalescer(sink, window=100, max_items=1)
    async with anyio.create_task_group() as group:
        putters = [Putter(coalescer, 0, key, key) for key in "ab"]
        with anyio.move_on_after(1):
            async with coalescer:
                for putter in putters:
                    group.start_soon(putter.run)
                await anyio.sleep_forever()
        assert anyio.current_time() == 6
    assert sorted(putter.outcome for putter in putters) == [3, 6]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_flush_that_bounds_itself_bounds_the_end_of_the_block(cancelled, virtual_clock):
    async def flush(batch):
        with anyio.fail_after(5):
            await anyio.sleep_forever()

    coalescer = Coalescer(flush, window=1)
    async with anyio.create_task_group() as group:
        putter = Putter(coalescer, 0, "a", "a")
        with anyio.CancelScope() as scope:
            async with coalescer:
                group.start_soon(putter.run)
                await anyio.sleep(2)
                if cancelled:
                    scope.cancel()
    assert anyio.current_time() == 6
    assert isinstance(putter.outcome, TimeoutError)
    assert coalescer.statistics().failed == 1


async def test_an_error_of_the_body_leaves_the_block_as_it_is_after_the_flush(virtual_clock):
    sink, outcomes = Sink(), []

    async def put():
        await coalescer.put("a", 1)
        outcomes.append("flushed")

    coalescer = Coalescer(sink, window=100)
    async with anyio.create_task_group() as group:
        with pytest.raises(KeyError):
            async with coalescer:
                group.start_soon(put)
                await virtual_clock.settle()
                raise KeyError
    assert outcomes == ["flushed"]


async def test_a_put_from_inside_of_the_flush_is_refused(virtual_clock):
    async def flush(batch):
        await coalescer.put("more", 1)

    async with Coalescer(flush, window=1) as coalescer:
        with pytest.raises(RuntimeError, match="inside of its own flush"):
            await coalescer.put("a", 1)


@pytest.mark.backends("asyncio")
async def test_a_flush_that_something_of_its_own_cancels_breaks_its_batch_alone(virtual_clock):
    sink = Sink(errors=[asyncio.CancelledError(), None])
    first, second = await put_all(Coalescer(sink, window=1), (0, "a", 1), (5, "b", 1))
    assert isinstance(first, anyio.BrokenResourceError)
    assert second == 6


@pytest.mark.backends("trio")  # asyncio lets such an error stop the loop
async def test_an_exit_of_the_program_inside_of_the_flush_leaves_by_the_block_and_nobody_hangs():
    async def flush(batch):
        raise SystemExit(3)

    async with anyio.create_task_group() as group:
        coalescer = Coalescer(flush, window=0)
        putter = Putter(coalescer, 0, "a", 1)
        with pytest.raises(SystemExit):
            async with coalescer:
                group.start_soon(putter.run)
                await anyio.sleep_forever()
    assert isinstance(putter.outcome, anyio.BrokenResourceError)


@pytest.mark.parametrize("leading", [False, True])
async def test_a_put_is_a_checkpoint(leading):
    async def flush(batch):
        pass

    async with Coalescer(flush, window=0, leading=leading) as coalescer:
        with assert_checkpoints():
            await coalescer.put("a", 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": -1}, "^window must be"),
        ({"window": float("nan")}, "^window must be"),
        ({"window": 2, "max_wait": 1}, "^max_wait must be"),
        ({"window": 1, "max_items": 0}, "^max_items must be"),
    ],
)
def test_arguments_are_checked_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        Coalescer(Sink(), **options)
    with pytest.raises(TypeError, match="^flush must be"):
        Coalescer(None, window=1)


def test_it_may_be_used_on_one_kind_of_loop_after_the_other():
    sink = Sink()
    coalescer = Coalescer(sink, window=0)
    for backend in ("asyncio", "trio", "asyncio"):
        assert len(run(put_all, coalescer, (0, "a", 1), backend=backend)) == 1
    assert len(sink.flushes) == 3


# quarters are exact, and none comes at the moment of a flush
TIMES = st.integers(0, 40).map(lambda n: n / 4)


@given(
    puts=st.lists(st.tuples(TIMES, st.sampled_from("abc")), max_size=12),
    max_wait=st.sampled_from([None, 1.125, 2.125, 5.125]),
    max_items=st.sampled_from([None, 1, 2]),
    leading=st.booleans(),
)
def test_it_goes_by_the_plain_model_on_both_loops(puts, max_wait, max_items, leading):
    puts = [(at, key, number) for number, (at, key) in enumerate(sorted(puts))]
    expected = model(puts, 1.0625, max_wait, max_items, leading)
    for backend in ("asyncio", "trio"):
        sink = Sink()

        async def put_in_order(sink=sink):
            options = {"max_wait": max_wait, "max_items": max_items, "leading": leading}
            async with Coalescer(sink, window=1.0625, **options) as coalescer:
                async with anyio.create_task_group() as group:
                    for at, key, number in puts:
                        await anyio.sleep_until(at)
                        group.start_soon(coalescer.put, key, number)
                        await anyio.lowlevel.checkpoint()
                        await anyio.lowlevel.checkpoint()

        run(put_in_order, backend=backend)
        assert sink.flushes == expected


def model(puts, window, max_wait, max_items, leading):
    """When the flushes come, if they take no time: one pass over the puts in their order."""
    flushes, batch, first, last = [], {}, 0, -float("inf")
    for at, key, value in [*puts, (float("inf"), None, None)]:
        due = min(last + window, float("inf") if max_wait is None else first + max_wait)
        if batch and due <= at:
            flushes.append((due, batch))
            batch = {}
        if key is None:
            break
        leads = leading and not batch and at >= last + window
        first = first if batch else at
        last = at
        batch[key] = value
        if leads or len(batch) == max_items:
            flushes.append((at, batch))
            batch = {}
    return flushes
