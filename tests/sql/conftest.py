"""A private PostgreSQL, SQLite files, and hooks that force the races. What is beside is imported as `sql.x`."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

sys.path.append(str(Path(__file__).parents[1]))

from sql.tables import Base


@pytest.fixture(scope="session")
def postgres(postgres_process):
    return postgres_process


@pytest.fixture
def url_of(request, tmp_path):
    """The URL of the database of a driver, its tables empty."""
    made = set()

    def url(driver):
        sqlite = driver in {"pysqlite", "aiosqlite"}
        give = (
            (lambda name: f"sqlite+{name}:///{tmp_path / 'own.db'}")
            if sqlite
            else request.getfixturevalue("postgres").url
        )
        if sqlite not in made:
            made.add(sqlite)
            engine = create_engine(give("pysqlite" if sqlite else "psycopg"))
            Base.metadata.drop_all(engine)
            Base.metadata.create_all(engine)
            engine.dispose()
        return give(driver)

    return url


@pytest.fixture
def engine_of(url_of):
    """Makes engines, `engine_of("psycopg", isolation_level=...)`, and disposes of them."""
    made = []

    def make(driver, **options):
        made.append(create_engine(url_of(driver), **options))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


@pytest.fixture
async def async_engine_of(url_of):
    """The same for asyncio."""
    made = []

    def make(driver, **options):
        made.append(create_async_engine(url_of(driver), **options))
        return made[-1]

    yield make
    for engine in made:
        await engine.dispose()
    if any(engine.dialect.name == "sqlite" for engine in made):
        # SQLAlchemy 2.0 keeps a SQLite file open after an IntegrityError until a collection
        gc.collect()


@contextmanager
def hooked(engine, name, hook):
    engine = getattr(engine, "sync_engine", engine)
    event.listen(engine, name, hook)
    try:
        yield
    finally:
        event.remove(engine, name, hook)


@pytest.fixture
def after_reading():
    """`with after_reading(engine, table, do, times=1)`: `do()` at the end of the first `times` reads of the table."""

    @contextmanager
    def within(engine, table, do, times=1):
        left = [None] * times

        def hook(_connection, _cursor, statement, *_):
            if statement.startswith("SELECT") and f"FROM {table}" in statement and left:
                left.pop()
                do()

        with hooked(engine, "after_cursor_execute", hook):
            yield

    return within


@pytest.fixture
def after_refusal():
    """`with after_refusal(engine, do)`: `do()` whenever the database has refused a statement."""

    @contextmanager
    def within(engine, do):
        with hooked(engine, "handle_error", lambda _context: do()):
            yield

    return within


@pytest.fixture
def before_savepoints():
    """`with before_savepoints(engine, do)`: `do()` between each read and its insert."""

    @contextmanager
    def within(engine, do):
        with hooked(engine, "savepoint", lambda _connection, _name: do()):
            yield

    return within


@pytest.fixture
def statements():
    """`with statements(engine) as seen`: the statements that are sent meanwhile."""

    @contextmanager
    def within(engine):
        seen = []
        with hooked(
            engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: seen.append(statement)
        ):
            yield seen

    return within
