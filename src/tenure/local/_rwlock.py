"""A lock that many tasks may hold to read, or a single task to write, with a choice of policy.

A reader goes in if no writer is in, and no writer waits or the reader is *ahead* of the waiting writers. A writer goes
in if the lock is free and no waiting reader is ahead. The policies differ in which readers are ahead:

- fair: those that came before the first waiting writer, as in tokio's ``RwLock``.
- writers: the readers that waited already when the last writer went in.
- readers: all, while a reader is in that was in before the first writer waited, and after each write those
  that waited for its end.
"""

# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from dataclasses import dataclass
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from anyio import BrokenResourceError, WouldBlock

from tenure.arguments import AsyncBlock, NotAwaited
from tenure.waiting import NOTHING, Home, Line, TaskEnd, checkpoint, this_loop, this_task_end

if TYPE_CHECKING:
    from types import CoroutineType

    from tenure.waiting import Waiter

Policy: TypeAlias = Literal["fair", "readers", "writers"]
_Want: TypeAlias = tuple[int, TaskEnd]  # a ticket, and the task that has it


@dataclass(frozen=True, slots=True)
class RWLockStatistics:
    """The state of an `RWLock` at one moment, in numbers of tasks."""

    policy: Policy
    """The rule for which tasks go first."""
    readers: int
    """The number of readers that hold the lock; a reader that was let in but has not run yet counts."""
    writers: int
    """The number of writers that hold the lock: 1 or 0."""
    readers_waiting: int
    """The number of tasks that wait to read."""
    writers_waiting: int
    """The number of tasks that wait to write."""
    broken: bool
    """A task ended while it held the lock and others waited: tasks that would have to wait are refused."""

    @property
    def tasks_waiting(self) -> int:
        """The number of tasks that wait, to read or to write."""
        return self.readers_waiting + self.writers_waiting


class RWLock:
    """Many readers or one writer.

    `policy` decides where both wait: "fair" is first come, first served; "readers" lets readers
    overtake waiting writers, "writers" the other way, both within bounds, so that none starves.

    A task that asks again, in whatever mode, gets a `RuntimeError`: it would wait for itself. A writer becomes a
    reader by `downgrade`; a reader cannot become a writer. A task that ends while it holds the lock breaks it: tasks
    that wait for it, or would have to, get `anyio.BrokenResourceError`.

    Cancellation: see the methods.
    """

    __slots__ = (
        "_ahead",
        "_broken",
        "_came",
        "_elders",
        "_holders",
        "_phase",
        "_policy",
        "_readers",
        "_watching",
        "_writer",
        "_writers",
    )

    def __init__(self, policy: Policy = "fair") -> None:
        if policy not in ("fair", "readers", "writers"):
            raise ValueError(f'policy must be "fair", "readers" or "writers", not {policy!r}')
        self._policy: Policy = policy
        home = Home(self)
        self._readers: Line[_Want, None] = Line(self._left, home)
        self._writers: Line[_Want, None] = Line(self._left, home)
        self._came = 0
        self._ahead = 0
        # the tasks that are in, and since which phase
        self._holders: dict[TaskEnd, int] = {}
        self._writer: TaskEnd | None = None
        # for "readers": a phase ends when a writer begins to wait or has ended; how many are in since before
        self._phase = 0
        self._elders = 0
        # the ends of the holders are watched from when a task waits until the lock is free: the end of a holder
        # concerns nobody else, and readers that are not watched come and go more quickly
        self._watching = False
        self._broken = False

    def read(self) -> ReadTurn:
        """Share the lock with other readers: ``async with lock.read():``.

        Entering is always a checkpoint. It raises `RuntimeError` if this task holds the lock already, and
        `anyio.BrokenResourceError` if a task that it would have to wait for has ended.

        Cancellation: while it waits, the place in the line is lost and nothing is held.
        """
        return ReadTurn(self)

    def write(self) -> WriteTurn:
        """Have the lock alone: ``async with lock.write():``; otherwise as `read`.

        Cancellation: as in `read`; readers that waited behind it go in.
        """
        return WriteTurn(self)

    def read_nowait(self) -> TakenTurn:
        """Take the lock to read, now, or raise `anyio.WouldBlock`: ``with lock.read_nowait():``.

        It is held when this returns, before the block is entered. Raises `RuntimeError` if this task holds it already,
        or outside of a task.
        """
        return self._enter_nowait(self._readers)

    def write_nowait(self) -> TakenTurn:
        """Take the lock to write, now, or raise `anyio.WouldBlock`; otherwise as `read_nowait`."""
        return self._enter_nowait(self._writers)

    def downgrade(self) -> None:
        """Go on as a reader: no writer comes in between, but readers may come in.

        Raises `RuntimeError` if this task does not hold the lock to write.
        """
        if this_task_end() is not self._writer:
            raise RuntimeError(f"{self!r} is not held by this task to write")
        self._end_write()

    def locked(self) -> bool:
        """True if any task holds the lock, to read or to write."""
        return bool(self._holders)

    def statistics(self) -> RWLockStatistics:
        """The current state."""
        writers = int(self._writer is not None)
        return RWLockStatistics(
            policy=self._policy,
            readers=len(self._holders) - writers,
            writers=writers,
            readers_waiting=len(self._readers),
            writers_waiting=len(self._writers),
            broken=self._broken,
        )

    def __repr__(self) -> str:
        held = f"{len(self._holders)} reading" if self._writer is None else "1 writing"
        waiting = f"waiting: {len(self._readers)} to read, {len(self._writers)} to write"
        return f"<RWLock {self._policy}, {held}; {waiting}{'; broken' if self._broken else ''}>"

    async def _enter(self, block: _Block, line: Line[_Want, None]) -> None:
        task = this_task_end()
        if task in self._holders or block._task is not None:
            self._refuse(block._task)
        block._task = task
        if not self._goes_in(task, line):
            await line.wait(self._join(line, task))
            return
        # a waiter elsewhere has to know; on trio by the thread, since asking for the loop costs more
        if (
            len(self._holders) == 1
            and line.home.run is not (loop := this_loop())
            and (loop is not None or line.home.thread != get_ident())
        ):
            line.home.hold()
        try:
            await checkpoint()
        except BaseException:
            self._give_back(task)
            raise

    def _enter_nowait(self, line: Line[_Want, None]) -> TakenTurn:
        task = this_task_end()
        if task in self._holders:
            self._refuse(None)
        if not self._goes_in(task, line):
            raise WouldBlock
        if len(self._holders) == 1 and line.home.thread != get_ident():
            line.home.hold()
        turn = TakenTurn(self)
        turn._task = task
        return turn

    def _refuse(self, entered_by: object) -> None:
        if entered_by is not None:
            raise RuntimeError(f"this block of {self!r} was entered before, and is for one use")
        raise RuntimeError(
            f"this task holds the lock already, and would wait for itself: leave first, as nothing upgrades ({self!r})"
        )

    def _goes_in(self, task: TaskEnd, line: Line[_Want, None]) -> bool:
        if line is self._readers:
            if self._came < self._limit():
                self._begin(task)
                return True
        elif not (self._holders or self._readers or self._writers):
            self._begin_write(task)
            return True
        return False

    def _join(self, line: Line[_Want, None], task: TaskEnd) -> Waiter[_Want, None]:
        if line is self._writers and not len(line):
            self._begin_phase()
        waiter = line.join((self._came, task))
        self._came += 1
        if self._broken:
            line.fail(waiter, self._error())
        elif not self._watching:
            self._watching = True
            for holder in self._holders:
                holder.watch(self, self._ended)
        return waiter

    def _let_in(self) -> None:
        limit = self._limit()
        while (reader := self._readers.head()) is not None and reader.want[0] < limit:
            self._begin(reader.want[1])
            self._readers.grant(reader, None)
        if not self._holders:
            if (writer := self._writers.head()) is not None:
                self._begin_write(writer.want[1])
                self._writers.grant(writer, None)
            else:
                self._watching = False

    def _limit(self) -> float:
        # readers with a lower ticket may go in
        if self._writer is not None:
            return 0
        if self._writers.first is None or (writer := self._writers.head()) is None:
            return inf
        if self._policy == "fair":
            return writer.want[0]
        return inf if self._policy == "readers" and self._elders > 0 else self._ahead

    def _begin_phase(self) -> None:
        self._phase += 1
        self._elders = len(self._holders)

    def _begin(self, task: TaskEnd) -> None:
        self._holders[task] = self._phase
        if self._watching:
            task.watch(self, self._ended)

    def _begin_write(self, task: TaskEnd) -> None:
        self._begin(task)
        self._writer = task
        if self._policy == "writers":
            self._ahead = self._came

    def _end_write(self) -> None:
        self._writer = None
        if self._policy == "readers":
            self._ahead = self._came
        self._let_in()
        self._begin_phase()

    def _give_back(self, task: TaskEnd | None) -> None:
        if task not in self._holders:
            raise RuntimeError(f"{self!r} is not held by this block")
        phase = self._holders.pop(task)
        if self._watching:
            task.callbacks.pop(self, None)
        if task is self._writer:
            self._end_write()
        elif self._watching:
            self._elders -= phase < self._phase
            if not self._holders:
                self._let_in()

    def _left(self, waiter: Waiter[_Want, None]) -> None:
        if waiter.granted:
            self._give_back(waiter.want[1])
        else:
            self._let_in()

    def _ended(self) -> None:
        self._broken = True
        self._writers.fail_all(self._error)
        self._let_in()
        self._readers.fail_all(self._error)

    def _error(self) -> BrokenResourceError:
        return BrokenResourceError(f"{self!r}: a task that held it has ended without giving it back")


class _Block(AsyncBlock, NotAwaited):
    __slots__ = ("_lock", "_task")

    def __init__(self, lock: RWLock) -> None:
        self._lock = lock
        self._task: TaskEnd | None = None

    def __aexit__(self, *_: object) -> CoroutineType[Any, Any, None]:
        self._lock._give_back(self._task)
        return NOTHING


class ReadTurn(_Block):
    """The result of `RWLock.read`: an async context manager for one use.

    Cancellation: see `RWLock.read`; leaving is not a checkpoint and works in cancelled scopes.
    """

    __slots__ = ()

    def __aenter__(self) -> CoroutineType[Any, Any, None]:
        return self._lock._enter(self, self._lock._readers)


class WriteTurn(_Block):
    """The result of `RWLock.write`; otherwise as `ReadTurn`."""

    __slots__ = ()

    def __aenter__(self) -> CoroutineType[Any, Any, None]:
        return self._lock._enter(self, self._lock._writers)


class TakenTurn(_Block):
    """The result of the `_nowait` forms of `RWLock`: held already, and given back by leaving the block or `release`."""

    __slots__ = ()

    def release(self) -> None:
        """Give the lock back. Raises `RuntimeError` if that was done before.

        Cancellation: not a checkpoint; works in cancelled scopes.
        """
        self._lock._give_back(self._task)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()

    def __aenter__(self) -> CoroutineType[Any, Any, None]:
        return NOTHING
