"""The worker processes of `tenure demo`: started, stopped as a debugger would, killed, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

NAMES = ("ann", "bob", "cem", "dora")


class Member:
    """A place in the fleet: its name, and the process that has it at present."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = "starts"
        self.pid = 0
        self.process: subprocess.Popen[bytes] | None = None


class Fleet:
    """The members, by name. Counts how often which signal was sent."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.members = {name: Member(name) for name in NAMES}
        self.killed = self.frozen = 0
        self._folder = folder
        self._backend = backend
        self._names: dict[int, str] = {}

    def start(self, name: str) -> None:
        """Start the process of a member."""
        me = [sys.executable, "-m", "tenure.cli", "demo", "--backend", self._backend]
        member = self.members[name]
        with self._log(name).open("ab") as log:
            # a group of its own: Ctrl-C in a terminal is for this process alone
            member.process = subprocess.Popen(  # noqa: S603
                [*me, "--child", f"{name}:{os.getpid()}:{self._folder}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        member.pid, member.state = member.process.pid, "starts"
        self._names[member.pid] = name

    def kill(self, name: str) -> None:
        """Kill -9."""
        self.killed += 1
        self._end(self.members[name])

    def freeze(self, name: str) -> None:
        """Stop a process where it is; it goes on with `thaw`."""
        self._send(name, signal.SIGSTOP, "frozen")

    def thaw(self, name: str) -> None:
        """Let it go on."""
        self._send(name, signal.SIGCONT, "runs")

    def end(self) -> None:
        """End all that is left."""
        for member in self.members.values():
            self._end(member)

    def name_of(self, process: str) -> str:
        """The member whose process it is or was, by its name in the store; empty for any other."""
        return self._names.get(_pid(process), "")

    def runs(self, name: str, process: str) -> bool:
        """True if a process in the store is the member's present process."""
        member = self.members[name]
        return member.process is not None and member.pid == _pid(process)

    def fallen(self) -> str:
        """The way in which a process has ended by itself; empty if none has."""
        for member in self.members.values():
            if member.process is not None and (code := member.process.poll()) is not None:
                last = self._log(member.name).read_text("utf-8", "replace").strip().rpartition("\n")[2]
                return f"{member.name} ended by itself with exit code {code}: {last}"
        return ""

    def _send(self, name: str, number: signal.Signals, state: str) -> None:
        member = self.members[name]
        if member.process is not None:
            member.process.send_signal(number)
            member.state = state

    def _end(self, member: Member) -> None:
        if member.process is not None:
            member.process.kill()
            member.process.wait()
            member.process, member.state = None, "killed"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def _pid(process: str) -> int:
    number = process.split(":")[-2:-1]
    return int(number[0]) if number and number[0].isdecimal() else 0
