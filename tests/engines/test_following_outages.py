"""A task is followed while connections break and servers change, over real ones: nothing old comes after the new."""

from __future__ import annotations

import anyio
import pytest
from psycopg.conninfo import conninfo_to_dict

from tenure import Retry, WorkQueue, open_store
from tenure.engines.postgres import PostgresEngine
from tenure.engines.redis import RedisEngine
from tenure.testing import FaultProxy

pytestmark = pytest.mark.one_loop
STEPS = 20
NO_PAUSE = Retry(attempts=2, backoff=0.0, jitter=0.0)


@pytest.fixture(params=["redis", "postgres"])
def server(request):
    """The engine itself, where its server listens, and how an engine is made that goes through a proxy."""
    if request.param == "redis":
        redis = request.getfixturevalue("redis_server")
        return RedisEngine(redis.url), redis.socket, lambda port: RedisEngine(f"redis://127.0.0.1:{port}")
    url = request.getfixturevalue("postgres_server").url()
    parts = conninfo_to_dict(url)
    socket = f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}"
    name = f"postgresql://{parts['user']}@127.0.0.1:{{}}/{parts['dbname']}"
    return PostgresEngine(url), socket, lambda port: PostgresEngine(name.format(port))


async def work(queue, disturb):
    """Two tries on one task, each of which reports often; `disturb(step)` is called between."""
    for attempt in range(2):
        try:
            async with queue.take() as task:
                for step in range(STEPS):
                    await task.progress(attempt * STEPS + step)
                    disturb(step)
                if attempt == 0:
                    raise ValueError("no")
        except ValueError:
            pass


async def followed(queue, task_id):
    """What a follower sees, checked: reports never go back, and the end comes last."""
    seen = []
    async with queue.follow(task_id) as changes:
        async for record in changes:
            seen.append((record.attempts, -1 if record.progress is None else record.progress))
    assert seen == sorted(seen)
    assert (record.state, record.progress, record.attempts) == ("done", 2 * STEPS - 1, 1)
    return seen


async def test_a_follower_whose_connection_is_cut_misses_neither_the_last_report_nor_the_end(server):
    engine, socket, through = server
    async with FaultProxy(socket) as proxy, open_store(engine) as store:
        async with open_store(through(proxy.port)) as elsewhere:
            queue, other = WorkQueue(store, "jobs", retry=NO_PAUSE), WorkQueue(elsewhere, "jobs")
            task_id = await queue.put("work")

            def cut(step):
                if step % 5 == 2:
                    proxy.cut()

            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    for _ in range(3):
                        group.start_soon(followed, other, task_id)
                    await anyio.sleep(0.1)
                    await work(queue, cut)
                await followed(other, task_id)  # one that starts late
        assert proxy.cuts


async def test_a_follower_goes_on_with_the_replica(watched_redis, replicate):
    primary, replica = watched_redis.servers
    async with open_store(watched_redis.url, ttl=20) as store, open_store(watched_redis.url) as elsewhere:
        queue, other = WorkQueue(store, "jobs", retry=NO_PAUSE), WorkQueue(elsewhere, "jobs")
        task_id = await queue.put("work")
        steps = 0

        def fail_over(_):
            nonlocal steps
            steps += 1
            if steps == STEPS // 2:
                replicate(primary, replica)
                primary.kill()

        with anyio.fail_after(80):
            async with anyio.create_task_group() as group:
                group.start_soon(followed, other, task_id)
                await anyio.sleep(0.1)
                await work(queue, fail_over)
        assert b"role:master" in replica("INFO", "replication")
