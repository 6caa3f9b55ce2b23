"""The program of a process that calls a handler; see `_processes`."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import spawn
from typing import Any, BinaryIO

_PR_SET_PDEATHSIG = 1
_SIZE = 8


def main() -> None:
    """Read the preparation, the function and the arguments of each call; write what the function returns or raises."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # what the function reads and prints must not meet the pickles
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # Ctrl-C reaches all processes of a terminal: the parent decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent, preparation = pickle.loads(_read(requests))  # noqa: S301 from the parent
    _end_with(parent)
    problem: BaseException | None = None
    function: Callable[..., Any] | None = None
    sent = _read(requests)
    try:
        spawn.prepare(preparation)
        function = pickle.loads(sent)  # noqa: S301
    except BaseException as error:  # noqa: BLE001 each call raises it
        problem = error
    while request := _read(requests):
        try:
            if problem is not None or function is None:
                raise RuntimeError(f"the handler cannot be imported in its process: {problem!r}") from problem
            args, kwargs = pickle.loads(request)  # noqa: S301
            reply = _returned(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 the parent raises it
            reply = _raised(error)
        replies.write(len(reply).to_bytes(_SIZE) + reply)
        replies.flush()
        sys.stdout.flush()


def _read(requests: BinaryIO) -> bytes:
    """The next pickle; empty when the parent has closed the pipe."""
    return requests.read(int.from_bytes(requests.read(_SIZE)))


def _returned(result: object) -> bytes:
    try:
        return pickle.dumps((False, result))
    except Exception as problem:  # noqa: BLE001 pickling calls any code
        raise TypeError(
            f"the handler returned {type(result).__name__}, which cannot be pickled: {problem}"
        ) from None


def _raised(error: BaseException) -> bytes:
    """An error with its traceback as a note; its text, if the error itself cannot be sent."""
    text = "".join(traceback.format_exception(error))
    try:
        error.add_note(f"in the process of the handler:\n{text}")
        data = pickle.dumps((True, error))
        pickle.loads(data)  # noqa: S301 some errors can be pickled, and not unpickled
    except BaseException:  # noqa: BLE001
        told = RuntimeError(f"{type(error).__name__}: {error}")
        told.add_note(f"in the process of the handler:\n{text}")
        return pickle.dumps((True, told))
    return data


def _end_with(parent: int) -> None:
    """Have this process end when its parent does, however that ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main()
