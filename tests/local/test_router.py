"""The router: each kind has its own queue and workers, nothing is lost on the way out, and nobody waits for ever."""

import anyio
import anyio.lowlevel
import pytest

from tenure.local._router import Router, RouterKindStatistics
from tenure.testing import assert_checkpoints
from tenure.waiting import this_task


class Handler:
    """Takes its time, and remembers what it handled, when, and how many at once."""

    def __init__(self, seconds=1.0):
        self.seconds = seconds
        self.done = []
        self.inside = {}
        self.most = {}

    async def __call__(self, kind, item):
        self.inside[kind] = self.inside.get(kind, 0) + 1
        self.most[kind] = max(self.most.get(kind, 0), self.inside[kind])
        try:
            await anyio.sleep(self.seconds)
            if isinstance(item, Exception):
                raise item
            self.done.append((anyio.current_time(), kind, item))
        finally:
            self.inside[kind] -= 1

    @property
    def items(self):
        return [item for _, _, item in self.done]


class Putter:
    """A task that puts one item, and can be cancelled by its scope or, on asyncio, natively."""

    def __init__(self, router, kind, item, how="scope"):
        self.router, self.item, self.how = router, (kind, item), how
        self.scope = anyio.CancelScope()
        self.outcome = None

    async def run(self):
        self.task = this_task()
        with self.scope:
            try:
                await self.router.put(*self.item)
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


async def start(group, clock, *putters):
    for putter in putters:
        group.start_soon(putter.run)
        await clock.settle()


async def test_a_slow_kind_does_not_hold_up_a_quick_one(virtual_clock):
    done = []

    async def handler(kind, item):
        await anyio.sleep(100 if kind == "slow" else 1)
        done.append((anyio.current_time(), kind, item))

    async with Router({"slow": 1, "quick": 2}, handler, max_size=10) as router:
        for number in range(3):
            await router.put("slow", number)
            await router.put("quick", number)
    assert sorted(done[:3]) == [(1, "quick", 0), (1, "quick", 1), (2, "quick", 2)]
    assert done[3:] == [(100, "slow", 0), (200, "slow", 1), (300, "slow", 2)]


async def test_each_kind_has_so_many_workers_and_one_worker_keeps_the_order(virtual_clock):
    handler = Handler()
    async with Router({"one": 1, "three": 3}, handler, max_size=20) as router:
        for number in range(9):
            await router.put("one", number)
            await router.put("three", number)
    assert handler.most == {"one": 1, "three": 3}
    assert [item for _, kind, item in handler.done if kind == "one"] == list(range(9))
    assert anyio.current_time() == 9


async def test_a_full_queue_holds_up_those_that_put_that_kind_and_nobody_else(virtual_clock):
    handler = Handler(10)
    async with Router({"a": 1, "b": 1}, handler, max_size=2) as router, anyio.create_task_group() as group:
        putters = [Putter(router, "a", number) for number in range(5)]
        await start(group, virtual_clock, *putters)
        assert [putter.outcome for putter in putters] == [0, 0, 0, None, None]
        with pytest.raises(anyio.WouldBlock):
            router.put_nowait("a", 9)
        await router.put("b", 0)
        router.put_nowait("b", 1)
        await virtual_clock.settle()
        assert router.statistics().max_size == 2
        assert router.statistics().kinds["a"] == RouterKindStatistics(
            workers=1, busy=1, unfinished=5, handled=0
        )
        assert repr(router) == "<Router open, 'a': 1/1 busy, 5 unfinished; 'b': 1/1 busy, 2 unfinished>"
    assert [putter.outcome for putter in putters] == [0, 0, 0, 10, 20]
    assert [item for _, kind, item in handler.done if kind == "a"] == list(range(5))
    assert router.statistics().kinds["a"] == RouterKindStatistics(workers=1, busy=0, unfinished=0, handled=5)


async def test_join_waits_until_all_is_handled(virtual_clock):
    handler = Handler(5)
    async with Router({"a": 2}, handler, max_size=9) as router:
        with assert_checkpoints():
            await router.join()
        for number in range(4):
            await router.put("a", number)
        async with anyio.create_task_group() as group:
            group.start_soon(router.join)
            group.start_soon(router.join)
        assert anyio.current_time() == 10
        assert sorted(handler.items) == [0, 1, 2, 3]
        with anyio.move_on_after(0) as scope:
            await router.put("a", 4)
            await router.join()
        assert scope.cancelled_caught


async def test_leaving_refuses_more_and_handles_the_rest_and_what_handlers_put(virtual_clock):
    done = []

    async def handler(kind, item):
        await anyio.sleep(1)
        done.append((kind, item))
        if kind == "page":
            for number in range(2):
                await router.put("link", (item, number))

    async with anyio.create_task_group() as group:
        async with Router({"page": 1, "link": 1}, handler, max_size=1) as router:
            putters = [Putter(router, "page", number) for number in range(3)]
            await start(group, virtual_clock, *putters)
            late = Putter(router, "page", 9)
            group.start_soon(lambda: after(2.5, late))
        assert len(done) == 9
        with pytest.raises(anyio.ClosedResourceError):
            await router.put("page", 9)
    assert isinstance(late.outcome, anyio.ClosedResourceError)
    assert [putter.outcome for putter in putters[:2]] == [0, 0]
    assert putters[2].outcome == 1


async def after(seconds, putter):
    await anyio.sleep(seconds)
    await putter.run()


async def test_an_error_of_a_handler_leaves_by_the_block_as_it_is_and_ends_the_rest(virtual_clock):
    handler, error = Handler(), KeyError("bad")
    async with anyio.create_task_group() as group:
        router = Router({"a": 1, "b": 1}, handler, max_size=1)
        with pytest.raises(KeyError) as caught:
            async with router:
                await router.put("b", 0)
                await anyio.sleep(0.5)
                putters = [Putter(router, "a", item) for item in (error, 1, 2)]
                joiner = anyio.Event()
                group.start_soon(lambda: joined(router, joiner))
                await start(group, virtual_clock, *putters)
                await anyio.sleep_forever()
        assert caught.value is error
        assert anyio.current_time() == 1.5
        await virtual_clock.settle()
        assert isinstance(putters[2].outcome, anyio.ClosedResourceError)
        assert joiner.is_set()
    assert handler.items == [0]
    kinds = router.statistics().kinds
    assert [(kind.busy, kind.unfinished) for kind in kinds.values()] == [(0, 0), (0, 0)]


async def joined(router, event):
    await router.join()
    event.set()


async def test_a_handler_that_fails_while_the_block_waits_for_the_rest_ends_it(virtual_clock):
    with pytest.raises(KeyError):
        async with Router({"a": 1}, Handler(), max_size=9) as router:
            await router.put("a", KeyError())
            await router.put("a", 1)


@pytest.mark.parametrize("leaving", [False, True])
async def test_a_cancelled_block_cancels_its_workers_and_drops_the_rest(leaving, virtual_clock):
    handler = Handler(10)
    with anyio.move_on_after(5) as scope:
        async with Router({"a": 2}, handler, max_size=9) as router:
            for number in range(5):
                await router.put("a", number)
            if not leaving:
                await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() == 5
    assert (handler.items, handler.inside) == ([], {"a": 0})
    assert router.statistics().kinds["a"].unfinished == 0


async def test_an_error_of_the_body_leaves_the_block_as_it_is():
    with pytest.raises(KeyError):
        async with Router({"a": 1}, Handler(), max_size=1):
            raise KeyError


async def test_it_may_be_entered_again(virtual_clock):
    handler = Handler()
    router = Router({"a": 1}, handler, max_size=1)
    for number in range(2):
        async with router:
            await router.put("a", number)
    assert handler.items == [0, 1]
    assert router.statistics().kinds["a"].handled == 1


async def test_a_put_with_room_is_a_checkpoint():
    async with Router({"a": 1}, Handler(0), max_size=1) as router:
        with assert_checkpoints():
            await router.put("a", 1)


@pytest.mark.parametrize(
    ("kinds", "options", "error", "message"),
    [
        ({}, {}, ValueError, "^kinds must name"),
        ({"a": 0}, {}, ValueError, r"^kinds\['a'\] must be at least 1, not 0"),
        ({"a": 1.5}, {}, TypeError, r"^kinds\['a'\] must be an int"),
        ({"a": 1}, {"max_size": 0}, ValueError, "^max_size must be"),
        ({"a": 1}, {"handler": 3}, TypeError, "^handler must be"),
    ],
)
def test_arguments_are_checked_by_name(kinds, options, error, message):
    with pytest.raises(error, match=message):
        Router(kinds, **{"handler": Handler(), "max_size": 1, **options})


async def test_an_unknown_kind_is_refused_by_name():
    async with Router({"a": 1, "b": 1}, Handler(), max_size=1) as router:
        with pytest.raises(ValueError, match=r"^kind must be one of \['a', 'b'\], not 'c'"):
            await router.put("c", 1)
        with pytest.raises(ValueError, match="^kind must be"):
            router.put_nowait("c", 1)
