"""Handlers that the tests call in processes."""

from __future__ import annotations

import decimal
import os
import signal
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path

import tenure


class PaymentError(Exception):
    pass


class Declined(PaymentError):
    """Can be pickled, and not unpickled."""

    def __init__(self, code, text):
        super().__init__(f"{code} {text}")
        self.code = code


class Twice(Exception):
    """Is another error after unpickling."""

    def __init__(self, number, text="a"):
        super().__init__(f"{number} {text}")


class OwnDead(tenure.Dead):
    def __init__(self, *, kind):
        super().__init__(f"of the {kind} kind")


def raises(how: str):
    class Local(PaymentError):
        pass

    if how == "declined":
        raise Declined(402, "no money")
    if how == "local":
        raise Local("of a function")
    if how == "unpicklable":
        error = PaymentError("with a lock")
        error.lock = threading.Lock()
        raise error
    if how == "group":
        raise ExceptionGroup("two", [OSError(1), Declined(402, "no money")])
    if how == "dead from":
        raise tenure.Dead from Declined(402, "no money")
    if how == "dead from odd":
        raise tenure.Dead from Local("of a function")
    if how == "dead in a group":
        raise ExceptionGroup("two", [OSError(1), tenure.Dead("no use")])
    if how == "own dead":
        raise OwnDead(kind="5th")
    raise Twice(1)


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
        raise tenure.RetryLater(0.0)
    return lambda: None


def of_a_task(task: tenure.Task[int]):
    return task.id
