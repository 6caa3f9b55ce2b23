"""The queues against a model of them on plain lists: in whatever order things happen, both pass on the same."""

import anyio
import depth
import pytest
from anyio import ClosedResourceError, EndOfStream, WouldBlock
from hypothesis import given, settings, strategies as st

from tenure.local import PriorityQueue, Queue

SIZE = 2

STEP = st.one_of(
    st.tuples(st.sampled_from(["put", "put_nowait"]), st.integers(-2, 2)),
    st.tuples(st.sampled_from(["get", "get_nowait", "task_done"]), st.just(0)),
    st.tuples(st.sampled_from(["give up putting", "give up getting"]), st.integers(0, 3)),
    st.tuples(st.just("pass"), st.sampled_from([1.0, 3.0, 7.0])),
    # a queue that was closed early has no story any more
    st.tuples(st.sampled_from(["pass"] * 6 + ["close", "abort"]), st.just(1.0)),
)


class Model:
    """Callers are numbered as they come; a putter puts its number."""

    def __init__(self, aging):
        self.aging, self.now, self.closed = aging, 0.0, False
        self.items, self.putting, self.getting = [], [], []
        self.unfinished = 0
        self.outcomes = {}

    def rank(self, item):
        number, priority, came = item
        old = self.aging is not None and self.now - came > self.aging
        return (0, number) if old else (1, -priority, number)

    def pop(self, items):
        first = min(items, key=self.rank)
        items.remove(first)
        return first

    def flow(self):
        while True:
            if self.getting and self.items:
                self.outcomes[self.getting.pop(0)] = self.pop(self.items)[0]
            elif self.putting and len(self.items) < SIZE and not self.closed:
                self.add(self.pop(self.putting))
            elif self.getting and self.closed:
                self.outcomes[self.getting.pop(0)] = EndOfStream
            else:
                return

    def add(self, item):
        self.items.append(item)
        self.unfinished += 1
        self.outcomes[item[0]] = "put"

    def put(self, number, priority, wait):
        item = (number, priority, self.now)
        if self.closed:
            self.outcomes[number] = ClosedResourceError
        elif len(self.items) < SIZE:
            self.add(item)
        elif wait:
            self.putting.append(item)
        else:
            self.outcomes[number] = WouldBlock

    def get(self, number, wait):
        if wait or self.items or self.closed:
            self.getting.append(number)
        else:
            self.outcomes[number] = WouldBlock

    def close(self):
        self.closed = True
        while self.putting:
            self.outcomes[self.putting.pop()[0]] = ClosedResourceError

    def abort(self):
        self.close()
        dropped = []
        while self.items:
            dropped.append(self.pop(self.items)[0])
        self.unfinished -= len(dropped)
        return dropped


class Caller:
    """Makes one call, unless it is cancelled, and notes what came of it."""

    def __init__(self, number, outcomes):
        self.number, self.outcomes = number, outcomes
        self.scope = anyio.CancelScope()

    async def run(self, fn, *args):
        with self.scope:
            try:
                result = fn(*args)
                if hasattr(result, "__await__"):
                    result = await result
            except (WouldBlock, ClosedResourceError, EndOfStream) as error:
                result = type(error)
            self.outcomes[self.number] = "put" if result is None else result


@pytest.mark.parametrize("ranked", [False, True])
@settings(max_examples=depth.share(150))
@given(steps=st.lists(STEP, min_size=10, max_size=60), aging=st.sampled_from([None, 0, 2.0, 5.0]))
async def test_any_mixture_does_as_the_model_does(virtual_clock, ranked, steps, aging):
    queue = PriorityQueue(SIZE, aging=aging) if ranked else Queue(SIZE)
    model = Model(aging if ranked else None)
    callers, outcomes = {}, {}
    joined = False

    async with anyio.create_task_group() as group:

        def call(fn, *args):
            caller = callers[len(callers)] = Caller(len(callers), outcomes)
            group.start_soon(caller.run, fn, *args)
            return caller.number

        def put(fn, priority):
            number = len(callers)
            call(fn, number, *([priority] if ranked else []))
            model.put(number, priority if ranked else 0, fn == queue.put)

        for step, value in steps:
            match step:
                case "put" | "put_nowait":
                    put(getattr(queue, step), value)
                case "get" | "get_nowait":
                    model.get(call(getattr(queue, step)), step == "get")
                case "task_done" if model.unfinished > len(model.items):
                    queue.task_done()
                    model.unfinished -= 1
                case "give up putting" if model.putting:
                    callers[model.putting.pop(value % len(model.putting))[0]].scope.cancel()
                case "give up getting" if model.getting:
                    callers[model.getting.pop(value % len(model.getting))].scope.cancel()
                case "pass":
                    await anyio.sleep(value)
                    model.now += value
                case "close":
                    queue.close()
                    model.close()
                case "abort":
                    assert queue.abort() == model.abort()
            model.flow()
            await virtual_clock.settle()
            assert outcomes == model.outcomes
            state = queue.statistics()
            assert (state.size, state.unfinished, state.closed) == (
                len(model.items),
                model.unfinished,
                model.closed,
            )
            assert (state.tasks_waiting_put, state.tasks_waiting_get) == (
                len(model.putting),
                len(model.getting),
            )
        with anyio.move_on_after(0.5):
            await queue.join()
            joined = True
        assert joined == (model.unfinished == 0)
        group.cancel_scope.cancel()
