"""The base of all parts of the contract's test suite: an engine, its time, its hints, and operations in one
line.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import anyio
import pytest
from anyio.abc import TaskGroup

from tenure import engine as e
from tenure.errors import EngineError

from ._configured import configured

Advance = Callable[[float], Awaitable[object]]
"""`await advance(seconds)`: let the engine's time pass."""

Hints = Callable[[str], Awaitable["Inbox"]]
"""`inbox = await hints(process)`: from now on collect the hints for the process."""

LASTING = 1000.0
"""The ttl of sessions that are to outlive a test, in seconds."""

_REPEATS = 10_000


def _ignore(_: e.Hint) -> None:
    pass


R = TypeVar("R")
P = TypeVar("P", bound=e.Page[Any])


class Do:
    """Executes operations: `answer = await do(operation)`, and the usual ones in one line.

    Sends an operation again for as long as the answer is MORE, and raises an `EngineError` that was answered.
    """

    def __init__(self, engine: e.Engine) -> None:
        self.engine = engine
        self._number = 0
        self._named: dict[str, dict[str, Any]] = {}

    async def __call__(self, operation: e.Operation[e.A]) -> e.A:
        """Execute one operation to its end."""
        for _ in range(_REPEATS):
            (answer,) = await self.engine.execute([operation])
            if isinstance(answer, EngineError):
                raise answer
            if answer is not e.Reply.MORE:
                return answer
        pytest.fail(f"{operation} was answered MORE {_REPEATS} times: clearing up never ends")

    async def configure(self, queue: str, **fields: Any) -> None:
        """Name fields of the record of a queue, of those that have another value now."""
        named = self._named.setdefault(queue, {})
        changed = {k: v for k, v in fields.items() if named.get(k, getattr(e.DEFAULTS, k)) != v}
        if changed:
            named |= changed
            await self(configured(queue, **changed))

    async def page(self, scan: e.Scan[P]) -> P:
        """Read a page of an index."""
        page = await self(scan)
        assert not isinstance(page, e.Reply), f"{scan} was answered {page}"
        return page

    async def row(self, scan: e.Scan[e.Page[R]]) -> R:
        """Read the only row of an index."""
        (row,) = (await self.page(scan)).rows
        return row

    async def rows(self, scan: e.Scan[P]) -> list[Any]:
        """Read an index, page by page."""
        rows: list[Any] = []
        for _ in range(_REPEATS):
            page = await self.page(scan)
            assert len(page.rows) <= scan.limit
            rows += page.rows
            if not page.next:
                return rows
            assert page.next != scan.after
            scan = replace(scan, after=page.next)
        raise AssertionError(f"the pages of {scan} never end")

    async def move(self, queue: str, state: str, to: Any) -> int:
        """Move the tasks of a queue that are in a state, at most `CAP`, and return how many were."""
        page = await self.page(e.Scan(e.TASKS[state], queue))
        moved = await self(e.Move(queue, tuple(record.id for record in page.rows), to, state=state))
        assert isinstance(moved, e.MovedCount)
        return moved.count

    async def count(self, queue: str, *, recount: bool = False) -> e.QueueCounts:
        """Read the counts of a queue, or count its tasks."""
        counts = await self(e.Count(queue, recount=recount))
        assert isinstance(counts, e.QueueCounts)
        return counts

    async def spend(
        self,
        session: str,
        key: str,
        cost: float = 1.0,
        *,
        rate: float,
        burst: float = 1.0,
        most: float | None = None,
    ) -> e.Spending:
        """Book in a limiter with one limit, to wait for `most` seconds."""
        request, limit = e.SpendRequest((cost,), most), e.RateLimit("", rate, burst)
        spent = await self(e.Spend(session, self.number(), key, (request,), (limit,)))
        assert isinstance(spent, e.SpendResults)
        assert spent.answers[0].booked
        return spent.answers[0]

    async def take(self, session: str, queue: str, want: int) -> tuple[e.Taken, ...]:
        """Take up to so many tasks."""
        answer = await self(e.Exchange(session, self.number(), queue, want=want))
        assert isinstance(answer, e.Exchanged)
        return answer.tasks

    async def batch(self, *operations: e.Operation[Any]) -> list[Any]:
        """Execute operations as one batch; what was answered MORE is sent again alone, in its turn."""
        answers = list(await self.engine.execute(operations))
        assert len(answers) == len(operations), "one answer for each operation"
        for i, operation in enumerate(operations):
            if answers[i] is e.Reply.MORE:
                answers[i] = await self(operation)
            elif isinstance(answers[i], EngineError):
                raise answers[i]
        return answers

    def number(self) -> int:
        """A fresh number for `Put`, `Exchange`, `Spend` and `Refund`: higher than all before."""
        self._number += 1
        return self._number

    async def open(self, process: str = "p1", ttl: float = LASTING) -> str:
        """Open a session of the process; returns its id."""
        session = f"{process} session {self.number()}"
        assert await self(e.OpenSession(session, process, ttl)) is e.Reply.OK
        return session

    async def hold(
        self, session: str, key: str, holder: str, capacity: int = 1, weight: int = 1, value: bytes = b""
    ) -> int:
        """Acquire a free hold; returns the token."""
        answer = await self(e.Acquire(session, key, holder, capacity, weight, value))
        assert isinstance(answer, e.Granted), f"{holder} was to get {key} at once, not {answer}"
        return answer.token

    async def queue(
        self, session: str, key: str, holder: str, capacity: int = 1, weight: int = 1, value: bytes = b""
    ) -> e.Queued:
        """Join the line of a hold that is not free; returns the place in the line."""
        answer = await self(e.Acquire(session, key, holder, capacity, weight, value))
        assert isinstance(answer, e.Queued), f"{holder} was to wait for {key}, not {answer}"
        return answer


class Inbox:
    """The hints for one process, as they come in."""

    def __init__(self, process: str, do: Do, hint_timeout: float) -> None:
        self.process = process
        self._do = do
        self._hint_timeout = hint_timeout
        self._hints: list[e.Hint] = []
        self._came = anyio.Event()

    def deliver(self, hint: e.Hint) -> None:
        """Take a hint in. MISSED is left out: an engine may send it at any time."""
        if hint.news is not e.Notice.MISSED:
            self._hints.append(hint)
            self._came.set()

    async def new(self) -> list[e.Hint]:
        """The hints since the last call, in the order in which they came.

        What is still on its way comes too: a grant of its own to the same process follows behind and is waited for.
        """
        do = self._do
        session = await do.open(self.process)
        await do.hold(session, session, "first")
        await do.queue(session, session, "last")
        await do(e.Release(session, "first"))
        with anyio.move_on_after(self._hint_timeout):
            while not (self._hints and self._hints[-1].key == session):
                self._came = anyio.Event()
                await self._came.wait()
        hints, self._hints = self._hints, []
        assert hints, f"no hint for {self.process} in {self._hint_timeout} s"
        assert hints.pop().key == session, f"no hint for {self.process} of its own grant"
        await do(e.CloseSession(session))
        assert {hint.process for hint in hints} <= {self.process}, (
            f"{self.process} was hinted what is for others"
        )
        return hints


class ContractBase:
    """The fixtures of the suite; a subclass defines at least `engine`."""

    pytestmark: pytest.MarkDecorator = pytest.mark.anyio

    margin: float = 0.0
    """Seconds by which times may be off, since time passes on a real engine while the test asks; 0 for a set clock."""

    hint_timeout: float = 5.0
    """Seconds that a hint may take on its way."""

    @pytest.fixture
    def engine(self) -> e.Engine:
        """Return a fresh engine without any state; also as a generator, or async."""
        raise NotImplementedError(
            "the subclass must define a fixture `engine`: a fresh engine without any state"
        )

    @pytest.fixture
    def advance(self, engine: e.Engine) -> Advance:
        """Let the engine's time pass; the subclass overrides it if it can do better than wait."""
        return anyio.sleep

    @pytest.fixture
    async def links(self, engine: e.Engine) -> AsyncGenerator[TaskGroup]:
        """The task group that serves the engine, for as long as the test lasts."""
        async with anyio.create_task_group() as group:
            await group.start(engine.serve, "nobody", _ignore)
            yield group
            group.cancel_scope.cancel()

    @pytest.fixture
    async def do(self, engine: e.Engine, links: TaskGroup) -> Do:
        """Execute operations on the engine, which is served."""
        return Do(engine)

    @pytest.fixture
    async def hints(self, engine: e.Engine, links: TaskGroup, do: Do) -> Hints:
        """Collect the hints for a process from now on."""

        async def collect(process: str) -> Inbox:
            inbox = Inbox(process, do, self.hint_timeout)
            await links.start(engine.serve, process, inbox.deliver)
            return inbox

        return collect

    def about(self, seconds: float) -> Any:
        """A number of seconds that equals any other within `margin` and a rounding error."""
        return pytest.approx(seconds, abs=self.margin + 1e-5)
