"""Odd arguments: an operation with any arguments answers or fails alone, and other operations go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum, IntEnum
from math import inf, nan
from typing import Any

import pytest

from tenure import engine as e
from tenure.errors import EngineError

from ._contract import Advance, ContractBase, Do
from ._survey import inspected, survey

_REPEATS = 1000
"""The number of times that an operation may be answered MORE here: next to nothing has to be cleared up."""


class _Level(IntEnum):
    HIGH = 7


_NAMES = (
    *(
        "",
        " ",
        "a" * 512,
        "ä" * 256,
        "b" * 300_000,
        "\ud800",
        "a\udfffb",
        "a\0b",
        "\n",
        "a\r\n\tb",
        "\x1b[2J",
    ),
    *(
        "'",
        '"',
        "';--",
        "`",
        "\\",
        "{}",
        "{a}",
        "{1}",
        ":",
        "a:b",
        "::",
        "*",
        "?",
        "[a-z]",
        "%",
        "%s",
        "_",
        "$1",
    ),
    *("\u2028", "\U0001f600", "\ufeff", "\uffff", "None", "0", "../a", "1 2"),
)
_INTEGERS = (
    *(0, 1, -1, True, False, _Level.HIGH, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**53 + 1),
    *(2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30),
)
_NUMBERS = (
    *(0, 0.0, -0.0, 5e-324, 1e-9, 1e-6, 1, True, _Level.HIGH, 1e9, 8.3e9, 1e10, 1e12, 1e18, 1e300),
    *(sys.maxsize, 2**64, -1, -1e-9, -1e18, inf, -inf, nan),
)
_PAYLOADS = (b"", b"\0", bytes(range(256)), b"\xff\xfe" * 2**20, b"\r\n", b"$-1\r\n", b"{}", b"null")

_TASK = e.NewTask(b"payload", 1, 0.001, "key", 100.0, b"meta", "group", "replace", 100.0, 100.0, 100.0)
_PUT = e.PutRequest("producer", (_TASK, e.NewTask(b"")), True, ("cursor", b"value"), b"")
_SETTLE = e.Settle(1, 1, e.Verdict.RETRY, b"result", 0.001, 100.0, b"failure")
_METADATA = (("field", b"value"),)

FAMILIES: dict[str, tuple[e.Operation[Any], ...]] = {
    "sessions": (
        e.Ping(),
        e.OpenSession("odd", "process", 100.0),
        e.RenewSession("odd"),
        e.CloseSession("odd"),
    ),
    "holds": (
        e.Acquire("odd", "key", "holder", 3, 1, b"value"),
        e.Ask("odd", "key", ("holder", "other")),
        e.SetValue("key", "holder", 1, b"value"),
        e.BreakHold("key", "holder", 1),
        e.Resize("key", 3),
        e.Scan(e.HOLDERS, "key", limit=10, watch="odd"),
        e.Release("key", "holder"),
    ),
    "claims": (
        e.AddResource("pool", "resource", _METADATA, 1, slots=2),
        e.Claim("odd", "pool", "holder", _METADATA, 0.001, True, "group"),
        e.EditClaim("pool", "holder", 1, _METADATA, 0.001, "reason"),
        e.Scan(e.RESOURCES, "pool"),
        e.GiveBack("pool", "holder"),
        e.RemoveResource("pool", "resource"),
    ),
    "putting": (
        e.Put("odd", 1, "queue", (_PUT,)),
        e.Leave("queue", "producer"),
    ),
    "taking": (
        e.Exchange("odd", 1, "queue", (_SETTLE,), 2, True),
        e.Progress("queue", 1, 1, b"data"),
        e.GetResult("queue", 1, "odd"),
        e.Scan(e.KEYED_TASK, "queue", only="key", watch="odd"),
        e.SetPaused("queue", False),
        e.SetPaused("queue", False, 1.0, "group"),
        e.Configure("queue", "p", (("max_size", "3"), ("weights", '[["group", 2.0]]')), False),
    ),
    "administration": (
        e.Move("queue", (1,), "cancelled", ttl=100.0),
        e.Move("queue", (1, 2), "waiting"),
        e.Move("queue", (1, 2), "delayed", delay=0.001),
        e.Move("queue", (1, 2), "delayed", None, None, b"payload", 1, "group", "waiting"),
        e.Move("queue", (1, 2), "purged", state="done"),
        *(
            e.Scan(e.TASKS[state], "queue", limit=10)
            for state in ("waiting", "delayed", "leased", "dead", "ended")
        ),
        e.Count("queue", "odd"),
        e.Scan(e.GROUPS, "queue", limit=10),
    ),
    "families": (
        e.PutChildren(
            "queue", 1, 1, "other", ("a", "b"), (e.NewTask(b"a", group="\0g"), e.NewTask(b"b", 1, 0.001)), 10
        ),
        e.SetEntry("queue", 1, 0, "name", b"value"),
        *(e.Scan(index, "queue", "name", 10, only="1") for index in (e.ENTRIES, e.UNFINISHED_CHILDREN)),
    ),
    "counters": (
        e.Spend(
            "odd",
            1,
            "rate",
            (e.SpendRequest((1.0,), 1.0), e.SpendRequest((2.0,))),
            (e.RateLimit("", 2.0, 4.0),),
        ),
        e.Refund(
            "odd", 2, "rate", (e.RefundRequest((e.Booking(1.0, 0.5),), (0.5,)),), (e.RateLimit("", 2.0, 4.0),)
        ),
        e.HoldOff("odd", 3, "rate", 1.0),
        e.Scan(e.LIMITER, "rate"),
        e.Acquire("odd", "barrier", "participant", 2, 0),
        e.Resize("barrier", e.BROKEN),
        e.Resize("barrier", 0),
    ),
    "looking": (
        *(e.Scan(e.NAMES[kind], limit=10, only="a") for kind in e.NAMES),
        e.Scan(e.SESSION, "odd", limit=10),
        e.Scan(e.HEALTH),
    ),
}
"""An ordinary operation of each kind."""


def _odd(value: Any) -> Iterator[Any]:
    """The value with something odd in it, or in its place."""
    match value:
        case bool() | Enum() | frozenset() | e.Index() | None:
            pass
        case str():
            yield from _NAMES
        case int():
            yield from _INTEGERS
        case float():
            yield from _NUMBERS
        case bytes():
            yield from _PAYLOADS
        case _ if is_dataclass(value):
            for field in (field for field in fields(value) if field.init):
                for odd in _odd(getattr(value, field.name)):
                    yield from _made(value, field.name, odd)
        case _:
            yield ()
            for i, part in enumerate(value):
                for odd in _odd(part):
                    yield (*value[:i], odd, *value[i + 1 :])


def _made(value: Any, name: str, odd: Any) -> list[Any]:
    try:
        return [replace(value, **{name: odd})]
    except ValueError:
        return []  # refused before it is an operation


def _shown(operation: e.Operation[Any]) -> str:
    shown = ascii(operation)
    return shown if len(shown) < 1000 else f"{shown[:500]} ... {shown[-500:]}"


class OddArgumentContract(ContractBase):
    """The contract's tests of arguments that no user should give, and that some do."""

    @pytest.mark.parametrize("family", FAMILIES)
    async def test_an_odd_operation_answers_or_fails_alone(
        self, do: Do, advance: Advance, family: str
    ) -> None:
        if family == "families" and not do.engine.families:
            pytest.skip(f"{do.engine.url} has no families of tasks")
        watcher = await do.open("watcher")
        await self._prepare(do)
        for ordinary in FAMILIES[family]:
            for operation in _odd(ordinary):
                await self._try(do, watcher, operation)
            await advance(0.01)
            await self._prepare(do)
            await self._try(do, watcher, ordinary)
            await self._everything_works(do)

    async def test_odd_names_are_kept_apart_and_come_back(self, do: Do) -> None:
        session = await do.open()
        kept: list[str] = []
        for name in filter(None, _NAMES):
            (answer,) = await do.engine.execute(
                [e.Acquire(session, name, name, 1, 1, name.encode("utf-16", "replace"))]
            )
            if isinstance(answer, e.Granted):
                kept.append(name)
            else:
                assert isinstance(answer, EngineError), f"{name[:20]!a}: {answer}"
        assert "a\0b" in kept
        assert sorted(await survey(do, "holds")) == sorted(kept)
        assert {item.key for item in await inspected(do, session)} == set(kept)
        for name in kept:
            (holder,) = (await do.page(e.Scan(e.HOLDERS, name))).holders
            assert holder.holder == name
            assert holder.value == name.encode("utf-16", "replace")
            assert await do(e.Release(name, name)) is e.Reply.RELEASED
        assert await survey(do, "holds") == []

    async def test_odd_payloads_come_back(self, do: Do) -> None:
        session = await do.open()
        tasks = tuple(e.NewTask(payload) for payload in _PAYLOADS)
        await do(e.Put(session, do.number(), "q", (e.PutRequest("m", tasks),)))
        taken = await do.take(session, "q", 100)
        assert [task.payload for task in taken] == list(_PAYLOADS)
        settle = tuple(e.Settle(task.id, task.token, e.Verdict.DONE, task.payload) for task in taken)
        await do(e.Exchange(session, do.number(), "q", settle))
        for task in taken:
            outcome = await do(e.GetResult("q", task.id))
            assert isinstance(outcome, e.Outcome)
            assert outcome.result == task.payload

    async def test_a_slow_rate_lets_the_first_one_in(self, do: Do) -> None:
        session = await do.open()
        for rate in (1e-3, 1e-9, 1e-12):
            assert (await do.spend(session, f"k{rate}", rate=rate, most=0.0)).delay == 0

    async def _prepare(self, do: Do) -> None:
        """Give odd operations something to work on."""
        session = "odd"
        await do(e.OpenSession(session, "process", 100.0))
        await do(e.Acquire(session, "key", "holder", 3))
        await do(e.AddResource("pool", "resource", _METADATA))
        await do(e.Claim(session, "pool", "holder"))
        tasks = tuple(e.NewTask(b"") for _ in range(3))
        await do(e.Put(session, do.number(), "queue", (e.PutRequest("n", tasks),)))

    async def _try(self, do: Do, watcher: str, operation: e.Operation[Any]) -> None:
        around = (e.Acquire(watcher, "watched", "w", 1), operation, e.Release("watched", "w"))
        try:
            answers = list(await do.engine.execute(around))
        except Exception as problem:
            raise AssertionError(f"{_shown(operation)} broke its batch: {problem!r}"[:3000]) from problem
        for i, sent in enumerate(around):
            for _ in range(_REPEATS):
                if answers[i] is not e.Reply.MORE:
                    break
                (answers[i],) = await do.engine.execute([sent])
        granted, answer, released = answers
        assert isinstance(granted, e.Granted), f"before {_shown(operation)}: {granted}"
        assert answer is not e.Reply.MORE, f"{_shown(operation)} never ends"
        assert not isinstance(answer, Exception) or isinstance(answer, EngineError), _shown(operation)
        assert released is e.Reply.RELEASED, f"after {_shown(operation)}: {released}"

    async def _everything_works(self, do: Do) -> None:
        session = await do.open("sane")
        key = session
        # holds
        token = await do.hold(session, key, "a")
        await do.queue(session, key, "b")
        assert isinstance(await do(e.Ask(session, key, ("a", "b"))), e.HoldStatuses)
        assert await do(e.SetValue(key, "a", token, b"v")) is e.Reply.OK
        assert len((await do.page(e.Scan(e.HOLDERS, key))).waiting) == 1
        assert await do(e.Resize(key, 2)) is e.Reply.OK
        for holder in "ab":
            assert await do(e.Release(key, holder)) is e.Reply.RELEASED
        # claims
        assert await do(e.AddResource(key, "r", _METADATA)) is e.Reply.OK
        claimed = await do(e.Claim(session, key, "a", _METADATA))
        assert isinstance(claimed, e.Claimed)
        assert await do(e.EditClaim(key, "a", claimed.token, _METADATA)) is e.Reply.OK
        assert len((await do.page(e.Scan(e.RESOURCES, key))).rows) == 1
        assert await do(e.GiveBack(key, "a")) is e.Reply.RELEASED
        assert await do(e.RemoveResource(key, "r")) is e.Reply.OK
        # tasks
        tasks = (e.NewTask(b"1", key="k"), e.NewTask(b"2"), e.NewTask(b"3"))
        put = await do(e.Put(session, do.number(), key, (e.PutRequest("m", tasks),)))
        assert isinstance(put, e.PutAnswer)
        assert isinstance(put.answers[0], e.Accepted)
        assert await do(e.Leave(key, "m")) is e.Reply.UNKNOWN
        (task,) = await do.take(session, key, 1)
        assert task.payload == b"1"
        assert await do(e.Progress(key, task.id, task.token, b"p")) is e.Reply.OK
        settle = (e.Settle(task.id, task.token, e.Verdict.DEAD, b"e"),)
        await do(e.Exchange(session, do.number(), key, settle))
        assert isinstance(await do(e.GetResult(key, task.id)), e.Outcome)
        requeued = await do(e.Move(key, (task.id,), "waiting"))
        assert isinstance(requeued, e.MovedCount)
        assert requeued.count == 1
        assert await do(e.Move(key, (task.id,), "cancelled")) == e.MovedCount(1)
        assert len((await do.page(e.Scan(e.TASKS["waiting"], key))).rows) == 2
        assert await do.move(key, "waiting", "purged") == 2
        for paused in (True, False):
            assert await do(e.SetPaused(key, paused)) is e.Reply.OK
        counts = await do.count(key, recount=True)
        assert (counts.put, counts.cancelled, counts.purged) == (3, 1, 2)
        # counters
        limits = (e.RateLimit(key, 1.0, 1.0),)
        spent = await do(e.Spend(session, do.number(), key, (e.SpendRequest((1.0,)),), limits))
        assert isinstance(spent, e.SpendResults)
        assert spent.answers[0].booked
        bookings = spent.answers[0].bookings
        assert (
            await do(e.Refund(session, do.number(), key, (e.RefundRequest(bookings),), limits)) is e.Reply.OK
        )
        assert await do(e.HoldOff(session, do.number(), key, 1.0)) is e.Reply.OK
        assert (await do.row(e.Scan(e.LIMITER, key))).debts == ()
        await do.queue(session, key, "a", 2, 0)
        await do.hold(session, key, "b", 2, 0)
        for participant in "ab":
            assert isinstance(await do(e.Release(key, participant)), e.Granted)
        for capacity in (e.BROKEN, 0):
            assert await do(e.Resize(key, capacity)) is e.Reply.OK
        # what there is, odd names too
        for kind in e.NAMES:
            await survey(do, kind)
        assert session in await survey(do, "sessions", session)
        await inspected(do, session)
        await do.row(e.Scan(e.HEALTH))
        assert await do(e.RenewSession(session)) is e.Reply.OK
        assert await do(e.CloseSession(session)) is e.Reply.OK
