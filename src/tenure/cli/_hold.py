"""`tenure hold`: a command runs while this process holds a lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
from anyio import CancelScope

from tenure.errors import AcquireTimeout, TenureError
from tenure.serving import signals_received
from tenure.shared import Lock
from tenure.store import Store

from ._arguments import seconds
from ._errors import UsageError, one_line
from ._one_queue import name_of
from ._stop import handled
from ._with_store import parser, with_store

_TURN = 0.02
_TIMED_OUT, _FAILED, _NOT_RUNNABLE, _NOT_FOUND, _SIGNALLED = 124, 125, 126, 127, 128
"""The exit codes that are not the command's own, as of `timeout` and `nohup`."""


def hold(words: Sequence[str]) -> int:
    p = parser(
        "hold",
        "Run a command while this process holds a lock, as flock does. The variable TENURE_TOKEN has the fence of the"
        " command. Signals go to the command; if the lock is lost, its process group is killed. Exits with the code of"
        f" the command, or 128 + N if signal N ended it; {_TIMED_OUT}: the lock was not free in time; {_FAILED}: the"
        f" lock was lost, or the store failed; {_NOT_RUNNABLE}, {_NOT_FOUND}: the command cannot run, is not there; 2:"
        " usage error.",
        as_json=False,
    )
    p.usage = "tenure hold [OPTIONS] NAME -- COMMAND [ARGUMENT ...]"
    p.add_argument("name", metavar="NAME", type=name_of, help="the lock, as in tenure.Lock(store, NAME)")
    p.add_argument(
        "--timeout", metavar="S", type=_timeout, help="seconds to wait; 0: one try (default: no limit)"
    )
    p.add_argument(
        "--ttl",
        metavar="S",
        type=seconds,
        help="seconds for which the lock outlives this process (default: 30)",
    )
    end = words.index("--") if "--" in words else len(words)
    args, command = p.parse_args(words[:end]), words[end + 1 :]
    if not command:
        raise UsageError(f"the command is missing: {p.usage}")
    if os.name != "posix":
        raise UsageError("tenure hold needs a POSIX system")

    async def task(store: Store) -> int:
        try:
            lock = Lock(store, args.name, ttl=args.ttl)
        except ValueError as problem:
            raise UsageError(f"--{problem}") from problem
        return await _hold(lock, args.timeout, command)

    try:
        return with_store(args, task, may_make=True)
    except TenureError as problem:
        print(f"tenure: {one_line(problem)}", file=sys.stderr)
        return _TIMED_OUT if isinstance(problem, AcquireTimeout) else _FAILED


async def _hold(lock: Lock, timeout: float | None, command: Sequence[str]) -> int:
    child: subprocess.Popen[bytes] | None = None
    ended_by = 0

    def pass_on(number: int, _: object = None) -> None:
        nonlocal ended_by
        if child is None:
            ended_by = number
            scope.cancel("a signal")
        else:
            _signal(child, number)

    with CancelScope() as scope:
        async with signals_received(pass_on), lock.hold(timeout) as lease:
            await anyio.lowlevel.checkpoint()
            with _signals(pass_on):
                try:
                    child = subprocess.Popen(  # noqa: ASYNC220, S603
                        command, env={**os.environ, "TENURE_TOKEN": str(lease.token)}, process_group=0
                    )
                except OSError as problem:
                    print(f"tenure: {one_line(problem)}", file=sys.stderr)
                    return _NOT_FOUND if isinstance(problem, FileNotFoundError) else _NOT_RUNNABLE
                with _in_foreground(child):
                    try:
                        while child.poll() is None:  # noqa: ASYNC110 - no loop tells of its end
                            await anyio.sleep(_TURN)
                    finally:
                        if child.poll() is None:
                            _signal(child, signal.SIGKILL)
                            child.wait()
    if child is None:
        return _SIGNALLED + ended_by
    return child.returncode if child.returncode >= 0 else _SIGNALLED - child.returncode


def _timeout(text: str) -> float:
    return 0.0 if text == "0" else seconds(text)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _signals(pass_on: Callable[[int, Any], None]) -> AbstractContextManager[None]:
    """A block in which further signals go to the command, and a key stops neither: a stopped holder loses its lock."""
    handlers: dict[signal.Signals, Any] = dict.fromkeys(
        (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2), pass_on
    )
    return handled(handlers | dict.fromkeys((signal.SIGTSTP, signal.SIGTTOU), signal.SIG_IGN))


@contextmanager
def _in_foreground(child: subprocess.Popen[bytes]) -> Generator[None]:
    try:
        if os.tcgetpgrp(0) != os.getpgrp():
            raise OSError
        os.tcsetpgrp(0, child.pid)
    except OSError:  # no terminal, or another process has it
        yield
        return
    _signal(child, signal.SIGCONT)  # it may have read too early
    try:
        yield
    finally:
        os.tcsetpgrp(0, os.getpgrp())
