from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from contextvars import copy_context
from multiprocessing import spawn
from queue import SimpleQueue
from typing import Any

from tenure.handlers._sent_errors import packed

RETURNED, RAISED, UNKEPT = range(3)
"""The kinds of replies: a value, an error, or a type and the reason why its value cannot be pickled."""
_SIZE = 8


def main() -> None:
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
    sent = received.get()
    function: Any = None
    try:
        spawn.prepare(preparation)
        function = pickle.loads(sent)  # noqa: S301
        reply = pickle.dumps((RETURNED, None))
    except BaseException as error:  # noqa: BLE001 the parent raises it
        problem = RuntimeError(f"the handler cannot be imported in its process: {error!r}")
        problem.__cause__ = error
        reply = _raised(problem)
    while True:
        try:
            replies.write(len(reply).to_bytes(_SIZE) + reply)
            replies.flush()
        except BrokenPipeError:  # the parent has ended
            os._exit(1)
        sys.stdout.flush()
        request = received.get()
        try:
            args, kwargs = pickle.loads(request)  # noqa: S301
            reply = _returned(copy_context().run(function, *args, **kwargs))
        except BaseException as error:
            if os.getpid() != process:  # a fork that the handler has made
                raise
            reply = _raised(error)
        if os.getpid() != process:
            return


def _receive(requests: int, received: SimpleQueue[bytes]) -> None:
    """Receive pickles, and end this process when the parent's end of the pipe is closed, however the parent ends."""
    while data := _exactly(requests, int.from_bytes(_exactly(requests, _SIZE))):
        received.put(data)
    os._exit(1)


def _exactly(requests: int, count: int) -> bytes:
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
        return pickle.dumps((RETURNED, result))
    except Exception as problem:  # noqa: BLE001 pickling calls any code
        return pickle.dumps((UNKEPT, (type(result).__name__, str(problem))))


def _raised(error: BaseException) -> bytes:
    with suppress(Exception):
        error.add_note(f"in the process of the handler:\n{''.join(traceback.format_exception(error))}")
    return pickle.dumps((RAISED, packed(error)))
