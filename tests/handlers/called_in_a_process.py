"""Handlers that the tests call in processes."""

from __future__ import annotations

import decimal
import os
import signal
import sys
import time
from contextvars import ContextVar
from pathlib import Path

import tenure

tenant = ContextVar("tenant", default="nobody")


class Odd(Exception):
    """Can be pickled, and not unpickled."""

    def __init__(self, text, more):
        super().__init__(text)
        self.more = more


def double(n: int):
    return [os.getpid(), n * 2]


def prints(n: int):
    print(f"payload {n}")  # noqa: T201


def total(ns: list[int]):
    Path(os.environ["TENURE_TEST_TOTAL"]).write_text(str(sum(ns)), "utf-8")


def hangs(path: str):
    Path(path).write_text(str(os.getpid()), "utf-8")
    while True:
        time.sleep(0.01)


def sets(who: str):
    seen = [tenant.get(), decimal.getcontext().prec]
    tenant.set(who)
    decimal.getcontext().prec = 4
    return seen


def waits(seconds: float):
    time.sleep(seconds)
    return "done"


def vendored(_: int):
    return tenure.__file__


def forks(path: str):
    """Leave a fork behind that lives on, and end without an answer."""
    pid = os.fork()
    if not pid:
        time.sleep(50)
        os._exit(0)
    Path(path).write_text(str(pid), "utf-8")
    os.kill(os.getpid(), signal.SIGKILL)


def returns_twice(how: str):
    """Return from a fork too, or raise there, before the answer is given."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if how == "exit":
        sys.exit(3)
    elif how == "error":
        raise OSError("of the fork")
    return "of the fork"


def ends(how: str):
    if how == "exit":
        os._exit(3)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "odd":
        raise Odd("a text", 1)
    elif how == "system exit":
        raise SystemExit(5)
    elif how == "dead":
        raise tenure.Dead("no use")
    elif how == "later":
        raise tenure.RetryLater(0.0, counts=True)
    return lambda: None


def of_a_task(task: tenure.Task[int]):
    return task.id
