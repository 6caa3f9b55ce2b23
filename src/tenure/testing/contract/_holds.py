"""Holds as locks: one holder, and a line behind it."""

from __future__ import annotations

from tenure.engine import (
    Acquire,
    Ask,
    Asked,
    CloseSession,
    Granted,
    Hint,
    HoldAnswer,
    Holders,
    Ping,
    Queued,
    Release,
    Reply,
)

from ._contract import Advance, ContractBase, Do, Hints


class LockContract(ContractBase):
    """What the contract says of holds, seen with a capacity of 1.

    Thread safety: none needed; pytest makes one for each test.
    """

    async def _stand(self, do: Do, session: str, key: str, *holders: str) -> list[HoldAnswer]:
        """Where the holders stand, by asking."""
        asked = await do(Ask(session, key, holders))
        assert isinstance(asked, Asked)
        assert len(asked.answers) == len(holders)
        return list(asked.answers)

    async def _kinds(self, do: Do, session: str, key: str, *holders: str) -> list[type[HoldAnswer]]:
        """The kinds of answer that the holders get by asking."""
        return [type(answer) for answer in await self._stand(do, session, key, *holders)]

    # taking and giving back

    async def test_what_is_free_is_granted_at_once(self, do: Do) -> None:
        session = await do.open()
        assert await do.hold(session, "k", "a") > 0

    async def test_who_comes_second_waits(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "a")
        assert (await do.queue(other, "k", "b")).place == 1
        assert (await do.queue(session, "k", "c")).place == 2

    async def test_what_is_given_back_is_free(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "a")
        assert await do(Release("k", "a")) is Reply.RELEASED
        await do.hold(other, "k", "b")

    async def test_who_does_not_want_to_wait_for_a_lock_leaves_nothing(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        assert await do(Acquire(session, "k", "b", 1, wait=False)) is Reply.REFUSED
        assert (await do(Holders("k"))).waiting == ()
        await do(Release("k", "a"))
        assert isinstance(await do(Acquire(session, "k", "b", 1, wait=False)), Granted)

    async def test_giving_back_what_nobody_holds(self, do: Do) -> None:
        session = await do.open()
        assert await do(Release("k", "a")) is Reply.UNKNOWN
        token = await do.hold(session, "k", "a")
        await do.queue(session, "k", "b")
        assert await do(Release("k", "c")) is Reply.UNKNOWN
        assert await do(Release("l", "a")) is Reply.UNKNOWN
        assert (await self._stand(do, session, "k", "a"))[0] == Granted(token)
        assert await self._kinds(do, session, "k", "a", "b", "c") == [Granted, Queued, Reply]

    async def test_releasing_twice_takes_nothing_from_the_next(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        await do.queue(session, "k", "b")
        await do.queue(session, "k", "c")
        assert await do(Release("k", "a")) is Reply.RELEASED
        assert await do(Release("k", "a")) is Reply.UNKNOWN
        assert await self._kinds(do, session, "k", "b", "c") == [Granted, Queued]

    async def test_a_late_release_of_one_holder_leaves_the_next_of_its_session_alone(self, do: Do) -> None:
        """A name is for one attempt; sent again and late, its release must not meet a later hold."""
        session = await do.open()
        await do.hold(session, "k", "attempt 1")
        await do(Release("k", "attempt 1"))
        token = await do.hold(session, "k", "attempt 2")
        assert await do(Release("k", "attempt 1")) is Reply.UNKNOWN
        assert await self._stand(do, session, "k", "attempt 2") == [Granted(token)]

    async def test_keys_have_nothing_to_do_with_one_another(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        await do.hold(session, "l", "a")
        assert await do(Release("k", "a")) is Reply.RELEASED
        assert await self._kinds(do, session, "l", "a") == [Granted]

    # asking again

    async def test_acquiring_again_tells_a_holder_where_it_stands(self, do: Do) -> None:
        session = await do.open()
        token = await do.hold(session, "k", "a")
        for _ in range(2):
            assert await do(Acquire(session, "k", "a", 1)) == Granted(token)
        assert (await do(Holders("k"))).used == 1
        assert await do(Release("k", "a")) is Reply.RELEASED
        assert await self._stand(do, session, "k", "a") == [Reply.UNKNOWN]

    async def test_acquiring_again_tells_a_waiter_where_it_stands(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        for holder in ("b", "c", "b", "c"):
            assert (await do.queue(session, "k", holder)).place == "bc".index(holder) + 1
        assert [waiter.holder for waiter in (await do(Holders("k"))).waiting] == ["b", "c"]
        await do(Release("k", "a"))
        assert isinstance(await do(Acquire(session, "k", "b", 1)), Granted)

    async def test_asking_is_answered_in_the_order_of_the_question(self, do: Do) -> None:
        session = await do.open()
        assert await self._stand(do, session, "k") == []
        assert await self._stand(do, session, "k", "a", "b") == [Reply.UNKNOWN] * 2
        token = await do.hold(session, "k", "a")
        await do.queue(session, "k", "b")
        unknown, waiter, holder, again = await self._stand(do, session, "k", "x", "b", "a", "b")
        assert unknown is Reply.UNKNOWN
        assert isinstance(waiter, Queued)
        assert isinstance(again, Queued)
        assert holder == Granted(token)

    # the line

    async def test_first_come_first_served(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "0")
        for i in range(1, 8):
            await do.queue(session if i % 2 else other, "k", str(i))
        tokens: list[int] = []
        for i in range(7):
            assert await do(Release("k", str(i))) is Reply.RELEASED
            tokens.append(await do.hold(session, "k", str(i + 1)))
            assert [held.holder for held in (await do(Holders("k"))).holders] == [str(i + 1)]
        assert tokens == sorted(set(tokens))

    async def test_places_are_upper_bounds_and_never_rise(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "0")
        last = {name: (await do.queue(session, "k", name)).place for name in "123456"}
        for leaver in ("3", "0", "5", "2"):
            await do(Release("k", leaver))
            waiting = [waiter.holder for waiter in (await do(Holders("k"))).waiting]
            for rank, name in enumerate(waiting, 1):
                place = (await do.queue(session, "k", name)).place
                assert rank <= place <= last[name]
                last[name] = place
        assert last["4"] == 1

    async def test_giving_back_hands_over_in_the_same_step(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p2")
        session, other = await do.open("p1"), await do.open("p2")
        first = await do.hold(session, "k", "a")
        await do.queue(other, "k", "b")
        answers = await do.batch(Release("k", "a"), Holders("k"))
        assert answers[0] is Reply.RELEASED
        assert [held.holder for held in answers[1].holders] == ["b"]
        (granted,) = await self._stand(do, other, "k", "b")
        assert isinstance(granted, Granted)
        assert granted.token > first
        assert await inbox.new() == [Hint("p2", "k", "b", granted)]

    async def test_nobody_comes_between_a_release_and_the_head_of_the_line(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "a")
        await do.queue(other, "k", "b")
        answers = await do.batch(
            Release("k", "a"),
            Acquire(session, "k", "newcomer", 1),
            Acquire(session, "k", "impatient", 1, wait=False),
        )
        assert [type(answer) for answer in answers] == [Reply, Queued, Reply]
        assert answers[2] is Reply.REFUSED
        assert await self._kinds(do, other, "k", "b") == [Granted]

    async def test_the_holder_itself_goes_to_the_end_of_the_line(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a1")
        await do.queue(session, "k", "b")
        await do.batch(Release("k", "a1"), Acquire(session, "k", "a2", 1))
        assert await self._kinds(do, session, "k", "b", "a2") == [Granted, Queued]

    async def test_a_waiter_that_leaves_is_passed_over(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        await do.queue(session, "k", "b")
        await do.queue(session, "k", "c")
        assert await do(Release("k", "b")) is Reply.LEFT
        assert await do(Release("k", "b")) is Reply.UNKNOWN
        await do(Release("k", "a"))
        assert await self._kinds(do, session, "k", "b", "c") == [Reply, Granted]

    async def test_who_leaves_when_it_was_already_granted_passes_the_grant_on(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        for waiter in "bcd":
            await do.queue(session, "k", waiter)
        await do(Release("k", "a"))
        assert await do(Release("k", "b")) is Reply.RELEASED
        assert await self._kinds(do, session, "k", "b", "c", "d") == [Reply, Granted, Queued]

    async def test_a_waiter_that_leaves_and_comes_back_stands_at_the_end(self, do: Do) -> None:
        session = await do.open()
        await do.hold(session, "k", "a")
        await do.queue(session, "k", "b")
        await do.queue(session, "k", "c")
        await do(Release("k", "b"))
        await do.queue(session, "k", "b")
        await do(Release("k", "a"))
        assert await self._kinds(do, session, "k", "b", "c") == [Queued, Granted]

    async def test_closing_the_session_of_the_holder_hands_over(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p2")
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "a")
        await do.queue(other, "k", "b")
        await do(CloseSession(session))
        (granted,) = await self._stand(do, other, "k", "b")
        assert isinstance(granted, Granted)
        assert await inbox.new() == [Hint("p2", "k", "b", granted)]

    async def test_the_expiry_of_the_holder_hands_over(self, do: Do, hints: Hints, advance: Advance) -> None:
        inbox = await hints("p2")
        session, other = await do.open("p1", ttl=2.0), await do.open("p2")
        token = await do.hold(session, "k", "a")
        await do.queue(other, "k", "b")
        await advance(1.0)
        assert await self._kinds(do, other, "k", "b") == [Queued]
        await advance(1.1 + self.margin)
        assert await do(Ping()) is Reply.OK
        (granted,) = await self._stand(do, other, "k", "b")
        assert isinstance(granted, Granted)
        assert granted.token > token
        assert await inbox.new() == [Hint("p2", "k", "b", granted)]
        assert await do(Release("k", "a")) is Reply.UNKNOWN

    async def test_the_dead_are_passed_over(self, do: Do, advance: Advance) -> None:
        """However many of them stand at the head: they cost one expiry, not one each."""
        session, other = await do.open("p1"), await do.open("p2")
        await do.hold(session, "k", "a")
        for i in range(100):
            mortal = await do.open(f"mortal {i}", ttl=2.0)
            await do.queue(mortal, "k", mortal)
        await do.queue(other, "k", "b")
        await advance(2.1 + self.margin)
        await do(Release("k", "a"))
        await do.hold(other, "k", "b")
        assert (await do(Holders("k"))).waiting == ()

    async def test_who_died_in_the_line_does_not_get_the_grant(self, do: Do, advance: Advance) -> None:
        session, mortal = await do.open("p1"), await do.open("p2", ttl=2.0)
        await do.hold(session, "k", "a")
        await do.queue(mortal, "k", "b")
        await advance(2.1 + self.margin)
        await do(Release("k", "a"))
        assert await do(Ask(mortal, "k", ("b",))) is Reply.GONE
        await do.hold(session, "k", "c")

    async def test_asking_again_when_told_to_is_enough(self, do: Do, advance: Advance) -> None:
        """No hint needed: each pause is short enough, and following them leads to the grant when it is due."""
        mortal, other = await do.open("p1", ttl=4.0), await do.open("p2")
        await do.hold(mortal, "k", "a")
        await advance(1.0)
        answer: HoldAnswer = await do.queue(other, "k", "b")
        waited = 0.0
        while isinstance(answer, Queued):
            assert 0 <= answer.ask_again_in <= 3.01 - waited + self.margin
            pause = max(answer.ask_again_in, 0.01)
            waited += pause
            await advance(pause)
            answer = await do(Acquire(other, "k", "b", 1))
        assert isinstance(answer, Granted)
        assert waited == self.about(3.0)
