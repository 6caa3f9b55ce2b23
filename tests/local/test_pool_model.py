"""The pool against a model of it on plain lists: whatever happens in whatever order, both have lent the same."""

import math

import anyio
import depth
from hypothesis import given, settings, strategies as st
from local.pool_world import Works

from tenure.local import _pool_slots
from tenure.local._pool import Pool

MIN, MAX, IDLE, LIFE, FRESH = 1, 3, 60.0, 200.0, 0.5

STEP = st.one_of(
    st.tuples(st.just("come"), st.just(0)),
    st.tuples(st.sampled_from(["leave", "raise", "give up", "break"]), st.integers(0, 5)),
    st.tuples(st.just("pass"), st.sampled_from([0.25, 1.0, 59.0, 61.0, 150.0])),
    st.tuples(st.just("reload"), st.just(0)),
)


class Thing:
    def __init__(self, number, now, generation):
        self.number, self.born, self.since, self.generation = number, now, now, generation
        self.healthy = True


class Model:
    """A pool whose hooks take no time. Borrowers are any objects."""

    def __init__(self):
        self.now, self.made, self.generation = 0.0, 0, 0
        self.idle, self.lent, self.waiting, self.closed = [], {}, [], set()
        self.refill()

    @property
    def size(self):
        return len(self.idle) + len(self.lent)

    def refill(self):
        while self.size < MAX and (self.waiting or self.size < MIN):
            thing = Thing(self.made, self.now, self.generation)
            self.made += 1
            self.hand_on(thing)

    def hand_on(self, thing):
        if self.waiting:
            self.lent[self.waiting.pop(0)] = thing
        else:
            self.idle.append(thing)

    def worn(self, thing):
        return thing.generation != self.generation or self.now >= thing.born + LIFE

    def close(self, thing):
        self.closed.add(thing.number)

    def come(self, borrower):
        while self.idle:
            thing = self.idle.pop()
            if self.now - thing.since < FRESH or thing.healthy:
                self.lent[borrower] = thing
                return
            self.close(thing)
        self.waiting.append(borrower)
        self.refill()

    def leave(self, borrower, ending):
        thing = self.lent.pop(borrower)
        thing.since = self.now
        if self.worn(thing) or ending == "give up" or (ending == "raise" and not thing.healthy):
            self.close(thing)
        else:
            self.hand_on(thing)
        self.refill()

    def reload(self):
        self.generation += 1
        self.closed.update(thing.number for thing in self.idle)
        self.idle = []
        self.refill()

    def pass_time(self, seconds):
        end = self.now + seconds
        while True:
            due = [time for thing in self.idle for time in (thing.since + IDLE, thing.born + LIFE)]
            self.now = min([end, *(time for time in due if time > self.now)])
            for thing in list(self.idle):
                if self.worn(thing) or (self.size > MIN and self.now >= thing.since + IDLE):
                    self.idle.remove(thing)
                    self.close(thing)
            self.refill()
            if self.now == end:
                return


class Borrower:
    """Borrows until it is told how to end."""

    def __init__(self, pool):
        self.pool = pool
        self.scope = anyio.CancelScope()
        self.ending = anyio.Event()
        self.how = "leave"
        self.thing = None

    async def run(self):
        with self.scope:
            try:
                async with self.pool.acquire() as self.thing:
                    await self.ending.wait()
                    if self.how == "raise":
                        raise KeyError
            except KeyError:
                pass

    def end(self, how):
        if how == "give up":
            self.scope.cancel()
        else:
            self.how = how
            self.ending.set()


@settings(max_examples=depth.share(300))
@given(steps=st.lists(STEP, min_size=5, max_size=50))
async def test_any_mixture_does_as_the_model_does(virtual_clock, monkeypatch, steps):
    monkeypatch.setattr(_pool_slots, "JITTER", 0)
    works, model = Works(), Model()
    pool = Pool(
        works.create,
        close=works.close,
        check=works.check,
        min_size=MIN,
        max_size=MAX,
        idle_timeout=IDLE,
        max_lifetime=LIFE,
        check_after_idle=FRESH,
        check_every=None,
    )
    start = virtual_clock.now()
    async with pool, anyio.create_task_group() as group:
        for step, number in steps:
            match step:
                case "come":
                    borrower = Borrower(pool)
                    group.start_soon(borrower.run)
                    model.come(borrower)
                case "break" if model.made:
                    known = [*model.idle, *model.lent.values()]
                    thing = known[number % len(known)] if known else None
                    if thing is not None:
                        thing.healthy = works.things[thing.number].healthy = False
                case "pass":
                    await anyio.sleep(number)
                    model.pass_time(number)
                case "reload":
                    pool.reload()
                    model.reload()
                case "give up" if model.waiting and number % 2:
                    model.waiting.pop(number % len(model.waiting)).end(step)
                case "leave" | "raise" | "give up" if model.lent:
                    borrower = list(model.lent)[number % len(model.lent)]
                    borrower.end(step)
                    model.leave(borrower, step)
            await virtual_clock.settle()
            assert math.isclose(virtual_clock.now() - start, model.now, abs_tol=1e-6)
            assert [entry.resource.number for entry in pool._subpool(None).idle] == [
                t.number for t in model.idle
            ]
            assert {b: b.thing.number for b in model.lent} == {b: t.number for b, t in model.lent.items()}
            assert {thing.number for thing in works.things if thing.closed} == model.closed
            assert pool.statistics().tasks_waiting == len(model.waiting)
            assert pool.statistics().size == model.size <= MAX
        group.cancel_scope.cancel()
    assert works.open == []
