"""`tenure backup`: copies of SQLite stores that are in use, and what the doctor says of them."""

from __future__ import annotations

import json
import os
import threading

import anyio
import pytest

import tenure

URL = "sqlite:///my jobs%25.db"


@pytest.fixture
def store(here, command):
    """The name of a store's file."""
    assert command("queue", "put", "q", "1", "--store", URL).code == 0
    return here / "my jobs%.db"


def verified(url, name="q"):
    async def ask():
        async with tenure.open_store(url) as store:
            audit = await tenure.WorkQueue(store, name).verify()
            return bool(audit), audit.statistics.put

    return anyio.run(ask)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_copy_of_a_store_in_use_is_whole(command, store, here, backend):
    stop, put = threading.Event(), []

    async def use():
        async with tenure.open_store(URL) as opened:
            queue = tenure.WorkQueue(opened, "busy", max_size=10**6)
            while not stop.is_set():
                put.extend(await queue.put_many(range(100)))

    user = threading.Thread(target=anyio.run, args=(use,), kwargs={"backend": backend})
    user.start()
    try:
        for _ in range(3):
            before = len(put)
            ended = command("backup", "copy.db", "--store", URL)
            assert ended.code == 0, ended.err
            assert ended.out == f"copy.db: {(here / 'copy.db').stat().st_size:,} bytes, checked\n"
            assert sorted(path.name for path in here.glob("copy*")) == ["copy.db"]
            if before:
                well, number = verified("sqlite:///copy.db", "busy")
                assert well
                assert number >= before
    finally:
        stop.set()
        user.join()
    assert verified("sqlite:///copy.db") == (True, 1)


def test_the_doctor_says_how_old_the_last_copy_is(command, store, here):
    def fact():
        return json.loads(command("doctor", URL, "--json").out)["facts"]["last backup"]

    assert fact() == "none beside the file whose name begins with my jobs%"
    for age, day in ((7200, "monday"), (300, "tuesday")):
        name = f"my jobs%-{day}.db"
        assert json.loads(command("backup", name, "--store", URL, "--json").out)["file"] == name
        os.utime(here / name, (os.stat(here / name).st_mtime - age,) * 2)
    (here / "my jobs%.txt").write_text("no copy")
    assert fact() == "my jobs%-tuesday.db, 5 min old, of those beside the file that begin with my jobs%"


def test_what_is_no_earlier_copy_is_left_alone(command, store, here):
    (here / "file").write_text("mine")
    for name, message in (
        ("file", "file is no earlier copy"),
        (store.name, "or is in use"),
        ("a/b", "a/b: not written: unable to open database file"),
        (".", ". is no earlier copy"),
    ):
        ended = command("backup", name, "--store", URL)
        assert (ended.code, ended.err.count("\n")) == (1 if "/" in name else 2, 1)
        assert message in ended.err
    assert (here / "file").read_text() == "mine"
    assert verified(URL) == (True, 1)


def test_a_damaged_store_is_not_copied_over_a_whole_copy(command, store, here):
    for _ in range(30):
        assert command("queue", "put", "q", '"' + "x" * 100_000 + '"', "--store", URL).code == 0
    assert command("backup", "copy.db", "--store", URL).code == 0
    with store.open("r+b") as file:
        file.seek(-700_000, os.SEEK_END)
        file.write(b"\0" * 600_000)
    ended = command("backup", "copy.db", "--store", URL)
    assert ended.code == 1
    assert "copy.db: not written, since the copy is damaged, as my jobs%.db may be: " in ended.err
    assert sorted(path.name for path in here.glob("copy*")) == ["copy.db"]
    assert verified("sqlite:///copy.db") == (True, 31)


def test_misuse(misused):
    assert "use pg_dump for PostgreSQL, and BGSAVE for Redis" in misused(
        "backup", "x", "--store", "redis://h"
    )
    assert "there is no file none.db" in misused("backup", "x", "--store", "sqlite:///none.db")
