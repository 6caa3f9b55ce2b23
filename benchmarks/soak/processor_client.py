"""A process that runs a processor, puts tasks into it, and notes in a history what its handlers do.

Started as `client.py` is: a job for each process, one a line.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import time
import traceback
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))

import tenure
from benchmarks.soak import client
from benchmarks.soak.client import BLOCK, STALL, Bank, Stale, block_loop
from benchmarks.soak.referees import History
from tenure.engine import CAP, NAMES, SESSION, Scan, SessionPage
from tenure.local import CircuitBreaker, Pool
from tenure.processor import Claims, Context, Preset, Processor

PRESET = Preset(workers=6, connections=4, rate=100, queue_size=60)
RETRY = tenure.Retry(attempts=3, backoff=0.02, jitter=0.5)
# the kills come faster than five long tasks end: by default, such a task would be dead by the fifth
QUEUE = {"keep": tenure.Keep(results=None, payloads=True), "retry": RETRY, "max_deliveries": 1000}
AWAY = tenure.EngineError, tenure.StoreUnavailable, tenure.StoreClosed
LONG = 0.7  # seconds that a task of the kind "long" takes, more than the grace
WHAT = (
    *("plain",) * 6,
    *("locked",) * 4,
    *("flaky", "later", "cooling", "paid", "poison", "useless", "long"),
)
END = {"poison": "dead", "useless": "discarded"}


class Client:
    """The processor of one process: `job` says where, on which loop, with which ttl and grace."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.history = History(job["history"])
        self.bank = Bank(job["bank"])
        self.stall = STALL * 0.1 * job["ttl"]
        self._job = job
        self._numbers = count(1)
        self._items: dict[object, str] = {}
        self._holding: dict[str, bool] = {}
        self._seen = time.monotonic()
        self._connections: set[str] = set()
        self._entered = False

    async def run(self) -> None:
        self._told, self._opening = anyio.Event(), anyio.CancelScope()
        async with anyio.create_task_group() as group:
            await group.start(self._until_told)
            group.start_soon(self._watch)
            self.history.note("came", str(os.getpid()))
            while not self._told.is_set():
                # the engine may be away
                with suppress(*AWAY), anyio.CancelScope() as self._opening:
                    await self._process()
                self._entered = False
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        self.history.note("left", str(os.getpid()), connections=len(self._connections))

    async def _until_told(self, *, task_status=anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, BLOCK) as signals:
            task_status.started()
            async for number in signals:
                if number is BLOCK:
                    block_loop(self._job["ttl"])
                    continue
                self._told.set()
                if not self._entered:
                    self._opening.cancel()

    async def _process(self) -> None:
        job = self._job
        async with (
            tenure.open_store(job["url"], ttl=job["ttl"], namespace=job["namespace"], observer=self) as store,
            Processor(
                store,
                "jobs",
                self._handle,
                preset=PRESET,
                claims=Claims(tenure.ResourcePool(store, "keys"), self._where),
                pool=partial(Pool, self._connect, close=self._close),
                breaker=partial(CircuitBreaker, min_calls=1000),
                timeout=10,
                retry=RETRY,
            ) as processor,
        ):
            self._entered = True
            await processor.queue().configure(keep=QUEUE["keep"])
            async with anyio.create_task_group() as group:
                group.start_soon(self._submit, processor)
                await self._told.wait()
                if job["cheats"]:
                    await anyio.sleep(2 * job["grace"] + 1)
                await processor.drain(job["grace"])
                self.history.note("drained", str(os.getpid()), left=await self._leased(store))
                group.cancel_scope.cancel()

    async def _leased(self, store) -> str:
        """What the engine says that this process still holds, but for its place in the fleet."""
        left = []
        for name in (await store._handle.call(Scan(NAMES["sessions"], limit=CAP))).rows:
            after = ""
            while isinstance(page := await store._handle.call(Scan(SESSION, name, after)), SessionPage):
                if page.process == store.process:
                    left += [
                        f"{one.family} {one.key}"
                        for one in page.rows
                        if one.held
                        and one.family in {"tasks", "claims", "holds"}
                        and ":processor:" not in one.key
                    ]
                if not (after := page.next):
                    break
        return ", ".join(left)

    # submitting

    async def _submit(self, processor) -> None:
        """Put tasks as long as the file is there."""
        while Path(self._job["open"]).exists():
            item = f"{os.getpid()}.{next(self._numbers)}"
            what = random.choice(WHAT)
            # some callers are cancelled, at any moment
            limit = random.uniform(0, 0.05) if random.random() < 0.1 else None
            with suppress(*AWAY, tenure.OutcomeUnknown), anyio.move_on_after(limit):
                with self.history.putting("jobs", item) as put:
                    put.tell(id=await processor.submit([item, what], priority=random.choice((0, 0, 5))))
            await anyio.sleep(random.uniform(0, 0.08))
        self.history.note("closed", str(os.getpid()))

    # what tasks enter

    def _where(self, task) -> dict[str, str]:
        """Called as soon as a task was taken."""
        item, what = task.payload
        self._items[task.id] = item
        self.history.taken("jobs", item)
        return {"tier": "paid"} if what == "paid" else {}

    async def _connect(self) -> str:
        await anyio.sleep(0.001)
        connection = f"{os.getpid()} connection {next(self._numbers)}"
        self._connections.add(connection)
        return connection

    async def _close(self, connection: str) -> None:
        await anyio.sleep(0.001)
        self._connections.remove(connection)

    # handling

    async def _handle(self, task: tenure.Task, context: Context) -> list[int]:
        by = f"{os.getpid()}.{next(self._numbers)}"
        self._holding[by] = False
        try:
            if task.payload[1] != "locked":
                return await self._work(task, context, by)
            # whoever leaves a lock waits for the acknowledgement in a shield: what is noted as held has to end before
            async with context.lock("cache") as lease:
                return await self._work(task, context, by, lease)
        finally:
            self._look()
            del self._holding[by]

    async def _work(self, task, context, by, lease=None) -> list[int]:
        (item, what), claim = task.payload, context.claim
        held = [(f"task {item}", task), (f"key {claim.resource}", claim), ("cache", lease)]
        held = [(subject, guard) for subject, guard in held if guard is not None]
        for _, guard in held:
            guard.check()
        with ExitStack() as stack:
            calls = [
                stack.enter_context(self.history.held(subject, token=guard.token, by=by))
                for subject, guard in held
            ]
            stack.enter_context(self.history.held(context.connection, by=by))
            for seconds in (LONG,) if what == "long" else (random.uniform(0, 0.01) for _ in range(3)):
                await anyio.sleep(seconds)
                for (subject, guard), call in zip(held[1:], calls[1:], strict=True):
                    guard.check()
                    call.still()
                    with self.history.writing(subject, token=guard.token, refused=Stale, by=by):
                        await self.bank.write(subject, guard.token)
            if what == "cooling":
                await claim.cool_down(0.1)
            elif what == "poison":
                raise ValueError(what)
            elif what == "useless":
                raise tenure.Discard(what)
            elif what == "flaky" and task.attempt == 1:
                raise ValueError(what)
            elif what == "later" and random.random() < 0.5:
                raise tenure.RetryLater(0.05, counts=False)
            return [os.getpid(), task.token]

    def notice(self, event, /, **fields) -> None:
        """Note which verdicts were accepted."""
        # a task that was given back at once, in a drain, was not noted as taken
        item = self._items.get(fields.get("id"))
        if item and event.startswith("task.") and event != "task.lost":
            self.history.note("settled", item, verdict=event)
            if event == "task.done":
                self.history.completed("jobs", item)

    # stalls

    async def _watch(self) -> None:
        while True:
            self._look()
            self._seen = time.monotonic()
            await anyio.sleep(self.stall / 4)

    def _look(self) -> None:
        """Note who was stopped for so long that he may hold no more without knowing."""
        if time.monotonic() - self._seen > self.stall:
            for by, told in self._holding.items():
                if not told:
                    self._holding[by] = True
                    self.history.note("stalled", by, by=by)


def work(job: dict[str, Any]) -> None:
    faulthandler.register(signal.SIGUSR1)
    options = {"use_uvloop": True} if job["loop"] == "uvloop" else {}
    backend = "trio" if job["loop"] == "trio" else "asyncio"
    try:
        anyio.run(Client(job).run, backend=backend, backend_options=options)
    except BaseException:
        History(job["history"]).note("crashed", str(os.getpid()), trace=traceback.format_exc())


if __name__ == "__main__":
    client.work = work
    client.main()
