"""Barriers: all parties pass together or none does, in one generation after the other."""

from __future__ import annotations

from tenure.engine import (
    ArrivalAnswer,
    Arrivals,
    Arrive,
    Broken,
    CloseSession,
    Gathering,
    Hint,
    Mismatch,
    Ping,
    Reply,
    ResetBarrier,
    Tripped,
    Waiting,
    Withdraw,
)

from ._contract import Advance, ContractBase, Do, Hints


class BarrierContract(ContractBase):
    """What the contract says of arrivals.

    Thread safety: none needed; pytest makes one for each test.
    """

    async def _arrive(
        self, do: Do, session: str, *participants: str, parties: int = 3, on_departure: str = "break"
    ) -> list[ArrivalAnswer]:
        return [await do(Arrive(session, "k", one, parties, on_departure)) for one in participants]

    async def _wait(self, do: Do, session: str, *participants: str, on_departure: str = "break") -> int:
        """Participants that arrive and have to wait; the number of their generation."""
        answers = await self._arrive(do, session, *participants, on_departure=on_departure)
        generations: set[int] = set()
        for answer in answers:
            assert isinstance(answer, Waiting)
            assert answer.ask_again_in >= 0
            generations.add(answer.generation)
        (generation,) = generations
        return generation

    async def _trip(self, do: Do, session: str, *participants: str, on_departure: str = "break") -> int:
        """Participants that arrive, the last of whom trips the barrier; the number of their generation."""
        (*_, last) = await self._arrive(do, session, *participants, on_departure=on_departure)
        assert isinstance(last, Tripped), f"the barrier was to trip, not to answer {last}"
        return last.generation

    async def test_the_last_to_arrive_trips_the_barrier_for_all(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        generation = await self._wait(do, session, "a", "b")
        assert await self._arrive(do, other, "c") == [Tripped(generation, 2)]
        assert await self._arrive(do, session, "a", "b", "c") == [Tripped(generation, i) for i in range(3)]

    async def test_those_who_wait_are_told_when_it_trips(self, do: Do, hints: Hints) -> None:
        p1, p2 = await hints("p1"), await hints("p2")
        session, other = await do.open("p1"), await do.open("p2")
        generation = await self._wait(do, session, "a", "b")
        await self._arrive(do, other, "c")
        assert await p1.new() == [
            Hint("p1", "k", "a", Tripped(generation, 0)),
            Hint("p1", "k", "b", Tripped(generation, 1)),
        ]
        assert await p2.new() == []

    async def test_a_barrier_of_one_trips_at_once(self, do: Do) -> None:
        session = await do.open()
        (answer,) = await self._arrive(do, session, "a", parties=1)
        assert isinstance(answer, Tripped)
        assert answer.place == 0

    async def test_who_arrives_twice_counts_once(self, do: Do) -> None:
        session = await do.open()
        generation = await self._wait(do, session, "a", "a", "b", "b", "a")
        assert await self._arrive(do, session, "c", "a") == [Tripped(generation, 2), Tripped(generation, 0)]

    async def test_an_outcome_is_kept_until_it_is_fetched(self, do: Do) -> None:
        session = await do.open()
        generation = await self._trip(do, session, "a", "b", "c")
        assert await do(Withdraw("k", "a")) == Tripped(generation, 0)
        assert await do(Withdraw("k", "a")) is Reply.UNKNOWN
        assert await do(Withdraw("k", "b")) == Tripped(generation, 1)

    async def test_generations_follow_one_another(self, do: Do) -> None:
        session = await do.open()
        generations: list[int] = []
        for i in range(4):
            names = [f"{name}{i}" for name in "abc"]
            generations.append(await self._trip(do, session, *names))
        assert generations == sorted(set(generations))

    async def test_a_participant_that_fetched_its_outcome_can_come_again(self, do: Do) -> None:
        session = await do.open()
        first = await self._trip(do, session, "a", "b", "c")
        for name in "abc":
            await do(Withdraw("k", name))
        assert await self._trip(do, session, "c", "b", "a") > first

    async def test_the_next_generation_does_not_wait_for_the_last_to_go(self, do: Do) -> None:
        session = await do.open()
        first = await self._trip(do, session, "a", "b", "c")
        second = await self._wait(do, session, "d", "e")
        assert second > first
        assert await self._arrive(do, session, "a") == [Tripped(first, 0)]
        assert await self._arrive(do, session, "f") == [Tripped(second, 2)]

    async def test_all_have_to_agree_on_how_many_they_are(self, do: Do) -> None:
        session = await do.open()
        await self._wait(do, session, "a")
        assert await self._arrive(do, session, "b", parties=2) == [Mismatch(3)]
        await self._trip(do, session, "c", "d")
        (answer,) = await self._arrive(do, session, "e", parties=1)
        assert isinstance(answer, Tripped)

    async def test_barriers_have_nothing_to_do_with_one_another(self, do: Do) -> None:
        session = await do.open()
        await self._wait(do, session, "a", "b")
        assert isinstance(await do(Arrive(session, "l", "c", 3)), Waiting)
        assert await do(Withdraw("l", "a")) is Reply.UNKNOWN

    async def test_withdrawing_what_never_arrived(self, do: Do) -> None:
        session = await do.open()
        assert await do(Withdraw("k", "a")) is Reply.UNKNOWN
        generation = await self._wait(do, session, "a", "b")
        assert await do(Withdraw("k", "c")) is Reply.UNKNOWN
        assert await self._arrive(do, session, "c") == [Tripped(generation, 2)]

    # what breaks it

    async def test_who_withdraws_breaks_the_barrier_for_all(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p2")
        session, other = await do.open("p1"), await do.open("p2")
        generation = await self._wait(do, session, "a")
        await self._wait(do, other, "b")
        assert await do(Withdraw("k", "a")) is Reply.WITHDRAWN
        assert await do(Withdraw("k", "a")) is Reply.UNKNOWN
        assert await inbox.new() == [Hint("p2", "k", "b", Broken(generation))]
        assert await self._arrive(do, other, "b", "c") == [Broken(generation)] * 2
        assert await do(Withdraw("k", "b")) == Broken(generation)
        assert await do(Withdraw("k", "b")) is Reply.UNKNOWN

    async def test_a_broken_barrier_stays_broken_until_it_is_reset(self, do: Do) -> None:
        session = await do.open()
        broken = await self._wait(do, session, "a", "b")
        await do(Withdraw("k", "a"))
        await do(Withdraw("k", "b"))
        assert await self._arrive(do, session, "c", "d") == [Broken(broken)] * 2
        assert await do(ResetBarrier("k")) is Reply.OK
        assert await self._trip(do, session, "c", "d", "e") > broken

    async def test_a_participant_that_dies_breaks_the_barrier(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        inbox = await hints("p2")
        other = await do.open("p2")
        for how in ("close", "expire"):
            mortal = await do.open("p1", ttl=2.0)
            generation = await self._wait(do, other, "b")
            await self._wait(do, mortal, "a")
            if how == "close":
                await do(CloseSession(mortal))
            else:
                await advance(2.1 + self.margin)
                await do(Ping())
            assert await inbox.new() == [Hint("p2", "k", "b", Broken(generation))]
            assert await do(Withdraw("k", "b")) == Broken(generation)
            await do(ResetBarrier("k"))

    async def test_a_waiter_learns_when_to_look_for_the_dead(self, do: Do, advance: Advance) -> None:
        mortal, other = await do.open("p1", ttl=2.0), await do.open("p2")
        await self._wait(do, mortal, "a")
        (answer,) = await self._arrive(do, other, "b")
        assert isinstance(answer, Waiting)
        assert 0 < answer.ask_again_in <= 2.0 + self.margin
        await advance(answer.ask_again_in + 0.01 + self.margin)
        assert await self._arrive(do, other, "b") == [Broken(answer.generation)]

    async def test_resetting_breaks_the_barrier_for_those_who_wait(self, do: Do, hints: Hints) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        generation = await self._wait(do, session, "a", "b")
        await do(ResetBarrier("k"))
        assert await inbox.new() == [
            Hint("p1", "k", "a", Broken(generation)),
            Hint("p1", "k", "b", Broken(generation)),
        ]
        fresh = await self._trip(do, session, "c", "d", "e")
        assert fresh > generation
        assert await self._arrive(do, session, "a") == [Broken(generation)]

    async def test_resetting_a_barrier_that_nobody_uses(self, do: Do) -> None:
        assert await do(ResetBarrier("k")) is Reply.OK
        await self._trip(do, await do.open(), "a", "b", "c")

    # after it has tripped

    async def test_what_has_tripped_is_never_broken(self, do: Do) -> None:
        mortal, other = await do.open("p1"), await do.open("p2")
        await self._arrive(do, mortal, "a")
        generation = await self._trip(do, other, "b", "c")
        await do(CloseSession(mortal))
        await do(Withdraw("k", "b"))
        await do(ResetBarrier("k"))
        assert await self._arrive(do, other, "c") == [Tripped(generation, 2)]

    async def test_who_goes_after_it_has_tripped_does_not_break_the_next_generation(self, do: Do) -> None:
        mortal, other = await do.open("p1"), await do.open("p2")
        await self._arrive(do, mortal, "a")
        await self._trip(do, other, "b", "c")
        second = await self._wait(do, other, "d", "e")
        await do(Withdraw("k", "b"))
        await do(CloseSession(mortal))
        assert await self._arrive(do, other, "f") == [Tripped(second, 2)]

    async def test_the_outcome_of_the_dead_is_forgotten(self, do: Do) -> None:
        mortal, other = await do.open("p1"), await do.open("p2")
        await self._arrive(do, mortal, "a")
        await self._trip(do, other, "b", "c")
        await do(CloseSession(mortal))
        assert await do(Withdraw("k", "a")) is Reply.UNKNOWN

    async def test_it_tells_how_it_stands(self, do: Do, advance: Advance) -> None:
        assert await do(Arrivals("k")) == Gathering(0, 0, 0, broken=False)
        mortal, other = await do.open("p1", ttl=2.0), await do.open("p2")
        generation = await self._trip(do, other, "a", "b", "c")
        now = generation + 1
        assert (await do(Arrivals("k")))[:4] == (3, now, 0, False)
        await self._wait(do, other, "d")
        await self._wait(do, mortal, "e")
        assert (await do(Arrivals("k")))[:4] == (3, now, 2, False)
        await advance(2.1 + self.margin)
        assert (await do(Arrivals("k")))[:4] == (3, now, 0, True)
        await do(ResetBarrier("k"))
        fresh = await do(Arrivals("k"))
        assert fresh.generation > now
        assert fresh[:4] == (3, fresh.generation, 0, False)

    # where parties are dropped

    async def test_where_parties_are_dropped_nobody_else_is_concerned(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        inbox = await hints("p2")
        mortal, other = await do.open("p1", ttl=2.0), await do.open("p2")
        generation = await self._wait(do, other, "a", on_departure="drop")
        await self._wait(do, mortal, "b", on_departure="drop")
        await advance(2.1 + self.margin)
        await self._wait(do, other, "c", on_departure="drop")
        assert await do(Withdraw("k", "c")) is Reply.WITHDRAWN
        await self._wait(do, other, "d", on_departure="drop")
        assert await inbox.new() == []
        assert await self._trip(do, other, "e", on_departure="drop") == generation

    async def test_who_was_dropped_can_arrive_again(self, do: Do) -> None:
        session = await do.open()
        await self._wait(do, session, "a", "b", on_departure="drop")
        await do(Withdraw("k", "a"))
        generation = await self._wait(do, session, "a", on_departure="drop")
        assert await self._trip(do, session, "c", on_departure="drop") == generation
