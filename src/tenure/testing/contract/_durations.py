"""Durations that are too long, or no numbers."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from tenure.engine import (
    RESOURCES,
    Acquire,
    AddResource,
    Booking,
    Claim,
    Claimed,
    EditClaim,
    Exchange,
    Granted,
    HoldOff,
    Move,
    NewTask,
    OpenSession,
    Operation,
    Ping,
    Put,
    PutAnswer,
    PutChildren,
    PutRequest,
    RateLimit,
    Refund,
    RefundRequest,
    Reply,
    Scan,
    Settle,
    Spend,
    SpendRequest,
    SpendResults,
    Verdict,
)
from tenure.errors import EngineError

from ._contract import Advance, ContractBase, Do


class DurationContract(ContractBase):
    """The contract's tests of durations."""

    @pytest.mark.parametrize("long", [1e9, 8.4e9, 1e12, 1e300, inf], ids=str)
    async def test_durations_that_are_too_long_count_as_the_longest(
        self, do: Do, advance: Advance, long: float
    ) -> None:
        session = await do.open(ttl=long)
        kept = NewTask(b"", delay=long, key="k", key_ttl=long, max_wait=long, deadline=long)
        tasks = NewTask(b"", expires=long), NewTask(b"", delay=long), NewTask(b""), NewTask(b""), kept
        answer = await do(Put(session, do.number(), "q", (PutRequest("m", tasks),), 10))
        assert isinstance(answer, PutAnswer)
        taken = await do(Exchange(session, do.number(), "q", want=3, wait=False, aging=long))
        assert not isinstance(taken, Reply)
        first, second, third = taken.tasks
        settle = (
            Settle(first.id, first.token, Verdict.DONE, ttl=long),
            Settle(second.id, second.token, Verdict.RETRY, delay=long),
        )
        await do(Exchange(session, do.number(), "q", settle))
        await do(Move("q", (third.id,), "cancelled", ttl=long))
        await do(AddResource("p", "r", ()))
        claimed = await do(Claim(session, "p", "a", (), long))
        assert isinstance(claimed, Claimed)
        await do(EditClaim("p", "a", claimed.token, cool_down=long))
        spent = await do(
            Spend(
                session,
                do.number(),
                "k",
                (SpendRequest((1.0,), long),),
                (RateLimit("", 1 / min(long, 1e300), 1.0),),
            )
        )
        assert isinstance(spent, SpendResults)
        assert spent.answers[0].booked
        assert spent.answers[0].delay == 0
        assert await do(HoldOff(session, do.number(), "held", long)) is Reply.OK
        # and all the rest goes on
        await advance(0.5)
        other = await do.open("p2")
        assert isinstance(await do(Acquire(other, "k", "a", 1)), Granted)
        page = await do.page(Scan(RESOURCES, "p"))
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
        operations: dict[str, Operation[Any]] = {
            "ttl": OpenSession("other", "p2", nan),
            "delay": Put(session, n, "q", (PutRequest("m", (NewTask(b"", delay=nan),)),), 10),
            "expires": Put(session, n, "q", (PutRequest("m", (NewTask(b"", expires=nan),)),), 10),
            "deadline": Put(session, n, "q", (PutRequest("m", (NewTask(b"", deadline=nan),)),), 10),
            "deadline of a child": PutChildren("q", 1, 1, "q", ("a",), (NewTask(b"", deadline=nan),)),
            "key ttl": Put(session, n, "q", (PutRequest("m", (NewTask(b"", key="k", key_ttl=nan),)),), 10),
            "longest wait": Put(
                session, n, "q", (PutRequest("m", (NewTask(b"", key="k", max_wait=nan),)),), 10
            ),
            "pause": Exchange(session, n, "q", (Settle(1, 1, Verdict.RETRY, delay=nan),)),
            "result ttl": Exchange(session, n, "q", (Settle(1, 1, Verdict.DONE, ttl=nan),)),
            "cancel": Move("q", (1,), "cancelled", ttl=nan),
            "quarantine": Claim(session, "p", "a", (), nan),
            "cool down": EditClaim("p", "a", 1, cool_down=nan),
            "cost": Spend(session, n, "k", (SpendRequest((nan,)),), (RateLimit("", 1.0, 1.0),)),
            "refund": Refund(
                session, n, "k", (RefundRequest((Booking(1.0, 1.0),), (nan,)),), (RateLimit("", 1.0, 1.0),)
            ),
            "rate": Spend(session, n, "k", (SpendRequest((1.0,)),), (RateLimit("", nan, 1.0),)),
            "hold off": HoldOff(session, n, "k", nan),
        }
        batch = (Acquire(session, "k", "a", 1), operations[of], Ping())
        answers = list(await do.engine.execute(batch))
        assert len(answers) == len(batch)
        first, failed, last = answers
        assert isinstance(first, Granted)
        assert isinstance(failed, EngineError)
        assert last is Reply.OK
