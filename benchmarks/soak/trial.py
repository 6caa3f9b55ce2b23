"""One trial: processes work under faults for a while, come to an end, and what they did is judged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path

import anyio

import tenure
from benchmarks.soak.client import GROUPED, GROUPS, PERMITS, READERS, grouped, leaping_clock
from benchmarks.soak.judging import Judging, Verdict, unaware
from benchmarks.soak.nemesis import FAULTS, Nemesis, wait_for_answer
from benchmarks.soak.plain import judged
from benchmarks.soak.referees import (
    History,
    capacity,
    conservation,
    fifo,
    in_order,
    mutual_exclusion,
    nothing_lost,
)
from tenure.engines.redis import RedisEngine
from tenure.testing import FaultProxy

LOOPS = ("asyncio", "trio", "uvloop", "trio")
ROLES = (
    *("lock",) * 3,
    *("permits",) * 2,
    *("rwlock",) * 2,
    "claim",
    "put",
    "work",
    *("put_in_groups",) * 2,
    "work_ordered",
    "work_paired",
)
PATIENCE = 50.0

_numbers = count(1)


@dataclass
class Trial(Judging):
    """Four processes do these `roles` on a private server under faults that are at most `pause` seconds apart.

    With `clock` the time is one that may leap; who `cheats` holds on to what it has lost.
    """

    server: object
    fleet: object
    folder: Path
    chance: object
    roles: tuple[str, ...] = ROLES
    faults: dict[str, int] = field(default_factory=lambda: FAULTS)
    clock: bool = False
    ttl: float = 1.0
    pause: float = 0.06
    cheats: bool = False
    histories: Path | None = None

    def __post_init__(self) -> None:
        self.name = f"trial {next(_numbers)}"
        self.path = self.folder / f"{self.name}.history"
        self.history = History(self.path)
        self.verdict = Verdict()
        self._clock = None
        if self.clock:
            self._clock = self.folder / f"{self.name}.clock"
            self._clock.write_bytes(bytes(8))
        self.statistics: dict[str, tenure.types.QueueStatistics] = {}
        self._loops = cycle(LOOPS)
        self._direct = cycle((True, True, False, False))

    async def run(self, faults: int, *first: str) -> Verdict:
        """Do so many faults, these `first`, and judge."""
        async with self._store() as store:
            for name in "ab":
                await tenure.ResourcePool(store, "keys").add(name)
        said = self.fleet.said.stat().st_size
        async with FaultProxy(self.server.socket) as self._proxy, anyio.create_task_group() as group:
            for _ in LOOPS:
                self._start()
            nemesis = Nemesis(
                self.chance,
                group,
                self.server,
                self._proxy,
                self.fleet,
                self.history,
                self._start,
                self.ttl,
                self._clock,
                self.faults,
            )
            await self._progress()
            for name in (*first, *[""] * (faults - len(first))):
                await nemesis.strike(name)
                await anyio.sleep(self.chance.uniform(0.2, 1) * self.pause)
            self._proxy.heal()
            wait_for_answer(self.server)
            await self._progress()
            late = await self.fleet.end(PATIENCE)
            group.cancel_scope.cancel()
        self.verdict.suffered = nemesis.suffered
        self._breach(f"{number} did not come to an end" for number in late)
        self._judge_what_was_said(said)
        await self._look_at_the_server()
        self._judge()
        return self.verdict

    def _start(self) -> None:
        proxied = f"redis://{self._proxy.host}:{self._proxy.port}"
        self.fleet.start(
            loop=next(self._loops),
            url=self.server.url if next(self._direct) else proxied,
            history=str(self.path),
            bank=str(self.folder / f"{self.name}.bank"),
            namespace=self.name,
            clock=str(self._clock) if self._clock else None,
            ttl=self.ttl,
            response_timeout=0.7,
            roles=self.roles,
            cheats=self.cheats,
        )

    async def _progress(self) -> None:
        """Wait until things go on, for every role."""
        until = time.monotonic() + PATIENCE
        before = self.path.stat().st_size
        while True:
            with open(self.path, "rb") as file:
                file.seek(before)
                news = file.read()
            if news.count(b'"hold"') > 20 and (b'"completed"' in news or "work" not in self.roles):
                return
            if time.monotonic() > until:
                self._breach([f"in {PATIENCE} s nothing happened but {news!r}"])
                return
            await anyio.sleep(0.01)

    def _store(self):
        clock = leaping_clock(str(self._clock)) if self._clock else None
        return tenure.open_store(RedisEngine(self.server.url, clock=clock), namespace=self.name)

    async def _look_at_the_server(self) -> None:
        """Everything has to be back at zero once the dead are, and every task is accounted for."""
        async with self._store() as store:
            queue = tenure.WorkQueue(store, "jobs", keep=tenure.Keep(results=None, payloads=True))
            until = time.monotonic() + self.ttl + 1
            while sessions := self.server("KEYS", "*:session"):
                if time.monotonic() > until:
                    self._breach([f"sessions of dead processes are still there: {sessions}"])
                    break
                await store.ping()
                await anyio.sleep(0.02)
            await self._look_at(queue)
            for name in GROUPED:
                await self._look_at(grouped(store, name))
            pool = tenure.ResourcePool(store, "keys")
            for name in "ab":
                await pool.remove(name)
        self._judge_what_is_left(own_clock=self._clock is not None)

    async def _look_at(self, queue) -> None:
        """Every task of a queue is accounted for, and then deleted."""
        for state in ("waiting", "delayed", "leased", "ended"):
            async for record in queue.tasks(state):
                subject = queue.name if record.group is None else f"{queue.name} {record.group}"
                self.history.found(subject, record.payload, record.state)
        audit = await queue.verify()
        self._breach(audit.problems)
        self.statistics[queue.name] = statistics = await queue.statistics()
        stuck = {"leased", "reserved", "producers"}
        self._breach(f"{queue.name}: {name}: {n}" for name in stuck if (n := getattr(statistics, name)))
        await queue.purge("waiting", "delayed", "dead", "done")
        if queue.name in GROUPED:
            self._breach(
                [f"{queue.name}: groups are left: {left}"]
                if (left := (await queue.groups().page()).records)
                else []
            )

    def _judge(self) -> None:
        events = self.history.events()
        stalled = self._stalled(events)
        holds = [
            event for event in events if event.subject.partition(" ")[0] not in {"permits", "rw", "paired"}
        ]
        permits = [event for event in events if event.subject == "permits"]
        rwlock = [event for event in events if event.subject == "rw"]
        seen = self.verdict.seen
        with self._refereed():
            found = mutual_exclusion(holds, paused=stalled)
            seen["grants"] += found.held
            seen["writes"] += found.accepted
            seen["stale writes refused"] += found.refused
        with self._refereed():
            capacity(permits, PERMITS, paused=stalled)
        with self._refereed():
            capacity(rwlock, READERS, paused=stalled)
        with self._refereed():
            seen["places"] += fifo(events) if "line" in self.roles else 0
        with self._refereed():
            tasks = nothing_lost(events)
            seen["tasks"] += tasks.completed
            seen["taken again"] += tasks.again
        for name, statistics in self.statistics.items():
            own = [event for event in events if event.subject.partition(" ")[0] == name]
            with self._refereed():
                conservation(statistics, own)
            if name in GROUPED:
                with self._refereed():
                    capacity(own, GROUPED[name], paused=stalled)
                if GROUPED[name] == 1:
                    with self._refereed():
                        seen["in order"] += in_order(own, paused=stalled)
        seen["grants"] += sum(
            event.phase == "began" and event.kind == "hold" for event in (*permits, *rwlock)
        )
        seen["holds not compared"] += len(stalled)
        seen["holds kept while the loop was blocked for a ttl"] += sum(
            event.kind == "kept" for event in events
        )
        self._judge_the_ends(events, self.verdict.suffered["kill_process"])
        limits = {"permits": PERMITS, "rw": READERS}
        limits |= {f"{name} {group}": number for name, number in GROUPED.items() for group in GROUPS}
        self._breach(judged(self.histories, self.name, events, limits, stalled))

    def _stalled(self, events):
        """As `unaware`: nobody can know what time it is when the clock leaps, or everything is lost."""
        if self.clock or any(event.kind == "lost everything" for event in events):
            return {event.by for event in events if event.kind == "hold"}
        return unaware(events)
