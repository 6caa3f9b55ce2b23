"""The steps of the walk: operations that hit on the same few names again and again, alone and in scenes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal, Protocol, TypeVar

from tenure import engine as e

from ._configured import configured, set_groups
from ._contract import LASTING

T = TypeVar("T")

SESSIONS = {"s1": "p1", "s2": "p2", "s3": "p1", "s4": "p3"}
"""The sessions of a walk, and their processes."""
KEYS = ("k", "l\0m")
GATES = ("g", "g\0h")
"""The keys of barriers."""
QUEUES = ("q", "r")
STATES = ("waiting", "delayed", "leased", "ended", "dead")
KINDS = tuple(e.NAMES)
_MOVED = ("waiting", "delayed", "leased", "dead", "dead", "done", "discarded", "cancelled", "expired")
_METADATA: tuple[e.Metadata, ...] = ((), (("zone", b"\xff\0"),), (("size", b"1"), ("zone", b"\xff\0")))
STATES_OF_FAMILIES = ("suspended", "ending")
_WAITS = (e.Verdict.WAIT, e.Verdict.WAIT_FOR, e.Verdict.WAIT_FOR_END)
_VERDICTS = (*(verdict for verdict in e.Verdict if verdict not in _WAITS), e.Verdict.DONE, e.Verdict.DEAD)
_ENTRIES = ("c/a", "c/b", "c/c", "d/a", "v")
"""The names of entries: the children of two blocks, and a value or signal."""


class Walker(Protocol):
    """The objects that a step may use."""

    grants: list[tuple[str, str, int]]
    claims: list[tuple[str, str, int]]
    taken: list[tuple[str, str, int, int]]
    put: list[tuple[str, int]]
    ended: dict[str, list[int]]
    bookings: list[tuple[str, tuple[e.RateLimit, ...], tuple[e.Booking, ...]]]
    history: list[e.Operation[Any]]

    def name(self, name: str) -> str:
        """A name of this walk alone."""
        ...

    def number(self, session: str, what: str) -> int:
        """The next number for an operation of the session."""
        ...

    async def send(self, *operations: e.Operation[Any]) -> list[Any]:
        """Send operations to both engines, and return the answers of the reference."""
        ...

    async def advance(self, seconds: float) -> None:
        """Let time pass for both engines."""
        ...

    async def look_at_tasks(self, queue: str, state: str, limit: int) -> None: ...

    async def look_at_entries(self, queue: str, task: int, limit: int) -> None: ...

    async def look_at_session(self, session: str, limit: int) -> None: ...

    async def look_at_names(self, kind: str, prefix: str, limit: int) -> None: ...


class Draw:
    """Draws what a step needs.

    All times are multiples of 1/64 s, which floats and whole microseconds both hold exactly. Unless `timed`, a duration
    is none at all, or outlasts the walk.
    """

    def __init__(self, walk: Walker, seed: str, *, timed: bool) -> None:
        self.walk = walk
        self.random = Random(seed)
        self.timed = timed

    def one_of(self, things: Sequence[T]) -> T:
        return self.random.choice(things)

    def some(self, least: int, most: int, draw: Callable[[], T]) -> tuple[T, ...]:
        return tuple(draw() for _ in range(self.random.randint(least, most)))

    def flag(self) -> bool:
        return self.random.random() < 0.5

    def number(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    # names

    def name(self, *names: str) -> str:
        return self.walk.name(self.one_of(names))

    def session(self) -> str:
        return self.name(*SESSIONS)

    def key(self) -> str:
        return self.name(*KEYS)

    def gate(self) -> str:
        return self.name(*GATES)

    def queue(self) -> str:
        return self.name(*QUEUES)

    def holder(self) -> str:
        return self.one_of("abcdefgh")

    def watch(self) -> str:
        return self.session() if self.flag() else ""

    # values

    def data(self, most: int = 2) -> bytes:
        return bytes(self.some(0, most, lambda: self.one_of((0, 1, 97, 255))))

    def metadata(self) -> e.Metadata:
        return self.one_of(_METADATA)

    def tenant(self) -> str:
        return self.one_of(("", "", "a", "b"))

    def duration(self) -> float:
        short = self.one_of((1.0, 1.0, 2.0, 1 / 64, self.number(1, 6 * 64) / 64))
        return short if self.timed else LASTING

    def delay(self) -> float:
        return self.duration() if self.flag() else 0.0

    def delay_or_none(self) -> float | None:
        return self.delay() if self.flag() else None

    def aging(self) -> float | None:
        return self.delay_or_none() if self.timed else self.one_of((None, LASTING))

    def ttl(self) -> float:
        return self.one_of((1.0, 4.0, 32.0, 32.0)) if self.timed else LASTING

    def verdict(self) -> e.Verdict:
        return self.one_of(_VERDICTS)

    def ids(self, queue: str, most: int = 9) -> tuple[int, ...]:
        """Some of the last tasks that were put into a queue, and now and then a number that is nobody's."""
        put = [task for of, task in self.walk.put if of == queue][-2 * most :]
        return tuple(self.random.sample(put, min(len(put), self.number(0, most)))) or (7,)

    # requests

    def task(self) -> e.NewTask:
        key = self.one_of((None, None, "d1", "d2\0\u00e4", "d3"))
        expires = self.duration() if self.number(0, 2) == 0 else None
        task = e.NewTask(self.data(3), self.number(-1, 1), self.delay(), key, expires, self.data(1))
        task = replace(task, deadline=_deadline(self))
        return task if key is None or self.flag() else self.keyed(task)

    def keyed(self, task: e.NewTask) -> e.NewTask:
        """The task with its own key or "d1", and with any `on_duplicate`."""
        on_duplicate = self.one_of(("refuse", "keep", "replace", "replace", "replace"))
        ttl, max_wait = self.delay_or_none(), self.delay_or_none()
        return replace(task, key=task.key or "d1", on_duplicate=on_duplicate, key_ttl=ttl, max_wait=max_wait)

    def put_request(self) -> e.PutRequest:
        cursor = (self.one_of(("c", "d")), self.data()) if self.number(0, 2) == 0 else None
        return e.PutRequest(self.one_of("mno"), self.some(0, 4, self.task), self.flag(), cursor)

    def limits(self) -> tuple[e.RateLimit, ...]:
        """All numbers are powers of two: sums of such floats are exact."""
        rates = (2.0, 4.0) if self.timed else (1 / 1024,)
        a = e.RateLimit("a", self.one_of(rates), self.one_of((2.0, 4.0)))
        b = e.RateLimit("b\0", self.one_of(rates) / 2, 4.0)
        return self.one_of(((a,), (b,), (a, b), (b, a)))

    def spend_request(self, limits: int) -> e.SpendRequest:
        costs = tuple(self.one_of((0.0, 0.5, 1.0, 8.0)) for _ in range(limits))
        return e.SpendRequest(costs, self.one_of((None, None, 0.0, 1.0)))


Step = Callable[[Draw], Awaitable[object]]

# ------------------------------------------------------------------------------------------------------------ sessions


async def a_session(d: Draw) -> None:
    """Open, renew or close a session."""
    name = d.one_of(tuple(SESSIONS))
    session, ttl = d.walk.name(name), d.ttl()
    await d.walk.send(
        d.one_of(
            (e.OpenSession(session, SESSIONS[name], ttl), e.RenewSession(session), e.CloseSession(session))
        )
    )


async def renew_all(d: Draw) -> None:
    """Renew all sessions."""
    ttl = 8.0 if d.timed else LASTING
    for name, process in SESSIONS.items():
        await d.walk.send(e.OpenSession(d.walk.name(name), process, ttl))


async def live_on(d: Draw) -> None:
    """Let much time pass beside the ttls of the sessions, which are renewed; a numbered operation comes again in
    time.
    """
    sessions, rounds = {d.walk.name(name): process for name, process in SESSIONS.items()}, d.number(1, 6)
    numbered = [operation for operation in d.walk.history[-40:] if hasattr(operation, "n")]
    again = d.one_of(numbered) if numbered else e.Ping()
    looks = [e.Count(d.walk.name(queue)) for queue in QUEUES]
    await d.walk.send(*(e.OpenSession(*of, 1.0 if d.timed else LASTING) for of in sessions.items()), again)
    for i in range(1, rounds + 1):
        if d.number(0, rounds) == 0:
            await do_a_task(d)
        await d.walk.advance(0.5)
        await d.walk.send(*map(e.RenewSession, sessions), *[again] * (i % 3 == 0), *looks)


async def let_time_pass(d: Draw) -> None:
    """Let time pass until something may be due; sometimes an operation notices at once."""
    await d.walk.advance(d.one_of((1 / 64, 1.0, d.duration())))
    if d.flag():
        await d.walk.send(e.Ping())


async def send_again(d: Draw) -> None:
    """Send operations of the history once more."""
    if d.walk.history:
        await d.walk.send(*d.some(1, 4, lambda: d.one_of(d.walk.history[-20:])))


async def look_into_a_session(d: Draw) -> None:
    """Page by page."""
    await d.walk.look_at_session(d.session(), d.number(1, 3))


async def look_around(d: Draw) -> None:
    """Page by page."""
    await d.walk.look_at_names(d.one_of(KINDS), d.name("", "", "k", "s1", "none"), d.number(1, 3))


# --------------------------------------------------------------------------------------------------------------- holds


def hold_operation(d: Draw) -> e.Operation[Any]:
    """An operation of the family of holds."""
    session, key, holder = d.session(), d.key(), d.holder()
    match d.number(0, 8):
        case 0 | 1:
            capacity, weight = d.one_of((1, 3, 3, 3)), d.number(1, 4)
            return e.Acquire(session, key, holder, capacity, weight, d.data(), d.flag())
        case 2 | 3:
            return e.Acquire(session, key, holder, 3)
        case 4:
            return e.Ask(session, key, d.some(0, 4, d.holder))
        case 5 | 6:
            return e.Release(key, holder)
        case 7:
            return e.Resize(key, d.one_of((0, 1, 2, 3, 3, 5)))
        case _:
            return e.Scan(e.HOLDERS, key, limit=d.number(1, 4), watch=d.watch())


async def hold(d: Draw) -> None:
    """Send an operation on a hold."""
    await d.walk.send(hold_operation(d))


async def crowd(d: Draw) -> None:
    """Let several holders come at once."""
    session, key, capacity = d.session(), d.key(), d.one_of((1, 3, 3, 5))
    await d.walk.send(*d.some(3, 8, lambda: e.Acquire(session, key, d.holder(), capacity, d.number(1, 4))))


async def leave_two_lines(d: Draw) -> None:
    """Let a session end that holds two keys, which go to many waiters at once."""
    session, other, count = d.session(), d.session(), d.number(2, 5)
    for key in map(d.walk.name, KEYS):
        await d.walk.send(e.Acquire(session, key, "a", 3, 3))
        await d.walk.send(*(e.Acquire(other, key, holder, 3) for holder in "bcdef"[:count]))
    await d.walk.send(e.CloseSession(session))


async def set_value(d: Draw) -> None:
    """Set the value of a present or former holder, by a token that may be another's; somebody may watch."""
    if d.walk.grants:
        (key, holder, token), other = d.one_of(d.walk.grants[-4:]), d.one_of(d.walk.grants[-8:])
        if d.flag():
            await d.walk.send(
                e.Acquire(d.session(), key, holder, 3), e.Scan(e.HOLDERS, key, limit=4, watch=d.watch())
            )
        await d.walk.send(e.SetValue(key, holder, d.one_of((token, other[2])), d.data()))


async def break_a_hold(d: Draw) -> None:
    """Break the hold of a present or former holder, by a token that may be another's."""
    if d.walk.grants:
        (key, holder, token), other = d.one_of(d.walk.grants[-4:]), d.one_of(d.walk.grants[-8:])
        await d.walk.send(e.BreakHold(key, holder, d.one_of((token, token, other[2]))))


async def barrier(d: Draw) -> None:
    """Send an operation on a barrier."""
    session, key, holder = d.session(), d.gate(), d.holder()
    operations = (
        e.Acquire(
            session, key, holder, d.one_of((1, 2, 3, 3)), 0, d.one_of((b"", b"", e.DROP)), d.number(0, 5) > 0
        ),
        e.Acquire(session, key, holder, 3, 0),
        e.Ask(session, key, d.some(0, 4, d.holder)),
        e.Release(key, holder),
        e.Resize(key, d.one_of((e.BROKEN, 0, 0))),
        e.Scan(e.HOLDERS, key, limit=d.number(1, 4), watch=d.watch()),
    )
    await d.walk.send(d.one_of(operations))


async def gather(d: Draw) -> None:
    """Let several participants arrive at once, and perhaps two leave."""
    session, key, value = d.session(), d.gate(), d.one_of((b"", b"", e.DROP))
    parties = d.some(2, 4, d.holder)
    await d.walk.send(*(e.Acquire(session, key, party, 4, 0, value) for party in parties))
    if d.flag():
        await d.walk.send(e.Release(key, parties[0]), e.Release(key, parties[1]))


async def pass_a_barrier(d: Draw) -> None:
    """Let all parties arrive and fetch their outcomes."""
    key = d.gate()
    await d.walk.send(*(e.Acquire(d.session(), key, party, 2, 0) for party in "ab"))
    if d.flag():
        await d.walk.send(*(e.Release(key, party) for party in "ab"))


# -------------------------------------------------------------------------------------------------------------- claims


def claim_operation(d: Draw) -> e.Operation[Any]:
    """An operation of the family of claims, but for `EditClaim`."""
    session, pool, holder, resource = d.session(), d.key(), d.holder(), d.one_of("xyz")
    match d.number(0, 6):
        case 0 | 1:
            return e.AddResource(pool, resource, d.metadata(), d.number(-1, 1), d.flag(), d.one_of((1, 1, 2)))
        case 2:
            return e.RemoveResource(pool, resource)
        case 3:
            return e.Claim(session, pool, holder, d.metadata(), d.delay(), d.flag(), d.tenant())
        case 4:
            return e.Claim(session, pool, holder, group=d.tenant())
        case 5:
            return e.GiveBack(pool, holder)
        case _:
            return e.Scan(e.RESOURCES, pool, limit=d.number(1, 4))


async def claim(d: Draw) -> None:
    """Send an operation on a claim."""
    await d.walk.send(claim_operation(d))


async def edit(d: Draw) -> None:
    """Edit the claim of a present or former claimer."""
    if d.walk.claims:
        metadata = d.metadata() if d.flag() else None
        retire = "broken" if d.number(0, 2) == 0 else None
        await d.walk.send(e.EditClaim(*d.one_of(d.walk.claims[-8:]), metadata, d.delay_or_none(), retire))


async def lend(d: Draw) -> None:
    """Claim a resource, change it, and part with it in one of several ways."""
    walk, session, holder, pool = d.walk, d.session(), d.holder(), d.walk.name("k")
    how = d.one_of(("give back", "retire", "remove", "close"))
    await walk.send(e.AddResource(pool, "x", (), slots=d.number(1, 2)), e.AddResource(pool, "y", ()))
    (answer,) = await walk.send(e.Claim(session, pool, holder, (), d.delay()))
    if isinstance(answer, e.Claimed):
        retire = "broken" if how == "retire" else None
        await walk.send(e.EditClaim(pool, holder, answer.token, None, d.delay(), retire))
        if how == "remove":
            await walk.send(e.RemoveResource(pool, answer.resource))
    await walk.send(e.CloseSession(session) if how == "close" else e.GiveBack(pool, holder))


async def rest(d: Draw) -> None:
    """A resource rests, is claimed again, and then rests no more."""
    session, pool, seconds = d.session(), d.key(), d.delay()
    await d.walk.send(e.AddResource(pool, "x", (), 1, revive=True))
    for again in (False, True):
        (answer,) = await d.walk.send(e.Claim(session, pool, "a", (), 0.0, d.flag()))
        if isinstance(answer, e.Claimed) and not again:
            await d.walk.send(e.EditClaim(pool, "a", answer.token, cool_down=seconds))
        await d.walk.send(e.GiveBack(pool, "a"), e.Scan(e.RESOURCES, pool))
        await d.walk.advance(seconds)


async def die_with_claims(d: Draw) -> None:
    """Claimers die, the last by name first, and what they had is used again in that order."""
    pool, names = d.walk.name("k"), [d.walk.name(name) for name in list(SESSIONS)[1::-1]]
    for ttl, resource, session in zip((0.25, 0.5), "xy", names, strict=True):
        await d.walk.send(
            e.AddResource(pool, resource, (), 1, revive=True),
            e.OpenSession(session, "p1", ttl if d.timed else LASTING),
        )
        await d.walk.send(e.Claim(session, pool, resource))
    await d.walk.advance(1.0)
    await d.walk.send(*(e.Claim(d.session(), pool, holder) for holder in "ab"), e.Scan(e.RESOURCES, pool))


async def wait_for_a_match(d: Draw) -> None:
    """Claimers with different needs wait, and something comes for some of them."""
    session, pool = d.session(), d.key()
    how = (0.0, True)
    await d.walk.send(
        *d.some(2, 5, lambda: e.Claim(session, pool, d.holder(), d.metadata(), *how, d.tenant()))
    )
    await d.walk.send(
        *d.some(1, 2, lambda: e.AddResource(pool, d.one_of("xyz"), d.metadata(), slots=d.number(1, 3)))
    )


# ------------------------------------------------------------------------------------------------------------ counters


async def spend(d: Draw) -> None:
    """Let several callers spend at once."""
    session, key, limits = d.session(), d.key(), d.limits()
    n = d.walk.number(session, f"spend {key}")
    requests = d.some(1, 3, lambda: d.spend_request(len(limits)))
    horizon = d.one_of((None, None, 0.0, 0.25, 2.0))
    await d.walk.send(e.Spend(session, n, key, requests, limits, horizon))


async def refund(d: Draw) -> None:
    """Refund or correct a booking that may have been overtaken, or refunded."""
    if d.walk.bookings:
        key, limits, bookings = d.one_of(d.walk.bookings[-8:])
        session = d.session()
        n = d.walk.number(session, f"spend {key}")

        def request() -> e.RefundRequest:
            amounts = tuple(d.one_of((0.0, 0.5, 8.0, -1.0, -1.0, -(2.0**40))) for _ in limits)
            return e.RefundRequest(bookings, amounts if d.flag() else ())

        await d.walk.send(e.Refund(session, n, key, d.some(1, 3, request), limits))


async def hold_off(d: Draw) -> None:
    """Hold a limiter off, perhaps while somebody waits, perhaps for less long than it is held off already."""
    session, key = d.session(), d.key()
    n = d.walk.number(session, f"spend {key}")
    await d.walk.send(e.HoldOff(session, n, key, d.one_of((0.0, d.delay(), d.delay()))))


async def look(d: Draw) -> None:
    """Read the bookings of a limiter."""
    await d.walk.send(e.Scan(e.LIMITER, d.key()))


# --------------------------------------------------------------------------------------------------------------- tasks


def _move(d: Draw, queue: str, state: str, to: Literal["waiting", "purged"]) -> e.Move:
    """Move the last tasks that were put into a queue, and are in a state."""
    put = [task for of, task in d.walk.put if of == queue]
    return e.Move(queue, tuple(put[-e.CAP :]), to, state=state)


async def _purge(d: Draw, queue: str) -> None:
    await d.walk.send(*(_move(d, queue, state, "purged") for state in ("waiting", "delayed")))


def _edit(d: Draw, queue: str, tasks: tuple[int, ...]) -> e.Move:
    delay, priority = d.one_of((None, None, d.delay())), d.one_of((None, d.number(-1, 1)))
    group = d.one_of((None, _group(d)))
    changes = delay is not None or priority is not None or group is not None
    payload = None if changes and d.flag() else d.data()
    return e.Move(queue, tasks, "delayed", delay=delay, payload=payload, priority=priority, group=group)


def queue_operation(d: Draw) -> e.Operation[Any]:
    """An administrative operation on a queue."""
    queue = d.queue()
    (task, *_) = d.ids(queue)
    operations = (
        e.Leave(queue, d.one_of("mno")),
        e.GetResult(queue, task, d.watch()),
        e.Scan(e.TASK, queue, only=str(task), watch=d.watch()),
        e.Scan(e.KEYED_TASK, queue, only=d.one_of(("", "d1", "d2\0\u00e4", "d3")), watch=d.watch()),
        e.Move(queue, (task,), "cancelled", ttl=d.delay_or_none()),
        e.Move(
            queue,
            d.ids(queue),
            d.one_of(("cancelled", "waiting", "delayed", "purged")),
            delay=d.delay(),
        ),
        _edit(d, queue, d.ids(queue, 3)),
        e.Move(
            queue,
            d.ids(queue),
            d.one_of(("cancelled", "waiting", "delayed", "purged")),
            state=d.one_of(("", *_MOVED)),
        ),
        _move(d, queue, "dead", "waiting"),
        e.SetPaused(queue, d.flag()),
        e.SetPaused(queue, d.flag(), d.one_of((0.0, 0.25, 1.0)), d.one_of(("", _group(d))))
        if d.timed
        else e.Ping(),
        e.Count(queue, d.watch(), d.flag()),
        e.Scan(e.GROUPS, queue, limit=d.number(1, 3)),
    )
    return d.one_of(operations)


async def look_after_a_queue(d: Draw) -> None:
    """Send an administrative operation on a queue."""
    await d.walk.send(queue_operation(d))


async def look_through_a_queue(d: Draw) -> None:
    """Page by page."""
    await d.walk.look_at_tasks(d.queue(), d.one_of(STATES), d.number(1, 4))


async def _put(d: Draw, session: str, queue: str, *requests: e.PutRequest, max_size: int = 100) -> None:
    await d.walk.send(configured(queue, max_size=max_size))
    await d.walk.send(e.Put(session, d.walk.number(session, f"put {queue}"), queue, requests))


async def _exchange(
    d: Draw, session: str, queue: str, settle: Sequence[e.Settle] = (), want: int = 0, **how: Any
) -> tuple[Any, ...]:
    """Returns the tasks that were taken."""
    wait = how.pop("wait", True)
    if how:
        await d.walk.send(configured(queue, **how))
    n = d.walk.number(session, f"exchange {queue}")
    (answer,) = await d.walk.send(e.Exchange(session, n, queue, tuple(settle), want, wait))
    return answer.tasks if isinstance(answer, e.Exchanged) else ()


async def put(d: Draw) -> None:
    """Let several producers put at once."""
    max_size = d.one_of((2, 4, 100))
    await _put(d, d.session(), d.queue(), *d.some(0, 3, d.put_request), max_size=max_size)


async def exchange(d: Draw) -> None:
    """Exchange with any verdicts on what anybody took, by anybody."""
    session, queue, drawn = d.session(), d.queue(), ()
    if d.walk.taken:
        drawn = d.some(0, 3, lambda: d.one_of(d.walk.taken[-6:]))
    settle = [
        e.Settle(t[2], t[3], d.verdict(), d.data(3), d.delay(), d.delay_or_none(), d.data(1)) for t in drawn
    ]
    if drawn and d.flag():
        session, queue = drawn[0][:2]
    how = {"wait": d.flag(), "aging": d.aging(), "max_deliveries": d.one_of((1, 2, 20)), "payloads": d.flag()}
    how["dead"] = d.delay_or_none()
    await _exchange(d, session, queue, settle, d.number(0, 3), **how)


def _result(d: Draw, verdict: e.Verdict) -> bytes:
    return d.one_of((b"", e.ANEW, e.NOT_BEGUN)) if verdict is e.Verdict.POSTPONE else b"result"


async def work(d: Draw) -> None:
    """Settle the tasks that this session took lately, and take more."""
    session, queue = d.session(), d.queue()
    verdicts, delay = d.some(1, 4, d.verdict), d.delay()
    mine = [taken for taken in d.walk.taken if taken[:2] == (session, queue)][-2 * len(verdicts) :]
    if d.flag():  # the last ones; else also those that it may have again, with another token
        mine = mine[-len(verdicts) :]
    ttl = d.one_of((5.0, None))
    settle = [
        e.Settle(task, token, verdict, _result(d, verdict), delay, ttl, d.data(1))
        for (_, _, task, token), verdict in zip(mine, verdicts, strict=False)
    ]
    await _exchange(d, session, queue, settle, d.number(0, 5))


async def do_a_task(d: Draw) -> None:
    """Do a task, and leave no record of it."""
    session, queue = d.session(), d.queue()
    await _put(d, session, queue, e.PutRequest("m", (e.NewTask(b"x"),)))
    tasks = await _exchange(d, session, queue, (), 1)
    await _exchange(d, session, queue, [e.Settle(t.id, t.token, e.Verdict.DONE, ttl=0.0) for t in tasks])


async def put_and_take(d: Draw) -> None:
    """Tasks that are delayed, then due, and taken by somebody who has to stop some of them."""
    session, queue, delay, count = d.session(), d.queue(), d.delay(), d.number(1, 4)
    expires = d.duration() if d.flag() else None
    tasks = (e.NewTask(b"x", delay=delay, expires=expires),) * count
    await _put(d, session, queue, e.PutRequest("m", tasks))
    await d.walk.advance(delay)
    settle: list[e.Settle] = []
    for task in (await _exchange(d, session, queue, (), count, max_deliveries=2))[::-1]:
        await d.walk.send(
            e.GetResult(queue, task.id, session),
            *[e.Scan(e.TASK, queue, only=str(task.id), watch=d.session())] * d.number(0, 1),
            e.Progress(queue, task.id, task.token, b"half"),
        )
        if d.flag():
            await d.walk.send(e.Move(queue, (task.id,), "cancelled"))
        settle.append(e.Settle(task.id, task.token, d.verdict(), b"result", d.delay(), 5.0))
    del settle[d.number(0, 4) :]
    for part in (settle[:2], settle[2:], ()):
        await _exchange(d, session, queue, part, 1)


async def bury_and_revive(d: Draw) -> None:
    """Tasks die, and are made ready again."""
    session, queue, count = d.session(), d.queue(), d.number(1, 7)
    request = e.PutRequest("m", (e.NewTask(b"x", key=d.one_of((None, "d1"))), *(e.NewTask(b"x"),) * count))
    await _put(d, session, queue, request)
    for again in (True, False):
        tasks = await _exchange(d, session, queue, (), count)
        ttl, failure = d.one_of((None, None, d.duration())), d.data(2)
        buried = [e.Settle(task.id, task.token, e.Verdict.DEAD, ttl=ttl, failure=failure) for task in tasks]
        await _exchange(d, session, queue, buried)
        if again:
            if d.flag():
                await _put(d, session, queue, request)
            await d.walk.look_at_tasks(queue, "dead", 3)
            await d.walk.send(_move(d, queue, "dead", "waiting"))


async def wake_the_idle(d: Draw) -> None:
    """Takers wait, and something comes."""
    queue, delay, first, paused = d.queue(), d.delay(), d.session(), d.flag()
    for session, want in d.some(2, 4, lambda: (d.session(), d.number(1, 3))):
        await _exchange(d, session, queue, (), want)
    await d.walk.send(*[e.SetPaused(queue, True)] * paused)
    tasks = (e.NewTask(b"x", delay=delay),) * d.number(1, 4)
    await _put(d, d.walk.name("s1"), queue, e.PutRequest("m", tasks))
    await d.walk.advance(delay)
    await d.walk.send(*[e.SetPaused(queue, False)] * paused)
    await _exchange(d, first, queue, (), 1)


async def watch(d: Draw) -> None:
    """A queue until it is empty, and a task until it changes and until it ends."""
    queue = d.queue()
    watches: list[e.Operation[Any]] = []
    for of, task in d.walk.put[-1:]:
        watches += [e.Scan(e.TASK, of, only=str(task), watch=d.session()), e.GetResult(of, task, d.session())]
    await d.walk.send(e.Count(queue, d.session()), *watches)
    await _purge(d, queue)


async def grow_old(d: Draw) -> None:
    """Tasks of all priorities become ready one after the other, and are taken with `aging`."""
    session, queue = d.session(), d.queue()
    for priority in d.some(2, 4, lambda: d.number(-1, 1)):
        await _put(d, session, queue, e.PutRequest("m", (e.NewTask(b"x", priority, d.delay()),)))
        await d.walk.advance(d.one_of((0.0, 1 / 64, 1.0)))
    await _exchange(d, session, queue, (), d.number(1, 3), aging=d.aging())


async def fill(d: Draw) -> None:
    """Producers wait for room; some of it is made, and they come again."""
    session, other, queue = d.session(), d.session(), d.queue()
    sizes = d.some(1, 4, lambda: d.number(1, 2))
    requests = [
        e.PutRequest("mnop"[i], (e.NewTask(b"x"),) * size, cursor=("c", b"1")) for i, size in enumerate(sizes)
    ]
    for _ in range(2):
        await _put(d, session, queue, *requests, max_size=2)
        await d.walk.send(_move(d, queue, "waiting", "purged"))
        requests.reverse()
    await _put(d, other, queue, *requests[:2], max_size=2)


def _group(d: Draw) -> str:
    return d.one_of(("", "a", "a", "b", "c"))


def _group_of_children(d: Draw) -> str:
    return d.one_of(("", "", "\0a", "\0a", "\0b"))


async def put_in_groups(d: Draw) -> None:
    """Tasks of all kinds, some of them delayed or expiring, of one group or several."""
    group, tasks = _group(d), d.some(1, 4, d.task)
    groups = [group if d.flag() else _group(d)] * 4 if d.flag() else [_group(d) for _ in range(4)]
    tasks = tuple(replace(task, group=groups[i]) for i, task in enumerate(tasks))
    max_size = d.one_of((4, 100, 100))
    await _put(d, d.session(), d.queue(), e.PutRequest(d.one_of("mno"), tasks, d.flag()), max_size=max_size)


async def configure(d: Draw) -> None:
    """Several processes name some fields, among them the defaults, or read the record."""
    values = {
        "max_size": d.one_of((2, 100, 10_000)),
        "aging": d.aging(),
        "max_deliveries": d.one_of((1, 20)),
        "dead": d.one_of((5.0, None, 180 * 86400.0)),
        "payloads": d.flag(),
        "results": d.one_of((3600.0, 5.0)),
        "tracebacks": d.flag(),
        "hold": d.flag(),
    }
    named = {name: value for name, value in values.items() if d.number(0, 3) == 0}
    await d.walk.send(
        configured(d.queue(), d.one_of("pq"), missing=d.flag(), **named), e.Configure(d.queue())
    )


async def configure_groups(d: Draw) -> None:
    """Limits and weights, all of them powers of two: sums of such floats are exact."""
    weights = d.some(0, 2, lambda: (d.one_of((_group, _group_of_children))(d), d.one_of((0.25, 2.0, 4.0))))
    per_group, max_size = d.one_of((0, 1, 1, 1, 2)), d.one_of((0, 0, 1, 2, 3))
    rates = _rate(d), _rate(d)
    await d.walk.send(
        set_groups(d.queue(), per_group, max_size, tuple(dict(weights).items()), d.number(0, 3) > 0, *rates)
    )


def _rates(d: Draw, queue: str) -> e.Configure:
    return set_groups(queue, rate=_rate(d), group_rate=_rate(d))


def _rate(d: Draw) -> e.Rate | None:
    """A rate, where both engines have the same time."""
    if not d.timed or d.flag():
        return None
    return e.Rate(d.one_of((0.25, 0.5, 2.0)), d.one_of((1.0, 2.0, 4.0)))


async def hold_tasks_off(d: Draw) -> None:
    """No task of a queue or a group starts for a while, and then one after the other."""
    if d.timed:
        queue = d.queue()
        group = d.one_of(("", _group(d)))
        await d.walk.send(e.SetPaused(queue, False, d.one_of((0.25, 1.0, 8.0)), group))
        await _exchange(d, d.session(), queue, (), d.number(1, 3))
        if d.flag():
            await d.walk.send(
                d.one_of((e.SetPaused(queue, False, 0.0, group), e.SetPaused(queue, False), _rates(d, queue)))
            )
            await _exchange(d, d.session(), queue, (), d.number(1, 3))
        await d.walk.advance(d.delay())
        await _exchange(d, d.session(), queue, (), d.number(1, 3))


async def take_turns(d: Draw) -> None:
    """Groups of several tasks are taken from, and one task goes back or ends in one of several ways."""
    session, queue, count = d.session(), d.queue(), d.number(1, 3)
    for group in d.some(1, 3, lambda: _group(d)):
        tasks = (e.NewTask(b"x", d.one_of((0, 0, 1)), group=group),) * count
        await _put(d, session, queue, e.PutRequest("m", tasks, wait=False))
    if d.flag():
        await configure_groups(d)
    for _ in range(3):
        tasks = await _exchange(d, session, queue, (), d.number(1, 4), aging=d.aging())
        settle = [e.Settle(t.id, t.token, d.verdict(), b"", d.delay(), 5.0) for t in tasks]
        await _exchange(d, session, queue, settle, d.number(0, 2), wait=d.flag())
        await d.walk.advance(d.one_of((0.0, 1 / 64, 1.0)))
    await d.walk.send(e.Scan(e.GROUPS, queue, limit=d.number(1, 4)))


async def fill_a_group(d: Draw) -> None:
    """Producers wait for room in groups and in the queue; some of it is made, and they come again."""
    session, queue, max_size = d.session(), d.queue(), d.one_of((3, 5, 100))
    await d.walk.send(set_groups(queue, d.one_of((0, 1)), d.number(1, 2)))
    requests = [
        e.PutRequest(
            "mnopq"[i], (e.NewTask(b"x", key=d.one_of((None, "d1")), group=_group(d)),) * d.number(1, 2)
        )
        for i in range(d.number(2, 5))
    ]
    for _ in range(2):
        await _put(d, d.session(), queue, *requests, max_size=max_size)
        tasks = await _exchange(d, session, queue, (), d.number(1, 2), wait=False)
        await _exchange(d, session, queue, [e.Settle(t.id, t.token, d.verdict()) for t in tasks], wait=False)
        if d.flag():
            await d.walk.send(
                d.one_of((e.Leave(queue, d.one_of("mnopq")), set_groups(queue, 0, d.number(0, 3))))
            )
        requests.reverse()
    await d.walk.send(e.Scan(e.GROUPS, queue))
    await _purge(d, queue)


async def use_a_key(d: Draw) -> None:
    """Tasks with one key are put, and what becomes of them in between is seen."""
    session, queue = d.session(), d.queue()
    if d.number(0, 3) == 0:
        await d.walk.send(set_groups(queue, d.one_of((0, 1)), d.one_of((0, 1, 2))))
    key, limited, group = d.one_of(("d1", "d3")), d.number(0, 3) == 0, _group(d)
    for _ in range(d.number(2, 5)):
        tasks = d.some(1, 3, lambda: d.keyed(replace(d.task(), key=key, group=d.one_of((group, _group(d))))))
        request = e.PutRequest(d.one_of("mn"), tasks, d.flag())
        await _put(d, session, queue, request, max_size=d.one_of((1, 2)) if limited else 100)
        if d.flag():
            await d.walk.send(e.Scan(e.KEYED_TASK, queue, only=key, watch=d.watch()))
        if d.flag():
            await d.walk.advance(d.one_of((1 / 64, 1.0)))
        taken = await _exchange(d, session, queue, (), d.number(0, 2), wait=d.flag(), payloads=d.flag())
        if d.flag():
            settle = [e.Settle(t.id, t.token, d.verdict(), b"", d.delay(), d.delay_or_none()) for t in taken]
            await _exchange(d, session, queue, settle)
    await one_task(d)


async def race_for_a_cursor(d: Draw) -> None:
    """Two write it, each expecting a value that may be another."""
    session, queue = d.session(), d.queue()
    for _ in range(2):
        task, value = e.NewTask(b"x", group=_group(d)), d.one_of((b"1", b"2"))
        expected = d.one_of((None, b"", b"1", b"2"))
        request = e.PutRequest(d.one_of("mn"), (task,) * d.number(0, 2), d.flag(), ("c", value), expected)
        await _put(d, session, queue, request, max_size=d.one_of((2, 100)))


async def one_task(d: Draw) -> None:
    """Read, cancel or requeue a task."""
    if d.walk.put:
        queue, task = d.one_of(d.walk.put[-8:])
        operations = (
            e.GetResult(queue, task, d.watch()),
            e.Scan(e.TASK, queue, only=str(task), watch=d.watch()),
            e.Scan(e.TASK, queue, only=str(task), watch=d.watch()),
            e.Move(queue, (task,), "cancelled", ttl=5.0),
            e.Move(queue, (task,), "delayed", delay=d.delay()),
            *(e.Move(queue, (task,), "waiting") for _ in range(2)),
            _edit(d, queue, (task,)),
            e.Move(queue, (task,), "purged", state=d.one_of(_MOVED)),
        )
        await d.walk.send(d.one_of(operations))


async def one_taken_task(d: Draw) -> None:
    """Let the present or former holder of a task report, or stop the task."""
    if d.walk.taken:
        (_, queue, task, token), other = d.one_of(d.walk.taken[-6:]), d.one_of(d.walk.taken[-6:])
        token = d.one_of((token, token, other[3]))
        operations = (
            e.Progress(queue, task, token, d.data()),
            e.Move(queue, (task,), "cancelled", ttl=d.delay_or_none()),
        )
        await d.walk.send(d.one_of(operations))


# ------------------------------------------------------------------------------------------------------------ families


def _deadline(d: Draw) -> float | None:
    """A deadline of one task in four."""
    return d.duration() if d.number(0, 3) == 0 else None


def _put_children(d: Draw, queue: str, task: int, token: int) -> e.PutChildren:
    names = tuple(sorted(set(d.some(1, 3, lambda: d.one_of(_ENTRIES[:4])))))
    tasks = tuple(
        e.NewTask(
            *(b"x", d.number(-1, 1), d.delay() if d.number(0, 3) == 0 else 0.0),
            group=_group_of_children(d),
            deadline=_deadline(d),
        )
        for _ in names
    )
    return e.PutChildren(queue, task, token, d.queue(), names, tasks, d.one_of((2, 100, 100)))


def _settle_with_family(d: Draw, task: int, token: int) -> e.Settle:
    verdict = d.one_of((*_VERDICTS, *_WAITS, e.Verdict.WAIT, e.Verdict.RETRY))
    result = _result(d, verdict)
    if verdict is e.Verdict.WAIT:
        result = d.one_of((b"", b"c/", b"d/"))
    elif verdict is e.Verdict.WAIT_FOR:
        result = d.one_of((b"v", b"v", b"c/a"))
    elif verdict is e.Verdict.WAIT_FOR_END:
        result = d.one_of((b"0", b"1", b"2"))
    delay = d.duration() if verdict is e.Verdict.WAIT_FOR and d.flag() else d.delay()
    return e.Settle(task, token, verdict, result, delay, d.one_of((5.0, None)))


async def raise_a_family(d: Draw) -> None:
    """A task puts children, and waits or ends; others are taken and settled, cancelled or purged meanwhile."""
    session, queue = d.session(), d.queue()
    if d.number(0, 2) == 0:
        await d.walk.send(set_groups(d.queue(), 1))
    key, deadline = d.one_of((None, "d1")), _deadline(d)
    root = e.NewTask(b"x", key=key, group=_group(d), on_duplicate="replace", deadline=deadline)
    home, roots = queue, e.PutRequest("m", (root,) * d.number(1, 2), wait=False)
    await _put(d, session, home, roots)
    for _ in range(d.number(1, 5)):
        queue = d.queue()
        tasks = await _exchange(d, session, queue, (), d.number(1, 3), max_deliveries=d.one_of((2, 20)))
        for task in tasks:
            if d.flag():
                await d.walk.advance(d.one_of((0.0, 1 / 64)))
                await d.walk.send(_put_children(d, queue, task.id, task.token))
            if d.number(0, 3) == 0:
                await d.walk.send(e.SetEntry(queue, task.id, task.token, "v", d.data()))
            if d.number(0, 3) == 0:
                await one_task(d)
        settle = [_settle_with_family(d, task.id, task.token) for task in tasks]
        await _exchange(d, session, queue, settle[d.number(0, 1) :], d.number(0, 2), wait=d.flag())
        if key and d.flag():
            await _put(d, session, home, roots)
        if d.number(0, 3) == 0:
            await d.walk.advance(d.one_of((1 / 64, 1.0, d.duration())))


async def wait_for_children(d: Draw) -> None:
    """A task puts children and waits for them, which end one after the other; somebody waits idle."""
    session, queue, to = d.session(), d.queue(), d.queue()
    await _put(
        d,
        session,
        queue,
        e.PutRequest("m", (e.NewTask(b"x", group=_group(d), deadline=_deadline(d)),), wait=False),
    )
    tasks = await _exchange(d, session, queue, (), 1)
    for task in tasks:
        names = _ENTRIES[: d.number(1, 4)]
        specs = (e.NewTask(b"x", group=_group_of_children(d)),) * len(names)
        await d.walk.send(e.PutChildren(queue, task.id, task.token, to, names, specs))
        await d.walk.send(
            e.GetResult(queue, task.id, d.session()),
            e.Scan(e.TASK, queue, only=str(task.id), watch=d.session()),
        )
        verdict = d.one_of(
            (e.Verdict.WAIT, e.Verdict.WAIT_FOR_END, e.Verdict.DONE, e.Verdict.RETRY, e.Verdict.DEAD)
        )
        result = {e.Verdict.WAIT: b"c/", e.Verdict.WAIT_FOR_END: b"%d" % (len(names) - 1)}.get(verdict, b"")
        settle = e.Settle(task.id, task.token, verdict, result, d.delay(), 5.0)
        await _exchange(d, session, queue, (settle,), wait=False)
    await _exchange(d, d.session(), queue, (), 1)
    for _ in range(4):
        taken = await _exchange(d, session, to, (), d.number(1, 2), wait=False)
        if d.number(0, 4) == 0:
            await one_task(d)
        verdict = d.one_of((e.Verdict.DONE, e.Verdict.DONE, e.Verdict.DEAD, e.Verdict.RETRY))
        settles = [e.Settle(t.id, t.token, verdict, b"result", ttl=5.0) for t in taken]
        await _exchange(d, session, to, settles, wait=False)
    await d.walk.send(_move(d, to, "dead", "waiting"))


async def use_an_entry(d: Draw) -> None:
    """Write or read an entry of a task, or put children, with the token of a present or former lease, or none."""
    if d.walk.taken:
        _, queue, task, token = d.one_of(d.walk.taken[-6:])
        token = d.one_of((token, token, d.one_of(d.walk.taken[-6:])[3]))
        name = d.one_of(("v", "v", "c/a"))
        operations = (
            e.SetEntry(queue, task, 0, name, d.data()),
            e.SetEntry(queue, task, token, name, d.data()),
            _put_children(d, queue, task, token),
        )
        await d.walk.send(d.one_of(operations))
        await d.walk.look_at_entries(queue, task, d.number(1, 3))


async def undo_in_the_end(d: Draw) -> None:
    """Tasks name releases, undo or keep some of them, and end in any way; the releases do too."""
    session, queue, to = d.session(), d.queue(), d.queue()
    key = d.one_of((None, "d1"))
    root = e.NewTask(b"x", key=key, group=_group(d), on_duplicate="replace", deadline=_deadline(d))
    await _put(d, session, queue, e.PutRequest("m", (root,), wait=False))
    for at in (queue, to, to, queue, to, to):
        for task in await _exchange(d, session, at, (), d.number(1, 3), max_deliveries=d.one_of((2, 20))):
            for _ in range(d.number(0, 2)):
                await d.walk.send(_name_releases(d, at, task.id, task.token, to))
            if d.number(0, 3) == 0:
                await d.walk.send(_put_children(d, at, task.id, task.token))
            if d.flag():
                change, name = d.one_of(("begin", "keep")), d.one_of(_ENTRIES)
                await d.walk.send(e.SetEntry(at, task.id, task.token, name, change=change))
            if d.number(0, 3) == 0:
                await one_task(d)
            if d.number(0, 4):
                await _exchange(d, session, at, (_settle_with_family(d, task.id, task.token),), wait=d.flag())
            await d.walk.look_at_entries(at, task.id, d.number(1, 3))
        if d.number(0, 3) == 0:
            await d.walk.advance(d.one_of((1 / 64, 1.0, d.duration())))
    await d.walk.send(_move(d, d.queue(), "dead", "waiting"))


def _name_releases(d: Draw, queue: str, task: int, token: int, to: str) -> e.PutChildren:
    names = tuple(sorted(set(d.some(1, 4, lambda: d.one_of(_ENTRIES)))))
    payload, group = d.one_of((b"x", b"x", b"y")), _group_of_children(d)
    tasks = tuple(e.NewTask(payload, d.number(-1, 1), group=group, deadline=_deadline(d)) for _ in names)
    held = d.one_of(("end", "unless_done"))
    return e.PutChildren(queue, task, token, to, names, tasks, d.one_of((2, 100, 100)), held, d.flag())


async def wait_for_a_signal(d: Draw) -> None:
    """A task waits for an entry, which comes before, in time, or too late."""
    session, queue = d.session(), d.queue()
    await _put(d, session, queue, e.PutRequest("m", (e.NewTask(b"x", deadline=_deadline(d)),), wait=False))
    for task in await _exchange(d, session, queue, (), 1, wait=False):
        if d.number(0, 3) == 0:
            await d.walk.send(e.SetEntry(queue, task.id, 0, "v", b"early"))
        settle = e.Settle(task.id, task.token, e.Verdict.WAIT_FOR, b"v", d.delay())
        await _exchange(d, session, queue, (settle,), d.number(0, 1), wait=d.flag())
        await d.walk.advance(d.delay())
        await d.walk.send(
            e.SetEntry(queue, task.id, 0, "v", b"late"), e.Scan(e.ENTRIES, queue, only=str(task.id))
        )
        await _exchange(d, session, queue, (), 1)


async def look_through_a_family(d: Draw) -> None:
    """Page by page."""
    await d.walk.look_at_tasks(d.queue(), d.one_of(STATES_OF_FAMILIES), d.number(1, 3))


# ------------------------------------------------------------------------------------------------------------ together


async def batch(d: Draw) -> None:
    """Operations of several families in one batch."""
    draws = (hold_operation, claim_operation, queue_operation)
    await d.walk.send(*d.some(2, 5, lambda: d.one_of(draws)(d)))


_ALWAYS: tuple[Step, ...] = (
    a_session,
    renew_all,
    live_on,
    let_time_pass,
    let_time_pass,
    send_again,
    look_into_a_session,
    look_around,
)
_HOLDS: tuple[Step, ...] = (
    *(hold, hold, hold, crowd, leave_two_lines, set_value, break_a_hold),
    *(barrier, barrier, gather, pass_a_barrier),
)
_CLAIMS: tuple[Step, ...] = (
    *(claim, claim, claim, edit, edit, lend, rest),
    *(wait_for_a_match, die_with_claims),
)
_COUNTERS: tuple[Step, ...] = (
    spend,
    spend,
    refund,
    refund,
    hold_off,
    look,
)
_TASKS: tuple[Step, ...] = (
    look_after_a_queue,
    look_through_a_queue,
    put,
    put,
    exchange,
    exchange,
    work,
    put_and_take,
    bury_and_revive,
    wake_the_idle,
    watch,
    grow_old,
    fill,
    put_in_groups,
    put_in_groups,
    configure,
    configure_groups,
    take_turns,
    take_turns,
    hold_tasks_off,
    fill_a_group,
    use_a_key,
    use_a_key,
    race_for_a_cursor,
    one_task,
    one_taken_task,
)

_FAMILIES: tuple[Step, ...] = (
    *(raise_a_family,) * 6,
    *(wait_for_children,) * 4,
    *(use_an_entry,) * 2,
    wait_for_a_signal,
    wait_for_a_signal,
    look_through_a_family,
    look_after_a_queue,
    work,
    bury_and_revive,
    one_task,
    one_task,
    configure,
    configure_groups,
    use_a_key,
)

FAMILIES: dict[str, tuple[Step, ...]] = {
    "holds": _ALWAYS + _HOLDS,
    "claims": _ALWAYS + _CLAIMS,
    "counters": _ALWAYS + _COUNTERS,
    "tasks": _ALWAYS + _TASKS,
    "families": _ALWAYS + _FAMILIES,
    "releases": (*_ALWAYS, *(undo_in_the_end,) * 8, *_FAMILIES),
    "all": (*_ALWAYS, *_HOLDS, *_CLAIMS, *_COUNTERS, *_TASKS, batch),
}
"""The steps of a walk, by what it is about."""
