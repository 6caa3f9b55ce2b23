"""None in an identity: refused where the unique constraint ignores NULL, and nowhere else."""

from __future__ import annotations

import contextlib
import sqlite3

import anyio
import asyncpg
import psycopg
import pytest
from sql.tables import Account, Note
from sqlalchemy import create_engine, func, null, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column
from sqlalchemy.types import Integer, String

from tenure.sql import get_or_create, get_or_create_row, get_or_create_row_sync, in_session

DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "pysqlite"])
WHERE = {"name": "a", "user_id": None, "model": None}


class Base(DeclarativeBase):
    pass


class Source(Base):
    __tablename__ = "source"
    id = mapped_column(Integer, primary_key=True)
    name = mapped_column(String)
    user_id = mapped_column(Integer)
    model = mapped_column("Model", String)
    removed = mapped_column(Integer, default=0)


REFUSED = {
    "constraint": '(name, user_id, "Model")',
    "expression of null": '(name, user_id, lower("Model"))',
    "one condition": '(name, user_id) WHERE "Model" IS NULL',
    "for others": "(name) WHERE user_id IS NOT NULL;CREATE UNIQUE INDEX user_id_model ON source (name, user_id)",
    "of another column": "(removed, lower(name));CREATE UNIQUE INDEX user_id_model ON source (name, user_id)",
}
COVERED = {
    "condition": '(name) WHERE user_id IS NULL AND "Model" IS NULL',
    "expressions": "(name, COALESCE(user_id, 0), coalesce(\"Model\", ''))",
    "both": '(name, user_id, "Model");CREATE UNIQUE INDEX of_null ON source (name) WHERE user_id IS NULL',
    "without null": "(name, user_id);CREATE UNIQUE INDEX of_name ON source (name)",
    "soft": "(name, coalesce(user_id, 0)) WHERE removed = 0",
    "none": "",
}
TOGETHER = {"together": '(name, user_id, "Model") NULLS NOT DISTINCT'}


@pytest.fixture
def table(url_of):
    def make(driver, index):
        engine = create_engine(url_of(driver))
        Base.metadata.drop_all(engine)
        Base.metadata.create_all(engine)
        with engine.begin() as connection:
            for statement in f"CREATE UNIQUE INDEX user_id_key ON source {index}".split(";") if index else ():
                connection.execute(text(statement))
        engine.dispose()

    return make


@pytest.fixture
def rows(url_of, tmp_path, postgres):
    """`rows(driver)`: how many rows `get_or_create_row` has made at once, of four callers."""

    def make(driver):
        made = []
        for _ in range(2):
            if driver == "pysqlite":
                db = sqlite3.connect(tmp_path / "own.db")
            else:
                db = psycopg.connect(host=str(postgres.folder), user="tenure", dbname="postgres")
            with contextlib.closing(db):
                where = {"name": "a", "user_id": None, "Model": None}
                made.append(get_or_create_row_sync(db, "source", where=where)[1])
                db.commit()
        return sum(made)

    return make


def created(engine):
    def create(session):
        return get_or_create(session, Source, **WHERE)[1]

    async def several():
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(in_session, engine, create)

    return several


@DRIVERS
@pytest.mark.parametrize("index", REFUSED)
def test_null_is_refused_where_the_index_ignores_it(engine_of, table, rows, driver, index):
    table(driver, REFUSED[index])
    engine = engine_of(driver)
    refused = (
        "^identity must not have None for model, user_id: .* CREATE UNIQUE INDEX ... ON source .name. WHERE"
    )
    for _ in range(2):
        with Session(engine) as session, pytest.raises(ValueError, match=refused):
            get_or_create(session, Source, **WHERE)
        with Session(engine) as session, pytest.raises(ValueError, match="NULLS NOT DISTINCT"):
            get_or_create(session, Source, **{**WHERE, "user_id": null()})
        with pytest.raises(
            ValueError, match="^where must not have None for model, user_id: the unique index user_id_"
        ):
            rows(driver)
    with Session(engine) as session:
        assert get_or_create(session, Source, name="a", user_id=1, model="m")[1]
        assert session.scalar(select(func.count()).select_from(Source)) == 1


@pytest.mark.parametrize(
    ("driver", "index"),
    [(driver, index) for driver in ("psycopg", "pysqlite") for index in COVERED] + [("psycopg", "together")],
)
async def test_null_is_taken_where_an_index_covers_it(engine_of, table, rows, driver, index):
    table(driver, {**COVERED, **TOGETHER}[index])
    engine = engine_of(driver)
    if index != "none":
        await created(engine)()
    with Session(engine) as session, session.begin():
        assert get_or_create(session, Source, **WHERE)[1] is (index == "none")
        assert not get_or_create(session, Source, **WHERE)[1]
    assert rows(driver) == 0
    with Session(engine) as session:
        assert session.scalar(select(func.count()).select_from(Source)) == 1


@DRIVERS
def test_the_catalogue_is_asked_once_for_a_table(engine_of, table, statements, driver):
    table(driver, COVERED["condition"])
    engine = engine_of(driver)
    with statements(engine) as seen:
        for _ in range(3):
            with Session(engine) as session, session.begin():
                get_or_create(session, Source, **WHERE)
        assert len([sql for sql in seen if "pragma_" in sql or "pg_index" in sql]) == 1
        seen.clear()
        with Session(engine) as session:
            get_or_create(session, Source, name="a", user_id=1, model="m")
        assert not [sql for sql in seen if "pragma_" in sql or "pg_index" in sql]


@DRIVERS
def test_a_column_that_is_not_null_and_the_parts_of_a_relationship(engine_of, driver):
    engine = engine_of(driver)
    with Session(engine) as session, session.begin():
        with pytest.raises(IntegrityError):
            get_or_create(session, Note, account=None, title="x")
        with pytest.raises(ValueError, match="^identity must not have None for slug"):
            get_or_create(session, Account, slug=None)
        # another unique column identifies the row
        assert get_or_create(session, Account, slug=None, email="a@b")[1]


@pytest.mark.backends("asyncio", "uvloop")
async def test_with_asynchronous_drivers(url_of, table, postgres):
    table("psycopg", TOGETHER["together"])
    engine = create_async_engine(url_of("asyncpg"))
    async with AsyncSession(engine) as session, session.begin():
        assert (await get_or_create(session, Source, **WHERE))[1]
    db = await asyncpg.connect(host=str(postgres.folder), user="tenure", database="postgres")
    try:
        async with db.transaction():
            where = {"name": "a", "user_id": None, "Model": None}
            schema = await db.fetchval("SELECT current_schema()")
            assert not (await get_or_create_row(db, f"{schema}.source", where=where))[1]
            await db.execute("DROP INDEX user_id_key")
            await db.execute("CREATE UNIQUE INDEX user_id_key ON source (name, user_id)")
            with pytest.raises(ValueError, match="^where must not have None for user_id"):
                await get_or_create_row(db, "source", where={"name": "a", "user_id": None})
    finally:  # uvloop waits for an open connection when it is closed
        await db.close()
        await engine.dispose()
