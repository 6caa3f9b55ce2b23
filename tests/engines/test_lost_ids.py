"""What was acknowledged is lost, and its id is never another's: a failover, a power cut, a backup that was restored."""

from __future__ import annotations

import shutil
from contextlib import closing

import psycopg
import pytest
from redis_servers import wait_until

from tenure import ResultUnavailable, WorkQueue, open_store
from tenure.errors import TaskNotWaiting


async def put_and_lose(url, keep, lose):
    """Put a task, `keep` what is stored, put others, and `lose` these; returns the ids of the kept and the lost."""
    async with open_store(url) as store:
        queue = WorkQueue(store, "jobs")
        kept = await queue.put("kept")
        keep()
        lost = [await queue.put("lost", key="k"), *await queue.put_many(["lost"] * 3)]
        lose()
    return kept, lost


async def check(url, kept, lost):
    """Others' tasks have ids of their own, and the lost ids name nothing."""
    # a sentinel may name the former primary a moment longer
    async with open_store(url, retry=30) as store:
        queue = WorkQueue(store, "jobs")
        others = [await queue.put("of others", key="k"), *await queue.put_many(["of others"] * 9)]
        assert [kept, *lost, *others] == sorted({kept, *lost, *others})
        assert [record.id for record in (await queue.tasks("waiting").page()).records] == [kept, *others]
        for task in lost:
            assert await queue.get(task) is None
            assert not await queue.signal(task, "go")
            assert not await queue.cancel(task)
            assert not await queue.reschedule(task, 60)
            with pytest.raises(TaskNotWaiting):
                await queue.edit(task, priority=1)
            assert not await queue.requeue([task])
            with pytest.raises(ResultUnavailable):
                await queue.result(task)
        for _ in (kept, *others):
            async with queue.take() as task:
                task.set_result(task.payload)
        assert await queue.result(kept) == "kept"
        for task in others:
            assert await queue.result(task) == "of others"
        for task in lost:
            with pytest.raises(ResultUnavailable):
                await queue.result(task)


@pytest.mark.parametrize("how", ["a power cut", "a backup"])
async def test_a_file_is_as_it_was(tmp_path, how):
    path, copy, sizes = tmp_path / "store.db", tmp_path / "copy.db", []
    log = tmp_path / "store.db-wal"

    def keep():
        sizes.append(log.stat().st_size)
        if how == "a backup":
            lose()

    def lose():
        if not copy.exists():
            shutil.copy(path, copy)
            # what came last is not on the disk, and the first frame of that is torn
            (tmp_path / "copy.db-wal").write_bytes(log.read_bytes()[: sizes[0] + 100])

    kept, lost = await put_and_lose(f"sqlite:///{path}", keep, lose)
    await check(f"sqlite:///{copy}", kept, lost)


@pytest.mark.one_loop
async def test_a_backup_of_redis_is_restored(own_redis_server):
    server = own_redis_server()

    def lose():
        server.kill()
        server.start()

    kept, lost = await put_and_lose(server.url, lambda: server("SAVE"), lose)
    await check(server.url, kept, lost)


@pytest.mark.one_loop
async def test_a_backup_of_postgres_is_restored(own_postgres_server):
    server = own_postgres_server()

    def copy(former, later):
        with closing(
            psycopg.connect(server.url().replace("/postgres?", "/template1?"), autocommit=True)
        ) as sql:
            sql.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{former}'")
            sql.execute(f"CREATE DATABASE {later} TEMPLATE {former}")

    kept, lost = await put_and_lose(server.url(), lambda: copy("postgres", "restored"), lambda: None)
    await check(server.url().replace("/postgres?", "/restored?"), kept, lost)


@pytest.mark.one_loop
async def test_a_replica_takes_over_that_lacks_the_last_puts(watched_redis, replicate):
    primary, replica = watched_redis.servers

    def cut():
        replicate(primary, replica)
        # the replica's next connection is refused
        primary.ask_all([("CONFIG", "SET", "requirepass", "secret"), ("CLIENT", "KILL", "TYPE", "replica")])

    def lose():
        primary.kill()
        wait_until(lambda: b"role:master" in replica("INFO", "replication"))

    kept, lost = await put_and_lose(watched_redis.url, cut, lose)
    await check(watched_redis.url, kept, lost)
