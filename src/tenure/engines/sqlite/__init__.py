"""The SQLite engine: one file, shared by the processes of one machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import anyio
from anyio import TASK_STATUS_IGNORED, CancelScope
from anyio.abc import TaskStatus

import tenure.engine as e
from tenure.arguments import Seconds, check_flag, check_seconds
from tenure.errors import EngineError

from ._busy_retry import BusyRetry
from ._clock import Clocks
from ._enlisting import apply_enlisted
from ._link import Link

__all__ = ("SqliteEngine",)


class SqliteEngine(e.Engine):
    """Keeps everything in the SQLite file at `path`, which is made if need be; its directory must exist.

    All processes of one machine that open the file share its state. `synchronous` is "NORMAL" (safe against the death
    of processes; a loss of power may take the last moments) or "FULL" (safe against that too, for one flush of the disk
    with each batch). `busy_timeout` is for how many seconds a batch waits while other processes write. `clock` returns
    seconds and replaces the system's clocks. With `inline`, there is no thread: the engine uses the file on the event
    loop's own thread, and the loop stands still meanwhile. This is for tests in virtual time.

    Raises `ValueError` for a path that means no file, `EngineError` for a relative path in a directory that is deleted.
    Thread safety: none; an engine belongs to one event loop. Other engines may be open on the same file.
    """

    families = True

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clock: Callable[[], float] | None = None,
        inline: bool = False,
        synchronous: str = "NORMAL",
        busy_timeout: Seconds = 5.0,
    ) -> None:
        name = fspath(path)
        if name in ("", ":memory:") or name.startswith("file:"):
            raise ValueError(
                f"path {name!r} means no file that can be shared; use the memory engine to keep nothing on disk"
            )
        if synchronous not in ("NORMAL", "FULL"):
            raise ValueError(f"synchronous must be 'NORMAL' or 'FULL', not {synchronous!r}")
        self.url: str = f"sqlite:///{name}"
        try:
            self._path = Path(name).absolute()
        except FileNotFoundError:
            raise EngineError(
                f"{name} is relative to the working directory, which was deleted; give an absolute path"
            ) from None
        self._clocks = Clocks(clock)
        self._inline = check_flag("inline", inline)
        self._synchronous = synchronous
        self._busy_timeout = check_seconds("busy_timeout", busy_timeout)
        self._listeners: dict[str, Callable[[e.Hint], None]] = {}
        self._link: Link | None = None
        self._batches = e.Batches(str(self._path))
        self._users = 0
        settings = {"synchronous": synchronous, "busy_timeout": busy_timeout}
        self._another = None if clock or inline else partial(SqliteEngine, self._path, **settings)
        self._gate = anyio.Lock()

    def __repr__(self) -> str:
        state = "closed" if self._link is None else "open"
        return f"<SqliteEngine {str(self._path)!r} {state}>"

    def another(self) -> e.Engine | None:
        """An engine over the same file, unless the clock is a test's."""
        return self._another and self._another()

    def submit(self, operation: e.Operation[Any], on_answer: Callable[[Any], object], /) -> None:
        """Apply an operation in the next transaction; see `tenure.engine.Engine.submit`.

        The answer is `StoreUnavailable`, with nothing applied, when other processes kept the file locked.
        """
        self._batches.submit(operation, on_answer)

    def enlist(self, operation: e.Enlisted[e.A], /) -> e.Enlistment[e.A]:
        """Apply an operation in the user's transaction, on their own sqlite3 connection to the same file."""
        return e.Enlistment(partial(apply_enlisted, self._path, self._clocks, operation))

    async def serve(
        self,
        process: str,
        deliver: Callable[[e.Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Open the file, report started, and deliver the hints for `process` until cancelled; then close the file.

        Raises `EngineError` when the file cannot be used, `StoreUnavailable` when it is locked for too long.
        Cancellation: this is how it ends; afterwards neither thread nor file is left.
        """
        async with self._linked() as link:
            await link.serve(process, deliver, partial(self._started, process, deliver, task_status))

    def _started(
        self, process: str, deliver: Callable[[e.Hint], None], task_status: TaskStatus[None]
    ) -> None:
        task_status.started()
        deliver(e.Hint(process, "", "", e.Notice.MISSED))

    @asynccontextmanager
    async def _linked(self) -> AsyncGenerator[Link]:
        async with self._gate:
            if self._link is None:
                self._link = await self._open()
            self._users += 1
        try:
            yield self._link
        finally:
            with CancelScope(shield=True):
                async with self._gate:
                    self._users -= 1
                    if not self._users:
                        link, self._link = self._link, None
                        await link.close()

    async def _open(self) -> Link:
        link = Link(
            self._path,
            self._clocks,
            synchronous=self._synchronous,
            retry=BusyRetry(str(self._path), self._busy_timeout),
            inline=self._inline,
            listeners=self._listeners,
            batches=self._batches,
        )
        try:
            await link.open()
        except BaseException:
            with CancelScope(shield=True):
                await link.close()
            raise
        return link
