from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from sqlalchemy import Select, inspect
from sqlalchemy.orm import Session

from tenure.arguments import check_count
from tenure.errors import EngineError
from tenure.sql._session_kind import is_blocking
from tenure.sql._write_lock import take_write_lock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.ext.asyncio import AsyncSession

T = TypeVar("T")

_SKIP = {"postgresql", "mysql", "mariadb", "oracle"}


# SQLAlchemy 2.0 has Select[tuple[T]] where 2.1 has Select[T].
@overload
def claim_rows(session: Session, select: Select[tuple[T]], limit: int) -> list[T]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def claim_rows(session: Session, select: Select[T], limit: int) -> list[T]: ...
@overload
def claim_rows(session: AsyncSession, select: Select[tuple[T]], limit: int) -> Awaitable[list[T]]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def claim_rows(session: AsyncSession, select: Select[T], limit: int) -> Awaitable[list[T]]: ...
def claim_rows(session: Any, select: Select[Any], limit: int) -> Any:
    """Lock at most `limit` rows of `select` until the transaction ends, and return them; skip rows that others hold.

    `select` asks for one model or column, with conditions and an order; its own limit is replaced. Only the rows of
    that model are locked, not those it is joined with. Attributes that were loaded before are read anew. Fewer rows
    than `limit` do not mean that there are no more. Change or delete the rows in the same transaction, or they will be
    claimed again. An AUTOCOMMIT session claims nothing.

    With a `Session` it is a plain function, for a thread (`in_session`); with an `AsyncSession` await it. On SQLite,
    the transaction becomes the only writer, and others wait instead of skipping.

    Raises `EngineError` for a database without SKIP LOCKED; `ValueError` for a bad `limit` or a `select` of several
    things; `TypeError` for another statement (`from_statement`, `text`, a union); and the errors of the database.

    Cancellation: the transaction is rolled back, so nothing is claimed.
    """
    limit = check_count("limit", limit)
    if not isinstance(select, Select):  # pyright: ignore[reportUnnecessaryIsInstance] users are not all type-checked
        raise TypeError(
            "select must be a select(...) of SQLAlchemy, to which a limit and FOR UPDATE can be added, not "
            f"{type(select).__name__}"
        )
    if (columns := len(select.column_descriptions)) != 1:
        raise ValueError(f"select must ask for one model or column, not for {columns}")
    if is_blocking(session):
        return _claim(session, select, limit)
    return session.run_sync(_claim, select, limit)


def _claim(session: Session, select: Select[Any], limit: int) -> list[Any]:
    entity: Any = select.column_descriptions[0].get("entity")
    mapper = None if entity is None else inspect(entity).mapper
    # reading would overwrite changes that are not written yet
    session.flush()
    connection = session.connection(bind_arguments={"mapper": mapper, "clause": select})
    kind = connection.dialect.name
    if kind == "sqlite":
        take_write_lock(connection, select.columns_clause_froms[0] if mapper is None else mapper.local_table)
    elif kind not in _SKIP:
        raise EngineError(f"session: {kind} has no FOR UPDATE SKIP LOCKED")
    claiming = select.limit(limit).with_for_update(skip_locked=True, of=entity)
    rows = session.scalars(claiming, execution_options={"populate_existing": True})
    # joined collections repeat a row for each member
    return list(rows.unique() if select.column_descriptions[0]["expr"] is entity else rows)
