from __future__ import annotations

from typing import Any

from sqlalchemy import inspect, literal, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapper, Session

from tenure.sql._index_columns import INDEX_COLUMNS
from tenure.sql._refusal import violated


def in_the_way(session: Session, mapper: Mapper[Any], row: object, refusal: IntegrityError) -> bool:
    """True if a row that collides with the refused `row` can be seen. Also False where that is unknown."""
    if (names := violated(refusal)) is None:
        return False
    schema, table_name, constraint = names
    table = next((table for table in mapper.tables if table.name == table_name), None)
    if table is None:
        return False
    connection = session.connection(bind_arguments={"mapper": mapper})
    columns = connection.scalars(text(INDEX_COLUMNS), {"schema": schema, "constraint": constraint}).all()
    keys = {column: attribute.key for attribute in mapper.column_attrs for column in attribute.columns}
    values = inspect(row).dict
    same: list[Any] = []
    for name in columns:
        column = next((column for column in table.columns if column.name == name), None)
        if column is None or keys.get(column) not in values:
            return False
        same.append(column == values[keys[column]])
    return bool(same) and connection.scalar(select(literal(1)).where(*same).limit(1)) is not None
