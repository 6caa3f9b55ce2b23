"""Which row a refused one collides with."""

from __future__ import annotations

from typing import Any

from sqlalchemy import inspect, literal, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapper, Session

from tenure.sql._refusal import violated

# The columns of a unique index; none for one with expressions (attnum 0) or a condition, whose rows these columns
# do not tell.
_COLUMNS = text("""
    SELECT a.attname
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid
        AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
    WHERE n.nspname = :schema AND c.relname = :constraint AND i.indpred IS NULL AND i.indexprs IS NULL
        AND i.indisunique
""")


def in_the_way(session: Session, mapper: Mapper[Any], row: object, refusal: IntegrityError) -> bool:
    """Whether a row that collides with the refused `row` can be seen. False too where that cannot be told."""
    if (names := violated(refusal)) is None:
        return False
    schema, table_name, constraint = names
    table = next((table for table in mapper.tables if table.name == table_name), None)
    if table is None:
        return False
    connection = session.connection(bind_arguments={"mapper": mapper})
    columns = connection.scalars(_COLUMNS, {"schema": schema, "constraint": constraint}).all()
    keys = {column: known.key for known in mapper.column_attrs for column in known.columns}
    values = inspect(row).dict
    same: list[Any] = []
    for name in columns:
        column = next((column for column in table.columns if column.name == name), None)
        if column is None or keys.get(column) not in values:
            return False
        same.append(column == values[keys[column]])
    return bool(same) and connection.scalar(select(literal(1)).where(*same).limit(1)) is not None
