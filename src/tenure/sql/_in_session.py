from __future__ import annotations

import inspect
from collections.abc import Callable
from threading import Event
from typing import TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

import anyio
from anyio.lowlevel import RunVar
from sqlalchemy import Engine, Pool, QueuePool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from tenure.local import Threads
from tenure.sql._pauses import pauses
from tenure.sql._refusal import is_transient
from tenure.sql._stale import StaleSnapshot

R = TypeVar("R")
Args = TypeVarTuple("Args")

_WIDTH = 5  # where the pool has no size: SQLAlchemy's own default

# by pool and not by engine, since engines with other options share a pool
_threads: RunVar[WeakKeyDictionary[Pool, Threads]] = RunVar("tenure.sql.threads")


async def in_session(
    engine: Engine, fn: Callable[[Session, *Args], R], *args: *Args, threads: Threads | None = None
) -> R:
    """Run ``fn(session, *args)`` in one transaction in a thread, commit, and return the function's result.

    An exception of `fn` rolls back and goes through. When the database asks for another run (serialization failure,
    deadlock, a busy SQLite file, a `StaleSnapshot`), `fn` is called again, five times at most, with random pauses: so
    it must do nothing that a rollback does not undo. Then the database's own error is raised. Returned rows belong to
    no session.

    `threads` bounds how many run at once; the default is one `Threads` for each connection pool and loop, as many as
    the pool keeps connections. Raises `RuntimeError` inside of such a thread, and `TypeError` for an async engine or
    function.

    Cancellation: before its thread has begun, nothing happens. Later the thread is abandoned: `fn` runs to its end,
    and is rolled back unless the commit had begun.
    """
    if not isinstance(engine, Engine):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"engine must be an Engine of SQLAlchemy, not {engine!r}")
    if inspect.iscoroutinefunction(fn):
        raise TypeError(f"fn must be a plain function, not the async {fn!r}")
    if threads is None:
        threads = _threads_of(engine.pool)
    deserted = Event()
    try:
        for pause in (*pauses(), None):
            try:
                return await threads.run(_transaction, deserted, engine, fn, args)
            except StaleSnapshot as stale:
                if pause is None:
                    raise stale.violation from None
            except DBAPIError as error:
                if pause is None or not is_transient(error):
                    raise
            await anyio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")
    finally:
        deserted.set()


def _transaction(deserted: Event, engine: Engine, fn: Callable[[Session, *Args], R], args: tuple[*Args]) -> R:
    with Session(engine, expire_on_commit=False) as session, session.begin():
        value = fn(session, *args)
        if deserted.is_set():
            raise RuntimeError("cancelled before its commit; no caller is there to see this")
        return value


def _threads_of(pool: Pool) -> Threads:
    try:
        by_pool = _threads.get()
    except LookupError:
        _threads.set(by_pool := WeakKeyDictionary())
    if pool not in by_pool:
        # a pool of size 0 has no limit
        by_pool[pool] = Threads((isinstance(pool, QueuePool) and pool.size()) or _WIDTH)
    return by_pool[pool]
