"""A session at one queue, which numbers its batches, for the tests of tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import pytest

from tenure import engine as e

from ._contract import LASTING, ContractBase, Do, Inbox


class QueueSession:
    """A session that puts tasks into a queue, takes them and settles them."""

    def __init__(self, do: Do, session: str, queue: str) -> None:
        self.do = do
        self.session = session
        self.queue = queue

    # putting

    async def request(
        self,
        producer: str,
        *tasks: e.NewTask,
        max_size: int = 10_000,
        wait: bool = True,
        cursor: tuple[str, bytes] | None = None,
        expected: bytes | None = None,
    ) -> e.Accepted | e.Conflict | e.Queued | e.Reply:
        """Send one producer's request, and return the answer to it."""
        request = e.PutRequest(producer, tasks, wait, cursor, expected)
        await self.do.configure(self.queue, max_size=max_size)
        answer = await self.do(e.Put(self.session, self.do.number(), self.queue, (request,)))
        if isinstance(answer, e.Reply):
            return answer
        (only,) = answer.answers
        return only

    async def put(self, *tasks: e.NewTask, max_size: int = 10_000) -> tuple[int, ...]:
        """Put tasks that are all new, and return their ids."""
        answer = await self.request("producer", *tasks, max_size=max_size)
        assert isinstance(answer, e.Accepted)
        ids = tuple(task for task in answer.ids if isinstance(task, int))
        assert len(ids) == len(tasks)
        return ids

    # taking and settling

    async def exchange(
        self,
        *settle: e.Settle,
        want: int = 0,
        wait: bool = False,
        aging: float | None = None,
        max_deliveries: int = 20,
        keep: bool = False,
    ) -> e.Exchanged:
        """Settle and take, in one step."""
        number, queue = self.do.number(), self.queue
        await self.do.configure(queue, aging=aging, max_deliveries=max_deliveries, payloads=keep)
        answer = await self.do(e.Exchange(self.session, number, queue, settle, want, wait))
        assert isinstance(answer, e.Exchanged), answer
        return answer

    async def take(
        self, want: int = 1, *, max_deliveries: int = 20, keep: bool = False
    ) -> tuple[e.Taken, ...]:
        """Take up to so many tasks, without waiting for any."""
        return (await self.exchange(want=want, max_deliveries=max_deliveries, keep=keep)).tasks

    async def take_one(self, *, max_deliveries: int = 20, keep: bool = False) -> e.Taken:
        """Take the task that is there."""
        tasks = await self.take(max_deliveries=max_deliveries, keep=keep)
        assert len(tasks) == 1
        return tasks[0]

    async def idle(self, want: int = 1) -> e.Exchanged:
        """Wait for tasks; there are none yet."""
        answer = await self.exchange(want=want, wait=True)
        assert answer.tasks == ()
        return answer

    async def settle(
        self,
        task: e.Taken,
        verdict: e.Verdict = e.Verdict.DONE,
        result: bytes = b"",
        *,
        delay: float = 0.0,
        ttl: float | None = None,
    ) -> None:
        """Settle a task that this session has."""
        answer = await self.exchange(e.Settle(task.id, task.token, verdict, result, delay, ttl))
        assert answer.refused == ()

    async def end(self, task: int, state: str) -> None:
        """Bring a task that is not leased into an ended state; it must be the next in the order."""
        if state == "cancelled":
            assert await self.do(e.Move(self.queue, (task,), "cancelled")) == e.MovedCount(1)
        else:
            taken = await self.take_one()
            assert taken.id == task
            await self.settle(taken, e.Verdict(state))

    # looking

    async def count(self) -> e.QueueCounts:
        """The state of the queue."""
        return await self.do.count(self.queue)

    async def recount(self) -> e.QueueCounts:
        """The state of the queue by its tasks, which must be the same, but for the time that has passed."""
        counts, recounted = await self.count(), await self.do.count(self.queue, recount=True)
        assert _timeless(recounted) == _timeless(counts)
        assert recounted.group_counter == recounted.groups
        return recounted

    async def page(self, state: str, after: str = "", limit: int = 100) -> e.Page[e.Record]:
        """A page of the tasks in a state."""
        page = await self.do.page(e.Scan(e.TASKS[state], self.queue, after, limit))
        assert len(page.rows) <= limit
        return page

    async def browse(self, state: str, after: str = "", limit: int = 100) -> tuple[e.Record, ...]:
        """The tasks in a state, page by page."""
        return tuple(await self.do.rows(e.Scan(e.TASKS[state], self.queue, after, limit)))

    async def groups(self) -> tuple[e.GroupCounts, ...]:
        """The counts of the groups."""
        return (await self.do.page(e.Scan(e.GROUPS, self.queue))).rows

    async def result(self, task: int, watch: str = "") -> e.Outcome | e.Unfinished | e.Reply:
        """The result of a task."""
        return await self.do(e.GetResult(self.queue, task, watch))

    async def state(self, task: int) -> str:
        """The state of a task, or the reply that says why there is none."""
        answer = await self.result(task)
        return answer.value if isinstance(answer, e.Reply) else answer.state

    # the session

    async def close(self) -> None:
        """End the session."""
        assert await self.do(e.CloseSession(self.session)) is not e.Reply.GONE

    async def begin_to_close(self) -> None:
        """Send the end of the session once, and leave the rest to the next process."""
        await self.do.engine.execute([e.CloseSession(self.session)])


def _timeless(counts: e.QueueCounts) -> e.QueueCounts:
    return replace(counts, oldest=0.0, ask_again_in=0.0, now=0.0, starts_in=0.0)


def plain(count: int, *, priority: int = 0, delay: float = 0.0) -> tuple[e.NewTask, ...]:
    """Tasks with the payloads 0, 1, 2 ..."""
    return tuple(e.NewTask(b"%d" % n, priority, delay) for n in range(count))


def payloads(tasks: tuple[e.Taken, ...]) -> list[bytes]:
    """The payloads of the tasks."""
    return [task.payload for task in tasks]


async def names(inbox: Inbox, notice: e.Notice) -> list[str]:
    """The names in the notices that came since the last look; nothing else may have come."""
    hints = await inbox.new()
    assert [hint.news for hint in hints] == [notice] * len(hints)
    return [hint.name for hint in hints]


class OpenClient(Protocol):
    """`a = await client("a")`: open a session of process a, at the queue "jobs"."""

    async def __call__(self, process: str, *, queue: str = "jobs", ttl: float = LASTING) -> QueueSession:
        """Open a session. Cancellation: it may have been opened."""
        ...


class QueueSessionBase(ContractBase):
    """Tests whose actors are clerks."""

    @pytest.fixture
    def client(self, do: Do) -> OpenClient:
        """Open sessions at queues."""

        async def open_session(process: str, *, queue: str = "jobs", ttl: float = LASTING) -> QueueSession:
            return QueueSession(do, await do.open(process, ttl), queue)

        return open_session
