"""What is done to the processes, to the server and to the links between them."""

from __future__ import annotations

import math
import os
import signal
import struct
import time
from collections import Counter
from itertools import cycle

import anyio

from benchmarks.soak.client import BLOCK

FAULTS = {
    # name: how often, beside the others
    "kill_process": 8,
    "freeze_process": 6,
    "block_process": 8,
    "freeze_server": 4,
    "freeze_server_for_long": 2,
    "restart_server": 3,
    "kill_connections": 15,
    "kill_subscriptions": 5,
    "pause_clients": 6,
    "forget_scripts": 8,
    "run_out_of_memory": 3,
    "lose_reply": 20,
    "cut": 8,
    "cut_within": 8,
    "vanish": 3,
    "slow_down": 4,
    "refuse": 2,
    "leap": 8,
}

PATIENCE = 50.0


class Nemesis:
    """Does one fault after the other, drawn by `random`; `suffered` counts them.

    `start` starts a process in the place of one that was killed. `clock` is the file of the clock that may leap.
    """

    def __init__(self, chance, group, server, proxy, fleet, history, start, ttl, clock, faults) -> None:
        self.suffered: Counter[str] = Counter()
        self._chance = chance
        self._group = group
        self._server = server
        self._proxy = proxy
        self._fleet = fleet
        self._history = history
        self._start = start
        self._ttl = ttl
        self._clock = clock
        self._offset = self._peak = 0.0
        self._faults = {name: often for name, often in faults.items() if name != "leap" or clock}

    async def strike(self, name: str = "") -> None:
        if not name:
            (name,) = self._chance.choices(list(self._faults), self._faults.values())
        await getattr(self, name)()
        self.suffered[name] += 1

    # processes

    async def kill_process(self) -> None:
        if self._fleet.running:
            number = self._chance.choice(sorted(self._fleet.running))
            self._history.note("killed", str(number))
            self._fleet.kill(number)
            self._start()

    async def freeze_process(self) -> None:
        if self._fleet.running:
            number = self._chance.choice(sorted(self._fleet.running))
            self._history.note("frozen", str(number))
            self._fleet.signal(number, signal.SIGSTOP)
            self._group.start_soon(self._thaw, number, self._chance.uniform(0.05, 2 * self._ttl))

    async def block_process(self) -> None:
        """Have a process block its event loop: its watchdog keeps what it holds."""
        if self._fleet.running:
            number = self._chance.choice(sorted(self._fleet.running))
            self._history.note("blocked", str(number))
            self._fleet.signal(number, BLOCK)

    async def freeze_holder(self) -> None:
        """Freeze a process while it holds something, until its lease is over."""
        with anyio.fail_after(PATIENCE):
            for number in cycle(sorted(self._fleet.running)):
                self._history.note("frozen", str(number))
                self._fleet.signal(number, signal.SIGSTOP)
                # what it is just noting gets noted
                await anyio.sleep(0.02)
                if self._holds(number):
                    break
                self._fleet.signal(number, signal.SIGCONT)
        await self._thaw(number, self._chance.uniform(1.1, 2) * self._ttl)

    def _holds(self, number) -> bool:
        own = [event for event in self._history if event.by.startswith(f"{number}.") and event.kind == "hold"]
        ended = {event.call for event in own if event.phase in {"ended", "unknown"}}
        return any(event.call not in ended for event in own)

    async def _thaw(self, number, seconds) -> None:
        await anyio.sleep(seconds)
        if number in self._fleet.running:
            self._fleet.signal(number, signal.SIGCONT)

    # the server

    async def freeze_server(self) -> None:
        await self._freeze_server(self._chance.uniform(0.02, 0.5 * self._ttl))

    async def freeze_server_for_long(self) -> None:
        await self._freeze_server(self._chance.uniform(0.9, 1.5) * self._ttl)

    async def _freeze_server(self, seconds) -> None:
        os.kill(self._server.process.pid, signal.SIGSTOP)
        await anyio.sleep(seconds)
        os.kill(self._server.process.pid, signal.SIGCONT)

    async def restart_server(self) -> None:
        self._server.kill()
        await anyio.sleep(self._chance.choice((0, 0, 0.1, 1.2 * self._ttl)))
        self._server.start()

    async def kill_connections(self) -> None:
        for _ in range(self._chance.randint(1, 4)):
            # those that listen are none that are normal
            for kind in ("normal", "pubsub"):
                self._server("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            await anyio.sleep(self._chance.uniform(0, 0.02))

    async def kill_subscriptions(self) -> None:
        self._server("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")

    async def pause_clients(self) -> None:
        self._server(
            "CLIENT", "PAUSE", str(self._chance.randint(10, 200)), self._chance.choice(("ALL", "WRITE"))
        )

    async def forget_scripts(self) -> None:
        self._server("SCRIPT", "FLUSH")

    async def run_out_of_memory(self) -> None:
        self._server("CONFIG", "SET", "maxmemory", "1")
        await anyio.sleep(self._chance.choice((0.02, 0.1, 0.4 * self._ttl, 1.2 * self._ttl)))
        self._server("CONFIG", "SET", "maxmemory", "0")

    async def lose_everything(self) -> None:
        self._history.note("lost everything", "server")
        self._server("FLUSHALL")

    async def leap(self) -> None:
        """Back by less than a ttl, or beyond all that the clock has shown so far."""
        self._peak = max(self._peak, self._offset)
        back = self._offset == self._peak and self._chance.random() < 0.5
        self._offset = (
            self._offset - self._chance.uniform(0, self._ttl) if back else self._peak + 1.5 * self._ttl
        )
        with open(self._clock, "r+b", buffering=0) as file:
            file.write(struct.pack("d", self._offset))

    # links

    async def lose_reply(self) -> None:
        self._proxy.lose_reply()

    async def cut(self) -> None:
        self._proxy.cut()

    async def cut_within(self) -> None:
        self._proxy.cut_after(self._chance.randint(0, 500), self._chance.choice(("up", "down")))

    async def vanish(self) -> None:
        self._proxy.half_open()
        await self._then_heal()

    async def slow_down(self) -> None:
        match self._chance.randrange(3):
            case 0:
                self._proxy.latency(0.01, jitter=0.03)
            case 1:
                self._proxy.latency(math.inf, direction=self._chance.choice(("up", "down")))
            case _:
                self._proxy.trickle(7, every=0.001)
        await self._then_heal()

    async def refuse(self) -> None:
        self._proxy.refuse()
        self._proxy.cut()
        await self._then_heal()

    async def _then_heal(self) -> None:
        await anyio.sleep(self._chance.choice((0.05, 0.3, 1.2 * self._ttl)))
        self._proxy.heal()


def wait_for_answer(server, patience=PATIENCE) -> None:
    """Wait until the server answers: it may still be paused."""
    until = time.monotonic() + patience
    while server._ask("PING") != b"PONG":
        assert time.monotonic() < until
        time.sleep(0.01)
