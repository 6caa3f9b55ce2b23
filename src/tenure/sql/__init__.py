"""Patterns for the user's own tables, with SQLAlchemy: get or create a row, claim rows, a transaction in a thread."""

from __future__ import annotations

try:
    from tenure.sql._claim_rows import claim_rows
    from tenure.sql._get_or_create import get_or_create
    from tenure.sql._in_session import in_session
    from tenure.sql._stale import StaleSnapshot
except ModuleNotFoundError as error:
    if error.name != "sqlalchemy":
        raise
    raise ModuleNotFoundError(
        "tenure.sql needs SQLAlchemy: pip install 'tenure[sql]'", name="sqlalchemy"
    ) from None

__all__ = ("StaleSnapshot", "claim_rows", "get_or_create", "in_session")

for _name in __all__:
    globals()[_name].__module__ = __name__
