"""A watch for holders of leases: a handler that blocks the event loop keeps their heartbeat from being sent.

A thread has the loop give a sign of life now and then. Without one for three eighths of the ttl, it looks where the
loop is. The loop pays for one callback every eighth of a ttl, so it can always be on; `BlockingWatch`, which sees each
step of each task, is for finding shorter blocks.
"""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from inspect import CO_COROUTINE

from tenure.observe import is_ours, log
from tenure.waiting import loop_caller

_NOT_THEIRS = ("<", *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_BETWEEN, _WITHOUT = 1 / 8, 3 / 8


@contextmanager
def watched_loop(who: str, ttl: float) -> Generator[None]:
    """A stretch in which a warning is logged whenever the running loop is blocked for half a ttl of so many seconds."""
    watch = _LoopWatch(who, ttl)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


class _LoopWatch:
    def __init__(self, who: str, ttl: float) -> None:
        self._who = who
        self._ttl = ttl
        self._on_loop = loop_caller()
        self._loop_thread = threading.get_ident()
        self._alive = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"tenure watch of {who}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._alive.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_BETWEEN * self._ttl):
            self._alive.clear()
            if self._ended.is_set():
                return
            try:
                self._on_loop(self._alive.set)
            except RuntimeError:  # the loop has ended
                return
            if not self._alive.wait(_WITHOUT * self._ttl):
                log(
                    logging.WARNING,
                    f"{self._who}: the event loop is blocked; when that lasts, leases are lost (ttl {self._ttl:g} s)."
                    f" It is at {self._where()}",
                )
                self._alive.wait()

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
        frames = [] if frame is None else list(traceback.walk_stack(frame))
        # what runs the loop is not what blocks it
        while frames and not frames[-1][0].f_code.co_flags & CO_COROUTINE:
            frames.pop()
        stack = traceback.StackSummary.extract(iter(frames))
        theirs = [
            frame
            for frame in stack
            if not (frame.filename.startswith(_NOT_THEIRS) or is_ours(frame.filename))
        ]
        for frame in theirs or stack:
            return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
        return "an unknown place"
