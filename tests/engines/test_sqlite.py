"""The file: opening and refusing it, sharing it, and what becomes of it when disks are full and processes die."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import depth
import pytest
from contract import set_groups

from tenure import Lock, engine as e, open_store
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite import (
    SqliteEngine,
    _busy_retry,
    _clock,
    _executor,
    _opening,
    _room,
    _thread,
    _waking,
)
from tenure.errors import EngineError, LeaseLost, StoreClosed, StoreUnavailable


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture(params=[False, True], ids=["thread", "inline"])
def inline(request):
    return request.param


@asynccontextmanager
async def serving(engine, process="p1", hints=None):
    """The engine, open for one process, whose hints go into a list."""
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, process, ([] if hints is None else hints).append)
        try:
            yield engine
        finally:
            group.cancel_scope.cancel()


async def one(engine, operation):
    (answer,) = await engine.execute([operation])
    return answer


async def until(condition):
    with anyio.fail_after(50):
        while not condition():
            await anyio.sleep(0.001)


def put(n, *payloads, session="s1"):
    tasks = tuple(e.NewTask(payload) for payload in payloads)
    return e.Put(session, n, "q", (e.PutRequest("m", tasks),))


def lock(path):
    """Another writer, in the middle of its work."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other


# ---------------------------------------------------------------------------------------------- working


async def test_what_is_stored_outlives_the_engine(path, inline):
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 30.0), put(1, b"one", b"two")])
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        answer = await one(engine, e.Exchange("s1", 1, "q", want=5))
        assert [task.payload for task in answer.tasks] == [b"one", b"two"]


async def test_closing_leaves_one_file(path, inline):
    engine = SqliteEngine(path, inline=inline)
    async with serving(engine):
        assert repr(engine).endswith("open>")
        await one(engine, e.OpenSession("s1", "p1", 30.0))
    assert repr(engine).endswith("closed>")
    assert os.listdir(path.parent) == [path.name]


async def test_an_engine_can_serve_again(path, inline):
    engine = SqliteEngine(path, inline=inline)
    for _ in range(3):
        async with serving(engine):
            assert await one(engine, e.Ping()) is e.Reply.OK


async def test_a_client_is_hinted_to_ask_for_everything(path, inline):
    hints = []
    async with serving(SqliteEngine(path, inline=inline), "p1", hints):
        await until(lambda: hints == [e.Hint("p1", "", "", e.Notice.MISSED)])


async def test_several_stores_share_an_engine(path, inline):
    engine = SqliteEngine(path, inline=inline)
    hints = []
    async with serving(engine, "p1"):
        async with serving(engine, "p2", hints):
            await engine.execute([e.OpenSession("s1", "p1", 30.0), e.OpenSession("s2", "p2", 30.0)])
            await engine.execute([e.Acquire("s1", "k", "a", 1), e.Acquire("s2", "k", "b", 1)])
            await one(engine, e.Release("k", "a"))
            await until(lambda: len(hints) == 2)
            assert isinstance(hints[1].news, e.Granted)
        assert await one(engine, e.Ping()) is e.Reply.OK


async def test_without_being_served_nothing_is_executed(path):
    engine = SqliteEngine(path)
    with pytest.raises(StoreUnavailable, match="does not serve"):
        await engine.execute([e.Ping()])
    answers = []
    engine.submit(e.Ping(), answers.append)
    assert answers == []
    with pytest.raises(StoreUnavailable, match="does not serve"):
        await engine.execute([e.Ping()])
    assert [type(answer) for answer in answers] == [e.NotSent]
    assert engine.url == f"sqlite:///{path}"
    assert not path.exists()


@pytest.mark.parametrize("synchronous", [("NORMAL", 1), ("FULL", 2)])
async def test_settings(path, synchronous):
    async with serving(SqliteEngine(path, inline=True, synchronous=synchronous[0])) as engine:
        db = engine._link._file._db
        assert db.execute("PRAGMA synchronous").fetchone()[0] == synchronous[1]
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


# ---------------------------------------------------------------------------------------------- refusing


async def refused(engine, match):
    with pytest.raises(EngineError, match=match) as raised:
        await engine.serve("p1", print)
    assert str(engine._path) in str(raised.value)


@pytest.mark.parametrize("path", ["", ":memory:", "file:store.db?mode=memory"])
def test_a_path_that_means_no_file(path):
    with pytest.raises(ValueError, match="memory engine"):
        SqliteEngine(path)


def test_wrong_arguments(path):
    with pytest.raises(ValueError, match="synchronous"):
        SqliteEngine(path, synchronous="OFF")
    with pytest.raises(ValueError, match="busy_timeout"):
        SqliteEngine(path, busy_timeout=float("nan"))


async def test_a_file_that_is_no_database(path, inline):
    path.write_bytes(b"something else entirely, and longer than a header\n" * 100)
    before = path.read_bytes()
    await refused(SqliteEngine(path, inline=inline), "is not a SQLite database")
    assert path.read_bytes() == before


async def test_the_database_of_another_application(path, inline):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (a)")
    db.close()
    before = path.read_bytes()
    await refused(SqliteEngine(path, inline=inline), "another application")
    assert path.read_bytes() == before


async def test_the_empty_database_of_another_application(path):
    db = sqlite3.connect(path)
    db.execute("PRAGMA application_id = 12345")
    db.close()
    await refused(SqliteEngine(path), "another application")


async def test_the_schema_of_a_newer_version(path):
    async with serving(SqliteEngine(path)):
        pass
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    await refused(SqliteEngine(path), "schema version 99")


async def test_an_older_file_is_brought_up_to_date(path, monkeypatch):
    async with serving(SqliteEngine(path)) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 30.0), put(1, b"one", b"two")])
    steps = {
        1: ("CREATE TABLE never (n)",),
        2: ("CREATE TABLE second (n)",),
        3: ("ALTER TABLE second ADD COLUMN name", "INSERT INTO second VALUES (3, 'it''s done')"),
    }
    monkeypatch.setattr(_opening, "_STEPS", steps)
    monkeypatch.setattr(_opening, "VERSION", 3)
    for _ in range(2):
        async with serving(SqliteEngine(path)) as engine:
            assert (await one(engine, e.Count("q"))).put == 2
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchall() == [(3,)]
    assert db.execute("SELECT * FROM second").fetchall() == [(3, "it's done")]
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'never'").fetchall() == [(0,)]
    db.close()


async def test_a_step_that_fails_changes_nothing(path, monkeypatch):
    async with serving(SqliteEngine(path)):
        pass
    monkeypatch.setattr(_opening, "_STEPS", {2: ("CREATE TABLE second (n)", "SELECT nonsense")})
    monkeypatch.setattr(_opening, "VERSION", 2)
    await refused(SqliteEngine(path), "nonsense")
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchall() == [(1,)]
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'second'").fetchall() == [(0,)]
    db.close()


NO_TEXT = ("\0", "a\0b", "\ud800", "\ud83d\ude00", "\U0001f600", "\uffff")


async def test_names_of_groups_that_are_no_text(path):
    async with serving(SqliteEngine(path, inline=True)) as engine:
        tasks = tuple(e.NewTask(b"", group=name) for name in NO_TEXT)
        put_them = e.Put("s1", 1, "q", (e.PutRequest("m", tasks),))
        weights = tuple((name, 1.0) for name in NO_TEXT)
        await engine.execute([e.OpenSession("s1", "p1", 30.0), set_groups("q", 1, 0, weights), put_them])
        page = await one(engine, e.Scan(e.TASKS["waiting"], "q", limit=2))
        shown = [record.group for record in page.rows]
        while page.next:
            page = await one(engine, e.Scan(e.TASKS["waiting"], "q", page.next, 2))
            shown += [record.group for record in page.rows]
        assert shown == sorted(NO_TEXT)
        assert [g.group for g in (await one(engine, e.Scan(e.GROUPS, "q"))).rows] == shown
        taken = (await one(engine, e.Exchange("s1", 1, "q", want=10))).tasks
        assert [task.group for task in taken] == shown


@pytest.mark.parametrize(
    "after", ["1 2 3", "1, 2, 3, 4", '"g", 2, 3', '"g", 2, 3, "4"', "g", '"g", 2, null, 4', '"g", 2, 3, 4]']
)
async def test_a_page_of_waiting_tasks_that_never_was(path, after):
    async with serving(SqliteEngine(path, inline=True)) as engine:
        with pytest.raises(EngineError, match="no page of waiting ended"):
            raise await one(engine, e.Scan(e.TASKS["waiting"], "q", after))


async def test_a_directory(tmp_path):
    await refused(SqliteEngine(tmp_path), "is a directory")


async def test_a_missing_directory(tmp_path):
    await refused(SqliteEngine(tmp_path / "missing" / "store.db"), "no directory .*missing; make it")


def connect_with(monkeypatch, mode):
    connect = sqlite3.connect

    def connect_in_mode(name, **options):
        return connect(f"file:{name}?mode={mode}", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", connect_in_mode)


async def test_a_read_only_file(path, monkeypatch):
    async with serving(SqliteEngine(path)):
        pass
    connect_with(monkeypatch, "ro")
    await refused(SqliteEngine(path), "is read-only")


async def test_a_place_where_no_file_can_be_made(path, monkeypatch):
    connect_with(monkeypatch, "rw")
    await refused(SqliteEngine(path), "cannot be opened")


async def test_a_network_file_system(path, monkeypatch):
    mounts = path.with_name("mounts")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/export {path.parent} nfs4 rw 0 0\n")
    monkeypatch.setattr(_opening, "_MOUNTS", mounts)
    await refused(SqliteEngine(path), r"network file system \(nfs4\)")


def test_the_kind_of_a_file_system(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(_opening, "_MOUNTS", mounts)
    assert _opening.file_system(tmp_path) == ""
    (tmp_path / "a b" / "c").mkdir(parents=True)
    lines = ["/dev/vda / ext4 rw 0 0", f"//server/share {tmp_path}/a\\040b cifs rw 0 0"]
    mounts.write_text("\n".join(lines))
    assert _opening.file_system(tmp_path) == "ext4"
    assert _opening.file_system(tmp_path / "a b" / "c") == "cifs"
    mounts.write_text("\n".join([*lines, f"tmpfs {tmp_path}/a\\040b tmpfs rw 0 0"]))
    assert _opening.file_system(tmp_path / "a b" / "c") == "tmpfs"


async def test_an_old_library(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    await refused(SqliteEngine(path), r"3\.35 or later")


async def test_a_damaged_file(path, inline):
    async with serving(SqliteEngine(path)) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 30.0), put(1, *[b"x" * 3000] * 200)])
    content = bytearray(path.read_bytes())
    content[200 * 4096 : 230 * 4096] = os.urandom(30 * 4096)
    content[8192:12288] = os.urandom(4096)
    path.write_bytes(content)
    with pytest.RaisesGroup(pytest.RaisesExc(EngineError, match="is damaged"), flatten_subgroups=True):
        async with serving(SqliteEngine(path, inline=inline)) as engine:
            answers = await engine.execute(
                [e.Scan(e.TASKS["waiting"], "q", limit=1000), e.Exchange("s1", 2, "q", want=200)]
            )
            raise next(answer for answer in answers if isinstance(answer, EngineError))


# ---------------------------------------------------------------------------------------------- the disk


async def test_a_full_disk(path):
    async with serving(SqliteEngine(path, inline=True)) as engine:
        db = engine._link._file._db
        await engine.execute([e.OpenSession("s1", "p1", 300.0), put(1, b"first")])
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 20}")
        small, big, lease = await engine.execute(
            [put(2, b"second"), put(3, b"x" * 500_000), e.Acquire("s1", "k", "a", 1)]
        )
        assert isinstance(small, e.PutAnswer)
        assert isinstance(big, EngineError)
        assert "disk is full" in str(big)
        assert isinstance(lease, e.Granted)
        assert (await one(engine, e.Count("q", recount=True))).waiting == 2
        db.execute("PRAGMA max_page_count = 100000")
        assert isinstance(await one(engine, put(3, b"x" * 500_000)), e.PutAnswer)
        trusted, counts = await engine.execute([e.Count("q"), e.Count("q", recount=True)])
        assert trusted == counts
        assert counts.put == counts.waiting == 3


async def test_a_put_leaves_room_for_the_rest(path, monkeypatch, inline):
    disk = SimpleNamespace(total=100 << 30, free=17 << 20)
    monkeypatch.setattr(_room.shutil, "disk_usage", lambda _: disk)
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        answers = await engine.execute(
            [e.OpenSession("s1", "p1", 300.0), put(1, b"x" * 100_000), put(2, b"x" * 1_000_000)]
        )
        assert isinstance(answers[1], e.PutAnswer)
        assert f"{path} cannot grow: the disk is full" in str(answers[2])
        disk.free = 1 << 20
        big, small, lease, taken = await engine.execute(
            [
                put(3, b"x" * 100_000),
                put(4, b"x"),
                e.Acquire("s1", "k", "a", 1, 1, b"x" * 100_000),
                e.Exchange("s1", 1, "q", want=1),
            ]
        )
        assert isinstance(big, EngineError)
        assert isinstance(small, e.PutAnswer)  # in a page that is there
        assert isinstance(lease, e.Granted)
        assert len(taken.tasks) == 1
        disk.free = 1 << 40
        assert isinstance(await one(engine, put(5, b"x" * 1_000_000)), e.PutAnswer)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk]
    try:
        refused = subprocess.run(mount, capture_output=True, check=False).returncode
    except OSError:
        refused = True
    if refused:
        pytest.skip("this user may not mount a disk")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.parametrize("size", [pytest.param(100, marks=pytest.mark.full), 5000, 50_000])
@pytest.mark.parametrize("taken", [False, True], ids=["by the store", "by others"])
async def test_what_gives_back_works_on_a_full_disk(small_disk, inline, size, taken):
    path = small_disk / "store.db"
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 300.0), e.Acquire("s1", "k", "a", 1)])
        stored, n = 0, 1
        while not isinstance(answer := await one(engine, put(n, *[b"x" * size] * 5)), EngineError):
            stored, n = stored + 5, n + 1
        assert f"{path} cannot grow: the disk is full" in str(answer)
        if taken:  # to the last byte
            with pytest.raises(OSError, match="No space left"), open(small_disk / "other", "wb", 0) as other:
                while True:
                    other.write(b"x" * 4096)
            assert shutil.disk_usage(small_disk).free == 0
        for _ in range(depth.share(200)):
            assert await one(engine, e.RenewSession("s1")) is e.Reply.OK
            assert await one(engine, e.Release("k", "a")) is e.Reply.RELEASED
            assert isinstance(await one(engine, e.Acquire("s1", "k", "a", 1)), e.Granted)
        if not taken:
            (task,) = (await one(engine, e.Exchange("s1", 1, "q", want=1))).tasks
            settle = e.Settle(task.id, task.token, e.Verdict.DONE, b"result")
            assert (await one(engine, e.Exchange("s1", 2, "q", (settle,)))).refused == ()
            stored -= 1
        purged = 0
        while rows := (await one(engine, e.Scan(e.TASKS["waiting"], "q"))).rows:
            purged += (await one(engine, e.Move("q", tuple(row.id for row in rows), "purged"))).count
        assert purged == stored
        assert isinstance(await one(engine, put(n, *[b"x" * size] * 5)), e.PutAnswer)
        assert await one(engine, e.RenewSession("s1")) is e.Reply.OK


async def test_outdated_records_and_hints_are_forgotten(path):
    now = 1000.0
    async with serving(SqliteEngine(path, inline=True, clock=lambda: now)) as engine:
        db = engine._link._file._db
        await engine.execute([e.OpenSession("s1", "p1", 10**6), e.OpenSession("s2", "elsewhere", 10**6)])
        settle = ()
        for n in range(1, 51):
            now += 70.0
            await one(engine, put(n, *[b"x"] * 20))
            await one(engine, e.Exchange("s2", n, "q", want=1000, wait=True))
            exchanged = await one(engine, e.Exchange("s1", n, "q", settle, want=20))
            settle = tuple(
                e.Settle(task.id, task.token, e.Verdict.DONE, ttl=100.0) for task in exchanged.tasks
            )
            await engine.execute(
                [e.Acquire("s1", "k", "a", 1), e.Acquire("s2", "k", f"b{n}", 1), e.Release("k", "a")]
            )
            await one(engine, e.Release("k", f"b{n}"))
        assert db.execute("SELECT count(*) FROM ended").fetchone()[0] < 100
        assert 0 < db.execute("SELECT count(*) FROM hint").fetchone()[0] < 10


# ---------------------------------------------------------------------------------------------- sharing


async def test_more_dead_letters_are_outdated_than_one_step_deletes(path):
    now = 1000.0
    async with serving(SqliteEngine(path, clock=lambda: now, inline=True)) as engine:
        await one(engine, e.OpenSession("s1", "p1", 30.0))
        for n in range(1, 6, 2):
            await one(engine, put(n, *[b"x"] * 200))
            tasks = (await one(engine, e.Exchange("s1", n, "q", want=200))).tasks
            settle = tuple(e.Settle(task.id, task.token, e.Verdict.DEAD, ttl=9.0) for task in tasks)
            await one(engine, e.Exchange("s1", n + 1, "q", settle))
        await one(engine, e.Put("s1", 6, "q", (e.PutRequest("m", (e.NewTask(b"y"),)),)))
        now += 10
        # what is left of them keeps the queue and its counts
        assert [await one(engine, e.Count("q")) for _ in range(2)] == [e.Reply.MORE] * 2
        counts = await one(engine, e.Count("q"))
        assert (counts.put, counts.dead, counts.purged, counts.waiting) == (601, 0, 600, 1)
        counts = await one(engine, e.Count("q", recount=True))
        assert (counts.dead, counts.waiting) == (0, 1)


async def test_a_task_that_nobody_follows_needs_no_statement_more(path):
    db, _ = _opening.open_file(path, _clock.Clocks(), "NORMAL", _busy_retry.BusyRetry("", 1.0))
    executor = _executor.Executor(db, _clock.Clocks())
    executor.execute([e.OpenSession("s1", "p1", 30.0), put(1, b"one", b"two", b"three")])
    (one, two, three), *_ = [executor.execute([e.Exchange("s1", 2, "q", want=3)])[0][0].tasks]
    executor.execute([e.GetResult("q", one.id, "s1")])
    statements = []
    db.set_trace_callback(statements.append)
    settle = [e.Settle(one.id, one.token, e.Verdict.DONE), e.Settle(two.id, two.token, e.Verdict.RETRY)]
    _, hints, _ = executor.execute([e.Exchange("s1", 3, "q", tuple(settle), want=1)])
    assert [hint.news for hint in hints] == [e.Notice.FINISHED]
    assert not any("watch" in sql and "'change'" in sql for sql in statements[2:])
    executor.execute([e.Scan(e.TASK, "q", only=str(three.id), watch="s1")])
    _, hints, _ = executor.execute([e.Progress("q", three.id, three.token, b"half")])
    assert hints == [e.Hint("p1", "q", str(three.id), e.Notice.CHANGED)]
    db.close()


async def test_hints_reach_another_engine_of_this_process_at_once(path, inline, monkeypatch):
    # looking would take longer than this test may
    monkeypatch.setattr("tenure.engines.sqlite._thread.SHORTEST", 1000.0)
    monkeypatch.setattr("tenure.engines.sqlite._thread.LONGEST", 1000.0)
    monkeypatch.setattr("tenure.engines.sqlite._inline.SHORTEST", 1000.0)
    hints = []
    async with (
        serving(SqliteEngine(path, inline=inline), "p1") as first,
        serving(SqliteEngine(path, inline=inline), "p2", hints) as second,
    ):
        await first.execute([e.OpenSession("s1", "p1", 30.0), e.Acquire("s1", "k", "a", 1)])
        await second.execute([e.OpenSession("s2", "p2", 30.0), e.Acquire("s2", "k", "b", 1)])
        await one(first, e.Release("k", "a"))
        await until(lambda: len(hints) == 2)
        assert (hints[1].key, hints[1].name) == ("k", "b")


async def test_all_kinds_of_hints_cross_the_file(path):
    hints = []
    async with (
        serving(SqliteEngine(path, inline=True), "p1") as first,
        serving(SqliteEngine(path, inline=True), "p2", hints) as second,
    ):
        await second.execute([e.OpenSession("s2", "p2", 30.0), e.Acquire("s2", "k", "b", 1)])
        await first.execute(
            [e.OpenSession("s1", "p1", 30.0), e.AddResource("k", "x", (("zone", b"\xff\0"),))]
        )
        await first.execute([e.Claim("s1", "k", "a"), e.Acquire("s1", "k", "a", 1)])
        await second.execute(
            [e.Claim("s2", "k", "b"), e.Acquire("s2", "l", "b", 2, 0), e.Acquire("s2", "m", "b", 2, 0)]
        )
        await second.execute(
            [e.Exchange("s2", 1, "q", want=1), e.Release("k", "b"), e.Acquire("s2", "k", "c", 1)]
        )
        await first.execute(
            [e.GiveBack("k", "a"), e.Acquire("s1", "l", "a", 2, 0), e.Resize("m", e.BROKEN), put(1, b"x")]
        )
        await first.execute([e.Release("k", "a")])
        await until(lambda: len(hints) == 6)
        assert [type(hint.news) for hint in hints[1:]] == [
            e.Claimed,
            e.Granted,
            e.Notice,
            e.Notice,
            e.Granted,
        ]
        assert hints[1].news.metadata == (("zone", b"\xff\0"),)


CHILD = """
import anyio, sys
from tenure import engine as e
from tenure.engines.sqlite import SqliteEngine, _thread, _waking

if sys.argv[2] == "datagrams":
    _thread.SHORTEST = _thread.LONGEST = 1000.0
elif sys.argv[2] == "lost datagrams":
    _waking.Waker.wake = lambda *_: None
else:
    _thread.listen = lambda *_: None

async def main(path):
    engine = SqliteEngine(path)
    hints = []
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "child", hints.append)
        await engine.execute([e.OpenSession("child", "child", 30.0), e.Acquire("child", "k", "c", 1)])
        print("waiting", flush=True)
        while not any(isinstance(hint.news, e.Granted) for hint in hints):
            await anyio.sleep(0.001)
        print("granted", flush=True)
        await engine.execute([e.Release("k", "c"), e.CloseSession("child")])
        group.cancel_scope.cancel()

anyio.run(main, sys.argv[1])
"""


@pytest.mark.parametrize(
    "how",
    [
        "looks",
        "lost datagrams",
        pytest.param("datagrams", marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux only")),
    ],
)
async def test_hints_reach_another_process(path, monkeypatch, how):
    if how == "datagrams":  # looking would take longer than this test may
        monkeypatch.setattr("tenure.engines.sqlite._thread.SHORTEST", 1000.0)
        monkeypatch.setattr("tenure.engines.sqlite._thread.LONGEST", 1000.0)
    elif how == "lost datagrams":  # as in another container
        monkeypatch.setattr("tenure.engines.sqlite._waking.Waker.wake", lambda *_: None)
    else:  # as on another system
        monkeypatch.setattr("tenure.engines.sqlite._thread.listen", lambda *_: None)
    hints = []
    async with serving(SqliteEngine(path), "p1", hints) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 30.0), e.Acquire("s1", "k", "a", 1)])
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, path, how], stdout=subprocess.PIPE, text=True
        ) as child:
            assert await anyio.to_thread.run_sync(child.stdout.readline) == "waiting\n"
            await engine.execute([e.Acquire("s1", "k", "b", 1), e.Release("k", "a")])
            assert await anyio.to_thread.run_sync(child.stdout.readline) == "granted\n"
            await until(lambda: len(hints) == 2)
            assert hints[1].name == "b"
            assert child.wait(10) == 0


class Flooded(socket.socket):
    """Another datagram comes for each that is taken in."""

    def recv(self, size):
        self.sendto(b"x" * 1000, self.getsockname())
        return super().recv(size)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_whoever_floods_a_process_with_datagrams_does_not_stop_its_loop():
    with Flooded(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.setblocking(False)
        listening.bind("")  # the system chooses a name
        listening.sendto(b"", listening.getsockname())
        _waking.take_in(listening)


async def test_while_the_file_is_locked_many_datagrams_make_one_look():
    looks, locked = [], threading.Event()
    runner = _thread.EngineThread("test", lambda: bool(looks.append(None)))
    runner.start(locked.wait, lambda _: None)
    for _ in range(1000):
        runner.poke()
    locked.set()
    await runner.call(lambda: None)
    runner.poke()
    await runner.end(lambda: None)
    assert len(looks) == 2


OPENER = """
import anyio, sys
from tenure.engines.sqlite import SqliteEngine

async def main(path):
    async with anyio.create_task_group() as group:
        await group.start(SqliteEngine(path).serve, "p", lambda hint: None)
        group.cancel_scope.cancel()

sys.stdin.readline()
anyio.run(main, sys.argv[1])
"""


@pytest.mark.one_loop
async def test_two_open_a_fresh_file_at_once(path):
    children = [
        subprocess.Popen([sys.executable, "-c", OPENER, path], stdin=subprocess.PIPE, text=True)
        for _ in range(4 if depth.full else 2)
    ]
    await anyio.sleep(1.0)  # until all of them have imported everything
    for child in children:
        child.stdin.write("\n")
        child.stdin.close()
    assert [child.wait(20) for child in children] == [0] * len(children)


async def test_a_batch_waits_while_another_writes_and_the_loop_goes_on(path):
    async with serving(SqliteEngine(path)) as engine:
        await one(engine, e.Ping())
        other = lock(path)
        turns = 0
        async with anyio.create_task_group() as group:

            async def batch():
                assert await one(engine, e.Ping()) is e.Reply.OK
                group.cancel_scope.cancel()

            group.start_soon(batch)
            while True:
                await anyio.sleep(0.01)
                turns += 1
                if turns == 20:
                    other.execute("COMMIT")
                    other.close()
        assert turns >= 20


async def test_a_file_that_stays_locked(path, inline):
    async with serving(SqliteEngine(path, inline=inline, busy_timeout=0.1)) as engine:
        await one(engine, e.OpenSession("s1", "p1", 30.0))
        other = lock(path)
        start = time.monotonic()
        with pytest.raises(
            StoreUnavailable, match="locked for 0.1 s by another connection to the file, of this process or"
        ):
            await engine.execute([e.Acquire("s1", "k", "a", 1)])
        assert time.monotonic() - start >= 0.1
        other.close()
        assert await one(engine, e.Ask("s1", "k", ("a",))) == e.HoldStatuses((e.Reply.UNKNOWN,))


async def test_opening_waits_for_the_lock_only_to_make_the_tables(path, inline, monkeypatch):
    """The lock may be the caller's own."""
    other = lock(path)
    with pytest.raises(StoreUnavailable):
        await SqliteEngine(path, inline=inline, busy_timeout=0.1).serve("p1", print)
    other.close()
    async with serving(SqliteEngine(path)) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 3000.0)])
    other = lock(path)
    monkeypatch.setattr(_opening, "boot_id", lambda: "another boot")
    async with serving(SqliteEngine(path, inline=inline, busy_timeout=1000.0)) as engine:
        other.close()
        assert await one(engine, e.RenewSession("s1")) is e.Reply.GONE


async def test_closing_does_not_wait_for_the_lock(path):
    # longer than this test may take
    async with serving(SqliteEngine(path, busy_timeout=1000.0)) as engine:
        other = lock(path)
        with anyio.move_on_after(0.05):
            await one(engine, e.Ping())
    other.close()


async def test_a_cancelled_opening_leaves_nothing(path):
    other = lock(path)
    engine = SqliteEngine(path, busy_timeout=1000.0)  # longer than this test may take
    with anyio.move_on_after(0.05):
        await engine.serve("p1", print)
    assert threading.active_count() == 1 or "tenure" not in str(threading.enumerate())
    other.close()
    async with serving(engine):
        assert await one(engine, e.Ping()) is e.Reply.OK


async def test_a_cancelled_batch_is_applied_all_the_same(path):
    async with serving(SqliteEngine(path)) as engine:
        await one(engine, e.OpenSession("s1", "p1", 30.0))
        other = lock(path)
        with anyio.move_on_after(0.05) as scope:
            await engine.execute([e.Acquire("s1", "k", "a", 1)])
        assert scope.cancelled_caught
        other.execute("COMMIT")
        other.close()
        (answer,) = (await one(engine, e.Ask("s1", "k", ("a",)))).answers
        assert isinstance(answer, e.Granted)


# ---------------------------------------------------------------------------------------------- dying

WRITER = """
import anyio, sys
from tenure import engine as e
from tenure.engines.sqlite import SqliteEngine

async def main(path):
    engine = SqliteEngine(path)
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "child", lambda hint: None)
        await engine.execute([e.OpenSession("child", "child", 0.05)])
        settle = ()
        print("ready", flush=True)
        for n in range(1, 10**6):
            tasks = (e.NewTask(b"x" * 500), e.NewTask(b"y", delay=0.001), e.NewTask(b"z", expires=0.01))
            answers = await engine.execute([
                e.OpenSession("child", "child", 0.05),
                e.Put("child", n, "q", (e.PutRequest("m", tasks),)),
                e.Exchange("child", n, "q", settle, want=5),
            ])
            taken = answers[2].tasks
            settle = tuple(e.Settle(t.id, t.token, list(e.Verdict)[t.id % 6], ttl=1.0) for t in taken[1:])

anyio.run(main, sys.argv[1])
"""


@pytest.mark.backends("asyncio")
async def test_killed_in_the_middle(path):
    for rest in (0.05, 0.15, 0.25, 0.1, 0.2) if depth.full else (0.15, 0.2):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
        ) as child:
            await anyio.to_thread.run_sync(child.stdout.readline)
            await anyio.sleep(rest)
            child.send_signal(signal.SIGKILL)
        await anyio.sleep(0.1)
        async with serving(SqliteEngine(path)) as engine:
            while await one(engine, e.Ping()) is e.Reply.MORE:
                pass
            trusted, counted = await engine.execute([e.Count("q"), e.Count("q", recount=True)])
            assert trusted == counted
            assert counted.leased == 0
            ended = counted.done + counted.dead + counted.cancelled + counted.expired + counted.discarded
            ended += counted.purged  # dead letters whose ttl has passed
            assert counted.put == counted.waiting + counted.delayed + ended > 0
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


async def test_sessions_end_with_the_boot(path, monkeypatch, inline):
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 3000.0), put(1, b"x"), e.Acquire("s1", "k", "a", 1)])
        await engine.execute([e.Exchange("s1", 1, "q", want=1)])
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        assert (await one(engine, e.Count("q"))).leased == 1
    monkeypatch.setattr(_opening, "boot_id", lambda: "another boot")
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        assert await one(engine, e.RenewSession("s1")) is e.Reply.GONE
        assert (await one(engine, e.Count("q"))).waiting == 1
        assert (await one(engine, e.Scan(e.HOLDERS, "k"))).used == 0


async def test_sessions_end_with_the_boot_where_boots_have_no_name(path, monkeypatch):
    monkeypatch.setattr(_opening, "boot_id", lambda: "")
    for now, answer in ((5000.0, e.Reply.OK), (4990.0, e.Reply.OK), (10.0, e.Reply.GONE)):
        async with serving(SqliteEngine(path, inline=True, clock=lambda now=now: now)) as engine:
            if now == 5000.0:
                await one(engine, e.OpenSession("s1", "p1", 100.0))
            if now == 4990.0:
                continue
            assert await one(engine, e.RenewSession("s1")) is answer


# ---------------------------------------------------------------------------------------------- clocks


OTHER = """
import anyio, sys
from tenure import engine as e
from tenure.engines.sqlite import SqliteEngine

async def main(path):
    engine = SqliteEngine(path)
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "child", lambda hint: None)
        while sys.stdin.readline():
            _, answer = await engine.execute(
                [e.OpenSession("child", "child", 0.5), e.Acquire("child", "k", "b", 1)]
            )
            print(type(answer).__name__, flush=True)

anyio.run(main, sys.argv[1])
"""

SHIFTED = ["unshare", "--time", "--boottime", "3600", "--fork", "--kill-child"]


def can_shift_time():
    try:
        return not subprocess.run([*SHIFTED, "true"], capture_output=True, check=False).returncode
    except OSError:
        return False


@pytest.mark.skipif(not can_shift_time(), reason="this user may not make a time namespace")
@pytest.mark.backends("asyncio")
async def test_processes_of_two_time_namespaces_share_the_file(path):
    async with serving(SqliteEngine(path)) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 30.0), e.Acquire("s1", "k", "a", 1)])
        with subprocess.Popen(
            [*SHIFTED, sys.executable, "-c", OTHER, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:

            def ask():
                child.stdin.write("\n")
                child.stdin.flush()
                return child.stdout.readline()

            assert await anyio.to_thread.run_sync(ask) == "Queued\n"
            assert await one(engine, e.RenewSession("s1")) is e.Reply.OK
            assert await one(engine, e.Release("k", "a")) is e.Reply.RELEASED
            assert await anyio.to_thread.run_sync(ask) == "Granted\n"
            answer = await one(engine, e.Acquire("s1", "k", "a", 1))
            assert isinstance(answer, e.Queued)
            assert 0 <= answer.ask_again_in <= 0.5
            child.kill()
        with anyio.fail_after(5):
            while not isinstance(await one(engine, e.Acquire("s1", "k", "a", 1)), e.Granted):
                await anyio.sleep(0.05)


def test_the_clock_goes_on_in_another_time_namespace(tmp_path, monkeypatch):
    offsets, now, shift = tmp_path / "timens_offsets", 5000.0, 0
    monkeypatch.setattr(_clock, "_SELF", tmp_path)
    monkeypatch.setattr(_clock.time, "time", lambda: now + 10**9)
    monkeypatch.setattr(_clock.time, "clock_gettime", lambda _: now + shift)
    clock = _clock.SinceBoot()
    assert clock() == 5000.0
    for shift in (3600, -100):  # frozen, and restored where the clock is another
        offsets.write_text(f"monotonic           7         0\nboottime      {shift}         250000000\n")
        now += 7.0
        assert clock() == now - 0.25


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="no time namespaces here")
def test_a_boot_has_no_name_where_its_clock_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "id").write_text("name\n")
    monkeypatch.setattr(_clock, "_BOOT_ID", tmp_path / "id")
    monkeypatch.setattr(_clock, "_SELF", tmp_path)
    assert _clock.boot_id() == ""
    (tmp_path / "ns").mkdir()
    assert _clock.boot_id() == "name"
    for name in ("time", "time_for_children"):
        (tmp_path / "ns" / name).write_text("")
    assert _clock.boot_id() == ""


@pytest.mark.parametrize(("first", "second"), [("a boot", ""), ("", "a boot")])
async def test_those_whose_clocks_cannot_be_compared_do_not_share_the_file(
    path, monkeypatch, inline, first, second
):
    monkeypatch.setattr(_opening, "boot_id", lambda: first)
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        await engine.execute([e.OpenSession("s1", "p1", 30.0), e.Acquire("s1", "k", "a", 1)])
        monkeypatch.setattr(_opening, "boot_id", lambda: second)
        await refused(SqliteEngine(path, inline=inline), "another time namespace")
        assert await one(engine, e.RenewSession("s1")) is e.Reply.OK
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        assert await one(engine, e.RenewSession("s1")) is e.Reply.GONE
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        await one(engine, e.OpenSession("s2", "p1", 30.0))
    async with serving(SqliteEngine(path, inline=inline)) as engine:
        assert await one(engine, e.RenewSession("s2")) is e.Reply.OK


@pytest.mark.parametrize("rate", [1e-3, 1e-9, 1e-12])
async def test_the_slowest_rates_count_as_on_the_memory_engine(path, rate):
    now = 1.8e9

    def clock():
        return now

    async with (
        serving(SqliteEngine(path, inline=True, clock=clock)) as engine,
        serving(MemoryEngine(clock=clock)) as reference,
    ):
        for n in range(1, 200):
            now += 0.1234567
            spend = e.Spend(
                "s1", n, f"k{n}", (e.SpendRequest((1.0,), 0.0),) * 2, (e.RateLimit("", rate, 1.0),)
            )
            spent = [
                (await each.execute([e.OpenSession("s1", "p1", 100.0), spend]))[1]
                for each in (engine, reference)
            ]
            assert spent[0] == spent[1]
            assert [answer.booked for answer in spent[0].answers] == [True, False]


# ---------------------------------------------------------------------------------------------- losing the file


def replace_file(path):
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


@pytest.mark.parametrize(
    ("name", "lose"),
    [
        ("store.db", os.unlink),
        ("store.db", replace_file),
        ("store.db", lambda path: path.parent.rename(path.parent.with_name("moved"))),
        ("store.db-wal", os.unlink),
        ("store.db-shm", os.unlink),
    ],
    ids=["deleted", "replaced", "moved", "log", "memory"],
)
async def test_a_file_that_is_lost_ends_the_store(tmp_path, inline, name, lose):
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "store.db"
    with pytest.RaisesGroup(pytest.RaisesExc(EngineError, match=f"{name} was deleted")):
        async with serving(SqliteEngine(path, inline=inline)) as engine:
            await one(engine, e.OpenSession("s1", "p1", 30.0))
            lose(path.with_name(name))
            with contextlib.suppress(EngineError, StoreUnavailable), anyio.fail_after(5):  # or cancelled
                while True:
                    await engine.execute([e.Ping()])
            await anyio.sleep(5)
            raise AssertionError("it still serves")
    assert engine._link is None


async def test_a_holder_whose_file_was_deleted_learns_it_before_its_session_ends(path):
    with pytest.raises(EngineError, match="store.db was deleted"):
        async with open_store(SqliteEngine(path), ttl=30.0) as store:
            with pytest.raises(LeaseLost, match="closed"):
                async with Lock(store, "k").hold():
                    path.unlink()
                    with anyio.fail_after(5):
                        await anyio.sleep_forever()
            with pytest.raises(StoreClosed):
                await store.ping()
