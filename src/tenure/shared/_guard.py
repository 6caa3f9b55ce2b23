"""Fences for the user's own writes, as in Chubby (Burrows 2006): the newest token that was seen, beside the data.

The upsert in SQL locks the fence's row (in SQLite: the file) until the transaction ends: a newer holder waits.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, LiteralString, cast, overload

from tenure.dbapi import adapt, adapt_sync, check_transaction, rendered
from tenure.errors import LeaseLost

_TABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)
_STALE = "TENURESTALE"
_PRELUDE = f"""\
do
  local fence, token = table.remove(KEYS), table.remove(ARGV)
  local seen = redis.call('GET', fence)
  if seen and tonumber(seen) > tonumber(token) then
    return redis.error_reply('{_STALE} ' .. fence .. ' has seen a newer token: ' .. seen)
  end
  redis.call('SET', fence, token)
end
"""


@dataclass(frozen=True, slots=True)
class SqlGuard:
    """Refuses the writes of a transaction in PostgreSQL or SQLite once a newer token was seen.

    The fence `name` is one row of `table` in the database that is written to; `create_table` makes the table. Before
    the writes and in their transaction, run `enforce(connection)`, `enforce_sync(connection)`, or the `statement` by
    yourself: it returns one row if the writes may go on, and none if a holder with a newer token has begun to write.
    Other guards with the same name wait until the transaction ends. Raises `ValueError` for a table whose name is not
    plain, with a schema or without.

    Thread safety: any; a guard never changes.
    """

    name: str
    token: int
    table: str = "tenure_fences"

    def __post_init__(self) -> None:
        _check_table(self.table)

    @staticmethod
    def create_table(table: LiteralString = "tenure_fences") -> LiteralString:
        """The statement, for your migrations, that makes the table if it does not exist. Raises `ValueError`."""
        _check_table(table)
        return f"CREATE TABLE IF NOT EXISTS {table} (name TEXT PRIMARY KEY, token BIGINT NOT NULL)"

    @overload
    def statement(
        self, paramstyle: Literal["qmark", "format", "numeric_dollar"]
    ) -> tuple[LiteralString, tuple[str, int]]: ...
    @overload
    def statement(self, paramstyle: Literal["named", "pyformat"]) -> tuple[LiteralString, dict[str, Any]]: ...
    @overload
    def statement(self, paramstyle: str) -> tuple[LiteralString, Any]: ...
    def statement(self, paramstyle: str) -> tuple[LiteralString, Any]:
        """The guard as SQL text and its parameters: the arguments of `execute`, in this order.

        `paramstyle` is "qmark" or "named" (sqlite3, aiosqlite; "named" for SQLAlchemy's `text`, too), "format" or
        "pyformat" (psycopg) or "numeric_dollar" (asyncpg, whose methods take the parameters one by one). Raises
        `ValueError` for another style.
        """
        sql, parameters = rendered(self._sql, self._values, paramstyle)
        # only the name of the table, which was checked, is no literal text
        return cast("LiteralString", sql), parameters

    def passed(self, row: object) -> None:
        """Raise `LeaseLost` ("refused") if the row that the statement returned is None."""
        if row is None:
            raise LeaseLost(self.name, "refused")

    async def enforce(self, connection: object) -> None:
        """Run the guard in the transaction of a connection. Raises `LeaseLost` ("refused") if a newer token was seen.

        The connection is from aiosqlite, asyncpg or psycopg's asynchronous interface, or is an AsyncConnection or
        AsyncSession of SQLAlchemy. Raises `RuntimeError` outside of a transaction (autocommit), `TypeError` for
        another kind of connection, and the errors of the driver.
        Cancellation: roll back, as after any statement.
        """
        own = adapt(connection)
        rows = await own.run(self._sql, self._values)
        self._judge(rows, await own.in_transaction())

    def enforce_sync(self, connection: object) -> None:
        """Like `enforce`, but blocking: for sqlite3, psycopg, and a Connection or Session of SQLAlchemy."""
        own = adapt_sync(connection)
        rows = own.run(self._sql, self._values)
        self._judge(rows, own.in_transaction())

    def _judge(self, rows: list[Any], in_transaction: bool) -> None:
        # asked afterwards, since some drivers begin it with this statement
        check_transaction(in_transaction)
        self.passed(rows[0] if rows else None)

    @property
    def _sql(self) -> str:
        return (
            f"INSERT INTO {self.table} AS fence (name, token) VALUES (:name, :token) "  # noqa: S608 a checked name
            "ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token "
            "RETURNING token"
        )

    @property
    def _values(self) -> dict[str, Any]:
        return {"name": self.name, "token": self.token}


def _check_table(table: str) -> None:
    if not _TABLE.fullmatch(table):
        raise ValueError(f"table must be a plain name, with a schema or without: {table!r}")


@dataclass(frozen=True, slots=True)
class LuaGuard:
    """Refuses a Lua script on Redis or Valkey once a newer token was seen.

    `key` keeps the newest token beside the data; in a cluster it needs the data's hash tag. Run `script(yours)` with
    `key` as the last of the keys and `token` as the last of the arguments; your script does not see these two. A
    script with an older token ends at once, with an error and without effect; `refusals()` turns the error into
    `LeaseLost`.

    Thread safety: any; a guard never changes.
    """

    key: str
    token: int

    def script(self, script: str) -> str:
        """The guard followed by `script`. The text is always the same for the same script, so it can be loaded once."""
        # the line that names the engine has to stay the first
        first, end, body = script.partition("\n") if script.startswith("#!") else ("", "", script)
        return first + end + _PRELUDE + body

    @contextmanager
    def refusals(self) -> Generator[None]:
        """Raise `LeaseLost` ("refused") in place of the error that any client raises for a refused script."""
        try:
            yield
        except Exception as error:
            if _STALE in str(error):
                raise LeaseLost(self.key, "refused") from error
            raise


class Guarded:
    """A hold with a token, which can fence its holder's writes. Thread safety: any."""

    __slots__ = ()

    def _fence(self) -> tuple[str, int]:
        raise NotImplementedError

    def sql_guard(self, table: str = "tenure_fences", *, name: str | None = None) -> SqlGuard:
        """The guard that refuses this holder's writes to PostgreSQL or SQLite once a later holder has written.

        `table` keeps the newest tokens. `name` is the name of the fence: by default the name of the hold. Raises
        `RuntimeError` for a hold that several may have at the same time (a semaphore, a lock for reading).
        """
        fenced, token = self._fence()
        return SqlGuard(name or fenced, token, table)

    def lua_guard(self, key: str | None = None) -> LuaGuard:
        """The guard that refuses this holder's Lua scripts on Redis once a later holder has run one.

        `key` keeps the newest token, by default "fence:" and the name of the hold. Raises as `sql_guard` does.
        """
        fenced, token = self._fence()
        return LuaGuard(key or f"fence:{fenced}", token)
