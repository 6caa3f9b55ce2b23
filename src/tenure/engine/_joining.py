"""Operations within a transaction of the user's, on a connection of his to the database that the engine uses.

The hook: an engine that can do this has one method more, `join`, which says how an operation is applied. It is asked in
any thread, also while other operations are under way, and the operation does not go through `execute`:

- An engine whose operation is one statement gives it as `sql` (PostgreSQL: `SELECT * FROM complete(...)`). The caller
  has made sure that a transaction is open, runs it, and `finish(None, rows)` gives the answer.
- An engine that needs more gives no `sql`: `finish(raw, [])` is called with the driver's own connection, in the thread
  in which that one may be used (SQLite: `sqlite3.Connection`). It raises `ValueError` if that is of another database,
  and `RuntimeError` if no transaction is open after its first statement; some drivers begin one only then.

Nothing is committed and nothing is left half done: an operation that raises has changed nothing (a savepoint). Hints go
to all processes alike when the user commits (a table, NOTIFY), since the engine does not learn when that is. The caller
sends its ordinary settlement of a completed task later all the same, and takes "refused" for "it was committed": so the
token of a task that was completed has to be refused, as any stale one is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from ._answers import A, Reply
from ._tasks import Duplicate, NewTask, Settle


class Joined(Generic[A]):
    """An operation for `join`; `A` is the type of its answer.

    Thread safety: any; operations never change.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Complete(Joined[Reply]):
    """Settle a task that was taken. -> OK, GONE (the session is over, by the engine's clock), REFUSED (stale token)"""

    session: str
    queue: str
    settle: Settle


@dataclass(frozen=True, slots=True)
class PutOne(Joined[int | Duplicate | Reply]):
    """Put one task if there is room and nobody waits for it. -> its id, Duplicate, REFUSED (full)"""

    queue: str
    task: NewTask
    max_size: int


@dataclass(frozen=True, slots=True)
class Joining(Generic[A]):
    """How an operation is applied. `sql` has placeholders like `:name`, casts like CAST(:name AS type), and no `%`."""

    finish: Callable[[Any, list[Any]], A]
    sql: str = ""
    values: Mapping[str, Any] | None = None


class Joins(Protocol):
    """What an engine with the hook can do.

    Thread safety: `join` and what it gives may be used in any thread.
    """

    def join(self, operation: Joined[A], /) -> Joining[A]:
        """How an operation is applied within a transaction of the user's."""
        ...
