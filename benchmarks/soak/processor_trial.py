"""One trial of the processor: processes work under kills for a while, come to an end, and what they did is judged."""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Any, Self

import anyio

import tenure
from benchmarks.soak.judging import Judging, Verdict, unaware
from benchmarks.soak.plain import judged
from benchmarks.soak.postgres import PostgresServer
from benchmarks.soak.processor_client import END, PRESET, QUEUE, WHAT
from benchmarks.soak.processor_nemesis import FAULTS, ProcessorNemesis
from benchmarks.soak.processor_referee import strandings
from benchmarks.soak.referees import History, conservation, mutual_exclusion, nothing_lost
from tenure.engine import CAP, NAMES, Scan

LOOPS = ("asyncio", "trio", "uvloop")
KEYS = 10
PATIENCE = 50.0
SLACK = 1.0  # seconds after its ttl within which stranded work is taken up
DRAINED = 0.5  # seconds after its grace within which a process that was asked to end has ended
SETTLING = (
    1.0  # seconds for which verdicts wait for a server that was not found again yet: the settle_timeout
)

_numbers = count(1)


@dataclass
class ProcessorVerdict(Verdict):
    """As `Verdict`; times are the longest, in seconds."""

    killed: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)

    def __iadd__(self, other: Self) -> Self:
        super().__iadd__(other)
        self.killed += other.killed
        for name, seconds in other.longest.items():
            self.took(name, seconds)
        return self

    def __str__(self) -> str:
        longest = (f"longest {name} {seconds:.2f} s" for name, seconds in self.longest.items())
        return ", ".join((f"{self.killed.total()} kills", *longest, *self.figures()))

    def took(self, name: str, seconds: float) -> None:
        self.longest[name] = max(seconds, self.longest.get(name, 0.0))


class TrialHistory(History):
    """A history that tells quickly whether something was noted."""

    def has(self, kind: str, number: int) -> bool:
        with open(self._path, "rb") as file:
            return f'"kind":"{kind}","subject":"{number}"'.encode() in file.read()


@dataclass
class ProcessorTrial(Judging):
    """Three processes run one processor, on a private `server` or on a file of SQLite in `folder`.

    A process that `cheats` does not hurry when it is asked to end. `slack` is for how many seconds longer than on a
    machine of their own all may take.
    """

    server: Any
    fleet: Any
    folder: Path
    chance: Any
    loops: tuple[str, ...] = LOOPS
    faults: dict[str, int] = field(default_factory=lambda: FAULTS)
    ttl: float = 1.0
    grace: float = 0.4
    pause: float = 0.4
    cheats: bool = False
    slack: float = 0.0
    histories: Path | None = None

    def __post_init__(self) -> None:
        self.name = f"processor {next(_numbers)}"
        self.history = TrialHistory(self.folder / f"{self.name}.history")
        self.verdict = ProcessorVerdict()
        self._database = self.folder / f"{self.name}.db" if self.server is None else None
        self._url = f"sqlite:///{self._database}" if self.server is None else self.server.url
        self._open = self.folder / f"{self.name}.open"
        self._loops = cycle(self.loops)

    async def run(self, kills: int, *first: str) -> ProcessorVerdict:
        """Do these faults `first`, then others until so many processes were killed, and judge."""
        said = self.fleet.said.stat().st_size
        async with self._store() as store:
            await self._fill(store)
        self._open.touch()
        async with anyio.create_task_group() as group:
            for _ in range(3):
                self._start()
            nemesis = ProcessorNemesis(
                chance=self.chance,
                group=group,
                server=self.server,
                path=self._database,
                fleet=self.fleet,
                history=self.history,
                start=self._start,
                ttl=self.ttl,
                faults=self.faults,
            )
            faults = iter(first)
            while (name := next(faults, "")) or nemesis.killed.total() < kills:
                await anyio.sleep(self.chance.uniform(0.2, 1) * self.pause)
                await nemesis.strike(name)
            await self._come_to_an_end()
            group.cancel_scope.cancel()
        self.verdict.killed, self.verdict.suffered = nemesis.killed, nemesis.suffered
        self._drains = nemesis.drains
        self._judge_what_was_said(said)
        await self._look_at_the_engine()
        self._judge()
        return self.verdict

    def _start(self) -> int:
        return self.fleet.start(
            loop=next(self._loops),
            url=self._url,
            history=str(self.folder / f"{self.name}.history"),
            bank=str(self.folder / f"{self.name}.bank"),
            open=str(self._open),
            namespace=self.name,
            ttl=self.ttl,
            grace=self.grace,
            cheats=self.cheats,
        )

    def _store(self):
        return tenure.open_store(self._url, namespace=self.name, ttl=self.ttl)

    async def _fill(self, store) -> None:
        pool = tenure.ResourcePool(store, "keys")
        for n in range(KEYS):
            await pool.add(f"key-{n}", {"tier": "paid"} if n % 2 else {})
        items = [[f"first.{n}", what] for n, what in enumerate(WHAT * 2)]
        with ExitStack() as stack:
            puts = [stack.enter_context(self.history.putting("jobs", item)) for item, _ in items]
            ids = await tenure.WorkQueue(store, "jobs", **QUEUE).put_many(items)
            for put, task_id in zip(puts, ids, strict=True):
                put.tell(id=task_id)

    async def _come_to_an_end(self) -> None:
        self._open.unlink()
        for number in self.fleet.running:
            self.fleet.signal(number, signal.SIGCONT)
        with anyio.move_on_after(PATIENCE) as patience:
            for number in sorted(self.fleet.running):
                while not self.history.has("closed", number):
                    await anyio.sleep(0.02)
            async with self._store() as store:
                await tenure.WorkQueue(store, "jobs", **QUEUE).join()
        self._breach(["the queue was not worked off"] if patience.cancelled_caught else [])
        late = await self.fleet.end(PATIENCE)
        self._breach(f"{number} did not come to an end" for number in late)

    async def _look_at_the_engine(self) -> None:
        """Everything has to be back at zero once the dead are, and every task is on record once, as it should be."""
        async with self._store() as store:
            queue = tenure.WorkQueue(store, "jobs", **QUEUE)
            pool = tenure.ResourcePool(store, "keys")
            until = time.monotonic() + self.ttl + SLACK + self.slack
            # this store has opened no session
            while sessions := await self._names(store, "sessions"):
                if time.monotonic() > until:
                    self._breach([f"sessions of dead processes are still there: {sessions}"])
                    break
                await anyio.sleep(0.02)
            self._breach(f"held: {name}" for name in await self._names(store, "holds"))
            claims = await pool.statistics()
            self._breach([f"claims: {claims}"] if claims.claimed or claims.waiting else [])
            audit = await queue.verify()
            self._breach(audit.problems)
            self.statistics = counts = await queue.statistics()
            ended = counts.done + counts.dead + counts.discarded
            self._breach([f"not all ended: {counts}"] if counts.put != ended or counts.producers else [])
            self._breach([f"reserved: {counts.reserved}"] if counts.reserved else [])
            self.records = [
                record
                for state in ("waiting", "delayed", "leased", "ended")
                async for record in queue.tasks(state)
            ]
            if self.server is not None:
                await self._look_at_the_server(queue, pool)

    async def _look_at_the_server(self, queue, pool) -> None:
        await queue.purge("dead", "done", "discarded")
        async for resource in pool.resources():
            await pool.remove(resource.resource)
        if isinstance(self.server, PostgresServer):
            self._breach(self.server.leftovers())
        else:
            self._judge_what_is_left()

    async def _names(self, store, kind) -> list[str]:
        return list((await store._handle.call(Scan(NAMES[kind], limit=CAP))).rows)

    # judging

    def _judge(self) -> None:
        events = self.history.events()
        self._judge_records(events)
        stalled = unaware(events)
        seen = self.verdict.seen
        with self._refereed():
            found = mutual_exclusion(events, paused=stalled)
            seen["holds"] += found.held
            seen["writes"] += found.accepted
            seen["stale writes refused"] += found.refused
            seen["holds not compared"] += len(stalled)
        with self._refereed():
            tasks = nothing_lost(events)
            seen["tasks"] += tasks.acknowledged + tasks.recovered
            seen["deliveries"] += tasks.taken
            seen["deliveries again"] += tasks.again
        with self._refereed():
            conservation(self.statistics, events)
        self._breach(judged(self.histories, self.name, events, excused=stalled))
        self._judge_times(events)
        for event in events:
            if event.kind == "left" and event.facts["connections"]:
                self._breach([f"{event.subject} left {event.facts['connections']} connections open"])
            if event.kind == "drained" and event.facts["left"]:
                self._breach([f"{event.subject} still has after its drain: {event.facts['left']}"])
        self._judge_the_ends(events, self.verdict.killed.total())

    def _judge_records(self, events) -> None:
        """Each task ended once, in the state that it was made for, by its last delivery."""
        twice = [task_id for task_id, n in Counter(r.id for r in self.records).items() if n > 1]
        self._breach(f"task {task_id} is on record more than once" for task_id in twice)
        tokens: dict[str, int] = {}
        for event in events:
            if event.kind == "hold" and event.phase == "began" and event.subject.startswith("task "):
                tokens[event.subject[5:]] = max(event.facts["token"], tokens.get(event.subject[5:], 0))
        for record in self.records:
            item, what = record.payload
            self.history.found("jobs", item, record.state)
            self.verdict.seen[f"{record.state} on record"] += 1
            if record.state != END.get(what, "done") or (record.error and what not in record.error):
                self._breach([f"{item} ({what}) is {record.state}, {record.error}"])
            if record.state == "done" and record.result[1] < tokens.get(item, 0):
                self._breach([f"{item} was completed by {record.result}, after delivery {tokens[item]}"])
        events[:] = self.history.events()
        ids = {r.id: r.payload[0] for r in self.records}
        items = {e.call: e.facts["item"] for e in events if e.kind == "put" and e.phase == "began"}
        for event in events:
            if (
                event.kind == "put"
                and event.phase == "ended"
                and ids.get(event.facts["id"]) != items[event.call]
            ):
                self._breach([f"{items[event.call]} is not on record as {event.facts['id']}"])

    def _judge_times(self, events) -> None:
        took = self.verdict.took
        for one in strandings(events):
            self.verdict.seen["stranded"] += 1
            calm = one.seconds == one.since_disturbance
            took("taken up" if calm else "taken up amid other faults", one.seconds)
            if one.since_disturbance > self.ttl + SLACK + self.slack:
                self._breach([f"{one.item} was stranded for {one.seconds:.2f} s"])
        for number, seconds, amid in self._drains:
            took("drain amid other faults" if amid else "drain", seconds)
            if seconds > self.grace + DRAINED + self.slack + (SETTLING if amid else 0):
                self._breach([f"{number} took {seconds:.2f} s to end"])
        starts = [
            e.at for e in events if e.kind == "hold" and e.phase == "began" and e.subject[:5] == "task "
        ]
        most = PRESET.rate * (starts[-1] - starts[0] + 1) + 1
        self._breach([f"{len(starts)} starts where {most:.0f} are allowed"] if len(starts) > most else [])
