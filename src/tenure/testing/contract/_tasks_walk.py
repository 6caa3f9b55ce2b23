"""Long random walks over one queue, with the law of conservation looked at after every step."""

from __future__ import annotations

from random import Random

import pytest

from tenure.engine import (
    A,
    Accepted,
    Changed,
    Exchange,
    Exchanged,
    Move,
    NewTask,
    Operation,
    Ping,
    Progress,
    Put,
    PutAnswer,
    PutRequest,
    QueueCounts,
    Reply,
    SetPaused,
    Settle,
    Taken,
    Verdict,
)

from ._clerk import Clerk, ClerkBase, OpenClerk
from ._contract import Advance, Do

_STEPS = 120
_TTL = 1.0


class _Walk:
    """One walk: what it did, and what must therefore be true."""

    def __init__(self, random: Random, do: Do, advance: Advance, clerk: OpenClerk) -> None:
        self.random = random
        self.do = do
        self.advance = advance
        self.open = clerk
        self.clerks: list[Clerk] = []
        self.put_ids: set[int] = set()
        self.leases: dict[int, tuple[Clerk, Taken]] = {}
        self.lost: list[Taken] = []
        self.last_token = 0
        self.forgotten = 0

    async def begin(self) -> None:
        self.clerks = [await self.open("a"), await self.open("b"), await self.open("mortal", ttl=_TTL)]

    async def step(self) -> None:
        await self.clerks[2].renew()
        steps = (self.put, self.put, self.work, self.work, self.work, self.pass_time, self.cancel, self.die)
        rare = (self.requeue, self.purge, self.pause, self.report)
        await self.random.choice(rare if self.random.random() < 0.2 else steps)()

    async def put(self) -> None:
        clerk, random = self.random.choice(self.clerks), self.random
        tasks = tuple(
            NewTask(
                b"%d" % n,
                priority=random.choice((-1, 0, 0, 1)),
                delay=random.choice((0.0, 0.0, 0.25, 1.0)),
                key=random.choice((None, None, "k", "l")),
                expires=random.choice((None, None, None, 0.5)),
            )
            for n in range(random.randrange(5))
        )
        operation = Put(clerk.session, self.do.number(), "jobs", (PutRequest("m", tasks, wait=False),), 30)
        answer = await self.twice(operation)
        assert isinstance(answer, PutAnswer)
        (accepted,) = answer.answers
        if isinstance(accepted, Accepted):
            new = [task for task in accepted.ids if isinstance(task, int)]
            assert self.put_ids.isdisjoint(new)
            self.put_ids.update(new)

    async def work(self) -> None:
        random, clerk = self.random, self.random.choice(self.clerks)
        mine = [task for holder, task in self.leases.values() if holder is clerk]
        settled = random.sample(mine, random.randrange(len(mine) + 1))
        stale = random.sample(self.lost, min(len(self.lost), random.randrange(3)))
        settle = tuple(
            Settle(task.id, task.token, random.choice(tuple(Verdict)), b"", random.choice((0.0, 0.5)))
            for task in settled + stale
        )
        operation = Exchange(
            clerk.session,
            self.do.number(),
            "jobs",
            settle,
            random.randrange(5),
            wait=False,
            aging=random.choice((None, 0.5)),
            max_deliveries=3,
        )
        answer = await self.twice(operation)
        assert isinstance(answer, Exchanged)
        assert answer.refused == tuple(task.token for task in stale)
        for task in settled:
            self.lost.append(self.leases.pop(task.id)[1])
        self.note(clerk, answer)

    def note(self, clerk: Clerk, answer: Exchanged) -> None:
        for task in answer.tasks:
            assert task.id in self.put_ids
            assert task.id not in self.leases, f"task {task.id} is given to two"
            assert task.token > self.last_token
            self.last_token = task.token
            self.leases[task.id] = (clerk, task)

    async def pass_time(self) -> None:
        await self.advance(self.random.choice((1 / 64, 0.25, 0.5)))

    async def die(self) -> None:
        dead = self.clerks[2]
        if self.random.random() < 0.5:
            await dead.close()
        else:
            await self.advance(1.25 * _TTL)
            await self.do(Ping())
        self.lost += [task for holder, task in self.leases.values() if holder is dead]
        self.leases = {i: lease for i, lease in self.leases.items() if lease[0] is not dead}
        self.clerks[2] = await self.open("mortal", ttl=_TTL)

    async def cancel(self) -> None:
        if self.put_ids:
            task = self.random.choice(sorted(self.put_ids))
            answer = await self.do(Move("jobs", (task,), "cancelled", ttl=None))
            assert isinstance(answer, Changed)
            assert answer.count or task not in self.leases

    async def report(self) -> None:
        for _, task in self.leases.values():
            assert await self.do(Progress("jobs", task.id, task.token, b"half")) in {
                Reply.OK,
                Reply.REQUESTED,
            }
        for task in self.lost[-3:]:
            assert await self.do(Progress("jobs", task.id, task.token, b"late")) is Reply.REFUSED

    async def requeue(self) -> None:
        await self.do(Move("jobs", frozenset({"dead"}), "waiting"))

    async def purge(self) -> None:
        state = self.random.choice(
            ("waiting", "delayed", "dead", "done", "cancelled", "discarded", "expired")
        )
        answer = await self.do(Move("jobs", frozenset({state}), "purged"))
        assert isinstance(answer, Changed)
        if state not in {"waiting", "delayed", "dead"}:
            self.forgotten += answer.count

    async def pause(self) -> None:
        await self.do(SetPaused("jobs", paused=self.random.random() < 0.5))

    async def twice(self, operation: Operation[A]) -> A:
        """Send an operation, sometimes again."""
        answer = await self.do(operation)
        if self.random.random() < 0.3:
            assert await self.do(operation) == answer
        return answer

    async def look(self, *, exactly: bool) -> QueueCounts:
        """The counts, which agree with one another and with what was done; `exactly` while no time passes."""
        clerk = self.clerks[0]
        counts = await clerk.count()
        unfinished = counts.waiting + counts.delayed + counts.leased
        ended = counts.done + counts.cancelled + counts.expired + counts.discarded + counts.dead
        assert counts.put == len(self.put_ids) == unfinished + ended + counts.purged, counts
        assert counts.leased == len(self.leases), counts
        if exactly:
            await clerk.recount()
            listed = [
                record.id
                for state in ("waiting", "delayed", "leased", "ended")
                for record in await clerk.browse(state, limit=10_000)
            ]
            assert len(listed) == len(set(listed)) == counts.put - counts.purged - self.forgotten
            assert self.put_ids.issuperset(listed)
        return counts

    async def drain(self) -> QueueCounts:
        """Take and complete whatever is left."""
        await self.do(SetPaused("jobs", paused=False))
        await self.advance(1.5)
        clerk = self.clerks[0]
        for holder in self.clerks[:2]:
            mine = [task for c, task in self.leases.values() if c is holder]
            await holder.exchange(*(Settle(task.id, task.token, Verdict.GIVE_BACK) for task in mine))
        self.leases.clear()
        while tasks := await clerk.take(7, max_deliveries=1000):
            assert self.put_ids.issuperset(task.id for task in tasks)
            await clerk.exchange(*(Settle(task.id, task.token, Verdict.DONE) for task in tasks))
        return await clerk.count()


class WalkContract(ClerkBase):
    """No task is lost, doubled or miscounted, whatever happens in whatever order.

    Thread safety: none needed; pytest makes one for each test.
    """

    @pytest.mark.parametrize("seed", range(2))
    async def test_no_task_is_lost_doubled_or_miscounted(
        self, clerk: OpenClerk, do: Do, advance: Advance, seed: int
    ) -> None:
        walk = _Walk(Random(seed), do, advance, clerk)
        await walk.begin()
        for _ in range(_STEPS):
            await walk.step()
            await walk.look(exactly=not self.margin)
        await walk.die()
        counts = await walk.drain()
        assert (counts.waiting, counts.delayed, counts.leased) == (0, 0, 0)
        await walk.look(exactly=not self.margin)
