"""Errors of SQLite as messages that name the file and the remedy."""

from __future__ import annotations

import sqlite3

from tenure.errors import EngineError

_ADVICE = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that the directory exists and that this user may write to it",
    sqlite3.SQLITE_READONLY: "is read-only; this user must be able to write to the file and to its directory",
    sqlite3.SQLITE_PERM: "may not be opened by this user; change the permissions of the file",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; give another path, or move the file away",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup, or save what `sqlite3 FILE .recover` can read",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full; nothing that was stored is lost",
    sqlite3.SQLITE_IOERR: "could not be read or written; check the disk",
}


def explain(path: str, problem: Exception) -> EngineError:
    if isinstance(problem, EngineError):
        return problem
    code = problem.sqlite_errorcode & 0xFF if isinstance(problem, sqlite3.Error) and _has_code(problem) else 0
    advice = _ADVICE.get(code)
    reason = problem if isinstance(problem, sqlite3.Error) else repr(problem)
    text = f"{path}: {reason}" if advice is None else f"{path} {advice} ({problem})"
    error = EngineError(text)
    error.__cause__ = problem
    return error


def is_busy(problem: sqlite3.Error) -> bool:
    return _has_code(problem) and problem.sqlite_errorcode & 0xFF in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )


def is_full(problem: sqlite3.Error) -> bool:
    return _has_code(problem) and problem.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL


def _has_code(problem: sqlite3.Error) -> bool:
    # errors of the module itself, such as a wrong type, have none
    return getattr(problem, "sqlite_errorcode", None) is not None
