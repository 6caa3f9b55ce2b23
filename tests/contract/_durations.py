"""Durations that are too long, or no numbers."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from tenure import engine as e
from tenure.errors import EngineError

from ._contract import Advance, ContractBase, Do


class DurationContract(ContractBase):
    """The contract's tests of durations."""

    @pytest.mark.parametrize("long", [1e9, 8.4e9, 1e12, 1e300, inf], ids=str)
    async def test_durations_that_are_too_long_count_as_the_longest(
        self, do: Do, advance: Advance, long: float
    ) -> None:
        session = await do.open(ttl=long)
        kept = e.NewTask(b"", delay=long, key="k", key_ttl=long, max_wait=long, deadline=long)
        tasks = e.NewTask(b"", expires=long), e.NewTask(b"", delay=long), e.NewTask(b""), e.NewTask(b""), kept
        answer = await do(e.Put(session, do.number(), "q", (e.PutRequest("m", tasks),)))
        assert isinstance(answer, e.PutAnswer)
        await do.configure("q", aging=long)
        taken = await do(e.Exchange(session, do.number(), "q", want=3, wait=False))
        assert not isinstance(taken, e.Reply)
        first, second, third = taken.tasks
        settle = (
            e.Settle(first.id, first.token, e.Verdict.DONE, ttl=long),
            e.Settle(second.id, second.token, e.Verdict.RETRY, delay=long),
        )
        await do(e.Exchange(session, do.number(), "q", settle))
        await do(e.Move("q", (third.id,), "cancelled", ttl=long))
        await do(e.AddResource("p", "r", ()))
        claimed = await do(e.Claim(session, "p", "a", (), long))
        assert isinstance(claimed, e.Claimed)
        await do(e.EditClaim("p", "a", claimed.token, cool_down=long))
        assert (await do.spend(session, "k", rate=1 / min(long, 1e300), most=long)).delay == 0
        assert await do(e.HoldOff(session, do.number(), "held", long)) is e.Reply.OK
        # and all the rest goes on
        await advance(0.5)
        other = await do.open("p2")
        assert isinstance(await do(e.Acquire(other, "k", "a", 1)), e.Granted)
        page = await do.page(e.Scan(e.RESOURCES, "p"))
        assert page.rows[0].state == "claimed"

    @pytest.mark.parametrize(
        "of",
        [
            "ttl",
            "delay",
            "expires",
            "deadline",
            "deadline of a child",
            "key ttl",
            "longest wait",
            "pause",
            "result ttl",
            "cancel",
            "quarantine",
            "cool down",
            "cost",
            "refund",
            "rate",
            "hold off",
        ],
    )
    async def test_what_is_no_number_fails_alone(self, do: Do, of: str) -> None:
        session, n = await do.open(), do.number()
        operations: dict[str, e.Operation[Any]] = {
            "ttl": e.OpenSession("other", "p2", nan),
            "delay": e.Put(session, n, "q", (e.PutRequest("m", (e.NewTask(b"", delay=nan),)),)),
            "expires": e.Put(session, n, "q", (e.PutRequest("m", (e.NewTask(b"", expires=nan),)),)),
            "deadline": e.Put(session, n, "q", (e.PutRequest("m", (e.NewTask(b"", deadline=nan),)),)),
            "deadline of a child": e.PutChildren("q", 1, 1, "q", ("a",), (e.NewTask(b"", deadline=nan),)),
            "key ttl": e.Put(session, n, "q", (e.PutRequest("m", (e.NewTask(b"", key="k", key_ttl=nan),)),)),
            "longest wait": e.Put(
                session, n, "q", (e.PutRequest("m", (e.NewTask(b"", key="k", max_wait=nan),)),)
            ),
            "pause": e.Exchange(session, n, "q", (e.Settle(1, 1, e.Verdict.RETRY, delay=nan),)),
            "result ttl": e.Exchange(session, n, "q", (e.Settle(1, 1, e.Verdict.DONE, ttl=nan),)),
            "cancel": e.Move("q", (1,), "cancelled", ttl=nan),
            "quarantine": e.Claim(session, "p", "a", (), nan),
            "cool down": e.EditClaim("p", "a", 1, cool_down=nan),
            "cost": e.Spend(session, n, "k", (e.SpendRequest((nan,)),), (e.RateLimit("", 1.0, 1.0),)),
            "refund": e.Refund(
                session,
                n,
                "k",
                (e.RefundRequest((e.Booking(1.0, 1.0),), (nan,)),),
                (e.RateLimit("", 1.0, 1.0),),
            ),
            "rate": e.Spend(session, n, "k", (e.SpendRequest((1.0,)),), (e.RateLimit("", nan, 1.0),)),
            "hold off": e.HoldOff(session, n, "k", nan),
        }
        batch = (e.Acquire(session, "k", "a", 1), operations[of], e.Ping())
        answers = list(await do.engine.execute(batch))
        assert len(answers) == len(batch)
        first, failed, last = answers
        assert isinstance(first, e.Granted)
        assert isinstance(failed, EngineError)
        assert last is e.Reply.OK
