"""Hints: what was granted something is hinted, nothing else, once; nothing is lost with a lost hint."""

from __future__ import annotations

import anyio

from tenure import engine as e

from ._contract import ContractBase, Do, Hints, Inbox


class HintContract(ContractBase):
    """The contract's tests of hints, on a link that loses none."""

    async def test_only_the_one_granted_gets_the_hint(self, do: Do, hints: Hints) -> None:
        inboxes = [await hints(f"p{i}") for i in range(4)]
        sessions = [await do.open(f"p{i}") for i in range(4)]
        await do.hold(sessions[0], "k", "0")
        for i in (1, 2, 3):
            await do.queue(sessions[i], "k", str(i))
        await do(e.Release("k", "0"))
        assert [[hint.name for hint in await inbox.new()] for inbox in inboxes] == [[], ["1"], [], []]

    async def test_one_message_for_each_hand_over(self, do: Do, hints: Hints) -> None:
        """A release sends one message, however many wait: the whole herd would cost as many as there are
        waiters.
        """
        inbox = await hints("p1")
        session = await do.open("p1")
        await do.hold(session, "k", "0")
        for i in range(1, 31):
            await do.queue(session, "k", str(i))
        for i in range(30):
            await do(e.Release("k", str(i)))
        assert [hint.name for hint in await inbox.new()] == [str(i) for i in range(1, 31)]

    async def test_a_hint_carries_what_asking_would_answer(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        await do.hold(session, "k", "a")
        await do.queue(session, "k", "b")
        await do(e.Release("k", "a"))
        (hint,) = await inbox.new()
        assert await do(e.Ask(session, "k", ("b",))) == e.HoldStatuses((hint.news,))  # pyright: ignore[reportArgumentType]
        assert await do(e.Acquire(session, "k", "b", 1)) == hint.news

    async def test_what_nobody_heard_is_learnt_by_asking(self, do: Do, hints: Hints) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "a")
        await do.queue(other, "k", "b")
        await do.queue(other, "k", "c")
        await do(e.Release("k", "a"))
        inbox = await hints("p2")
        asked = await do(e.Ask(other, "k", ("b", "c")))
        assert isinstance(asked, e.HoldStatuses)
        assert isinstance(asked.answers[0], e.Granted)
        await do(e.Release("k", "b"))
        assert [hint.name for hint in await inbox.new()] == ["c"]

    async def test_a_process_can_be_served_again(self, do: Do) -> None:
        session = await do.open("p1")
        await do.hold(session, "k", "0")
        for i in (1, 2, 3):
            await do.queue(session, "k", str(i))
        for i in range(3):
            inbox = Inbox("p1", do, self.hint_timeout)
            async with anyio.create_task_group() as group:
                await group.start(do.engine.serve, "p1", inbox.deliver)
                await do(e.Release("k", str(i)))
                assert str(i + 1) in {hint.name for hint in await inbox.new()}
                group.cancel_scope.cancel()

    async def test_one_that_is_not_served_any_more_is_left_alone(self, do: Do, hints: Hints) -> None:
        other = await hints("p2")
        session = await do.open("p1")
        heard: list[e.Hint] = []
        await do.hold(session, "k", "a")
        await do.queue(session, "k", "b")
        async with anyio.create_task_group() as group:
            await group.start(do.engine.serve, "p1", heard.append)
            group.cancel_scope.cancel()
        heard.clear()
        await do(e.Release("k", "a"))
        assert await other.new() == []
        assert heard == []

    async def test_the_engine_works_while_others_come_and_go(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        for i in range(3):
            async with anyio.create_task_group() as group:
                for j in range(3):
                    await group.start(do.engine.serve, f"guest {i} {j}", _ignore)
                group.cancel_scope.cancel()
            await do.hold(session, f"k{i}", "a")
            await do.queue(session, f"k{i}", "b")
            await do(e.Release(f"k{i}", "a"))
        assert [hint.key for hint in await inbox.new()] == ["k0", "k1", "k2"]


def _ignore(_: e.Hint) -> None:
    pass
