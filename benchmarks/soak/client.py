"""A process that works on what others work on too, and notes in a history what it does. `python client.py` makes them.

It reads jobs from its standard input, one JSON object a line, forks a process for each, and tells its number. So a
process starts within milliseconds, and can be killed thousands of times. With the end of its input all end.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import logging
import os
import random
import signal
import struct
import sys
import time
import traceback
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))  # it is run by its path

import tenure
from benchmarks.soak.referees import History
from tenure.engines.redis import RedisEngine

PERMITS = 3
READERS = 1000
GROUPED = {"ordered": 1, "paired": 2}
"""The queues whose tasks have groups, and how many of a group are leased at a time; each group is a subject."""
GROUPS = "abc"
BLOCK = signal.SIGUSR2
"""The signal on which a process blocks its event loop."""
LONGEST_BLOCK = 3
"""The longest time of that, in ttl."""
STALL = (
    0.3  # of the margin that a lease keeps: who was stopped for longer may not have noticed its end in time
)


class Stale(Exception):
    """A write under a token that is not the highest."""


class Bank:
    """What a fence guards: a file that takes no write under a token lower than one that it has seen."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def write(self, subject: str, token: int) -> None:
        with open(f"{self._path}.{subject}", "a+b", buffering=0) as file:
            while True:
                # whoever has it may be frozen
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                await anyio.sleep(0.002)
            highest = struct.unpack("q", os.pread(file.fileno(), 8, 0) or bytes(8))[0]
            if token < highest:
                raise Stale
            file.truncate(0)
            file.write(struct.pack("q", token))


def leaping_clock(path: str):
    """The system's time, plus the seconds that stand in the file now."""

    def clock() -> float:
        with open(path, "rb") as file:
            return time.time() + struct.unpack("d", file.read(8))[0]

    return clock


class Client:
    """The work of one process: `job` says with whom, where, for how long things are held, and what it cheats in."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.history = History(job["history"])
        self.bank = Bank(job["bank"])
        self.stopping = False
        self._waiting_for_room: set[anyio.CancelScope] = set()
        self.workers: dict[str, tenure.Worker] = {}
        self.stall = STALL * 0.1 * job["ttl"]
        self._job = job
        self._numbers = count(1)
        self._items: dict[tuple[object, object], tuple[str, str]] = {}

    async def run(self) -> None:
        self.history.note("came", str(os.getpid()))
        async with anyio.create_task_group() as group:
            await group.start(self._until_told)
            while not self.stopping:
                with suppress(tenure.StoreUnavailable, tenure.EngineError):
                    await self._work()
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        self.history.note("left", str(os.getpid()))

    async def _until_told(self, *, task_status=anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, BLOCK) as signals:
            task_status.started()
            async for number in signals:
                if number is BLOCK:
                    block_loop(self._job["ttl"])
                    continue
                self.stopping = True
                # once all workers are drained, nobody makes room any more
                for scope in self._waiting_for_room:
                    scope.cancel()
                for worker in self.workers.values():
                    await worker.drain()

    async def _work(self) -> None:
        job = self._job
        clock = leaping_clock(job["clock"]) if job["clock"] else None
        engine = RedisEngine(job["url"], response_timeout=job["response_timeout"], clock=clock)
        async with tenure.open_store(
            engine,
            ttl=job["ttl"],
            namespace=job["namespace"],
            settle_timeout=0.3,
            observer=self,
        ) as store:
            async with anyio.create_task_group() as group:
                for role in job["roles"]:
                    group.start_soon(self._again, getattr(self, role), store)

    async def _again(self, role, store) -> None:
        while not self.stopping:
            with suppress(tenure.LeaseLost, tenure.EngineError, tenure.OutcomeUnknown, Stale):
                # some callers are cancelled, at any moment
                with anyio.move_on_after(random.uniform(0, 0.1) if random.random() < 0.1 else None):
                    await role(store)
            await anyio.sleep(random.uniform(0, 0.02))

    # roles

    async def lock(self, store) -> None:
        name = random.choice("xy")
        async with tenure.Lock(store, name) as lease:
            await self._hold(f"lock {name}", lease)

    async def permits(self, store) -> None:
        weight = random.choice((1, 1, 2))
        async with tenure.Semaphore(store, "permits", PERMITS).hold(weight) as lease:
            await self._hold("permits", lease, weight, guarded=False)

    async def rwlock(self, store) -> None:
        lock = tenure.RWLock(store, "rw")
        writes = random.random() < 0.3
        async with lock.write() if writes else lock.read() as lease:
            await self._hold("rw", lease, READERS if writes else 1, guarded=False)

    async def claim(self, store) -> None:
        async with tenure.ResourcePool(store, "keys").claim() as claim:
            await self._hold(f"key {claim.resource}", claim)

    async def line(self, store) -> None:
        """Stand in line once in this process, known to all as soon as it is certain."""
        lock = tenure.Lock(store, "line")
        place = self.history.asked("line")
        async with anyio.create_task_group() as group:
            telling = anyio.CancelScope()
            group.start_soon(self._tell_queued, lock, place, store.process, telling)
            async with lock as lease:
                telling.cancel()
                with self.history.held("line", token=lease.token, place=place):
                    await anyio.sleep(0.005)

    async def _tell_queued(self, lock, place, process, telling) -> None:
        with telling:
            while process not in [party.process async for party in lock.waiters()]:
                await anyio.sleep(0.001)
            self.history.queued(place)

    async def put(self, store) -> None:
        item = f"{os.getpid()}.{next(self._numbers)}"
        with anyio.CancelScope() as scope, self._waits_for_room(scope):
            with self.history.putting("jobs", item):
                await self._queue(store).put(item, priority=random.choice((0, 0, 5)))

    async def work(self, store) -> None:
        prefetch = random.choice((None, 0, 6))
        self.workers["jobs"] = tenure.Worker(
            self._queue(store), self._handle, concurrency=3, prefetch=prefetch
        )
        await self.workers["jobs"].run()

    async def put_in_groups(self, store) -> None:
        name, group = random.choice(list(GROUPED)), random.choice(GROUPS)
        item = f"{os.getpid()}.{next(self._numbers)}"
        with anyio.CancelScope() as scope, self._waits_for_room(scope):
            with self.history.putting(f"{name} {group}", item):
                await grouped(store, name).put(item, group=group)

    @contextmanager
    def _waits_for_room(self, scope):
        self._waiting_for_room.add(scope)
        try:
            yield
        finally:
            self._waiting_for_room.remove(scope)

    async def work_ordered(self, store) -> None:
        await self._work_in_groups(store, "ordered")

    async def work_paired(self, store) -> None:
        await self._work_in_groups(store, "paired")

    async def _work_in_groups(self, store, name) -> None:
        async def handle(task: tenure.Task) -> None:
            subject = f"{name} {task.group}"
            self._items[name, task.id] = subject, task.payload
            await self._hold(subject, task, guarded=False, item=task.payload)
            match random.random():
                case chance if chance < 0.05:
                    raise tenure.RetryLater(0.02, counts=False)
                case chance if chance < 0.1:
                    raise Stale

        prefetch = random.choice((None, 0, 3))
        self.workers[name] = tenure.Worker(grouped(store, name), handle, concurrency=3, prefetch=prefetch)
        await self.workers[name].run()

    def _queue(self, store):
        # small, so that who puts has to wait in line
        return tenure.WorkQueue(store, "jobs", max_size=30, keep=tenure.Keep(results=None, payloads=True))

    async def _handle(self, task: tenure.Task) -> None:
        self._items["jobs", task.id] = "jobs", task.payload
        self.history.taken("jobs", task.payload)
        await anyio.sleep(0.005)
        if random.random() < 0.05:
            raise tenure.RetryLater(0.02, counts=False)

    def notice(self, event, /, **fields) -> None:
        """Note which completions were accepted."""
        if event == "task.done":
            self.history.completed(*self._items[fields["queue"], fields["id"]])

    # what is held

    async def _hold(self, subject, lease, weight=1, *, guarded=True, item=None) -> None:
        by = f"{os.getpid()}.{next(self._numbers)}"
        seen = time.monotonic()
        try:
            lease.check()
            with self.history.held(subject, token=lease.token, weight=weight, by=by) as held:
                if item is not None:
                    self.history.taken(subject, item, by=by)
                for _ in range(400 if self._job["cheats"] else random.randint(1, 4)):
                    seen = self._look(by, seen, lease)
                    if not self._job["cheats"]:
                        lease.check()
                    held.still()
                    if guarded:
                        with self.history.writing(subject, token=lease.token, refused=Stale, by=by):
                            await self.bank.write(subject, lease.token)
                    with anyio.CancelScope(shield=self._job["cheats"]):
                        await anyio.sleep(random.uniform(0, 0.006))
        finally:
            self._look(by, seen, lease)

    def _look(self, by, seen, lease) -> float:
        """Note that this process was stopped, and has lost the lease meanwhile, which it could not notice in time.

        A lease that is not lost after a stop was held all the time.
        """
        now = time.monotonic()
        if now - seen > self.stall and not self._job["cheats"]:
            if not is_held(lease):
                self.history.note("stalled", by, by=by)
            elif now - seen > self._job["ttl"]:
                self.history.note("kept", by, seconds=now - seen)
        return now


def is_held(lease) -> bool:
    """True if the lease has not been lost."""
    try:
        lease.check()
    except tenure.LeaseLost:
        return False
    return True


def block_loop(ttl) -> None:
    """Do what a handler does that computes on the loop."""
    time.sleep(random.uniform(0.1, LONGEST_BLOCK) * ttl)


def grouped(store, name):
    """A queue whose tasks have groups. Groups are small, so that those who put have to wait in their lines."""
    return tenure.WorkQueue(
        store,
        name,
        groups=tenure.Groups(limit=GROUPED[name], max_size=10),
        retry=tenure.Retry(attempts=1000, backoff=0.02),
        keep=tenure.Keep(results=None, payloads=True),
    )


def work(job: dict[str, Any]) -> None:
    faulthandler.register(signal.SIGUSR1)
    options = {"use_uvloop": True} if job["loop"] == "uvloop" else {}
    backend = "trio" if job["loop"] == "trio" else "asyncio"
    try:
        anyio.run(Client(job).run, backend=backend, backend_options=options)
    except BaseException:
        History(job["history"]).note("crashed", str(os.getpid()), trace=traceback.format_exc())


def on_its_loop(run):
    """The `work` of a process that runs `run(job)` on the loop that the job names."""

    def work(job: dict[str, Any]) -> None:
        options = {"use_uvloop": True} if job["loop"] == "uvloop" else {}
        anyio.run(run, job, backend="trio" if job["loop"] == "trio" else "asyncio", backend_options=options)

    return work


def main() -> None:
    # leases are lost here and tasks die: what a process says is judged, and may only be what nobody expects
    logging.getLogger("tenure").setLevel(logging.ERROR)
    # nobody waits for their ends
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # a process that is not ready yet is not blocked
    signal.signal(BLOCK, signal.SIG_IGN)
    for loop in ("asyncio", "trio"):
        # what is imported by the first use of each loop
        anyio.run(anyio.sleep, 0, backend=loop)
    for line in sys.stdin:
        number = os.fork()
        if not number:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.stdin.close()
            job = json.loads(line)
            work(job)
            sys.stderr.flush()
            os._exit(0)
        print(number, flush=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
