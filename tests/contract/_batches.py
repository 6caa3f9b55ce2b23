"""Batches: in order, each operation atomic and alone, although others send some at the same time."""

from __future__ import annotations

from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from tenure import engine as e
from tenure.errors import EngineError

from ._contract import LASTING, ContractBase, Do


class BatchContract(ContractBase):
    """The contract's tests of batches."""

    async def test_the_engine_says_where_it_is(self, do: Do) -> None:
        assert isinstance(do.engine.url, str)

    # order

    async def test_operations_are_answered_in_their_order(self, do: Do) -> None:
        answers = await do.batch(
            e.OpenSession("s", "p1", LASTING),
            e.Acquire("s", "k", "a", 1),
            e.Acquire("s", "k", "b", 1),
            e.Release("k", "a"),
            e.Ask("s", "k", ("a", "b")),
            e.Release("k", "b"),
            e.Release("k", "b"),
            e.Ping(),
        )
        opened, granted, queued, released, asked, *others = answers
        assert opened is e.Reply.OK
        assert isinstance(granted, e.Granted)
        assert isinstance(queued, e.Queued)
        assert released is e.Reply.RELEASED
        assert asked.answers[0] is e.Reply.UNKNOWN
        assert isinstance(asked.answers[1], e.Granted)
        assert others == [e.Reply.RELEASED, e.Reply.UNKNOWN, e.Reply.OK]

    async def test_nothing_is_answered_by_nothing(self, do: Do) -> None:
        assert list(await do.engine.execute(())) == []

    async def test_a_batch_may_be_as_long_as_a_store_makes_it(self, do: Do) -> None:
        session = await do.open()
        answers = await do.batch(*(e.Acquire(session, "k", str(i), 10**6) for i in range(e.CAP)))
        tokens = [answer.token for answer in answers]
        assert tokens == sorted(set(tokens))
        assert (await do.page(e.Scan(e.HOLDERS, "k"))).used == e.CAP

    async def test_the_same_operation_twice_in_a_batch(self, do: Do) -> None:
        session = await do.open()
        acquire = e.Acquire(session, "k", "a", 1)
        spend = e.Spend(session, do.number(), "k", (e.SpendRequest((1.0,)),), (e.RateLimit("", 0.001, 2.0),))
        first, again, spent, spent_again = await do.batch(acquire, acquire, spend, spend)
        assert isinstance(first, e.Granted)
        assert again == first
        assert spent_again == spent
        assert (await do.spend(session, "k", rate=0.001, burst=2.0)).delay == 0

    async def test_an_operation_that_fails_fails_alone(self, do: Do) -> None:
        """The engine answers an operation that it cannot apply with an error in its place, and applies all the
        others.
        """
        session = await do.open()
        hopeless: tuple[e.Operation[Any], ...] = (
            e.Acquire(session, "\ud800", "a", 1),
            e.Acquire(session, "big", "a", 2**70),
            e.SetValue("k", "a", 2**70, b""),
        )
        for i, operation in enumerate(hopeless):
            before, answer, after = await do.engine.execute(
                (e.Acquire(session, "k", f"{i}", 10), operation, e.Acquire(session, "l", f"{i}", 10))
            )
            assert isinstance(before, e.Granted)
            assert isinstance(after, e.Granted)
            assert isinstance(answer, EngineError | e.Granted | e.Reply)
        assert (
            (await do.page(e.Scan(e.HOLDERS, "k"))).used,
            (await do.page(e.Scan(e.HOLDERS, "l"))).used,
        ) == (3, 3)

    # several callers

    async def test_callers_at_the_same_time_never_hold_too_much_together(self, do: Do) -> None:
        session = await do.open()
        tokens: list[int] = []

        async def caller(name: int) -> None:
            for i in range(5):
                holder = f"{name} {i}"
                answers = await do.batch(
                    e.Acquire(session, "k", holder, 3, wait=False),
                    e.Scan(e.HOLDERS, "k"),
                    e.Release("k", holder),
                )
                assert 0 < answers[1].used <= 3
                if isinstance(answers[0], e.Granted):
                    tokens.append(answers[0].token)

        async with anyio.create_task_group() as group:
            for name in range(6):
                group.start_soon(caller, name)
        assert tokens
        assert len(set(tokens)) == len(tokens)
        assert (await do.page(e.Scan(e.HOLDERS, "k"))).used == 0

    async def test_callers_at_the_same_time_share_a_line(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "first")
        await self._at_once(do, [e.Acquire(session, "k", f"waiter {i}", 1) for i in range(8)])
        line = [waiter.holder for waiter in (await do.page(e.Scan(e.HOLDERS, "k"))).waiting]
        assert len(set(line)) == 8
        tokens: list[int] = []
        for holder, following in zip(["first", *line], line, strict=False):
            await do(e.Release("k", holder))
            tokens.append(await do.hold(session, "k", following))
        assert tokens == sorted(set(tokens))

    async def test_callers_at_the_same_time_book_what_there_is_and_no_more(self, do: Do) -> None:
        sessions = [await do.open(f"p{i}") for i in range(20)]
        request = e.SpendRequest((1.0,), max_wait=0.0)
        answers = await self._at_once(
            do,
            [
                e.Spend(session, do.number(), "k", (request,), (e.RateLimit("", 1e-6, 10.0),))
                for session in sessions
            ],
        )
        assert sum(answer.answers[0].booked for answer in answers) == 10

    async def test_callers_at_the_same_time_trip_a_barrier_once(self, do: Do) -> None:
        session = await do.open()
        arrivals = [e.Acquire(session, "k", str(i), 8, 0) for i in range(8)]
        answers = await self._at_once(do, arrivals)
        assert sorted(type(answer).__name__ for answer in answers) == ["Granted"] + ["Queued"] * 7
        outcomes = await self._at_once(do, arrivals)
        assert sorted(outcome.token % 8 for outcome in outcomes) == list(range(8))

    async def _at_once(self, do: Do, operations: list[Any]) -> list[Any]:
        answers: list[Any] = []

        async def caller(operation: e.Operation[Any]) -> None:
            answers.append(await do(operation))

        async with anyio.create_task_group() as group:
            for operation in operations:
                group.start_soon(caller, operation)
        return answers

    async def test_a_batch_that_is_cancelled_harms_nobody(self, do: Do) -> None:
        session = await do.open()
        for i in range(10):
            async with anyio.create_task_group() as group:
                group.start_soon(do.engine.execute, [e.Acquire(session, f"k{i}", "a", 1), e.Ping()])
                for _ in range(i % 5):
                    await checkpoint()
                group.cancel_scope.cancel()
            assert await do(e.Ping()) is e.Reply.OK
            token = await do.hold(session, f"k{i}", "a")
            assert await do(e.Acquire(session, f"k{i}", "a", 1)) == e.Granted(token)
