"""Each engine answers as the memory engine does, step by step: answers, tokens and hints, in the same order."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace

import depth
import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tenure import engine as e
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite._clock import Clocks
from tenure.engines.sqlite._executor import Executor
from tenure.engines.sqlite._opening import create

EXAMPLES = int(os.environ.get("TENURE_MODEL_EXAMPLES", depth.share(200)))

# All times are multiples of 1/64 s, which floats and whole microseconds both hold exactly.
durations = st.integers(1, 6 * 64).map(lambda n: n / 64)
delays = st.one_of(st.just(0.0), durations)
ttls = st.one_of(st.none(), delays)
session_ttls = st.sampled_from((1.0, 4.0, 32.0, 32.0))

SESSIONS = ("s1", "s2", "s3", "s4")
PROCESSES = {"s1": "p1", "s2": "p2", "s3": "p1", "s4": "p3"}
sessions = st.sampled_from(SESSIONS)
keys = st.sampled_from(("k", "l\0m"))
holders = st.sampled_from(tuple("abcdefgh"))
queues = st.sampled_from(("q", "r"))
wheres = st.sampled_from(((), (("zone", b"\xff\0"),), (("size", b"1"), ("zone", b"\xff\0"))))
watches = st.one_of(st.just(""), sessions)
flags = st.booleans()
numbers = st.integers(0, 12)

sessions_operations = st.one_of(
    sessions.flatmap(lambda s: st.builds(e.OpenSession, st.just(s), st.just(PROCESSES[s]), session_ttls)),
    st.builds(e.RenewSession, sessions),
    st.builds(e.CloseSession, sessions),
)
hold_operations = st.one_of(
    st.builds(
        e.Acquire,
        sessions,
        keys,
        holders,
        st.sampled_from((1, 3, 3, 3)),
        st.integers(1, 4),
        st.binary(max_size=2),
        flags,
    ),
    st.builds(e.Acquire, sessions, keys, holders, st.just(3)),
    st.builds(e.Ask, sessions, keys, st.lists(holders, max_size=4).map(tuple)),
    st.builds(e.Release, keys, holders),
    st.builds(e.Release, keys, holders),
    st.builds(e.Resize, keys, st.sampled_from((1, 2, 3, 3, 5))),
    st.builds(e.Holders, keys, st.integers(0, 4), watches),
)
resources = st.sampled_from(("x", "y", "z"))
claim_operations = st.one_of(
    st.builds(e.AddResource, keys, resources, wheres, st.integers(-1, 1), flags),
    st.builds(e.AddResource, keys, resources, wheres, st.integers(-1, 1), flags),
    st.builds(e.RemoveResource, keys, resources),
    st.builds(e.Claim, sessions, keys, holders, wheres, delays, flags),
    st.builds(e.Claim, sessions, keys, holders),
    st.builds(e.GiveBack, keys, holders),
    st.builds(e.Resources, keys, st.sampled_from(("", "", "x", "z"))),
)
new_tasks = st.builds(
    e.NewTask,
    st.binary(max_size=3),
    st.integers(-1, 1),
    delays,
    st.one_of(st.none(), st.none(), st.sampled_from(("d1", "d2\0ä", "d3"))),
    st.one_of(st.none(), st.none(), durations),
)
cursors = st.one_of(st.none(), st.tuples(st.sampled_from(("c", "d")), st.binary(max_size=2)))
put_requests = st.builds(
    e.PutRequest, st.sampled_from(("m", "n", "o")), st.lists(new_tasks, max_size=4).map(tuple), flags, cursors
)
TASK_STATES = ("waiting", "delayed", "leased", "ended", "dead")
moved_states = st.frozensets(
    st.sampled_from(
        ("waiting", "delayed", "leased", "dead", "dead", "done", "discarded", "cancelled", "expired")
    ),
    max_size=3,
)
task_ids = st.integers(1, 9)
task_lists = st.lists(task_ids, max_size=5).map(tuple)
queue_operations = st.one_of(
    st.builds(e.Leave, queues, st.sampled_from(("m", "n", "o"))),
    st.builds(e.GetResult, queues, task_ids, watches),
    st.builds(e.Move, queues, task_lists, st.just("cancelled"), ttl=ttls),
    st.builds(e.Move, queues, task_lists, st.just("waiting")),
    st.builds(
        e.Move,
        queues,
        moved_states,
        st.sampled_from(("waiting", "waiting", "purged", "purged", "cancelled")),
        st.sampled_from((0, 0, 1, 2, 5)),
    ),
    st.builds(e.SetPaused, queues, flags),
    st.builds(e.Count, queues, watches, flags),
)
spend_requests = st.builds(
    e.SpendRequest, st.sampled_from((0.0, 0.5, 1.0, 7.0)), st.one_of(st.none(), st.sampled_from((0.0, 1.0)))
)
departures = st.sampled_from(("break", "break", "drop"))
barrier_operations = st.one_of(
    st.builds(
        e.Arrive,
        sessions,
        keys,
        holders,
        st.sampled_from((1, 2, 3, 3)),
        departures,
    ),
    st.builds(e.Arrive, sessions, keys, holders, st.just(3)),
    st.builds(e.Withdraw, keys, holders),
    st.builds(e.ResetBarrier, keys),
    st.builds(e.Arrivals, keys),
)
verdicts = st.sampled_from((*e.Verdict, e.Verdict.DONE, e.Verdict.DEAD))


class EnginesAgree(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 1000.0
        self.history = []
        self.n = {}
        self.grants = [("k", "a", 1)]
        self.claims = [("k", "a", 1)]
        self.taken = [("s1", "q", 1, 1)]
        self.put_tasks = [("q", 1)]
        self.bookings = [("k", 1.0, 1000.0, 1.0)]
        self.model_hints = []
        self.agreed = False

    @initialize(cap=st.sampled_from((1, 2, 3, 5, e.CAP)))
    def open(self, cap):
        self.model = MemoryEngine(clock=lambda: self.now, cap=cap)
        for process in set(PROCESSES.values()):
            self.model._listeners[process] = self.model_hints.append
        self.open_other(cap)
        for session in SESSIONS:
            self.send(e.OpenSession(session, PROCESSES[session], 32.0))

    def open_other(self, cap):
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        create(self.db)
        self.executor = Executor(self.db, Clocks(lambda: self.now), cap=cap)

    def teardown(self):
        if self.agreed:
            self.look_at_everything()
            self.now += 3600.0
            self.look_at_everything()
        if hasattr(self, "db"):
            self.db.close()

    def look_at_everything(self):
        for _ in range(1000):
            if self.send(e.Ping()) != [e.Reply.MORE]:
                break
        else:
            raise AssertionError("clearing up never ends")
        looks = [e.Holders(key) for key in ("k", "l\0m")] + [e.Resources(key) for key in ("k", "l\0m")]
        for queue in ("q", "r"):
            looks += [e.Count(queue), e.Count(queue, recount=True)]
        self.send(*looks)
        for queue in ("q", "r"):
            for state in TASK_STATES:
                self.browse(queue, state, 100)
        for session in SESSIONS:
            self.inspect(session, 100)
        for kind in ("holds", "pools", "queues", "sessions"):
            self.survey(kind, "", 100)

    def browse(self, queue, state, limit):
        """The same tasks in the same order, page by page; no time passes."""
        listings = []
        for ask in (self.model.apply, self.ask_other):
            listings.append([])
            page = ask(e.Browse(queue, state, "", limit))
            while page.next:
                assert len(page.records) <= limit
                listings[-1] += page.records
                page = ask(e.Browse(queue, state, page.next, limit))
            listings[-1] += page.records
        model, other = (repr(self.comparable(listing)) for listing in listings)
        assert model == other, f"{queue} {state}: {listings}"

    def comparable(self, records):
        """The records, without what the engines need not agree about."""
        return records

    def survey(self, kind, prefix, limit):
        """Page by page, since each engine has its own order; no time passes."""
        names = []
        for ask in (self.model.apply, self.ask_other):
            names.append([])
            page = ask(e.ListKeys(kind, prefix, "", limit))
            while page.next:
                assert len(page.names) <= limit
                names[-1] += page.names
                page = ask(e.ListKeys(kind, prefix, page.next, limit))
            names[-1] += page.names
        assert sorted(set(names[0])) == sorted(set(names[1])), f"{kind} {prefix}: {names}"

    def inspect(self, session, limit):
        """The same of what a session has."""
        found = []
        for ask in (self.model.apply, self.ask_other):
            found.append([])
            page = ask(e.DescribeSession(session, "", limit))
            while page is not e.Reply.UNKNOWN:
                assert len(page.items) <= limit
                found[-1] += [(page.process, *one) for one in page.items]
                if not page.next:
                    break
                page = ask(e.DescribeSession(session, page.next, limit))
            else:
                found[-1].append("unknown")
        assert sorted(found[0]) == sorted(found[1]), f"{session}: {found}"

    def ask_other(self, operation):
        return self.executor.execute([operation])[0][0]

    def send(self, *operations):
        """One transaction of the executor; the model applies one operation after the other."""
        self.agreed = False
        expected = [self.model.apply(operation) for operation in operations]
        hints, self.model_hints[:] = list(self.model_hints), []
        answers, own_hints, _ = self.executor.execute(operations)
        for operation, answer, wanted in zip(operations, answers, expected, strict=True):
            # repr tells True from 1 and 1 from 1.0
            assert repr(answer) == repr(wanted), f"{operation}: {answer}, not {wanted}"
            assert answer == wanted
            self.note(operation, answer)
        assert own_hints == hints, f"{operations}: {own_hints}, not {hints}"
        self.history += operations
        self.agreed = True
        return answers

    def note(self, operation, answer):
        """Remember tokens, which later operations use."""
        match answer:
            case e.Granted(token):
                self.grants.append((operation.key, operation.holder, token))
            case e.Claimed(token=token):
                self.claims.append((operation.key, operation.holder, token))
            case e.Exchanged(tasks=tasks):
                self.taken += [(operation.session, operation.key, task.id, task.token) for task in tasks]
            case e.PutAnswer(accepted):
                ids = [i for a in accepted if isinstance(a, e.Accepted) for i in a.ids if isinstance(i, int)]
                self.put_tasks += [(operation.key, i) for i in ids]
            case e.Spent(spendings):
                self.bookings += [
                    (operation.key, request.cost, spending.booking, operation.rate)
                    for request, spending in zip(operation.requests, spendings, strict=True)
                    if spending.booked
                ]

    def number(self, session, name):
        self.n[session, name] = self.n.get((session, name), 0) + 1
        return self.n[session, name]

    @rule(operation=sessions_operations)
    def session(self, operation):
        self.send(operation)

    @rule(
        kind=st.sampled_from(("holds", "pools", "queues", "sessions")),
        prefix=st.sampled_from(("", "", "k", "s1", "none")),
        limit=st.integers(1, 3),
    )
    def look_around(self, kind, prefix, limit):
        while self.send(e.Ping()) == [e.Reply.MORE]:
            pass
        self.survey(kind, prefix, limit)

    @rule(session=sessions, limit=st.integers(1, 3))
    def look_into(self, session, limit):
        while self.send(e.Ping()) == [e.Reply.MORE]:
            pass
        self.inspect(session, limit)

    @rule(queue=queues, state=st.sampled_from(TASK_STATES), limit=st.integers(1, 4))
    def look_through(self, queue, state, limit):
        while self.send(e.Ping()) == [e.Reply.MORE]:
            pass
        self.browse(queue, state, limit)

    @rule(operation=hold_operations)
    def hold(self, operation):
        self.send(operation)

    @rule(operation=claim_operations)
    def claim(self, operation):
        self.send(operation)

    @rule(operation=queue_operations)
    def queue(self, operation):
        self.send(operation)

    @rule(operation=barrier_operations)
    def barrier(self, operation):
        self.send(operation)

    @rule(
        session=sessions,
        key=keys,
        crowd=st.lists(st.tuples(holders, st.integers(1, 4)), min_size=3, max_size=8),
        capacity=st.sampled_from((1, 3, 3, 5)),
    )
    def crowd(self, session, key, crowd, capacity):
        self.send(*(e.Acquire(session, key, holder, capacity, weight) for holder, weight in crowd))

    @rule(session=sessions, other=sessions, count=st.integers(2, 5))
    def leave_two_lines(self, session, other, count):
        """What one session holds of two keys goes to many at once when it ends."""
        for key in ("k", "l\0m"):
            self.send(e.Acquire(session, key, "a", 3, 3))
            self.send(*(e.Acquire(other, key, holder, 3) for holder in "bcdef"[:count]))
        self.send(e.CloseSession(session))

    @rule(
        session=sessions,
        key=keys,
        crowd=st.lists(holders, min_size=2, max_size=4),
        on_departure=departures,
        leaving=flags,
    )
    def gather(self, session, key, crowd, on_departure, leaving):
        self.send(*(e.Arrive(session, key, holder, 4, on_departure) for holder in crowd))
        if leaving:
            self.send(e.Withdraw(key, crowd[0]), e.Withdraw(key, crowd[1]))

    @rule(data=st.data(), value=st.binary(max_size=2))
    def set_value(self, data, value):
        self.send(e.SetValue(*data.draw(st.sampled_from(self.grants)), value))

    @rule(
        data=st.data(),
        metadata=st.one_of(st.none(), wheres),
        cool_down=st.one_of(st.none(), delays),
        retire=st.one_of(st.none(), st.just("broken")),
    )
    def edit(self, data, metadata, cool_down, retire):
        pool, holder, token = data.draw(st.sampled_from(self.claims))
        self.send(e.EditClaim(pool, holder, token, metadata, cool_down, retire))

    @rule(
        session=sessions,
        queue=queues,
        requests=st.lists(put_requests, max_size=3).map(tuple),
        max_size=st.sampled_from((2, 4, 100)),
    )
    def put(self, session, queue, requests, max_size):
        n = self.number(session, f"put {queue}")
        self.send(e.Put(session, n, queue, requests, max_size))

    @rule(
        data=st.data(),
        session=sessions,
        queue=queues,
        want=st.integers(0, 3),
        wait=flags,
        aging=st.one_of(st.none(), delays),
        max_deliveries=st.sampled_from((1, 2, 20)),
        keep=flags,
    )
    def exchange(self, data, session, queue, want, wait, aging, max_deliveries, keep):
        settle = ()
        if self.taken:
            of = st.sampled_from(self.taken[-6:])
            drawn = data.draw(
                st.lists(st.tuples(of, verdicts, st.binary(max_size=3), delays, ttls), max_size=3)
            )
            settle = tuple(e.Settle(t[2], t[3], v, result, delay, ttl) for t, v, result, delay, ttl in drawn)
            if drawn and data.draw(flags):
                session, queue = drawn[0][0][:2]
        n = self.number(session, f"exchange {queue}")
        self.send(e.Exchange(session, n, queue, settle, want, wait, aging, max_deliveries, keep))

    @rule(
        session=sessions,
        queue=queues,
        want=st.integers(0, 5),
        verdicts=st.lists(verdicts, min_size=1, max_size=4),
        delay=delays,
    )
    def work(self, session, queue, want, verdicts, delay):
        """Settle what this session took lately, and take more."""
        mine = [taken for taken in self.taken if taken[:2] == (session, queue)][-len(verdicts) :]
        settle = tuple(
            e.Settle(task, token, verdict, b"result", delay, 5.0)
            for (_, _, task, token), verdict in zip(mine, verdicts, strict=False)
        )
        self.send(e.Exchange(session, self.number(session, f"exchange {queue}"), queue, settle, want))

    @rule(
        session=sessions,
        holder=holders,
        quarantine=delays,
        cool_down=delays,
        how=st.sampled_from(("give back", "retire", "remove", "close")),
    )
    def lend(self, session, holder, quarantine, cool_down, how):
        """Claim a resource, change it, and part with it in one of several ways."""
        self.send(e.AddResource("k", "x", ()), e.AddResource("k", "y", ()))
        (answer,) = self.send(e.Claim(session, "k", holder, (), quarantine))
        if isinstance(answer, e.Claimed):
            retire = "broken" if how == "retire" else None
            self.send(e.EditClaim("k", holder, answer.token, None, cool_down, retire))
            if how == "remove":
                self.send(e.RemoveResource("k", answer.resource))
        self.send(e.CloseSession(session) if how == "close" else e.GiveBack("k", holder))

    @rule(
        session=sessions,
        queue=queues,
        delay=durations,
        expires=st.one_of(st.none(), durations),
        count=st.integers(1, 4),
        settled=st.lists(st.tuples(verdicts, delays, flags), max_size=4),
    )
    def put_and_take(self, session, queue, delay, expires, count, settled):
        """Tasks that are delayed, then due, and taken by somebody who is told to stop some of them."""
        tasks = tuple(e.NewTask(b"x", delay=delay, expires=expires) for _ in range(count))
        n = self.number(session, f"put {queue}")
        self.send(e.Put(session, n, queue, (e.PutRequest("m", tasks),), 100))
        self.now += delay
        n = self.number(session, f"exchange {queue}")
        (answer,) = self.send(e.Exchange(session, n, queue, (), count, max_deliveries=2))
        if not isinstance(answer, e.Exchanged):
            return
        settle = []
        for task, (verdict, pause, stop) in zip(answer.tasks[::-1], settled, strict=False):
            self.send(e.GetResult(queue, task.id, session), e.Progress(queue, task.id, task.token, b"half"))
            if stop:
                self.send(e.Move(queue, (task.id,), "cancelled"))
            settle.append(e.Settle(task.id, task.token, verdict, b"result", pause, 5.0))
        for part in (settle[:2], settle[2:], ()):
            n = self.number(session, f"exchange {queue}")
            self.send(e.Exchange(session, n, queue, tuple(part), 1))

    @rule(session=sessions, queue=queues, count=st.integers(1, 7))
    def bury_and_revive(self, session, queue, count):
        n = self.number(session, f"put {queue}")
        self.send(e.Put(session, n, queue, (e.PutRequest("m", (e.NewTask(b"x"),) * count),), 100))
        for again in (True, False):
            n = self.number(session, f"exchange {queue}")
            (answer,) = self.send(e.Exchange(session, n, queue, (), count))
            tasks = answer.tasks if isinstance(answer, e.Exchanged) else ()
            dead = tuple(e.Settle(task.id, task.token, e.Verdict.DEAD) for task in tasks)
            self.send(e.Exchange(session, n + 1, queue, dead))
            self.n[session, f"exchange {queue}"] += 1
            self.send(*[e.Move(queue, frozenset({"dead"}), "waiting")] * again)

    @rule(
        wants=st.lists(st.tuples(sessions, st.integers(1, 3)), min_size=2, max_size=4),
        queue=queues,
        count=st.integers(1, 4),
    )
    def wake_the_idle(self, wants, queue, count):
        for session, want in wants:
            n = self.number(session, f"exchange {queue}")
            self.send(e.Exchange(session, n, queue, (), want))
        n = self.number("s1", f"put {queue}")
        self.send(e.Put("s1", n, queue, (e.PutRequest("m", (e.NewTask(b"x"),) * count),), 100))

    @rule(
        session=sessions,
        other=sessions,
        queue=queues,
        sizes=st.lists(st.integers(1, 2), min_size=1, max_size=4),
    )
    def fill(self, session, other, queue, sizes):
        """Producers wait for room; some of it is made, and they come again."""
        requests = [
            e.PutRequest("mnop"[i], (e.NewTask(b"x"),) * size, cursor=("c", b"1"))
            for i, size in enumerate(sizes)
        ]
        for _ in range(2):
            n = self.number(session, f"put {queue}")
            self.send(e.Put(session, n, queue, tuple(requests), 2))
            self.send(e.Move(queue, frozenset({"waiting"}), "purged"))
            requests.reverse()
        n = self.number(other, f"put {queue}")
        self.send(e.Put(other, n, queue, tuple(requests[:2]), 2))

    @rule(data=st.data(), watch=watches, how=st.sampled_from(("result", "cancel", "requeue")))
    def one_task(self, data, watch, how):
        queue, task = data.draw(st.sampled_from(self.put_tasks[-8:]))
        if how == "result":
            self.send(e.GetResult(queue, task, watch))
        elif how == "cancel":
            self.send(e.Move(queue, (task,), "cancelled", ttl=5.0))
        else:
            self.send(e.Move(queue, (task,), "waiting"))

    @rule(data=st.data(), report=st.binary(max_size=2))
    def progress(self, data, report):
        _, queue, task, token = data.draw(st.sampled_from(self.taken[-6:]))
        self.send(e.Progress(queue, task, token, report))

    @rule(data=st.data(), ttl=ttls)
    def cancel_taken(self, data, ttl):
        _, queue, task, _ = data.draw(st.sampled_from(self.taken[-6:]))
        self.send(e.Move(queue, (task,), "cancelled", ttl=ttl))

    @rule(session=sessions, key=keys, requests=st.lists(spend_requests, max_size=3).map(tuple))
    def spend(self, session, key, requests):
        self.send(e.Spend(session, self.number(session, f"spend {key}"), key, requests, 3.0, 2.0))

    @rule(data=st.data(), session=sessions)
    def refund(self, data, session):
        key, cost, booking, rate = data.draw(st.sampled_from(self.bookings))
        self.send(e.Refund(session, self.number(session, f"spend {key}"), key, cost, booking, rate))

    @precondition(lambda self: self.history)
    @rule(data=st.data(), count=st.integers(1, 4))
    def send_again(self, data, count):
        self.send(*(data.draw(st.sampled_from(self.history[-20:])) for _ in range(count)))

    @rule(
        operations=st.lists(
            st.one_of(hold_operations, queue_operations, claim_operations), min_size=2, max_size=5
        )
    )
    def batch(self, operations):
        self.send(*operations)

    @rule(seconds=st.one_of(st.just(1 / 64), st.just(1.0), durations))
    def advance(self, seconds):
        self.now += seconds

    @rule(seconds=durations)
    def sleep(self, seconds):
        self.now += seconds
        self.send(e.Ping())

    @rule()
    def renew_all(self):
        for session in SESSIONS:
            self.send(e.OpenSession(session, PROCESSES[session], 8.0))


# The long run: TENURE_MODEL_EXAMPLES=10000 pytest --timeout=0 -o faulthandler_timeout=0 tests/engines/test_model.py
TestEnginesAgree = EnginesAgree.TestCase
TestEnginesAgree.settings = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None)
TestEnginesAgree.pytestmark = [pytest.mark.slow]


class RedisAgrees(EnginesAgree):
    """Operations are finished one by one: when there is something to clear up first is the engine's own affair."""

    server = None
    second = 1e6
    """A second in the unit of its bookings."""

    def empty(self):
        self.server("FLUSHALL")

    def open_other(self, cap):
        self.empty()
        self.other_hints = []
        self.booked = {}
        self.other = self.make(lambda: self.now, cap)
        for process in set(PROCESSES.values()):
            self.other.listen(process, self.other_hints.append)

    def teardown(self):
        try:
            super().teardown()
        finally:
            if hasattr(self, "other"):
                self.other.close()

    def send(self, *operations):
        self.agreed = False
        answers = []
        for operation in operations:
            wanted = self.finished(self.model.apply, operation)
            in_steps = self.steps > 1
            same = operation
            if isinstance(operation, e.Refund):
                booking = self.booked.get(operation.booking, operation.booking * self.second)
                same = replace(operation, booking=booking)
            answer = self.finished(self.other.apply_now, same)
            if isinstance(wanted, e.Spent):
                pairs = zip(wanted.answers, answer.answers, strict=True)
                self.booked |= {one.booking: other.booking for one, other in pairs}
            if isinstance(operation, e.CloseSession) and in_steps and answer in (e.Reply.OK, e.Reply.GONE):
                # ended in steps, it may be the last of them that is asked for, or what comes after
                answer = wanted
            answer = placed(answer, wanted)
            assert rounded(answer) == rounded(wanted), f"{operation}: {answer}, not {wanted}"
            assert by_key(self.other_hints) == by_key(self.model_hints), (
                f"{operation}: {self.other_hints}, not {self.model_hints}"
            )
            self.other_hints.clear()
            self.model_hints.clear()
            self.note(operation, wanted)
            answers.append(wanted)
        self.agreed = True
        return answers

    def ask_other(self, operation):
        return self.other.apply_now(operation)

    def comparable(self, records):
        return unnumbered(records)

    def finished(self, apply, operation):
        for self.steps in range(1, 1001):
            if (answer := apply(operation)) is not e.Reply.MORE:
                return answer
        raise AssertionError(f"{operation} never ends")


def placed(answer, wanted):
    """With the wanted place: that is an upper bound, and an engine may know better."""
    match answer, wanted:
        case e.Queued(place), e.Queued(bound) if place <= bound:
            return replace(answer, place=bound)
        case e.Asked(answers), e.Asked(others) if len(answers) == len(others):
            return e.Asked(tuple(map(placed, answers, others)))
    return answer


def by_key(hints):
    """The hints about each object in their order; among objects there is none."""
    return sorted(hints, key=lambda hint: hint.key)


def unnumbered(records):
    """Tasks in the order of their queue, without `seq`: endings of several queues at once have no common order."""
    return [record._replace(seq=0) for record in records]


def rounded(answer):
    """Bookings are floats in other units there."""
    match answer:
        case e.Page(records):
            return unnumbered(records)
        case e.Spent(spendings):
            return [(booked, round(delay, 6)) for booked, delay, _ in spendings]
    return answer


@pytest.mark.slow
def test_the_redis_engine_agrees(redis_server, inline_redis):
    machine = type(
        "RedisAgrees", (RedisAgrees,), {"server": redis_server, "make": staticmethod(inline_redis)}
    )
    options = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None)
    run_state_machine_as_test(machine, settings=options)


class PostgresAgrees(RedisAgrees):
    second = 1

    def empty(self):
        self.broom.empty()


@pytest.mark.slow
def test_the_postgres_engine_agrees(inline_postgres):
    given = {"broom": inline_postgres(None), "make": staticmethod(inline_postgres)}
    machine = type("PostgresAgrees", (PostgresAgrees,), given)
    options = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None)
    run_state_machine_as_test(machine, settings=options)
