"""The program of a process that calls a handler; see `_processes`."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from contextvars import copy_context
from multiprocessing import spawn
from queue import SimpleQueue
from typing import Any

_SIZE = 8


def main() -> None:
    """Read the preparation, the function and the arguments of each call; write what the function returns or raises."""
    requests, replies = os.dup(0), os.fdopen(os.dup(1), "wb")
    # what the function reads and prints must not meet the pickles
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # Ctrl-C reaches all processes of a terminal: the parent decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process, received = os.getpid(), SimpleQueue[bytes]()
    threading.Thread(target=_receive, args=(requests, received), daemon=True).start()
    parent, preparation = pickle.loads(received.get())  # noqa: S301 from the parent
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    problem: BaseException | None = None
    function: Any = None
    sent = received.get()
    try:
        spawn.prepare(preparation)
        function = pickle.loads(sent)  # noqa: S301
    except BaseException as error:  # noqa: BLE001 each call raises it
        problem = error
    while True:
        request = received.get()
        try:
            if problem is not None:
                raise RuntimeError(f"the handler cannot be imported in its process: {problem!r}") from problem
            args, kwargs = pickle.loads(request)  # noqa: S301
            reply = _returned(copy_context().run(function, *args, **kwargs))
        except BaseException as error:
            if os.getpid() != process:  # a fork that the handler has made
                raise
            reply = _raised(error)
        if os.getpid() != process:
            return
        replies.write(len(reply).to_bytes(_SIZE) + reply)
        replies.flush()
        sys.stdout.flush()


def _receive(requests: int, received: SimpleQueue[bytes]) -> None:
    """Receive pickles, and end this process when the parent's end of the pipe is closed, however the parent ends."""
    while data := _exactly(requests, int.from_bytes(_exactly(requests, _SIZE))):
        received.put(data)
    os._exit(1)


def _exactly(requests: int, count: int) -> bytes:
    """So many bytes; fewer if the pipe was closed."""
    data = bytearray()
    while len(data) < count and (part := os.read(requests, min(count - len(data), 2**20))):
        data += part
    return bytes(data)


def _watch(parent: int) -> None:
    """End this process when the parent has ended and a fork of the parent keeps the pipe open."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


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
