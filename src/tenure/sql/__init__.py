"""Patterns for the user's own tables: get or create a row, claim rows, a transaction in a thread.

With SQLAlchemy, and `get_or_create_row` with a driver alone.
"""

from __future__ import annotations

from typing import NoReturn

from tenure.sql._get_or_create_row import get_or_create_row, get_or_create_row_sync
from tenure.sql._stale import StaleSnapshot

try:
    from tenure.sql._claim_rows import claim_rows
    from tenure.sql._get_or_create import get_or_create
    from tenure.sql._in_session import in_session
except ModuleNotFoundError as _error:
    if _error.name != "sqlalchemy":
        raise

    def __getattr__(name: str) -> NoReturn:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise ModuleNotFoundError(
            f"tenure.sql.{name} needs SQLAlchemy: pip install 'tenure[sql]'", name="sqlalchemy"
        )


__all__ = (
    "StaleSnapshot",
    "claim_rows",
    "get_or_create",
    "get_or_create_row",
    "get_or_create_row_sync",
    "in_session",
)

for _name in __all__:
    if _name in globals():
        globals()[_name].__module__ = __name__
