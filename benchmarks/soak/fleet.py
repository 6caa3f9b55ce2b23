"""Processes that may be killed and frozen, and what they said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import anyio


class Fleet:
    """Starts processes of `client`. What they write to their standard error is in the file `said`."""

    client = Path(__file__).with_name("client.py")

    def __init__(self, folder: Path) -> None:
        self.said = folder / "said"
        self.running: set[int] = set()
        with open(self.said, "ab") as said:
            self._nursery = subprocess.Popen(
                [sys.executable, self.client],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )

    def start(self, **job) -> int:
        self._nursery.stdin.write(json.dumps(job).encode() + b"\n")
        self._nursery.stdin.flush()
        number = int(self._nursery.stdout.readline())
        self.running.add(number)
        return number

    def signal(self, number: int, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(number, what)

    def kill(self, number: int) -> None:
        self.running.discard(number)
        self.signal(number, signal.SIGKILL)

    async def end(self, patience: float) -> set[int]:
        """Tell all to come to an end, and wait for it; those that do not are killed, after they said where they are."""
        for number in self.running:
            self.signal(number, signal.SIGCONT)
            self.signal(number, signal.SIGTERM)
        until = time.monotonic() + patience
        while (late := set(filter(_is_alive, self.running))) and time.monotonic() < until:
            await anyio.sleep(0.01)
        for number in late:
            self.signal(number, signal.SIGUSR1)
            await anyio.sleep(0.1)
            self.kill(number)
        self.running.clear()
        return late

    def close(self) -> None:
        with self._nursery:
            self._nursery.stdin.close()
            # it kills itself with all the others
            self._nursery.wait()


def _is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True
