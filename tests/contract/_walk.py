"""The walk: an engine beside the memory engine, step by step; what differs is cut down to a few steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from tenure import engine as e
from tenure.engines.memory import MemoryEngine
from tenure.errors import EngineError

from ._contract import LASTING, Advance, ContractBase
from ._same import Numbers
from ._steps import FAMILIES, GATES, KEYS, KINDS, QUEUES, SESSIONS, STATES, STATES_OF_FAMILIES, Draw, Step

_PROCESSES = tuple(sorted(set(SESSIONS.values())))
_ROUNDING = 1e-5
"""Seconds that rounding may take from a time."""
_CLOSED = (e.Reply.OK, e.Reply.GONE)
_TURNS = 1000
"""The number of times that an operation may be answered MORE."""
_REPLAYING = 30.0
"""The seconds for which a walk that failed is tried again with fewer steps."""

Steps = Sequence[tuple[Step, str]]
"""The steps of a walk, each with the seed of what it draws."""


class _Reference(MemoryEngine):
    """The memory engine, whose hints are heard without a task."""

    def hear(self, process: str, deliver: Callable[[e.Hint], None]) -> None:
        self._listeners[process] = deliver


class WalkContract(ContractBase):
    """The engine and the memory engine get the same operations, and answer the same."""

    walks = 40
    """The number of walks of each kind."""

    steps = 60
    """The number of steps of a walk; a step is one operation or a few."""

    replays = 300
    """The number of times that a walk that failed is tried again with fewer steps."""

    cap = e.CAP
    """The step budget of the engine's operations, if it was made with another one."""

    in_step = False
    """True if the engine also answers MORE where the memory engine does, and orders the hints about all
    objects."""

    @pytest.mark.parametrize("family", FAMILIES)
    async def test_it_answers_as_the_memory_engine_does(
        self, engine: e.Engine, advance: Advance, links: TaskGroup, family: str
    ) -> None:
        if family in ("families", "releases") and not engine.families:
            pytest.skip(f"{engine.url} has no families of tasks")
        trail = Trail(self, engine, advance)
        for process in _PROCESSES:
            await links.start(engine.serve, process, trail.hear)
        for i in range(self.walks):
            random = Random(f"{family} {i}")
            kinds = random.sample(FAMILIES[family], random.randint(4, len(FAMILIES[family])))
            steps = [(random.choice(kinds), f"{family} {i} {n}") for n in range(self.steps)]
            if (walk := await trail.follow(steps)).trouble:
                walk = await trail.shorten(steps, walk)
                raise AssertionError(f"walk {i} of {family} ended after\n{walk.report()}")


class Trail:
    """The surroundings of walks: the engine, its time and its hints."""

    def __init__(self, contract: WalkContract, engine: e.Engine, advance: Advance) -> None:
        self.contract = contract
        self.engine = engine
        self.advance = advance
        self.timed = contract.margin == 0 and advance is not anyio.sleep
        """True if time passes when the walk lets it, and only then."""
        self.hints: list[e.Hint] = []
        self.heard = anyio.Event()
        self._walks = 0

    def hear(self, hint: e.Hint) -> None:
        """Take a hint in. MISSED is left out: an engine may send it at any time."""
        if hint.news is not e.Notice.MISSED:
            self.hints.append(hint)
            self.heard.set()

    async def execute(self, operation: e.Operation[Any]) -> Any:
        """Apply an operation to the engine, to its end."""
        for _ in range(_TURNS):
            (answer,) = await self.engine.execute([operation])
            if answer is not e.Reply.MORE:
                return answer
        raise AssertionError(f"{operation} was answered MORE {_TURNS} times")

    async def follow(self, steps: Steps) -> Walk:
        """Walk in names of its own, and leave nothing behind that time could change."""
        self._walks += 1
        walk = Walk(self, f"{self._walks}/")
        await walk.go(steps)
        try:
            for session in map(walk.name, SESSIONS):
                await self.execute(e.CloseSession(session))
            if self.timed:
                await self.advance(7300.0)
            await self.execute(e.Ping())
        except Exception as problem:
            walk.trouble = walk.trouble or f"at the end of all sessions: {problem!r}"
        return walk

    async def shorten(self, steps: Steps, failed: Walk) -> Walk:
        """Leave steps out for as long as the walk still fails."""
        steps, size, replays = steps[: failed.done + 1], len(steps) // 2, 0
        with anyio.move_on_after(_REPLAYING):
            while size:
                start = 0
                while start < len(steps) and replays < self.contract.replays:
                    fewer, replays = [*steps[:start], *steps[start + size :]], replays + 1
                    if (walk := await self.follow(fewer)).trouble:
                        steps, failed = fewer[: walk.done + 1], walk
                    else:
                        start += size
                size //= 2
        return failed


class Walk:
    """A walk: a fresh memory engine, and the answers of both engines."""

    def __init__(self, trail: Trail, prefix: str) -> None:
        self.trouble = ""
        """The first difference, if there is one."""
        self.done = 0
        """The number of steps that were taken to their end."""
        self.history: list[e.Operation[Any]] = []
        self.grants: list[tuple[str, str, int]] = []
        self.claims: list[tuple[str, str, int]] = []
        self.taken: list[tuple[str, str, int, int]] = []
        self.put: list[tuple[str, int]] = []
        self.parents: dict[tuple[str, int], None] = {}
        self.ended: dict[str, list[int]] = {}
        self.bookings: list[tuple[str, tuple[e.RateLimit, ...], tuple[e.Booking, ...]]] = []
        self._trail = trail
        self._contract = trail.contract
        self._prefix = prefix
        self._now = 0.0
        self._model = _Reference(clock=lambda: self._now, cap=self._contract.cap)
        self._hints: list[e.Hint] = []
        for process in _PROCESSES:
            self._model.hear(process, self._hints.append)
        self._numbers = Numbers(_ROUNDING, same_tokens=trail.timed)
        self._n: dict[tuple[str, str], int] = {}
        self._began = anyio.current_time()
        self._story: list[str] = []
        # one operation after the other, where they cannot share a moment or end at the same turn
        self._in_batches = self._contract.in_step or (trail.timed and self._contract.cap == e.CAP)

    def report(self) -> str:
        """The operations that were sent, and the difference."""
        return "\n".join((*self._story, self.trouble))

    async def go(self, steps: Steps) -> None:
        """Take the steps, and look at everything in the end."""
        try:
            await self._begin()
            for self.done, (step, seed) in enumerate(steps):
                await step(Draw(self, seed, timed=self._trail.timed))
            self.done = len(steps)
            await self._look_at_everything()
            await self.advance(3600.0)
            await self._look_at_everything()
            await self._compare_hints()
        except Exception as problem:
            self.trouble = str(problem) if isinstance(problem, AssertionError) else repr(problem)

    # what a step may use

    def name(self, name: str) -> str:
        return self._prefix + name

    def number(self, session: str, what: str) -> int:
        self._n[session, what] = self._n.get((session, what), 0) + 1
        return self._n[session, what]

    async def advance(self, seconds: float) -> None:
        if self._trail.timed and seconds:
            await self._trail.advance(seconds)
            self._now += seconds
            self._story.append(f"{seconds} s pass")

    async def send(self, *operations: e.Operation[Any]) -> list[Any]:
        if self._in_batches:
            return await self._send(operations)
        return [(await self._send([operation]))[0] for operation in operations]

    async def look_at_tasks(self, queue: str, state: str, limit: int) -> None:
        await self._clear_up()
        own, wanted = await self._pages(lambda after: e.Scan(e.TASKS[state], queue, after, limit), limit)
        self._agree(f"the tasks in {queue} that are {state}", tuple(own), tuple(wanted))
        if state in {"dead", "ended"}:
            self.ended[queue] = [record.seq for record in wanted]

    async def look_at_entries(self, queue: str, task: int, limit: int) -> None:
        await self._clear_up()
        own, wanted = await self._pages(
            lambda after: e.Scan(e.ENTRIES, queue, after, limit, only=str(task)), limit
        )
        self._agree(f"the entries of {task} in {queue}", tuple(own), tuple(wanted))
        own, wanted = await self._pages(
            lambda after: e.Scan(e.UNFINISHED_CHILDREN, queue, after, limit, only=str(task)), limit
        )
        self._agree(f"the unfinished children of {task} in {queue}", tuple(own), tuple(wanted))

    async def look_at_session(self, session: str, limit: int) -> None:
        await self._clear_up()
        own, wanted = await self._pages(lambda after: e.Scan(e.SESSION, session, after, limit=limit), limit)
        self._agree(f"what {session} has", tuple(sorted(own, key=_rank)), tuple(sorted(wanted, key=_rank)))

    async def look_at_names(self, kind: str, prefix: str, limit: int) -> None:
        await self._clear_up()
        own, wanted = await self._pages(
            lambda after: e.Scan(e.NAMES[kind], after=after, limit=limit, only=prefix), limit
        )
        self._agree(
            f"the {kind} that begin with {prefix!r}", tuple(sorted(set(own))), tuple(sorted(set(wanted)))
        )

    # inside

    async def _begin(self) -> None:
        """Find out the engine's time, which is in its tokens, and open the sessions."""
        probe = self.name("probe")
        await self._trail.execute(e.OpenSession(probe, "nobody", LASTING))
        granted = await self._trail.execute(e.Acquire(probe, probe, probe, 1))
        await self._trail.execute(e.CloseSession(probe))
        assert isinstance(granted, e.Granted), f"a free key was answered {granted}"
        self._now = granted.token / 1e6
        self._trail.hints.clear()
        # a token of this moment was given out
        self._model.apply(e.OpenSession(probe, "nobody", LASTING))
        self._model.apply(e.Acquire(probe, probe, probe, 1))
        self._model.apply(e.CloseSession(probe))
        ttl = 32.0 if self._trail.timed else LASTING
        for session, process in SESSIONS.items():
            await self.send(e.OpenSession(self.name(session), process, ttl))

    async def _send(self, operations: Sequence[e.Operation[Any]]) -> list[Any]:
        wanted: list[Any] = []
        for operation in operations:
            if not self._trail.timed:
                self._now += 2.0**-20  # so that one is before the other
            wanted.append(
                self._model.apply(operation) if self._contract.in_step else self._finished(operation)
            )
        translated = [self._numbers.translated(operation) for operation in operations]
        answers = list(await self._trail.engine.execute(translated))
        assert len(answers) == len(operations), f"{len(answers)} answers to {len(operations)} operations"
        for i, operation in enumerate(operations):
            answer = answers[i]
            if answer is e.Reply.MORE and wanted[i] is not e.Reply.MORE:
                answer = await self._trail.execute(translated[i])
            if self._contract.cap < e.CAP and isinstance(operation, e.CloseSession) and answer in _CLOSED:
                # a session that ends in several turns may be gone at the last of them
                answer = wanted[i] if wanted[i] in _CLOSED else answer
            self._story.append(f"{operation} -> {wanted[i]}")
            self._agree("the answer", answer, wanted[i])
            self._note(operation, wanted[i])
        self.history += operations
        return wanted

    def _finished(self, operation: e.Operation[Any]) -> Any:
        for _ in range(_TURNS):
            if (answer := self._model.apply(operation)) is not e.Reply.MORE:
                return answer
        raise AssertionError(f"the memory engine answered {operation} with MORE {_TURNS} times")

    def _agree(self, what: str, own: Any, wanted: Any) -> None:
        if not self._trail.timed:
            self._numbers.margin = self._contract.margin + anyio.current_time() - self._began
        if not self._numbers.same(own, wanted):
            raise AssertionError(f"{what}:\n  {own}\nand of the memory engine:\n  {wanted}")

    def _note(self, operation: Any, answer: Any) -> None:
        """Remember tokens and the like, which later operations use."""
        match answer:
            case e.Granted(token) if "g" not in operation.key:
                self.grants.append((operation.key, operation.holder, token))
            case e.Claimed(token=token):
                self.claims.append((operation.key, operation.holder, token))
            case e.Exchanged(tasks=tasks):
                self.taken += [(operation.session, operation.key, task.id, task.token) for task in tasks]
            case e.Accepted(ids) if isinstance(operation, e.PutChildren):
                self.put += [(operation.to, i) for i in ids if isinstance(i, int)]
                self.parents[operation.key, operation.id] = None
            case e.PutAnswer(answers):
                ids = [
                    i
                    for answer in answers
                    if isinstance(answer, e.Accepted)
                    for i in answer.ids
                    if isinstance(i, int)
                ]
                self.put += [(operation.key, i) for i in ids]
            case e.SpendResults(spendings):
                self.bookings += [
                    (operation.key, operation.limits, spending.bookings)
                    for spending in spendings
                    if spending.booked
                ]
            case _:
                pass

    async def _clear_up(self) -> None:
        for _ in range(_TURNS):
            if await self.send(e.Ping()) != [e.Reply.MORE]:
                return
        raise AssertionError("clearing up never ends")

    async def _look_at_everything(self) -> None:
        await self._clear_up()
        keys, queues = [self.name(key) for key in (*KEYS, *GATES)], [self.name(queue) for queue in QUEUES]
        for key in keys:
            await self.send(e.Scan(e.HOLDERS, key), e.Scan(e.RESOURCES, key))
        for queue in queues:
            await self.send(e.Count(queue), e.Count(queue, recount=True))
            for state in (*STATES, *(STATES_OF_FAMILIES if self._trail.engine.families else ())):
                await self.look_at_tasks(queue, state, 100)
        for queue, task in self.parents:
            await self.look_at_entries(queue, task, 100)
        for session in map(self.name, SESSIONS):
            await self.look_at_session(session, 100)
        for kind in KINDS:
            await self.look_at_names(kind, self._prefix, 100)

    async def _pages(self, ask: Callable[[str], e.Operation[Any]], limit: int) -> tuple[list[Any], list[Any]]:
        """The whole listing of the engine and of the reference, page by page; no time passes."""
        own: list[Any] = []
        wanted: list[Any] = []
        for pages, own_pages in ((own, True), (wanted, False)):
            after = ""
            for _ in range(_TURNS):
                operation = self._numbers.translated(ask(after)) if own_pages else ask(after)
                page = await self._trail.execute(operation) if own_pages else self._model.apply(operation)
                if isinstance(page, e.Reply | EngineError):
                    pages.append(page)
                    break
                entries = (
                    [(page.process, item) for item in page.rows]
                    if isinstance(page, e.SessionPage)
                    else page.rows
                )
                assert len(entries) <= limit, f"{operation} was answered by {len(entries)} entries"
                pages.extend(entries)
                if not (after := page.next):
                    break
            else:
                raise AssertionError(f"{ask('')} never ends")
        return own, wanted

    async def _compare_hints(self) -> None:
        """Compare all hints; a last one to each process shows that none is on its way."""
        last: set[str] = set()
        for process in _PROCESSES:
            session = self.name(f"hints of {process}")
            last.add(session)
            await self.send(
                e.OpenSession(session, process, LASTING),
                e.Acquire(session, session, "first", 1),
                e.Acquire(session, session, "last", 1),
                e.Release(session, "first"),
                e.CloseSession(session),
            )
        trail = self._trail
        with anyio.move_on_after(self._contract.hint_timeout):
            while not last <= {hint.key for hint in trail.hints}:
                trail.heard = anyio.Event()
                await trail.heard.wait()
        own, own_changes = _changes_apart(hint for hint in trail.hints if hint.key.startswith(self._prefix))
        wanted, wanted_changes = _changes_apart(self._hints)
        if not self._contract.in_step:
            # those about one object are in order; among objects and among processes there is none
            own, wanted = _by_object(own), _by_object(wanted)
        own, wanted = own + own_changes, wanted + wanted_changes
        same = len(own) == len(wanted) and all(
            (a.process, a.key) == (b.process, b.key) and self._numbers.same_hint(a, b)
            for a, b in zip(own, wanted, strict=True)
        )
        if not same:
            raise AssertionError(f"the hints:\n  {own}\nand of the memory engine:\n  {wanted}")


def _rank(entry: Any) -> Any:
    """The order in which what a session has is compared; numbers in names are in their own order."""
    if isinstance(entry, e.Reply | EngineError):
        return ("",)
    item: e.SessionItem = entry[1]
    name = tuple(map(int, item.name.split())) if item.family == "tasks" else item.name
    return item.family, item.key, name


def _changes_apart(hints: Iterable[e.Hint]) -> tuple[list[e.Hint], list[e.Hint]]:
    """The hints in their order, and those that tasks changed by task: each comes once, and when is not compared."""
    others: list[e.Hint] = []
    changes: list[e.Hint] = []
    for hint in hints:
        (changes if hint.news is e.Notice.CHANGED and hint.name else others).append(hint)
    return others, sorted(changes, key=lambda hint: (hint.process, hint.key, int(hint.name)))


def _by_object(hints: Sequence[e.Hint]) -> list[e.Hint]:
    by_object: dict[tuple[str, str], list[e.Hint]] = defaultdict(list)
    for hint in hints:
        by_object[hint.process, hint.key].append(hint)
    return [hint for _, hints in sorted(by_object.items()) for hint in hints]
