"""Operations within a transaction of the user, on the user's connection to the engine's database.

`Engine.enlist` returns how an operation is applied, in any thread, also while other operations are under way. The
operation does not go through `submit`:

- An engine whose operation is one statement returns it as `sql` (PostgreSQL: `SELECT * FROM complete(...)`). The caller
  runs it in an open transaction; `finish(None, rows)` returns the answer.
- Otherwise there is no `sql`: `finish(raw, [])` is called with the driver's own connection, in its thread (SQLite:
  `sqlite3.Connection`). It raises `ValueError` if the connection is to another database, and `RuntimeError` if no
  transaction is open after its first statement, since some drivers begin one only then.

Nothing is committed, and an operation that raises has changed nothing (a savepoint). Hints go to all processes alike
when the user commits (a table, NOTIFY), since the engine does not learn when that is. The caller later sends its
ordinary settlement of a completed task all the same, and takes "refused" for "it was committed". So the token of a
completed task has to be refused, as any stale token is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

from ._answers import A, Reply
from ._tasks import Duplicate, NewTask, Settle
from ._value import value


class Enlisted(Generic[A]):
    """An operation for `enlist`; `A` is the type of its answer.

    Thread safety: any; operations never change.
    """

    __slots__ = ()


@value
class Complete(Enlisted[Reply]):
    """Settle a task that was taken. -> OK, GONE (the session is over, by the engine's clock), REFUSED (stale token),
    CHILDREN (it has unfinished children; nothing was done)
    """

    session: str
    key: str
    settle: Settle


@value
class CompleteAll(Enlisted[tuple[int, ...] | Reply]):
    """Settle up to `CAP` tasks as done, with one ttl.

    -> the stale tokens, and the tokens of tasks with unfinished children, of which nothing was settled; GONE (as for
    `Complete`)
    """

    session: str
    key: str
    settle: tuple[Settle, ...]


@value
class PutOne(Enlisted[int | Duplicate | Reply]):
    """Put one task if there is room and no other producer waits for it. -> its id, Duplicate, REFUSED (full)"""

    key: str
    task: NewTask


@value
class Enlistment(Generic[A]):
    """The statement that applies an operation; `sql` has placeholders like `:name`, casts like CAST(:name AS type), and
    no `%`.
    """

    finish: Callable[[Any, list[Any]], A]
    sql: str = ""
    values: Mapping[str, Any] | None = None
