from __future__ import annotations

import pytest
from sql.tables import Account, Note, Tag
from sqlalchemy import delete, func, insert, inspect, select
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError, MultipleResultsFound
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import UnmappedClassError

from tenure.sql import StaleSnapshot, get_or_create

DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "pysqlite"])
ONE_SNAPSHOT = pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])


def elsewhere(engine, statement):
    """A function that runs a statement in a transaction of its own."""

    def run():
        with engine.begin() as connection:
            connection.execute(statement)

    return run


def somebody(engine, **values):
    return elsewhere(engine, insert(Account).values(plan="theirs", **values))


def count(engine, model):
    with Session(engine) as session:
        return session.scalar(select(func.count()).select_from(model))


@DRIVERS
def test_the_first_creates_and_the_second_finds(engine_of, driver):
    engine = engine_of(driver)
    with Session(engine) as session, session.begin():
        account, created = get_or_create(session, Account, {"plan": "paid"}, email="a@b")
        assert (account.plan, account.visits, created) == ("paid", 0, True)
        assert get_or_create(session, Account, {"plan": "free"}, email="a@b") == (account, False)
    with Session(engine) as session:
        account, created = get_or_create(session, Account, email="a@b")
        assert (account.plan, created) == ("paid", False)


@DRIVERS
def test_the_loser_of_a_race_gets_the_row_of_the_winner(engine_of, driver, after_reading):
    engine, other = engine_of(driver), engine_of(driver)
    with Session(engine) as session, session.begin():
        with after_reading(engine, "account", somebody(other, email="a@b")):
            account, created = get_or_create(session, Account, {"plan": "mine"}, email="a@b")
        assert (account.plan, created) == ("theirs", False)
    assert count(engine, Account) == 1


def test_the_loser_of_a_race_keeps_its_work(engine_of, after_reading):
    engine, other = engine_of("psycopg"), engine_of("psycopg")
    with Session(engine) as session, session.begin():
        written, changed = Account(email="written"), Account(email="changed")
        session.add_all([written, changed])
        session.flush()
        changed.plan = "paid"
        session.add(Account(email="pending"))
        with after_reading(engine, "account", somebody(other, email="a@b")):
            assert not get_or_create(session, Account, email="a@b")[1]
        assert {"plan", "email"} <= inspect(written).dict.keys(), "nothing of the caller's is read anew"
        assert inspect(changed).dict["plan"] == "paid"
    with Session(engine) as session:
        plans = dict(session.execute(select(Account.email, Account.plan)).all())
    assert plans == {"written": "free", "changed": "paid", "pending": "free", "a@b": "theirs"}


@DRIVERS
def test_the_rollback_of_the_caller_takes_the_row_back(engine_of, driver):
    engine = engine_of(driver)
    with Session(engine) as session:
        assert get_or_create(session, Account, email="a@b")[1]
        session.rollback()
    assert count(engine, Account) == 0


@DRIVERS
def test_what_the_caller_has_pending_is_written_and_its_refusal_is_its_own(engine_of, driver, statements):
    engine = engine_of(driver)
    somebody(engine, email="taken")()
    with Session(engine, autoflush=False) as session:
        session.add(Account(email="taken"))
        with statements(engine) as seen, pytest.raises(IntegrityError):
            get_or_create(session, Account, email="a@b")
    assert not any("'a@b'" in statement for statement in seen)
    assert count(engine, Account) == 1


@DRIVERS
@pytest.mark.parametrize("wrong", [{"title": None}, {"title": "x"}], ids=["not null", "foreign key"])
def test_a_refusal_that_was_no_collision_is_raised_as_it_is(engine_of, driver, wrong, statements):
    engine = engine_of(driver)
    with Session(engine) as session:
        if driver == "pysqlite":
            session.connection().exec_driver_sql("PRAGMA foreign_keys = ON")
        with statements(engine) as seen, pytest.raises(IntegrityError, match=r"(?i)not.null|foreign key"):
            get_or_create(session, Note, wrong, account_id=7)
        assert sum(statement.startswith("SELECT") for statement in seen) == 1
        assert session.scalar(select(func.count()).select_from(Note)) == 0, "the transaction goes on"


@pytest.mark.parametrize(
    ("driver", "level"),
    [
        ("pysqlite", "SERIALIZABLE"),
        ("psycopg", "READ COMMITTED"),
        ("psycopg", "REPEATABLE READ"),
        ("psycopg", "SERIALIZABLE"),
    ],
)
def test_a_collision_with_a_row_not_asked_for_is_raised_at_once(engine_of, driver, level, statements):
    engine = engine_of(driver, isolation_level=level)
    somebody(engine, email="other", slug="same")()
    with Session(engine) as session, statements(engine) as seen:
        with pytest.raises(IntegrityError, match="slug"):
            get_or_create(session, Account, {"slug": "same"}, email="a@b")
        assert sum(statement.startswith("INSERT") for statement in seen) == 1
        account, created = get_or_create(session, Account, {"slug": "another"}, email="a@b")
        session.commit()
        assert created
        assert account.slug == "another"


@DRIVERS
def test_a_unique_constraint_on_a_part_of_the_identity_is_no_race(engine_of, driver, statements):
    engine = engine_of(driver)
    somebody(engine, email="a@b")()
    with Session(engine) as session, statements(engine) as seen:
        with pytest.raises(IntegrityError, match="email"):
            get_or_create(session, Account, email="a@b", plan="mine")
        assert sum(statement.startswith("INSERT") for statement in seen) == 1


@DRIVERS
def test_a_race_that_another_constraint_reports_is_a_race(engine_of, driver, after_reading):
    engine, other = engine_of(driver), engine_of(driver)
    with Session(engine) as session:
        with after_reading(engine, "account", somebody(other, email="a@b", slug="same")):
            account, created = get_or_create(session, Account, {"slug": "same"}, email="a@b")
        assert (account.plan, created) == ("theirs", False)


def test_a_winner_that_goes_again_makes_way(engine_of, after_reading, after_refusal):
    engine, other = engine_of("psycopg"), engine_of("psycopg")
    gone = elsewhere(other, delete(Account))
    with (
        Session(engine) as session,
        after_reading(engine, "account", somebody(other, email="a@b")),
        after_refusal(engine, gone),
    ):
        account, created = get_or_create(session, Account, {"plan": "mine"}, email="a@b")
        assert (account.plan, created) == ("mine", True)


def test_winners_that_come_and_go_for_ever_leave_the_databases_own_error(
    engine_of, before_savepoints, after_refusal, statements
):
    engine, other = engine_of("psycopg"), engine_of("psycopg")
    with Session(engine) as session, session.begin():
        with (
            before_savepoints(engine, somebody(other, email="a@b")),
            after_refusal(engine, elsewhere(other, delete(Account))),
            statements(engine) as seen,
            pytest.raises(IntegrityError, match="email"),
        ):
            get_or_create(session, Account, email="a@b")
        assert sum(statement.startswith("INSERT") for statement in seen) == 5
        assert session.scalar(select(func.count()).select_from(Account)) == 0, "the transaction goes on"


@ONE_SNAPSHOT
def test_a_transaction_begun_by_the_call_begins_again_to_see_the_winner(engine_of, after_reading, level):
    engine, other = engine_of("psycopg", isolation_level=level), engine_of("psycopg", isolation_level=level)
    with Session(engine) as session:
        with after_reading(engine, "account", somebody(other, email="a@b", slug="same")):
            account, created = get_or_create(session, Account, {"slug": "same"}, email="a@b")
        assert (account.plan, created) == ("theirs", False)
        session.commit()


def test_a_transaction_of_the_callers_learns_that_its_snapshot_is_too_old(engine_of, after_reading):
    engine, other = engine_of("psycopg", isolation_level="REPEATABLE READ"), engine_of("psycopg")
    with Session(engine) as session, session.begin():
        session.add(Account(email="written"))
        with after_reading(engine, "account", somebody(other, email="a@b")):
            with pytest.raises(StaleSnapshot, match=r"Account\(email='a@b'\)") as caught:
                get_or_create(session, Account, email="a@b")
        assert isinstance(caught.value.violation, IntegrityError)
        assert session.scalar(select(func.count()).select_from(Account)) == 1, "the transaction goes on"
    assert count(engine, Account) == 2


def test_a_transaction_of_the_callers_gets_the_serialization_failure(engine_of, after_reading):
    engine, other = (engine_of("psycopg", isolation_level="SERIALIZABLE") for _ in range(2))

    def win():
        with Session(other) as session, session.begin():
            get_or_create(session, Account, email="a@b")

    with Session(engine) as session, session.begin():
        with after_reading(engine, "account", win):
            with pytest.raises((DBAPIError, StaleSnapshot)) as caught:
                get_or_create(session, Account, email="a@b")
        session.rollback()
    assert isinstance(caught.value, StaleSnapshot) or caught.value.orig.sqlstate == "40001"


def test_what_collides_in_an_index_of_expressions_is_tried_again(engine_of, after_reading, statements):
    engine, other = engine_of("psycopg"), engine_of("psycopg")
    theirs = elsewhere(other, insert(Tag).values(kind="k", name="a"))
    with Session(engine) as session, statements(engine) as seen:
        with after_reading(engine, "tag", theirs):
            assert not get_or_create(session, Tag, kind="k", name="a")[1]
        with pytest.raises(IntegrityError, match="tag_name"):
            get_or_create(session, Tag, kind="k", name="A")
    assert sum(statement.startswith("INSERT") for statement in seen) == 1 + 5


@pytest.mark.parametrize(
    ("wanted", "harmless"),
    [
        ({"kind": "k", "name": "a"}, {"kind": "k", "name": "b"}),
        ({"place": 1, "removed": False}, {"place": 1, "removed": True}),
    ],
    ids=["an index of expressions", "an index with a condition"],
)
def test_a_row_that_an_index_lets_pass_is_not_in_the_way(
    engine_of, before_savepoints, after_refusal, wanted, harmless
):
    engine, other = engine_of("psycopg"), engine_of("psycopg")
    elsewhere(other, insert(Tag).values({"name": "x", **harmless}))()
    come = [elsewhere(other, insert(Tag).values({"name": "y", **wanted, "id": 99}))]
    with (
        Session(engine) as session,
        before_savepoints(engine, lambda: come and come.pop()()),
        after_refusal(engine, elsewhere(other, delete(Tag).where(Tag.id == 99))),
    ):
        assert get_or_create(session, Tag, {} if "name" in wanted else {"name": "z"}, **wanted)[1]


@DRIVERS
def test_a_relationship_in_the_identity_stays_as_it_was(engine_of, driver, after_reading):
    engine, other = engine_of(driver), engine_of(driver)
    somebody(other, email="a@b", id=1)()
    with Session(engine) as session:
        account = session.get(Account, 1)
        with after_reading(engine, "note", elsewhere(other, insert(Note).values(account_id=1, title="x"))):
            note, created = get_or_create(session, Note, account=account, title="x")
        assert not created
        assert account.notes == [note]
        session.commit()
    assert count(engine, Note) == 1


@DRIVERS
def test_an_identity_that_fits_several_rows_is_refused(engine_of, driver):
    engine = engine_of(driver)
    for email in "ab":
        somebody(engine, email=email)()
    with Session(engine) as session, pytest.raises(MultipleResultsFound):
        get_or_create(session, Account, plan="theirs")


def test_bad_arguments_are_named(engine_of):
    with Session(engine_of("pysqlite")) as session:
        with pytest.raises(ValueError, match=r"^identity must"):
            get_or_create(session, Account, {"plan": "free"})
        with pytest.raises(ValueError, match=r"^defaults must not repeat .*: email$"):
            get_or_create(session, Account, {"email": "a"}, email="b")
        with pytest.raises(TypeError, match=r"^session must be .*, not 'nothing'"):
            get_or_create("nothing", Account, email="b")
        with pytest.raises(UnmappedClassError):
            get_or_create(session, int, email="b")
        assert session.scalar(select(func.count()).select_from(Account)) == 0


@DRIVERS
def test_an_attribute_may_have_the_name_of_a_parameter(engine_of, driver):
    with Session(engine_of(driver)) as session, pytest.raises(InvalidRequestError, match='"session"'):
        get_or_create(session, Account, session="x")
