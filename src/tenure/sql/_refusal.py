"""The meaning of a database's refusal, by its code (SQLSTATE, SQLite's extended codes): the text is translated."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

_UNIQUE = "23505"
_EXCLUDED = "23P01"
_RUN_AGAIN = ("40001", "40P01")  # serialization failure, deadlock
_SQLITE_UNIQUE = (
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
)


def collides(error: BaseException) -> bool:
    """True if the refused row collides with another row; also true if the driver reports no code."""
    if (state := _sqlstate(error)) is not None:
        return state in {_UNIQUE, _EXCLUDED}
    code = _sqlite_code(error)
    return code is None or code in _SQLITE_UNIQUE


def has_code(error: BaseException) -> bool:
    return _sqlstate(error) is not None or _sqlite_code(error) is not None


def is_transient(error: BaseException) -> bool:
    """True if the same transaction, run again from its beginning, may well succeed."""
    code = _sqlite_code(error)
    # the low byte is the kind: SQLITE_BUSY, and SQLITE_BUSY_SNAPSHOT, which no busy handler waits for
    return _sqlstate(error) in _RUN_AGAIN or (code is not None and code & 0xFF == sqlite3.SQLITE_BUSY)


def violated(error: BaseException) -> tuple[str, str, str] | None:
    """The schema, table and name of the violated constraint on PostgreSQL, or None."""
    for inner in _unwrapped(error):
        diagnostics = getattr(inner, "diag", inner)
        names = (getattr(diagnostics, f"{kind}_name", None) for kind in ("schema", "table", "constraint"))
        match tuple(names):
            case (str(schema), str(table), str(constraint)):
                return schema, table, constraint
            case _:
                pass
    return None


def _sqlstate(error: BaseException) -> str | None:
    for inner in _unwrapped(error):
        state = getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None)
        if isinstance(state, str):
            return state
    return None


def _sqlite_code(error: BaseException) -> int | None:
    return next((code for e in _unwrapped(error) if (code := getattr(e, "sqlite_errorcode", None))), None)


def _unwrapped(error: BaseException) -> Iterator[BaseException]:
    inner: BaseException | None = error
    while inner is not None:
        yield inner
        inner = inner.__cause__
