"""The user's own database connection: its driver, known by the name of the package, and statements in
its transaction.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tenure.engine as e

__all__ = (
    "Awaiting",
    "Blocking",
    "Found",
    "adapt",
    "adapt_sync",
    "check_transaction",
    "rendered",
    "run_enlisted",
    "run_enlisted_sync",
)

T = TypeVar("T")

Found = tuple[Sequence[str], list[Any]]
"""The names of the columns, if there are rows, and the rows."""

_BEGIN = "SELECT 1"
"""Before the first statement some drivers have not begun their transaction; nor would SQLAlchemy know of any."""

_PLACEHOLDER = re.compile(r"(?<![:\w]):(\w+)")
_STYLES: dict[str, Callable[[int, str], str]] = {
    "qmark": lambda _, __: "?",
    "format": lambda _, __: "%s",
    "named": lambda _, name: f":{name}",
    "pyformat": lambda _, name: f"%({name})s",
    "numeric_dollar": lambda place, _: f"${place}",
}
_BY_NAME = ("named", "pyformat")
_OWN_STYLE = {"sqlite3": "qmark", "aiosqlite": "qmark", "psycopg": "format", "asyncpg": "numeric_dollar"}


def rendered(sql: str, values: Mapping[str, Any], style: str) -> tuple[str, Any]:
    """A statement with placeholders like `:name`, in another style, and the parameters to run it with."""
    if style not in _STYLES:
        raise ValueError(f"paramstyle must be one of {', '.join(_STYLES)}, not {style!r}")
    names: list[str] = []

    def placeholder(match: re.Match[str]) -> str:
        name = match[1]
        if style != "numeric_dollar" or name not in names:
            names.append(name)
        return _STYLES[style](names.index(name) + 1, name)

    text = _PLACEHOLDER.sub(placeholder, sql)
    return text, dict(values) if style in _BY_NAME else tuple(values[name] for name in names)


def adapt(connection: object) -> Awaiting:
    """A user's asynchronous connection. Raises `TypeError` for any other object."""
    if isinstance(own := _adapted(connection), Awaiting):
        return own
    raise TypeError(f"connection must be asynchronous, and {connection!r} blocks: call the same with _sync")


def adapt_sync(connection: object) -> Blocking:
    """A user's blocking connection. Raises `TypeError` for any other object."""
    if isinstance(own := _adapted(connection), Blocking):
        return own
    raise TypeError(f"connection must be one that blocks: await the same without _sync for {connection!r}")


async def run_enlisted(connection: object, joining: e.Enlistment[e.A], judge: Callable[[e.A], T]) -> T:
    """The answer of an operation that joins the transaction of a user's connection, passed through `judge`.

    Raises `TypeError`, and `RuntimeError` outside of a transaction.
    """
    own = adapt(connection)
    await own.run(_BEGIN, {})
    if not joining.sql:
        return judge(await own.in_its_thread(joining.finish))
    check_transaction(await own.in_transaction())
    return judge(joining.finish(None, await own.run(joining.sql, joining.values or {})))


def run_enlisted_sync(connection: object, joining: e.Enlistment[e.A], judge: Callable[[e.A], T]) -> T:
    """The same on a connection that blocks."""
    own = adapt_sync(connection)
    own.run(_BEGIN, {})
    rows: list[Any] = []
    if joining.sql:
        check_transaction(own.in_transaction())
        rows = own.run(joining.sql, joining.values or {})
    return judge(joining.finish(own.raw, rows))


def check_transaction(there: bool) -> None:
    """Raise `RuntimeError` if there is no transaction."""
    if not there:
        raise RuntimeError(
            "connection must be in a transaction, which you commit or roll back, not in autocommit mode"
        )


class Blocking:
    """A connection of sqlite3 or psycopg, or a Connection or Session of SQLAlchemy."""

    def __init__(self, connection: Any, family: str) -> None:
        self._connection = connection.connection() if _is_session(connection, family) else connection
        self._family = family

    @property
    def raw(self) -> Any:
        """The driver's own connection."""
        return (
            self._connection.connection.driver_connection
            if self._family == "sqlalchemy"
            else self._connection
        )

    @property
    def driver(self) -> str:
        """The name of the driver."""
        return _family(self.raw)

    def run(self, sql: str, values: Mapping[str, Any]) -> list[Any]:
        """The rows of a statement with placeholders like `:name`."""
        return self.find(sql, values)[1]

    def find(self, sql: str, values: Mapping[str, Any]) -> Found:
        """The names of the columns, and the rows, of a statement as in `run`."""
        connection = self._connection
        if self._family == "sqlalchemy":
            return _found(connection.exec_driver_sql(*rendered(sql, values, connection.dialect.paramstyle)))
        cursor = _cursor(connection, self._family)
        cursor.execute(*rendered(sql, values, _OWN_STYLE[self._family]))
        return _names(cursor), cursor.fetchall() if cursor.description else []

    def in_transaction(self) -> bool:
        """True if a rollback will undo the statement that was just run."""
        return _in_transaction(self.raw)


class Awaiting:
    """A connection of aiosqlite, asyncpg or psycopg, or an AsyncConnection or AsyncSession of SQLAlchemy."""

    def __init__(self, connection: Any, family: str) -> None:
        self._connection = connection
        self._family = family

    async def driver(self) -> str:
        """The name of the driver."""
        return _family(await self._raw())

    async def run(self, sql: str, values: Mapping[str, Any]) -> list[Any]:
        """As `Blocking.run`."""
        return (await self.find(sql, values))[1]

    async def find(self, sql: str, values: Mapping[str, Any]) -> Found:
        """As `Blocking.find`."""
        if self._family == "sqlalchemy":
            connection = await self._of_sqlalchemy()
            return _found(
                await connection.exec_driver_sql(*rendered(sql, values, connection.dialect.paramstyle))
            )
        text, parameters = rendered(sql, values, _OWN_STYLE[self._family])
        if self._family == "asyncpg":
            records = await self._connection.fetch(text, *parameters)
            return list(records[0].keys()) if records else [], records
        cursor = _cursor(self._connection, self._family)
        if self._family == "aiosqlite":
            cursor = await cursor
            cursor.row_factory = None
        await cursor.execute(text, parameters)
        return _names(cursor), list(await cursor.fetchall()) if cursor.description else []

    async def in_transaction(self) -> bool:
        """As `Blocking.in_transaction`."""
        return _in_transaction(await self._raw())

    async def in_its_thread(self, function: Callable[[Any, list[Any]], e.A]) -> e.A:
        """Call a function as a whole in the thread of the driver's blocking connection, or raise `TypeError`."""
        raw = await self._raw()
        if _family(raw) != "aiosqlite":
            raise TypeError(f"connection must be one to SQLite, not {self._connection!r}")
        # not public, but there since the first releases: the thread's queue
        return await raw._execute(lambda: function(raw._conn, []))

    async def _raw(self) -> Any:
        if self._family == "sqlalchemy":
            return (await (await self._of_sqlalchemy()).get_raw_connection()).driver_connection
        return self._connection

    async def _of_sqlalchemy(self) -> Any:
        connection = self._connection
        return await connection.connection() if _is_session(connection, self._family) else connection


def _adapted(connection: Any) -> Blocking | Awaiting:
    family = _family(connection)
    awaits = family in ("aiosqlite", "asyncpg") or inspect.iscoroutinefunction(connection.execute)
    return Awaiting(connection, family) if awaits else Blocking(connection, family)


def _family(connection: object) -> str:
    for kind in type(connection).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package in _OWN_STYLE or package == "sqlalchemy") and hasattr(connection, "execute"):
            return package
    raise TypeError(
        "connection must be one of sqlite3, aiosqlite, psycopg, asyncpg or SQLAlchemy (a connection or session), "
        f"not {connection!r}"
    )


def _is_session(connection: Any, family: str) -> bool:
    return family == "sqlalchemy" and not hasattr(connection, "exec_driver_sql")


def _cursor(connection: Any, family: str) -> Any:
    if family == "psycopg":
        from psycopg.rows import tuple_row

        return connection.cursor(row_factory=tuple_row)
    cursor = connection.cursor()
    if family == "sqlite3":
        cursor.row_factory = None
    return cursor


def _names(cursor: Any) -> list[str]:
    return [column[0] for column in cursor.description or ()]


def _found(result: Any) -> Found:
    return (list(result.keys()), list(result)) if result.returns_rows else ([], [])


def _in_transaction(connection: Any) -> bool:
    if hasattr(connection, "in_transaction"):  # sqlite3, aiosqlite
        return connection.in_transaction
    if hasattr(connection, "is_in_transaction"):  # asyncpg
        return connection.is_in_transaction()
    return connection.info.transaction_status != 0  # psycopg: 0 is idle
