"""Spending at a rate: the generic cell rate algorithm, exactly, and each booking once."""

from __future__ import annotations

from tenure.engine import CloseSession, Refund, Reply, Spend, Spending, SpendRequest, Spent

from ._contract import Advance, ContractBase, Do


class RateContract(ContractBase):
    """What the contract says of spending.

    Thread safety: none needed; pytest makes one for each test.
    """

    async def _spend(
        self,
        do: Do,
        session: str,
        *costs: float,
        max_wait: float | None = None,
        rate: float = 2.0,
        burst: float = 4.0,
        key: str = "k",
    ) -> tuple[Spending, ...]:
        requests = tuple(SpendRequest(cost, max_wait) for cost in costs)
        spent = await do(Spend(session, do.number(), key, requests, rate, burst))
        assert isinstance(spent, Spent)
        assert len(spent.answers) == len(costs)
        return spent.answers

    async def _delays(self, do: Do, session: str, *costs: float) -> list[float]:
        spendings = await self._spend(do, session, *costs)
        assert all(spending.booked for spending in spendings)
        return [spending.delay for spending in spendings]

    async def _refund(self, do: Do, session: str, cost: float, booking: float) -> None:
        assert await do(Refund(session, do.number(), "k", cost, booking, 2.0)) is Reply.OK

    async def test_a_burst_costs_no_time_and_then_the_rate_counts(self, do: Do) -> None:
        session = await do.open()
        delays = await self._delays(do, session, *[1.0] * 8)
        assert delays[:4] == [0, 0, 0, 0]
        assert delays[4:] == [self.about(wait) for wait in (0.5, 1.0, 1.5, 2.0)]

    async def test_bookings_one_by_one_are_as_good_as_together(self, do: Do) -> None:
        session, other = await do.open("p1"), await do.open("p2")
        delays = [(await self._delays(do, s, 1.0))[0] for s in (session, other) * 3]
        assert delays == [self.about(wait) for wait in (0, 0, 0, 0, 0.5, 1.0)]

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

    async def test_costs_may_be_fractions_or_nothing(self, do: Do) -> None:
        session = await do.open()
        assert await self._delays(do, session, 0.0, 3.75, 0.0, 0.5) == [0, 0, 0, self.about(0.125)]

    async def test_what_costs_more_than_the_burst_waits_for_the_rest(self, do: Do) -> None:
        session = await do.open()
        assert await self._delays(do, session, 7.0) == [self.about(1.5)]
        assert await self._delays(do, session, 1.0) == [self.about(2.0)]

    async def test_who_would_have_to_wait_too_long_books_nothing(self, do: Do) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        for _ in range(2):
            (refused,) = await self._spend(do, session, 3.0, max_wait=1.0)
            assert not refused.booked
            assert refused.delay == self.about(1.5)
        (booked,) = await self._spend(do, session, 3.0, max_wait=1.6)
        assert booked.booked
        assert booked.delay == self.about(1.5)

    async def test_each_request_is_booked_or_refused_alone(self, do: Do) -> None:
        session = await do.open()
        spendings = await self._spend(do, session, 3.0, 2.0, 1.0, 1.0, max_wait=0.0)
        assert [spending.booked for spending in spendings] == [True, False, True, False]

    async def test_no_requests_no_answers(self, do: Do) -> None:
        assert await self._spend(do, await do.open()) == ()

    async def test_keys_are_spent_from_apart(self, do: Do) -> None:
        session = await do.open()
        await self._spend(do, session, 4.0, key="k")
        (spending,) = await self._spend(do, session, 4.0, key="l")
        assert spending.delay == 0

    async def test_what_was_spent_outlives_the_session(self, do: Do) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        await do(CloseSession(session))
        assert await self._delays(do, await do.open(), 1.0) == [self.about(0.5)]

    # sending again

    async def test_spending_sent_twice_is_booked_once(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        spend = Spend(session, do.number(), "k", (SpendRequest(3.0), SpendRequest(4.0, 0.0)), 2.0, 4.0)
        first = await do(spend)
        await advance(0.25)
        for _ in range(2):
            assert await do(spend) == first
        assert await self._delays(do, session, 2.0) == [self.about(0.25)]

    async def test_a_refund_sent_twice_is_paid_once(self, do: Do) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        (spending,) = await self._spend(do, session, 2.0)
        refund = Refund(session, do.number(), "k", 1.0, spending.booking, 2.0)
        for _ in range(3):
            assert await do(refund) is Reply.OK
        assert await self._delays(do, session, 1.0) == [self.about(1.0)]

    async def test_numbers_count_for_one_session_and_one_key(self, do: Do) -> None:
        sessions = await do.open("p1"), await do.open("p2")
        for session in sessions:
            for key in ("k", "l"):
                await do(Spend(session, 1000, key, (SpendRequest(2.0),), 2.0, 4.0))
        (spending,) = await self._spend(do, sessions[0], 1.0, key="k")
        assert spending.delay == self.about(0.5)
        (spending,) = await self._spend(do, sessions[0], 1.0, key="l")
        assert spending.delay == self.about(0.5)

    # refunds

    async def test_a_refund_of_the_latest_booking_undoes_it(self, do: Do) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        (spending,) = await self._spend(do, session, 3.0)
        await self._refund(do, session, 3.0, spending.booking)
        assert await self._delays(do, session, 1.0) == [self.about(0.5)]

    async def test_part_of_a_booking_can_be_refunded(self, do: Do) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        (spending,) = await self._spend(do, session, 3.0)
        await self._refund(do, session, 2.0, spending.booking)
        assert await self._delays(do, session, 1.0) == [self.about(1.0)]

    async def test_of_a_booking_only_what_was_not_overtaken_is_refunded(self, do: Do) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        early, _ = await self._spend(do, session, 3.0, 1.0)
        await self._refund(do, session, 3.0, early.booking)
        assert await self._delays(do, session, 1.0) == [self.about(1.5)]

    async def test_of_a_booking_that_was_overtaken_nothing_is_refunded(self, do: Do) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        early, _ = await self._spend(do, session, 1.0, 3.0)
        await self._refund(do, session, 1.0, early.booking)
        assert await self._delays(do, session, 1.0) == [self.about(2.5)]

    async def test_a_refund_gives_no_more_than_the_burst(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        (spending,) = await self._spend(do, session, 4.0)
        await advance(3.0)
        await self._refund(do, session, 4.0, spending.booking)
        assert await self._delays(do, session, 4.0, 1.0) == [0, self.about(0.5)]

    async def test_a_refund_where_nothing_was_spent(self, do: Do) -> None:
        session = await do.open()
        await self._refund(do, session, 4.0, 1.0)
        assert await self._delays(do, session, 4.0, 1.0) == [0, self.about(0.5)]
