"""The place where background children live: named jobs, counted, and ended in order by their owner."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import anyio
import anyio.lowlevel
from anyio import TASK_STATUS_IGNORED, CancelScope, create_task_group
from anyio.abc import TaskGroup, TaskStatus

from tenure.pages import doc_page
from tenure.waiting import this_task


@asynccontextmanager
async def unwrapped_task_group() -> AsyncGenerator[TaskGroup]:
    """A task group whose own exception group is taken off again when it holds a single exception."""
    try:
        async with create_task_group() as group:
            yield group
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) != 1:
            raise
        failure = failures.exceptions[0]
    else:
        return
    raise failure


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, of groups in it too; or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(part)
    else:
        yield error


@asynccontextmanager
async def in_one_task(what: str, page: str = "") -> AsyncGenerator[None]:
    """Raise an error that names the mend, and a page, instead of the loop's error about mixed-up scopes."""
    task = this_task()
    try:
        yield
    except (RuntimeError, BaseExceptionGroup) as problem:
        if this_task() is task:
            raise
        hint = f": see {doc_page(page)}" if page else ""
        raise RuntimeError(
            f"the {what} was left in another task than the one that has entered it; it is closed. Enter and leave it "
            f"in one task, such as one that waits in between{hint}"
        ) from problem


class BackgroundTask:
    """A background child. Its scope is its own and shielded: nothing but `end` and a crash ends it.

    A job that reports when it has started has no shield before that.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.scope: CancelScope = CancelScope()
        self._ended = anyio.Event()

    @property
    def ended(self) -> bool:
        """True once the job has run to its end, or was ended."""
        return self._ended.is_set()

    async def end(self) -> None:
        """Cancel the job and wait until it has ended."""
        self.cancel()
        await self._ended.wait()

    def cancel(self) -> None:
        """Cancel the job without waiting for it."""
        self.scope.cancel("upkeep ends")

    def finished(self) -> None:
        """Note that the job has ended."""
        self._ended.set()


class Upkeep:
    """The jobs of one owner, running in the owner's task group.

    A job that raises is a fault: `on_fault` is called with the exception, and must not raise; then everything ends.
    """

    def __init__(self, group: TaskGroup, on_fault: Callable[[Exception], object] | None = None) -> None:
        self._group = group
        self._on_fault = on_fault
        self._jobs: dict[BackgroundTask, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the jobs that run, in the order of their start."""
        return tuple(job.name for job in self._jobs)

    def cancel(self) -> None:
        """Cancel all jobs that still run, in no order and without waiting: the last resort."""
        for job in self._jobs:
            job.cancel()

    def start(self, name: str, function: Callable[..., Awaitable[object]], *args: Any) -> BackgroundTask:
        """Start a job at once, without waiting; it is shielded from the first moment."""
        job = BackgroundTask(name)
        job.scope.shield = True
        self._jobs[job] = None
        self._group.start_soon(self._run, job, function, args, name=f"tenure {name}")
        return job

    async def open(self, name: str, function: Callable[..., Awaitable[object]], *args: Any) -> BackgroundTask:
        """Start a job and wait until it reports that it has started; what it raises before that is raised here."""
        job = BackgroundTask(name)
        self._jobs[job] = None
        await self._group.start(self._open, job, function, args, name=f"tenure {name}")
        # not by the job itself: a caller that is cancelled while it starts would wait behind the shield for ever
        job.scope.shield = True
        # what reached the job before has reached this task too
        await anyio.lowlevel.checkpoint_if_cancelled()
        return job

    async def _run(
        self, job: BackgroundTask, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]
    ) -> None:
        with self._looked_after(job):
            await function(*args)

    async def _open(
        self,
        job: BackgroundTask,
        function: Callable[..., Awaitable[object]],
        args: tuple[Any, ...],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        with self._looked_after(job):
            await function(*args, task_status=task_status)

    @contextmanager
    def _looked_after(self, job: BackgroundTask) -> Generator[None]:
        try:
            with job.scope:
                yield
        except Exception as fault:
            if self._on_fault is not None:
                self._on_fault(fault)
            raise
        finally:
            self._jobs.pop(job, None)
            job.finished()
