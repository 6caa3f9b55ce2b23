"""Counters: what time brings back to a rate, and what the dead leave at a barrier."""

from __future__ import annotations

from tenure.engine import (
    Arrive,
    Broken,
    CloseSession,
    Hint,
    Ping,
    ResetBarrier,
    Spend,
    SpendRequest,
    Spent,
    Waiting,
    Withdraw,
)

from ._contract import Advance, ContractBase, Do, Hints


class CounterContract(ContractBase):
    """What the contract says of rates and barriers, beside the walk.

    Thread safety: none needed; pytest makes one for each test.
    """

    async def _delays(self, do: Do, session: str, *costs: float) -> list[float]:
        """Spend at 2 per second, with bursts up to 4."""
        requests = tuple(map(SpendRequest, costs))
        spent = await do(Spend(session, do.number(), "k", requests, 2.0, 4.0))
        assert isinstance(spent, Spent)
        assert len(spent.answers) == len(costs)
        assert all(spending.booked for spending in spent.answers)
        return [spending.delay for spending in spent.answers]

    async def test_a_burst_costs_no_time_and_then_the_rate_counts(self, do: Do) -> None:
        session = await do.open()
        delays = await self._delays(do, session, *[1.0] * 8)
        assert delays[:4] == [0, 0, 0, 0]
        assert delays[4:] == [self.about(wait) for wait in (0.5, 1.0, 1.5, 2.0)]

    async def test_time_brings_back_what_was_spent(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        await advance(1.5)
        assert await self._delays(do, session, 3.0) == [self.about(0)]
        assert await self._delays(do, session, 1.0) == [self.about(0.5)]

    async def test_idleness_saves_no_more_than_the_burst(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        await advance(3.0)
        assert await self._delays(do, session, 4.0, 1.0) == [0, self.about(0.5)]

    # barriers

    async def _wait(self, do: Do, session: str, participant: str) -> Waiting:
        """Arrive where others are missing."""
        answer = await do(Arrive(session, "k", participant, 3))
        assert isinstance(answer, Waiting)
        return answer

    async def test_a_participant_that_dies_breaks_the_barrier(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        inbox = await hints("p2")
        other = await do.open("p2")
        for how in ("close", "expire"):
            mortal = await do.open("p1", ttl=2.0)
            generation = (await self._wait(do, other, "b")).generation
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
        answer = await self._wait(do, other, "b")
        assert 0 < answer.ask_again_in <= 2.0 + self.margin
        await advance(answer.ask_again_in + 0.01 + self.margin)
        assert await do(Arrive(other, "k", "b", 3)) == Broken(answer.generation)
