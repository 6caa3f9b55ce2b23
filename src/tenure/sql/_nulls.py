"""NULL in an identity: most unique constraints take two NULLs for two values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

# One row for each column of the table and each unique index, ordered by index.
_POSTGRES = """
    SELECT c.relname AS name, coalesce(CAST(to_jsonb(i) ->> 'indnullsnotdistinct' AS boolean), false) AS together,
        CASE WHEN i.indpred IS NULL AND i.indexprs IS NULL THEN '' ELSE pg_catalog.pg_get_indexdef(c.oid) END AS sql,
        a.attname AS "column", NOT a.attnotnull AS nullable, a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) AS is_key
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE i.indrelid = pg_catalog.to_regclass(CAST(:table AS text)) AND i.indisunique AND i.indisvalid
    ORDER BY c.relname
"""
_SQLITE = """
    SELECT l.name AS name, 0 AS together, coalesce(m.sql, '') AS sql, t.name AS "column", NOT t."notnull" AS nullable,
        EXISTS (SELECT 1 FROM pragma_index_info(l.name, :schema) AS x WHERE x.cid = t.cid) AS is_key
    FROM pragma_index_list(:table, :schema) AS l
    JOIN pragma_table_info(:table, :schema) AS t
    LEFT JOIN {schema}.sqlite_master AS m ON m.name = l.name AND m.type = 'index' AND (
        l.partial OR EXISTS (SELECT 1 FROM pragma_index_info(l.name, :schema) WHERE cid = -2)
    )
    WHERE l."unique"
    ORDER BY l.name
"""

_TAKES_NULL = re.compile(r"\b(coalesce|ifnull|case)\b|\bis (not )?(null|distinct)\b", re.IGNORECASE)
"""The parts of an expression that make a value of NULL."""


class Identity(NamedTuple):
    """The columns of a table that make a row, and which of them are to be NULL."""

    table: str
    columns: frozenset[str]
    nulls: frozenset[str]

    @classmethod
    def of(cls, table: str, is_null: Mapping[str, bool]) -> Identity:
        nulls = frozenset(name.lower() for name, null in is_null.items() if null)
        return cls(table, frozenset(name.lower() for name in is_null), nulls)


_known: WeakKeyDictionary[Any, set[Identity]] = WeakKeyDictionary()
"""The identities that need no further look, by engine or connection."""


def catalogue_query(quoted_table: str, is_sqlite: bool) -> tuple[str, dict[str, str]]:
    if not is_sqlite:
        return _POSTGRES, {"table": quoted_table}
    schema, _, table = quoted_table.rpartition(".")
    schema = schema or "main"
    return _SQLITE.format(schema=schema), {"table": _bare(table), "schema": _bare(schema)}


def is_known(connections: object, identity: Identity) -> bool:
    """True if nothing has to be asked: no NULL is in it, or the answer was good before on these connections."""
    return not identity.nulls or (_can_be_kept(connections) and identity in _known.get(connections, ()))


def check(connections: object, identity: Identity, rows: Iterable[Mapping[str, Any]], argument: str) -> None:
    """Raise `ValueError` if all unique indexes for this identity ignore NULL."""
    ignoring = None
    for name, described in groupby(rows, key=lambda row: row["name"]):
        covers = _covers(identity, list(described))
        if covers:
            ignoring = None
            break
        ignoring = name if covers is False else ignoring
    if ignoring is None:
        if _can_be_kept(connections):
            _known.setdefault(connections, set()).add(identity)
        return
    nulls = sorted(identity.nulls)
    others = ", ".join(sorted(identity.columns - identity.nulls)) or "(1)"
    raise ValueError(
        f"{argument} must not have None for {', '.join(nulls)}: the unique index {ignoring} of {identity.table} takes "
        "NULLs for different values, so several callers may create a row each. Make it NULLS NOT DISTINCT (PostgreSQL "
        "15; postgresql_nulls_not_distinct=True in SQLAlchemy), or add CREATE UNIQUE INDEX ... ON "
        f"{identity.table} ({others}) WHERE {' AND '.join(f'{name} IS NULL' for name in nulls)}"
    )


def _covers(identity: Identity, described: list[Mapping[str, Any]]) -> bool | None:
    """True if an index keeps two equal rows apart, False if only NULL prevents that, None if it is for others."""
    _, _, definition = described[0]["sql"].partition("(")
    expressions, _, condition = re.sub(
        r"\bwhere\b", "\0", definition, count=1, flags=re.IGNORECASE
    ).partition("\0")
    columns = {row["column"].lower(): row for row in described}
    keys = {name for name, row in columns.items() if row["is_key"]}
    inside = {name for name in columns.keys() - keys if _names(expressions, name)}
    if not (keys or inside) or not keys | inside <= identity.columns:
        return None
    # a column that is NOT NULL refuses by itself
    nulls = {name for name in identity.nulls & columns.keys() if columns[name]["nullable"]}
    if any(_names(condition, name, r'"?\s+(is\s+not\s+null|notnull)') for name in nulls):
        return None
    if nulls & keys and not described[0]["together"]:
        return False
    return not (nulls & inside and not _TAKES_NULL.search(expressions))


def _can_be_kept(connections: object) -> bool:
    # a connection of sqlite3 cannot, and costs no round trip
    return hasattr(connections, "__weakref__")


def _names(sql: str, column: str, further: str = r"\b") -> bool:
    return re.search(rf"\b{re.escape(column)}{further}", sql, re.IGNORECASE) is not None


def _bare(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
