"""The requests of `get_or_create_row` to the database, in the order of `_get_or_create`."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from tenure.sql._index_columns import INDEX_COLUMNS
from tenure.sql._nulls import Identity, catalogue_query, check, is_known
from tenure.sql._pauses import pauses
from tenure.sql._refusal import collides, has_code, violated
from tenure.sql._stale import StaleSnapshot

Row = dict[str, Any]

Step = tuple[str, Mapping[str, Any]] | float | None
"""A statement and its values; seconds to pause; None to check that there is a transaction."""
Steps = Generator[Step, list[Row], tuple[Row, bool]]

_SAVEPOINT = "tenure_row"
_ONE_SNAPSHOT = ("repeatable read", "serializable")
_UNFIT = re.compile(r"[%:\0]")


class Wanted(NamedTuple):
    table: str
    where: Mapping[str, Any]
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.table}({', '.join(f'{column}={value!r}' for column, value in self.where.items())})"


def steps(wanted: Wanted, is_sqlite: bool, origin: object) -> Steps:
    """The requests in their order; an error of the database is to be thrown in. -> the row, whether it was created"""
    table = _table(wanted.table)
    identity = Identity.of(table, {column: value is None for column, value in wanted.where.items()})
    if not is_known(origin, identity):
        check(origin, identity, (yield catalogue_query(table, is_sqlite)), "where")
    for pause in (*pauses(), None):
        outcome = yield from _read_or_insert(wanted, is_sqlite)
        if isinstance(outcome, tuple):
            return outcome
        if pause is None:
            try:
                raise outcome
            finally:
                # its traceback leads to this frame
                del outcome
        yield pause
    raise AssertionError("the last attempt returns or raises")


def _read_or_insert(
    wanted: Wanted, is_sqlite: bool
) -> Generator[Step, list[Row], tuple[Row, bool] | Exception]:
    existing = yield from _read(wanted)
    if not is_sqlite:
        yield None
    if existing is not None:
        return existing, False
    table = _table(wanted.table)
    if is_sqlite:
        # deletes nothing, but it is a write: it begins the transaction, and a writer sees everything
        yield f"DELETE FROM {table} WHERE 0", {}  # noqa: S608 quoted
        yield None
    places, values = _numbered(wanted.values)
    insert = f"INSERT INTO {table} ({', '.join(places)}) VALUES ({', '.join(places.values())}) RETURNING *"  # noqa: S608 quoted
    yield f"SAVEPOINT {_SAVEPOINT}", {}
    try:
        (row,) = yield insert, values
        yield f"RELEASE SAVEPOINT {_SAVEPOINT}", {}
        return row, True
    except Exception as refusal:
        # a connection that is lost has nothing to say about this
        with suppress(Exception):
            yield f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", {}
            yield f"RELEASE SAVEPOINT {_SAVEPOINT}", {}
        if not has_code(refusal) or not collides(refusal):
            raise
        if (existing := (yield from _read(wanted))) is not None:
            return existing, False
        if is_sqlite or (yield from _is_in_the_way(wanted, refusal)):
            raise
        (level,) = yield "SELECT current_setting('transaction_isolation') AS name", {}
        if level["name"] in _ONE_SNAPSHOT:
            raise StaleSnapshot(str(wanted), refusal) from refusal
        return refusal


def _read(wanted: Wanted) -> Generator[Step, list[Row], Row | None]:
    rows = yield from _matching("*", wanted.table, wanted.where, 2)
    if len(rows) > 1:
        raise ValueError(f"where must fit one row, not several: {wanted}")
    return rows[0] if rows else None


def _is_in_the_way(wanted: Wanted, refusal: Exception) -> Generator[Step, list[Row], bool]:
    if (names := violated(refusal)) is None:
        return False
    schema, table, constraint = names
    if wanted.table.rpartition(".")[2] != table:
        return False
    rows = yield INDEX_COLUMNS, {"schema": schema, "constraint": constraint}
    columns = [row["attname"] for row in rows]
    if not columns or not wanted.values.keys() >= set(columns):
        return False
    same = yield from _matching("1", wanted.table, {column: wanted.values[column] for column in columns}, 1)
    return bool(same)


def _matching(
    what: str, table: str, where: Mapping[str, Any], limit: int
) -> Generator[Step, list[Row], list[Row]]:
    places, values = _numbered({column: value for column, value in where.items() if value is not None})
    same = [f"{column} = {place}" for column, place in places.items()]
    same += [f"{_name(column)} IS NULL" for column, value in where.items() if value is None]
    return (yield f"SELECT {what} FROM {_table(table)} WHERE {' AND '.join(same)} LIMIT {limit}", values)  # noqa: S608 quoted


def _numbered(values: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    numbered = {f"v{i}": value for i, value in enumerate(values.values())}
    return dict(zip(map(_name, values), (f":{place}" for place in numbered), strict=True)), numbered


def _table(table: str) -> str:
    return ".".join(map(_name, table.split(".")))


def _name(name: str) -> str:
    if not name or _UNFIT.search(name):
        raise ValueError(
            f"names of tables and columns must not be empty, nor have % or : in them, not {name!r}"
        )
    return '"' + name.replace('"', '""') + '"'
