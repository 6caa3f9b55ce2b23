"""A server that works on a command for longer than the response_timeout: it is not given the same work once more."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import psycopg
import pytest
from relays import relay

from tenure import Lock, WorkQueue
from tenure.engines import open_store

pytestmark = pytest.mark.one_loop

BUSY = """
local function now() local time = redis.call('TIME') return time[1] + time[2] / 1e6 end
local till = now() + tonumber(ARGV[1])
while now() < till do end
"""


@asynccontextmanager
async def listened(server):
    """The port through which a Redis server is reached, and what came from each connection, all of it together."""
    said = []

    def change_of(_client):
        words = bytearray()
        said.append(words)

        def note(data, *, up):
            if up:
                words.extend(data)
            return data

        return note

    async with relay(server.socket, change_of) as port:
        yield port, said


@pytest.mark.parametrize("limit", [5000, 50], ids=["silent", "answers BUSY"])
async def test_redis_gets_it_again_only_when_it_is_free(own_redis_server, limit):
    """One thread does everything there: whoever gets an answer to a greeting knows that nothing else goes on.

    Beyond lua-time-limit it answers BUSY to all but the first words, which is no answer to a greeting either.
    """
    server = own_redis_server("--lua-time-limit", str(limit))
    async with listened(server) as (port, said), anyio.create_task_group() as group:
        async with open_store(f"redis://127.0.0.1:{port}?response_timeout=0.2", retry=30) as store:
            queue = WorkQueue(store, "jobs")
            async with Lock(store, "x") as lease:
                before = len(said)
                group.start_soon(anyio.to_thread.run_sync, server, "EVAL", BUSY, "0", "1.8")
                await anyio.sleep(0.1)
                assert await queue.put("once")
                lease.check()
            assert (await queue.statistics()).put == 1
            tries = [bytes(each) for each in said[before:]]
    assert len(tries) > 1, "it has been tried to connect meanwhile"
    for each in tries[:-1]:
        assert b"EVALSHA" not in each


SLOW_ONCE = """
CREATE SEQUENCE public.slow_tries;
CREATE SEQUENCE public.slow_at_once;
CREATE FUNCTION public.slow_once() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
    -- sequences and these locks know nothing of rollbacks
    IF NOT pg_try_advisory_lock(4711) THEN
        PERFORM nextval('slow_at_once');
    END IF;
    IF nextval('slow_tries') = 1 THEN
        PERFORM pg_sleep(30);
    END IF;
    PERFORM pg_advisory_unlock(4711);
    RETURN NEW;
END $$;
CREATE TRIGGER slow_once BEFORE INSERT ON tenure.task FOR EACH ROW EXECUTE FUNCTION public.slow_once();
"""


@pytest.fixture
def slow(postgres_server):
    """The first task that is put takes half a minute, if nobody ends it."""
    with psycopg.connect(postgres_server.url(), autocommit=True) as sql:
        yield sql
        sql.execute("DROP FUNCTION IF EXISTS public.slow_once CASCADE")
        sql.execute("DROP SEQUENCE IF EXISTS public.slow_tries")
        sql.execute("DROP SEQUENCE IF EXISTS public.slow_at_once")


async def test_postgres_gets_it_again_only_when_the_backend_before_is_gone(postgres_server, slow):
    url = f"{postgres_server.url()}{'&' if '?' in postgres_server.url() else '?'}response_timeout=1"
    async with open_store(url, retry=30) as store:
        queue = WorkQueue(store, "jobs")
        async with Lock(store, "x") as lease:
            slow.execute(SLOW_ONCE)
            with anyio.fail_after(20):
                assert await queue.put("once")
            lease.check()
        assert (await queue.statistics()).put == 1
        tries, called = slow.execute("SELECT last_value, is_called FROM public.slow_tries").fetchone()
        assert (tries, called) == (2, True)
        assert slow.execute("SELECT is_called FROM public.slow_at_once").fetchone() == (False,), "two at once"
