"""Counters: what time brings back to a rate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenure import engine as e

from ._contract import Advance, ContractBase, Do, Hints

_TWO = e.RateLimit("two", 2.0, 4.0)
_TEN = e.RateLimit("ten", 10.0, 40.0)


class CounterContract(ContractBase):
    """The contract's tests of rates, beside the walk."""

    async def _spend(
        self, do: Do, session: str, limits: tuple[e.RateLimit, ...], *costs: tuple[float, ...]
    ) -> tuple[e.Spending, ...]:
        requests = tuple(map(e.SpendRequest, costs))
        spent = await do(e.Spend(session, do.number(), "k", requests, limits))
        assert isinstance(spent, e.SpendResults)
        assert len(spent.answers) == len(costs)
        assert all(spending.booked for spending in spent.answers)
        return spent.answers

    async def _delays(self, do: Do, session: str, *costs: float) -> list[float]:
        """Spend at 2 per second, with bursts up to 4."""
        spendings = await self._spend(do, session, (_TWO,), *((cost,) for cost in costs))
        return [spending.delay for spending in spendings]

    async def _debts(self, do: Do, two: float, ten: float) -> None:
        """Check the bookings of both limits."""
        debts = {debt.name: debt.amount for debt in (await do.row(e.Scan(e.LIMITER, "k"))).debts}
        assert debts.get("two", 0.0) / 2 == self.about(two / 2)
        assert debts.get("ten", 0.0) / 10 == self.about(ten / 10)

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

    # several limits

    async def test_the_longest_delay_of_all_limits_counts(self, do: Do) -> None:
        session = await do.open()
        costs = (1.0, 40.0), (1.0, 30.0), (1.0, 0.0), (0.0, 1.0)
        delays = [spending.delay for spending in await self._spend(do, session, (_TWO, _TEN), *costs)]
        # what costs nothing in a limit does not wait for it
        assert delays == [0, self.about(3.0), self.about(2.0), self.about(3.1)]

    async def test_many_limits_are_told_apart_by_their_names(self, do: Do) -> None:
        session = await do.open()
        limits = tuple(e.RateLimit(f"{n}", 1.0, 100.0) for n in range(8))
        await self._spend(do, session, limits, tuple(map(float, range(8))))
        # in another order, and beside limits that it does not name
        await self._spend(do, session, limits[::-1], (1.0,) * 8)
        await self._spend(do, session, limits[2:], (1.0,) * 6)
        debts = (await do.row(e.Scan(e.LIMITER, "k"))).debts
        assert tuple(debt.amount for debt in debts) == tuple(
            map(self.about, (1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0))
        )

    async def test_it_is_booked_in_all_limits_or_in_none(self, do: Do) -> None:
        session = await do.open()
        limits = (_TWO, _TEN)
        await self._spend(do, session, limits, (0.0, 40.0))
        spent = await do(e.Spend(session, do.number(), "k", (e.SpendRequest((1.0, 1.0), 0.01),), limits))
        assert isinstance(spent, e.SpendResults)
        assert spent.answers == (e.Spending(False, self.about(0.1), 0.0, ()),)
        await self._debts(do, 0.0, 40.0)

    async def test_a_wait_for_one_limit_leaves_no_room_for_a_burst_in_another(self, do: Do) -> None:
        session = await do.open()
        costs = (0.0, 40.0), (1.0, 20.0), (1.0, 0.0)
        limits = e.RateLimit("one", 1.0, 1.0), _TEN
        delays = [spending.delay for spending in await self._spend(do, session, limits, *costs)]
        # the second goes after 2 seconds; if the third went just before, that would be two at once
        assert delays == [0, self.about(2.0), self.about(3.0)]

    async def test_a_refund_is_one_in_all_limits(self, do: Do) -> None:
        session = await do.open()
        limits = (_TWO, _TEN)
        spendings = await self._spend(do, session, limits, (0.0, 40.0), (1.0, 20.0))
        await do(e.Refund(session, do.number(), "k", (e.RefundRequest(spendings[1].bookings),), limits))
        await self._debts(do, 0.0, 40.0)

    async def test_only_the_last_booking_goes_back(self, do: Do) -> None:
        session = await do.open()
        first, second = await self._spend(do, session, (_TWO,), (4.0,), (2.0,))
        for spending, left in (first, 6.0), (second, 4.0), (first, 0.0):
            request = e.RefundRequest(spending.bookings)
            await do(e.Refund(session, do.number(), "k", (request,), (_TWO,)))
            await self._debts(do, left, 0.0)

    async def test_a_correction_leaves_the_last_booking_the_last(self, do: Do) -> None:
        session = await do.open()
        spendings = await self._spend(do, session, (_TWO,), (4.0,), (2.0,), (2.0,))
        steps = (0, (-3.0,), 11.0), (1, (), 11.0), (2, (), 9.0), (1, (), 7.0), (0, (), 3.0)
        for spending, amounts, left in steps:
            request = e.RefundRequest(spendings[spending].bookings, amounts)
            await do(e.Refund(session, do.number(), "k", (request,), (_TWO,)))
            await self._debts(do, left, 0.0)

    async def test_a_refund_gives_back_nothing_that_another_session_booked(self, do: Do) -> None:
        """Also where it ends at the same time, since a correction came between."""
        session, other = await do.open(), await do.open("p2")
        first, second = await self._spend(do, session, (_TWO,), (4.0,), (2.0,))
        correction = e.RefundRequest(first.bookings, (2.0,))
        await do(e.Refund(session, do.number(), "k", (correction,), (_TWO,)))
        (third,) = await self._spend(do, other, (_TWO,), (2.0,))
        assert third.bookings[0].end == pytest.approx(second.bookings[0].end, abs=1e-6)
        for by, spending, left in (session, second, 6.0), (other, third, 4.0):
            request = e.RefundRequest(spending.bookings)
            await do(e.Refund(by, do.number(), "k", (request,), (_TWO,)))
            await self._debts(do, left, 0.0)

    async def test_any_number_of_bookings_goes_back_the_latest_first(self, do: Do) -> None:
        """Rounding does not add up: 0.05 s are 50,000,000 ns, and a little less as a float."""
        session, limits = await do.open(), (e.RateLimit("two", 20.0, 1.0), e.RateLimit("ten", 30.0, 2.0))
        for used in limits[:1], limits:
            spendings = await self._spend(do, session, used, *[(1.0,) * len(used)] * 200)
            requests = tuple(e.RefundRequest(spending.bookings) for spending in reversed(spendings))
            await do(e.Refund(session, do.number(), "k", requests, used))
            debts = (await do.row(e.Scan(e.LIMITER, "k"))).debts
            assert sum(debt.amount for debt in debts) <= 20 * (self.margin + 1e-5)

    async def test_nothing_is_booked_behind_the_horizon(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        free, waits = e.SpendRequest((0.0, 1.0)), e.SpendRequest((2.0, 0.0))

        async def booked(*requests: e.SpendRequest) -> list[bool]:
            spent = await do(e.Spend(session, do.number(), "k", requests, (_TWO, _TEN), 0.5))
            assert isinstance(spent, e.SpendResults)
            return [spending.booked for spending in spent.answers]

        # compared with the bookings before the operation; who is free is booked in any case
        assert await booked(*[waits] * 4) == [True] * 4
        assert await booked(waits, free, waits) == [False, True, False]
        await advance(1.3)
        assert await booked(waits) == [False]
        await advance(0.4)
        assert await booked(waits, free, waits) == [True] * 3
        assert await booked(waits) == [False]

    async def test_the_last_booking_ends_with_its_session(self, do: Do) -> None:
        session, other = await do.open(), await do.open(process="p2")
        await self._spend(do, other, (_TWO, _TEN), (4.0, 40.0), (4.0, 10.0))
        await self._spend(do, session, (_TEN,), (5.0,))
        await self._debts(do, 8.0, 55.0)
        await do(e.CloseSession(other))
        # in the second limit there is another booking behind it
        await self._spend(do, session, (_TWO, _TEN), (1.0, 0.0))
        await self._debts(do, 5.0, 55.0)

    async def test_a_correction_books_more_or_gives_back(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        limits = (_TWO, _TEN)
        (spending,) = await self._spend(do, session, limits, (1.0, 40.0))
        bookings = spending.bookings
        await do(e.Refund(session, do.number(), "k", (e.RefundRequest(bookings, (0.5, 30.0)),), limits))
        await self._debts(do, 0.5, 10.0)
        # also above the burst
        await do(e.Refund(session, do.number(), "k", (e.RefundRequest(bookings, (-9.5, -60.0)),), limits))
        await self._debts(do, 10.0, 70.0)
        # what time has brought back meanwhile is not given back once more
        await advance(3.0)
        await do(e.Refund(session, do.number(), "k", (e.RefundRequest(bookings, (1.0, 40.0)),), limits))
        await self._debts(do, 4.0, 30.0)

    async def test_corrections_add_up_to_no_more_than_the_longest_duration(self, do: Do) -> None:
        session = await do.open()
        (spending,) = await self._spend(do, session, (_TWO,), (4.0,))
        bookings = spending.bookings
        much = e.RefundRequest(bookings, (-1e12,))
        for request in (much, much, e.RefundRequest(bookings, (2.0,))):
            await do(e.Refund(session, do.number(), "k", (request,), (_TWO,)))
        (debt,) = (await do.row(e.Scan(e.LIMITER, "k"))).debts
        assert debt.amount / 2.0 == self.about(1e9 - 1.0)
        # so do spendings, also those of one request
        *_, last = await self._spend(do, session, (_TWO,), (8.0,), (8.0,), (8.0,))
        assert last.delay == self.about(1e9 + 2.0)

    async def test_a_debt_stays_the_same_amount_when_the_rate_changes(self, do: Do) -> None:
        session = await do.open()
        await self._spend(do, session, (_TEN,), (40.0,), (20.0,))
        (spending,) = await self._spend(do, session, (replace(_TEN, rate=1.0),), (10.0,))
        assert spending.delay == pytest.approx(30.0, abs=10 * (self.margin + 1e-5))
        (spending,) = await self._spend(do, session, (replace(_TEN, burst=70.0),), (10.0,))
        assert spending.delay == self.about(1.0)

    # holding off

    async def test_nobody_gets_anything_while_it_is_held_off(self, do: Do, advance: Advance) -> None:
        session = await do.open()
        assert await self._delays(do, session, 2.0) == [0]
        await do(e.HoldOff(session, do.number(), "k", 3.0))
        await do(e.HoldOff(session, do.number(), "k", 1.0))
        looked = await do.row(e.Scan(e.LIMITER, "k"))
        assert (looked.held_off, looked.held) == (self.about(3.0), self.about(3.0))
        # the clock of the limiter stands still: nothing comes back, and nothing is lost
        assert await self._delays(do, session, 2.0, 1.0) == [self.about(3.0), self.about(3.5)]
        await advance(3.0)
        assert await self._delays(do, session, 1.0) == [self.about(1.0)]

    async def test_a_hold_ends_at_once(self, do: Do, hints: Hints, advance: Advance) -> None:
        inbox = await hints("p1")
        session = await do.open("p1")
        await do(e.HoldOff(session, do.number(), "k", 0.0))
        assert await do.row(e.Scan(e.LIMITER, "k")) == e.LimiterStatus(0.0, 0.0, ())
        assert await self._delays(do, session, 2.0) == [0]
        await do(e.HoldOff(session, do.number(), "k", 3600.0))
        (spending,) = await self._spend(do, session, (_TWO,), (4.0,))
        assert (spending.delay, spending.held) == (self.about(3601.0), self.about(3600.0))
        await advance(8.0)
        await do(e.HoldOff(session, do.number(), "k", 0.0))
        assert await inbox.new() == [e.Hint("p1", "k", "", e.Notice.HELD)]
        looked = await do.row(e.Scan(e.LIMITER, "k"))
        assert (looked.held_off, looked.held) == (0, self.about(8.0))
        assert spending.held - looked.held == self.about(3592.0)  # so much sooner goes who waits
        assert await self._delays(do, session, 1.0) == [self.about(1.5)]
        await do(e.HoldOff(session, do.number(), "k", 0.0))
        assert await inbox.new() == []

    async def test_those_that_wait_are_hinted_when_it_is_held_off(
        self, do: Do, hints: Hints, advance: Advance
    ) -> None:
        inbox, others = await hints("p1"), await hints("p2")
        session, other = await do.open("p1"), await do.open("p2")
        assert await self._delays(do, other, 4.0) == [0]
        (spending,) = await self._spend(do, session, (_TWO,), (4.0,))
        await do(e.HoldOff(other, do.number(), "k", 5.0))
        assert await inbox.new() == [e.Hint("p1", "k", "", e.Notice.HELD)]
        assert (await do.row(e.Scan(e.LIMITER, "k"))).held - spending.held == self.about(5.0)
        # no longer than it is held off already: no process has to know
        await do(e.HoldOff(other, do.number(), "k", 1.0))
        assert await inbox.new() == []
        await advance(7.1 + 2 * self.margin)
        await do(e.HoldOff(other, do.number(), "k", 1.0))
        assert await inbox.new() == []
        assert await others.new() == []

    async def test_a_limiter_that_is_held_off_or_makes_a_caller_wait_is_listed(
        self, do: Do, advance: Advance
    ) -> None:
        session = await do.open()

        async def listed() -> dict[str, float]:
            names = (await do(e.Scan(e.NAMES["limiters"], only="n"))).rows
            return {name: (await do.row(e.Scan(e.LIMITER, name))).waits for name in names}

        await do.spend(session, "other", rate=1.0)
        await do.spend(session, "other", rate=1.0)
        await do.spend(session, "no wait", rate=1.0)
        assert await listed() == {}
        await do.spend(session, "no room", rate=0.25)
        await do.spend(session, "no room", rate=0.25)
        await do(e.HoldOff(session, do.number(), "nothing", 3.0))
        assert await listed() == {"no room": self.about(4.0), "nothing": 0.0}
        first = await do(e.Scan(e.NAMES["limiters"], limit=1))
        assert len(first.rows) == 1 and first.next
        # a hold that is ended leaves the callers that it has delayed
        await do(e.HoldOff(session, do.number(), "no room", 9.0))
        await advance(2.0)
        await do(e.HoldOff(session, do.number(), "no room", 0.0))
        await do(e.HoldOff(session, do.number(), "nothing", 0.0))
        assert await listed() == {"no room": self.about(4.0)}
        await advance(4.0 + 2 * self.margin)
        assert await listed() == {}

    async def test_a_limiter_that_is_full_again_and_not_held_off_is_forgotten(
        self, do: Do, advance: Advance
    ) -> None:
        session = await do.open()
        await self._delays(do, session, 4.0)
        await do(e.HoldOff(session, do.number(), "k", 3.0))
        await advance(4.0)
        assert (await do.row(e.Scan(e.LIMITER, "k"))).held == self.about(3.0)
        await advance(1.0 + self.margin)
        assert await do.row(e.Scan(e.LIMITER, "k")) == e.LimiterStatus(0.0, 0.0, ())
