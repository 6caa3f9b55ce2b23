"""What is done to the processes of a processor, and to its server."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing, contextmanager

import anyio

from benchmarks.soak.client import BLOCK, LONGEST_BLOCK
from benchmarks.soak.fleet import _is_alive
from benchmarks.soak.nemesis import PATIENCE, Nemesis

FAULTS = {
    # name: how often, beside the others
    "kill_process": 6,
    "kill_newcomer": 2,
    "kill_frozen": 2,
    "kill_draining": 3,
    "kill_all": 1,
    "kill_without_server": 2,
    "freeze_process": 4,
    "block_process": 4,
    "drain": 4,
    "restart_server": 2,
}
OF_SERVERS = {"kill_without_server", "restart_server"}
RECONNECTED = 2.5  # seconds after which all have found the server again


class ProcessorNemesis(Nemesis):
    """Does one fault after the other; `killed` counts the kills by kind, `drains` has for each of
    those told to end how many seconds it took, and whether the server had been away just before.

    `path` is the file of the processes' store, if there is no server.
    """

    def __init__(self, *, path=None, **options) -> None:
        super().__init__(proxy=None, clock=None, **options)
        if self._server is None:
            self._faults = {name: often for name, often in self._faults.items() if name not in OF_SERVERS}
        self.killed: Counter[str] = Counter()
        self.drains: list[tuple[int, float, bool]] = []
        self._back = -RECONNECTED
        self._path = path
        self._frozen: set[int] = set()
        self._blocked: dict[int, float] = {}

    # kills

    async def kill_process(self) -> None:
        self._kill(await self._any(), "kill_process")
        self._start()

    async def kill_newcomer(self) -> None:
        """Kill a process while it begins, connects or takes its first tasks."""
        number = self._start()
        await anyio.sleep(self._chance.uniform(0, 0.15))
        self._kill(number, "kill_newcomer")

    async def kill_frozen(self) -> None:
        """Kill one that was frozen, before its leases are over or after that."""
        number = await self._any()
        locks = await self._freeze(number)
        await anyio.sleep(0.02 if locks else self._chance.choice((0.02, 1.2 * self._ttl)))
        self._kill(number, "kill_frozen")
        self._start()

    async def kill_draining(self) -> None:
        number = await self._ready()
        self._history.note("told", str(number))
        self._fleet.signal(number, signal.SIGTERM)
        await anyio.sleep(self._chance.uniform(0, 0.3))
        if _is_alive(number):
            self._kill(number, "kill_draining")
        self._fleet.running.discard(number)
        self._start()

    async def kill_all(self) -> None:
        """All at once; those that come then take up what was left, and nothing disturbs them."""
        for number in sorted(self._fleet.running):
            self._kill(number, "kill_all")
            self._start()
        await anyio.sleep(self._ttl + 1.2)

    async def kill_without_server(self) -> None:
        """Kill a process while the server is away."""
        with self._away():
            self._server.kill()
            await anyio.sleep(self._chance.uniform(0, 0.2))
            self._kill(await self._any(), "kill_without_server")
            self._start()
            await anyio.sleep(self._chance.uniform(0, 0.2))
            self._server.start()

    # the others

    async def freeze_process(self) -> None:
        number = await self._any()
        locks = await self._freeze(number)
        seconds = self._chance.uniform(0.05, 2 * self._ttl)
        self._group.start_soon(self._thaw, number, 0.05 if locks else seconds)

    async def _thaw(self, number, seconds) -> None:
        await super()._thaw(number, seconds)
        self._frozen.discard(number)

    async def block_process(self) -> None:
        """Have a process block its event loop, as other soaks do.

        Until the block is over, the process cannot hear that it is to end. For another ttl the tasks of a session that
        it has lost by that may be leased.
        """
        number = await self._any()
        self._blocked[number] = time.monotonic() + (LONGEST_BLOCK + 1.5) * self._ttl
        self._history.note("blocked", str(number))
        self._fleet.signal(number, BLOCK)

    async def drain(self) -> None:
        """Tell one to come to an end, and see how long it takes."""
        number = await self._ready()
        await anyio.sleep(max(0, self._blocked.get(number, 0) - time.monotonic()))
        self._start()
        self._history.note("told", str(number))
        began = time.monotonic()
        amid = began < self._back + RECONNECTED
        self._fleet.signal(number, signal.SIGTERM)
        while _is_alive(number) and time.monotonic() < began + PATIENCE:
            await anyio.sleep(0.002)
        self.drains.append((number, time.monotonic() - began, amid))
        if _is_alive(number):
            self._kill(number, "drain")
        self._fleet.running.discard(number)

    async def restart_server(self) -> None:
        with self._away():
            await super().restart_server()

    # how

    def _kill(self, number, kind) -> None:
        self._history.note("killed", str(number))
        self._fleet.kill(number)
        self._frozen.discard(number)
        self.killed[kind] += 1

    async def _freeze(self, number) -> bool:
        """Freeze it, and tell whether it holds the lock of the file, so that nobody can write meanwhile."""
        self._frozen.add(number)
        self._history.note("frozen", str(number))
        self._fleet.signal(number, signal.SIGSTOP)
        if self._path is None:
            return False
        return await anyio.to_thread.run_sync(_is_locked, self._path)

    async def _any(self) -> int:
        """A process that runs."""
        while not (running := sorted(self._fleet.running - self._frozen)):
            await anyio.sleep(0.01)
        return self._chance.choice(running)

    async def _ready(self) -> int:
        """A process that runs, once it can be told to end."""
        number = await self._any()
        with anyio.fail_after(PATIENCE):
            while not self._history.has("came", number):
                await anyio.sleep(0.01)
        return number

    @contextmanager
    def _away(self):
        self._history.note("away", "server")
        yield
        self._history.note("back", "server")
        self._back = time.monotonic()


def _is_locked(path) -> bool:
    """Whether somebody who does not go on is writing: others write for some milliseconds at most."""
    with closing(sqlite3.connect(path, timeout=0.3, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False
