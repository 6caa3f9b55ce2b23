"""The affinity of a store: the event loop, the thread and the process in which it was opened."""

from __future__ import annotations

import os
from threading import get_ident
from weakref import WeakSet

from tenure.pages import doc_page
from tenure.waiting import this_loop


class LoopAffinity:
    """The thread and the loop in which a store was opened. After a fork the child has none.

    While another loop of this thread runs, the store's loop does not: a caller would wait for ever.

    `thread` is compared with `get_ident()` right before anything is sent: that costs next to nothing, and two threads
    or processes on one connection would ruin it for both.
    Thread safety: any.
    """

    __slots__ = ("__weakref__", "_loop", "forked", "thread")

    def __init__(self) -> None:
        self.thread: int = get_ident()
        self._loop = this_loop()
        self.forked: bool = False
        _affinities.add(self)

    def settle(self) -> bool:
        """Belong to this thread of this process from now on. Returns whether it was made before a fork."""
        forked, self.forked = self.forked, False
        self.thread = get_ident()
        self._loop = this_loop()
        return forked

    def check(self) -> None:
        """Raise `RuntimeError` in any other thread or process, and while another loop runs."""
        if get_ident() != self.thread:
            raise self.error()
        loop = this_loop()
        if loop is not self._loop and loop is not None:
            raise RuntimeError(
                "the store was opened in another event loop, which does not run now: open one in each loop, with "
                f"open_store(...), or call anyio.run(...) once, around all; {_help()}"
            )

    def error(self) -> RuntimeError:
        """The error for another thread or process."""
        if self.forked:
            return RuntimeError(
                "the store was opened before this process was forked, and belongs to the parent: open another one "
                f"here, with open_store(...); {_help()}"
            )
        return RuntimeError(
            "the store was opened in another thread, to whose event loop it belongs: call it there, as with "
            f"anyio.from_thread.run(...) or through a BlockingPortal; {_help()}"
        )


def _help() -> str:
    return f"see {doc_page('how-to/threads-and-processes')}"


_affinities: WeakSet[LoopAffinity] = WeakSet()


def _leave() -> None:
    for affinity in _affinities:
        affinity.forked, affinity.thread = True, -1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)
