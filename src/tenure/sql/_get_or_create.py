"""Race-safe get-or-create for the ORM.

Read; if the row is not there, insert inside a savepoint; if the database refuses, roll back to the savepoint and read
again. A refusal of another constraint is the caller's error, and so is a collision with a visible row that is not the
requested row. A transaction whose snapshot was taken at its first read will never see what came later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, overload

import anyio
from sqlalchemy import Connection, FromClause, Null, Table, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import ColumnProperty, Mapper, RelationshipProperty, Session, class_mapper

from tenure.sql._collision import in_the_way
from tenure.sql._nulls import Identity, catalogue_query, check, is_known
from tenure.sql._pauses import pauses
from tenure.sql._refusal import collides, is_transient
from tenure.sql._session_kind import is_blocking
from tenure.sql._stale import StaleSnapshot
from tenure.sql._write_lock import take_write_lock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.ext.asyncio import AsyncSession

M = TypeVar("M")

_ONE_SNAPSHOT = {"REPEATABLE READ", "SERIALIZABLE", "SNAPSHOT"}


class _Gone(Exception):
    """The row that was in the way has gone; the refusal is the cause."""


class _Wanted(NamedTuple):
    mapper: Mapper[Any]
    identity: Mapping[str, Any]
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.mapper.class_.__name__}({', '.join(f'{k}={v!r}' for k, v in self.identity.items())})"


@overload
def get_or_create(
    session: Session, model: type[M], /, defaults: Mapping[str, Any] | None = None, **identity: Any
) -> tuple[M, bool]: ...
@overload
def get_or_create(
    session: AsyncSession, model: type[M], /, defaults: Mapping[str, Any] | None = None, **identity: Any
) -> Awaitable[tuple[M, bool]]: ...
def get_or_create(
    session: Any, model: type[M], /, defaults: Mapping[str, Any] | None = None, **identity: Any
) -> tuple[M, bool] | Awaitable[tuple[M, bool]]:
    """Return the row of `model` with these attributes, and whether it had to be created, with `defaults` besides.

        user, created = get_or_create(session, User, {"name": "Ann"}, email="ann@example.org")

    - `session`: a `Session`, in a thread (`in_session`), or an `AsyncSession`, to be awaited. The caller commits;
      until then others who create the same row wait.
    - `identity` must be covered by a unique constraint or index; without it, two callers may create a row each.
      None asks for NULL.

    Raises the database's own `IntegrityError` when the row was refused for another reason than a race, or at the
    fifth attempt; `StaleSnapshot` in a transaction of the caller's that cannot see the row; `MultipleResultsFound`
    when `identity` fits several rows; `ValueError` for a None that the constraint takes for different values. The
    caller's transaction is never rolled back.

    Cancellation: the whole transaction is rolled back and nothing is created.
    """
    if not identity:
        raise ValueError("identity must name the attributes that make the row, not nothing")
    if both := sorted(identity.keys() & (defaults or {}).keys()):
        raise ValueError(f"defaults must not repeat what is in identity: {', '.join(both)}")
    wanted = _Wanted(class_mapper(model), identity, {**identity, **(defaults or {})})
    return _blocking(session, wanted) if is_blocking(session) else _awaited(session, wanted)


def _blocking(session: Session, wanted: _Wanted) -> tuple[Any, bool]:
    begun = session.in_transaction()
    outcome = _attempt(session, wanted, begun)
    for pause in pauses():
        if isinstance(outcome, tuple):
            break
        time.sleep(pause)
        outcome = _attempt(session, wanted, begun)
    return _settled(outcome)


async def _awaited(session: AsyncSession, wanted: _Wanted) -> tuple[Any, bool]:
    begun = session.in_transaction()
    outcome = await session.run_sync(_attempt, wanted, begun)
    for pause in pauses():
        if isinstance(outcome, tuple):
            break
        await anyio.sleep(pause)
        outcome = await session.run_sync(_attempt, wanted, begun)
    return _settled(outcome)


def _settled(outcome: tuple[Any, bool] | DBAPIError) -> tuple[Any, bool]:
    if isinstance(outcome, tuple):
        return outcome
    try:
        raise outcome
    finally:
        # its traceback leads to this frame
        del outcome


def _attempt(session: Session, wanted: _Wanted, begun: bool) -> tuple[Any, bool] | DBAPIError:
    try:
        return _read_or_insert(session, wanted)
    except _Gone as gone:
        return cast("IntegrityError", gone.__cause__)
    except StaleSnapshot as stale:
        if begun:
            raise
        outcome: DBAPIError = cast("IntegrityError", stale.violation)
    except DBAPIError as error:
        if begun or not is_transient(error):
            raise
        outcome = error
    session.rollback()
    return outcome


def _read_or_insert(session: Session, wanted: _Wanted) -> tuple[Any, bool]:
    connection = session.connection(bind_arguments={"mapper": wanted.mapper})
    if any(map(_is_null, wanted.identity.values())):
        _check_nulls(connection, wanted)
    if (row := _read(session, wanted)) is not None:
        return row, False
    is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite:
        take_write_lock(connection, wanted.mapper.local_table)
    # outside of the try, because it writes what the caller left pending: refusals of that are the caller's
    savepoint = session.begin_nested()
    try:
        with savepoint:
            row = wanted.mapper.class_(**wanted.values)
            session.add(row)
            session.flush()
        return row, True
    except IntegrityError as refusal:
        if not collides(refusal):
            raise
        if (existing := _read(session, wanted)) is not None:
            return existing, False
        # the only writer sees everything
        if is_sqlite or in_the_way(session, wanted.mapper, row, refusal):
            raise
        if connection.get_isolation_level() in _ONE_SNAPSHOT:
            raise StaleSnapshot(str(wanted), refusal) from refusal
        raise _Gone from refusal


def _check_nulls(connection: Connection, wanted: _Wanted) -> None:
    tables: dict[FromClause, dict[str, bool]] = {}
    for name, value in wanted.identity.items():
        for column in _columns(wanted.mapper, name):
            tables.setdefault(column.table, {})[column.name] = (
                _is_null(value) and column.nullable is not False
            )
    for table, is_null in tables.items():
        if not isinstance(table, Table) or connection.dialect.name not in ("postgresql", "sqlite"):
            continue
        quoted = connection.dialect.identifier_preparer.format_table(cast("Any", table))
        identity = Identity.of(quoted, is_null)
        if not is_known(connection.engine, identity):
            sql, values = catalogue_query(quoted, connection.dialect.name == "sqlite")
            rows = [dict(row) for row in connection.execute(text(sql), values).mappings()]
            check(connection.engine, identity, rows, "identity")


def _columns(mapper: Mapper[Any], name: str) -> Iterable[Any]:
    attribute = mapper.attrs.get(name)
    if isinstance(attribute, RelationshipProperty):
        return cast("Any", attribute).local_columns
    return attribute.columns[:1] if isinstance(attribute, ColumnProperty) else ()


def _is_null(value: object) -> bool:
    return value is None or isinstance(value, Null)


def _read(session: Session, wanted: _Wanted) -> Any:
    return session.scalars(select(wanted.mapper).filter_by(**wanted.identity)).one_or_none()
