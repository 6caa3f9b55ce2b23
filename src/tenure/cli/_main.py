"""The command line: parses the words, runs the command, and returns an exit code."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

from tenure.errors import TenureError
from tenure.observe import printable_lines
from tenure.upkeep import leaves

from ._errors import Interrupted, UsageError, one_line

_TIMEOUT = 0.5
"""Seconds for threads that are about to end."""

_COMMANDS = {
    "run": "run._run",
    "work": "work._work",
    "queue": "queue._queue",
    "schedule": "_schedule",
    "hold": "_hold",
    "holders": "_holders",
    "limiter": "_limiter",
    "doctor": "_doctor",
    "backup": "_backup",
    "top": "_top",
    "web": "_web",
}
"""The module of each command, imported when the command runs; the function in it has the same name."""

_HELP = """\
usage: tenure [--version] [--help] COMMAND ...

commands:
  run      call a function for every input, durably: stop it at any moment, and the same command continues
  work     work on a queue until it is stopped
  queue    list, show, pause, resume and purge queues; put and cancel tasks, and retry dead letters
  schedule list schedules, their last and next ticks; put a task of one now
  hold     run a command while a lock is held, as flock does
  holders  holders and waiters of locks and semaphores, deadlocks, leaders of elections, resources of pools
  limiter  rate limiters that make callers wait: their bookings, and the end of a hold
  doctor   connect to a store, and report problems
  backup   copy a SQLite store while it is used, and check the copy
  top      a store, live: queues, processes, holders and waiters
  web      the same as a page, read-only without --allow; needs the extra web: pip install 'tenure[web]'

Where there is no --store, the environment variable TENURE_STORE names the store. A URL with a password belongs there:
every user of a machine can read the arguments of a process.

See also `tenure COMMAND --help`."""


def run(words: Sequence[str] | None) -> int:
    if words is not None:
        return _carry_out(words)
    _open_what_was_closed()
    _escape_what_has_no_letter()
    try:
        code = _carry_out(sys.argv[1:])
    except SystemExit:  # --help was given
        raise
    except BaseException:  # noqa: BLE001 a bug; Python would wait for threads before it ends
        print(printable_lines(traceback.format_exc()), file=sys.stderr)
        code = 1
    finally:
        _let_go_of_a_closed_output()
    _end_in_spite_of_threads(code)
    return code


def _carry_out(words: Sequence[str]) -> int:
    try:
        code = _dispatch(words)
        _flush()
        return code
    except (Exception, BaseExceptionGroup) as problem:
        worst = _worst(problem)
        if worst is None:
            raise
        if isinstance(worst, BrokenPipeError):
            return 1  # the reader of the output has read enough, as `| head -1` does
        print(f"tenure: {one_line(worst)}", file=sys.stderr)
        return 2 if isinstance(worst, UsageError) else 1
    except KeyboardInterrupt:
        print("tenure: interrupted", file=sys.stderr)
        return 1


def _dispatch(words: Sequence[str]) -> int:
    match words:
        case ["--help" | "-h" | "help", *_]:
            print(_HELP)
            return 0
        case ["--version" | "-V", *_]:
            from importlib.metadata import version

            print(f"tenure {version('tenure')}")
            return 0
        case [str(name), *arguments] if name in _COMMANDS:
            return getattr(import_module(f"tenure.cli.{_COMMANDS[name]}"), name)(arguments)
        case [str(name), *_]:
            from ._commands import no_command

            raise no_command(name, name, _COMMANDS)
        case _:
            raise UsageError("a command is missing: tenure run MODULE:HANDLER ... (see tenure --help)")


def _open_what_was_closed() -> None:
    """Python starts without a stream that its parent has closed, as `>&-` does."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for good


def _escape_what_has_no_letter() -> None:
    """A terminal, or a pipe on Windows, may have an encoding that lacks characters of a name or a payload."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _let_go_of_a_closed_output() -> None:
    """Python writes the rest of the output at its end, and complains if the reader has gone."""
    try:
        _flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flush() -> None:
    # a handler may have closed it
    if not sys.stdout.closed:
        sys.stdout.flush()


def _end_in_spite_of_threads(code: int) -> None:
    """Python would wait at its end for the threads of abandoned handlers."""
    limit = time.monotonic() + _TIMEOUT
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.daemon:
            continue
        thread.join(max(0.0, limit - time.monotonic()))
        if thread.is_alive():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _worst(problem: BaseException) -> BaseException | None:
    """The most severe of the errors raised together, to be reported; None if it is a bug."""
    errors = list(leaves(problem))
    if not all(isinstance(error, (UsageError, Interrupted, TenureError, OSError)) for error in errors):
        return None
    return min(
        errors, key=lambda error: (not isinstance(error, UsageError), not isinstance(error, Interrupted))
    )
