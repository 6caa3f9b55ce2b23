"""The `tenure` command, in this process and in real ones, in an empty directory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import NamedTuple

import anyio
import pytest

import tenure
from tenure import StoreUnavailable
from tenure.cli import main
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultyEngine

# A killed process is missed after a second, so that tests need not wait for ten.
SHORT = """
import sys, tenure.cli.run._run as run
run.TTL = 1.0
from tenure.cli import main
sys.exit(main())
"""
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE = 50  # seconds; never waited for when all is well


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The working directory of the test; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tenure.cli.run._run.TTL", 1.0)
    for name in ("TENURE_STORE", "TENURE_WEB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def command(capsys):
    """Runs `tenure WORDS` in this process."""

    def run(*words):
        code = main([str(word) for word in words])
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def misused(command, here):
    """Runs `tenure WORDS`, which must be refused in one line, with nothing made; gives the line."""

    def run(*words):
        before = sorted(here.rglob("*"))
        ended = command(*words)
        assert ended.code == 2, ended
        assert ended.out == ""
        assert ended.err.count("\n") == 1
        assert [f for f in sorted(here.rglob("*")) if "__pycache__" not in f.parts] == before
        return ended.err

    return run


@pytest.fixture
def handlers(here):
    """Writes a module of handlers into the working directory."""

    def write(name, source):
        (here / f"{name}.py").write_text(source)

    return write


@pytest.fixture
def start():
    """Starts `tenure WORDS` as a process of its own."""
    with contextlib.ExitStack() as stack:

        def run(*words, **options):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
            child = subprocess.Popen([sys.executable, "-c", SHORT, *map(str, words)], text=True, **pipes)
            stack.callback(end, child)
            return child

        yield run


def end(child):
    if child.poll() is None:
        child.send_signal(signal.SIGCONT)
        child.kill()
    child.communicate()


@pytest.fixture
def until():
    """Waits until something holds."""

    def wait(condition):
        limit = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < limit, "waited in vain"
            time.sleep(0.01)

    return wait


def lines(path):
    """The values of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def read():
    """The values of a file of JSON lines."""
    return lines


@pytest.fixture
def queue_of():
    """What a run's queue tells: `queue_of(name, lambda queue: queue.verify())`."""

    def ask(name, question, url="sqlite:///tenure.db"):
        async def asked():
            async with tenure.open_store(url) as store:
                return await question(tenure.WorkQueue(store, f"run:{name}"))

        return anyio.run(asked)

    return ask


class Terminal:
    """A command on a terminal of 24 lines."""

    def __init__(self, *words, columns=80):
        self.own, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.before = termios.tcgetattr(its)
        self.its = its
        self.shown = ""
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tenure.cli", *words],
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
            env={**os.environ, "COLUMNS": ""},  # readline may have set it, for the terminal of the tests
        )

    def read(self, seconds=0.05):
        if select.select([self.own], [], [], seconds)[0]:
            self.shown += os.read(self.own, 1 << 16).decode()

    def until(self, condition):
        limit = time.monotonic() + 50
        while not condition():
            assert time.monotonic() < limit, self.shown
            assert self.child.poll() is None, self.shown
            self.read()

    @property
    def frames(self):
        """What was drawn in full, line by line."""
        return [ANSI.sub("", part).split("\r\n") for part in self.shown.split("\x1b[H")[2:-1]]

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        os.close(self.own)
        os.close(self.its)


@pytest.fixture
def terminal():
    with contextlib.ExitStack() as stack:

        def start(*words, columns=80):
            one = Terminal(*words, columns=columns)
            stack.callback(one.close)
            return one

        yield start


class Away(FaultyEngine):
    """Cannot be reached while it is `down`, which it is from the first operation of a type (`down_at`)."""

    down = False
    down_at = ()

    async def execute(self, operations):
        self.down = self.down or any(isinstance(operation, self.down_at) for operation in operations)
        if self.down:
            await anyio.lowlevel.checkpoint()
            raise StoreUnavailable("down")
        return await super().execute(operations)


@pytest.fixture
def engine():
    """Memory behind a wire, which can be away."""
    return Away(MemoryEngine())
