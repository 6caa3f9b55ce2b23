"""The events of `tenure demo`: each step's action on the workers, and the outcome to wait for."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread

from tenure.web import SeenProcess, View

from ._books import DemoLog
from ._eyes import StoreProbe, counts_of, holder_of, letters_of
from ._fleet import Fleet
from ._worker import LEDGER, POSTMASTER

T = TypeVar("T")

_AWAY = 1.0
"""Seconds from the death of a worker, or what came of it, to its return."""

_PAUSE = 1.5
_WAKING = 3.0


class _Caught(NamedTuple):
    """A worker that was stopped while it held something."""

    name: str
    process: str
    token: int
    letters: int


class DemoScript:
    """Kills and stops workers, waits for what must follow, and says both."""

    def __init__(self, fleet: Fleet, probe: StoreProbe, log: DemoLog, say: Callable[..., None]) -> None:
        self.handovers: list[float] = []
        """The seconds after which others got the holds of a killed worker."""
        self._fleet = fleet
        self._probe = probe
        self._log = log
        self._say = say

    async def tell(self, seconds: float) -> None:
        """Go on for about so many seconds, and for one kill at least. Raises `NotSeen`."""
        end = anyio.current_time() + seconds
        for name in self._fleet.members:
            self._fleet.start(name)
        for name in self._fleet.members:
            await self._is_there(name)
        await self._settled()
        self._say(f"{len(self._fleet.members)} workers deliver letters, and take turns at the ledger")
        acts: list[Callable[[], Awaitable[None]]] = [
            self._kill_holder,
            self._kill_postmaster,
            self._freeze_holder,
            self._kill_busy,
            self._kill_all,
        ]
        for act in cycle(acts):
            await act()
            if anyio.current_time() + _PAUSE >= end:
                return
            await anyio.sleep(_PAUSE)

    async def _kill_holder(self) -> None:
        caught = await self._caught("lock", LEDGER)
        began = self._kill(caught, f"had the ledger, token {caught.token}")
        heir, token = await self._heir("lock", LEDGER, caught)
        self._say(f"{heir} has the ledger {self._since(began)} later, token {token}")
        await self._back(caught.name)

    async def _kill_postmaster(self) -> None:
        caught = await self._caught("election", POSTMASTER)
        began = self._kill(caught, f"was postmaster, term {caught.token}")
        heir, term = await self._heir("election", POSTMASTER, caught)
        self._say(f"{heir} is postmaster {self._since(began)} later, term {term}")
        await self._back(caught.name)

    async def _kill_busy(self) -> None:
        process = await self._stopped_busy()
        name = self._fleet.name_of(process.process)
        began = self._kill(_Caught(name, process.process, 0, letters_of(process)), "")
        await self._ended([process.process])
        self._say(f"what {name} had went to others {self._since(began)} later")
        await self._back(name)

    async def _kill_all(self) -> None:
        gone = [
            process.process
            for process in (await self._probe.read()).processes
            if self._fleet.name_of(process.process)
        ]
        for name in self._fleet.members:
            self._fleet.kill(name)
        self._say(f"kill -9 {' '.join(self._fleet.members)}: all at once", style="bad")
        await anyio.sleep(_AWAY)
        for name in self._fleet.members:
            self._fleet.start(name)
        for name in self._fleet.members:
            await self._is_there(name)
        await self._ended(gone)
        await self._settled()
        self._say("all are back, and go on", style="good")

    async def _freeze_holder(self) -> None:
        caught = await self._caught("lock", LEDGER)
        self._fleet.frozen += 1
        self._say(f"kill -STOP {caught.name}: has the ledger, token {caught.token}", style="bad")
        refused = len(self._log.read().refused)
        heir, token = await self._heir("lock", LEDGER, caught)
        await self._probe.until(
            "the next holder has written", lambda _: self._log.read().tokens[-1] > caught.token or None
        )
        self._say(f"{heir} has the ledger, and writes with token {token}")
        self._fleet.thaw(caught.name)
        with anyio.move_on_after(_WAKING):
            await self._probe.until(
                "a late write is refused", lambda _: len(self._log.read().refused) > refused or None
            )
            self._say(f"{caught.name} wakes, and writes with token {caught.token}: refused", style="good")
            return
        self._say(f"{caught.name} wakes, and has nothing left to write", style="good")

    # inside

    def _kill(self, caught: _Caught, what: str) -> float:
        """Kill a worker; returns when."""
        self._fleet.kill(caught.name)
        held = [what, self._letters(caught.letters) if caught.letters else ""]
        self._say(f"kill -9 {caught.name}: {', and '.join(filter(None, held))}", style="bad")
        return anyio.current_time()

    async def _caught(self, kind: str, name: str) -> _Caught:
        """Stop the worker that holds it."""
        while True:
            process = await self._probe.until(
                f"a worker holds the {name}",
                lambda view: (holder := holder_of(view, kind, name)) and self._present(holder.process),
            )
            member = self._fleet.name_of(process)
            if await self._stop(member):
                view = await self._probe.read()
                holder = holder_of(view, kind, name)
                if holder is not None and holder.process == process:
                    letters = sum(letters_of(seen) for seen in view.processes if seen.process == process)
                    return _Caught(member, process, holder.token, letters)
            await self._let_go(member)

    async def _stopped_busy(self) -> SeenProcess:
        """Stop a worker that has letters."""
        while True:
            busy = self._seen(lambda seen: letters_of(seen) > 0 and self._present(seen.process) is not None)
            process = random.choice(await self._probe.until("a worker has letters", busy)).process
            member = self._fleet.name_of(process)
            if await self._stop(member):
                for seen in (await self._probe.read()).processes:
                    if seen.process == process and letters_of(seen):
                        return seen
            await self._let_go(member)

    async def _stop(self, member: str) -> bool:
        """Stop a worker; false if it stopped inside a transaction, and so stops all the others too."""
        self._fleet.freeze(member)
        return await anyio.to_thread.run_sync(self._log.can_be_written)

    async def _let_go(self, member: str) -> None:
        self._fleet.thaw(member)
        await anyio.sleep(0.1)

    def _present(self, process: str) -> str | None:
        name = self._fleet.name_of(process)
        return process if name and self._fleet.runs(name, process) else None

    async def _heir(self, kind: str, name: str, caught: _Caught) -> tuple[str, int]:
        """The next holder, and its token."""

        def found(view: View) -> tuple[str, int] | None:
            holder = holder_of(view, kind, name)
            if holder is None or holder.token <= caught.token:
                return None
            return self._fleet.name_of(holder.process), holder.token

        return await self._probe.until(f"the {name} has a new holder", found)

    async def _back(self, name: str) -> None:
        await anyio.sleep(_AWAY)
        self._fleet.start(name)
        await self._is_there(name)
        self._say(f"{name} is back, as process {self._fleet.members[name].pid}", style="good")

    async def _is_there(self, name: str) -> None:
        await self._probe.until(
            f"{name} works", self._seen(lambda seen: self._fleet.runs(name, seen.process))
        )
        self._fleet.members[name].state = "runs"

    async def _ended(self, processes: list[str]) -> None:
        """Wait until the sessions of the processes have ended."""

        def found(view: View) -> bool | None:
            return None if any(process.process in processes for process in view.processes) else True

        await self._probe.until("the sessions of killed workers end", found)

    async def _settled(self) -> None:
        """Wait until somebody puts letters, and somebody has the ledger."""

        def found(view: View) -> bool | None:
            holders = holder_of(view, "lock", LEDGER), holder_of(view, "election", POSTMASTER)
            counts = counts_of(view)
            return True if all(holders) and counts is not None and counts.leased else None

        await self._probe.until("the workers begin", found)

    def _seen(self, matches: Callable[[SeenProcess], bool]) -> Callable[[View], list[SeenProcess] | None]:
        return lambda view: [process for process in view.processes if matches(process)] or None

    def _since(self, began: float) -> str:
        seconds = anyio.current_time() - began
        self.handovers.append(seconds)
        return f"{seconds:.1f} s"

    def _letters(self, number: int) -> str:
        return "1 letter" if number == 1 else f"{number} letters"
