"""One trial: processes work under faults for a while, come to an end, and what they did is judged."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Self

import anyio
from soak.client import PERMITS, READERS, leaping_clock
from soak.nemesis import FAULTS, Nemesis, wait_for_answer

import tenure
from tenure.engines.redis import RedisEngine
from tenure.testing import (
    FaultProxy,
    History,
    RefereeError,
    capacity,
    conservation,
    fifo,
    mutual_exclusion,
    nothing_lost,
)

LOOPS = ("asyncio", "trio", "uvloop", "trio")
ROLES = (*("lock",) * 3, *("permits",) * 2, *("rwlock",) * 2, "claim", "put", "work")
EMPTY = {b"#", b"Q", b"P"}  # of numbers, queues and pools something is kept for good
PATIENCE = 20.0

_numbers = count(1)


@dataclass
class Verdict:
    """What happened in a trial, and what was against the rules."""

    suffered: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __iadd__(self, other: Verdict) -> Self:
        self.suffered += other.suffered
        self.seen += other.seen
        self.violations += other.violations
        return self

    def __str__(self) -> str:
        figures = (f"{number} {name}" for name, number in self.seen.items() if number)
        return ", ".join((f"{self.suffered.total()} faults", *figures, f"{len(self.violations)} violations"))


@dataclass
class Trial:
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

    def __post_init__(self) -> None:
        self.name = f"trial {next(_numbers)}"
        self.path = self.folder / f"{self.name}.history"
        self.history = History(self.path)
        self.verdict = Verdict()
        self._clock = None
        if self.clock:
            self._clock = self.folder / f"{self.name}.clock"
            self._clock.write_bytes(bytes(8))
        self._loops = cycle(LOOPS)
        self._direct = cycle((True, True, False, False))

    async def run(self, faults: int) -> Verdict:
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
            for _ in range(faults):
                await nemesis.strike()
                await anyio.sleep(self.chance.uniform(0.2, 1) * self.pause)
            self._proxy.heal()
            wait_for_answer(self.server)
            await self._progress()
            late = await self.fleet.end(PATIENCE)
            group.cancel_scope.cancel()
        self.verdict.suffered = nemesis.suffered
        self._breach(f"{number} did not come to an end" for number in late)
        with open(self.fleet.said, errors="replace") as file:
            file.seek(said)
            self._breach([text] if (text := file.read()) else [])
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
            patience=0.7,
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
            queue = tenure.WorkQueue(store, "jobs", results_ttl=None, keep_payloads=True)
            until = time.monotonic() + self.ttl + 1
            while sessions := [name for name in self._rows() if name.startswith(b"s:")]:
                if time.monotonic() > until:
                    self._breach([f"sessions of dead processes are still there: {sessions}"])
                    break
                await store.ping()
                await anyio.sleep(0.02)
            for state in ("waiting", "delayed", "leased", "ended"):
                for record in await queue.browse(state, limit=1_000_000):
                    self.history.found("jobs", record.payload, record.state)
            audit = await queue.verify()
            self._breach(audit.problems)
            self.statistics = await queue.statistics()
            stuck = {"leased", "reserved", "producers"}
            self._breach(f"{name}: {n}" for name in stuck if (n := getattr(self.statistics, name)))
            await queue.purge("waiting", "delayed", "dead", "done")
            pool = tenure.ResourcePool(store, "keys")
            for name in "ab":
                await pool.remove(name)
        left = [*self._rows(), *self.server("ZRANGE", "tenure:{0}:order", "0", "-1")]
        left = [name for name in left if name[:1] not in EMPTY]
        self._breach([f"left on the server: {left}"] if left else [])

    def _rows(self):
        return self.server("HKEYS", "tenure:{0}:rows")

    def _judge(self) -> None:
        events = self.history.events()
        stalled = self._stalled(events)
        holds = [event for event in events if event.subject not in {"permits", "rw"}]
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
        with self._refereed():
            conservation(self.statistics, events)
        seen["grants"] += sum(
            event.phase == "began" and event.kind == "hold" for event in (*permits, *rwlock)
        )
        seen["holds not compared"] += len(stalled)
        self._breach(
            f"{event.subject} crashed: {event.facts['trace']}" for event in events if event.kind == "crashed"
        )
        gone = {event.subject for event in events if event.kind in {"left", "killed"}}
        came = {event.subject for event in events if event.kind == "came"}
        self._breach(f"{number} vanished" for number in came - gone)
        torn = self.history.torn
        self._breach([f"{torn} lines are torn"] if torn > self.verdict.suffered["kill_process"] else [])

    def _stalled(self, events):
        """Who may not have known in time that his lease was over, so that only the fence can keep him out."""
        if self.clock or any(event.kind == "lost everything" for event in events):
            return {event.by for event in events if event.kind == "hold"}
        frozen = {event.subject for event in events if event.kind == "frozen"}
        ended = {
            event.call for event in events if event.kind == "hold" and event.phase in {"ended", "unknown"}
        }
        return {event.by for event in events if event.kind == "stalled"} | {
            event.by
            for event in events
            if event.kind == "hold" and event.call not in ended and event.by.partition(".")[0] in frozen
        }

    @contextmanager
    def _refereed(self):
        try:
            yield
        except RefereeError as error:
            self._breach(map(str, error.breaches))

    def _breach(self, texts) -> None:
        self.verdict.violations += texts
