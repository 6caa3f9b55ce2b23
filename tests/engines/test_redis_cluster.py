"""Redis on a cluster: every object is found where it lies, and followed where it goes."""

from __future__ import annotations

import os
import signal
from functools import partial

import anyio
import depth
import pytest
from contract import EngineContract, Time

from tenure import EngineError, LeaseLost, Lock, StoreUnavailable, Task, Worker, WorkQueue
from tenure.engine import (
    ENTRIES,
    HOLDERS,
    Accepted,
    Acquire,
    CloseSession,
    Count,
    Exchange,
    GetResult,
    Granted,
    NewTask,
    Notice,
    OpenSession,
    Page,
    Ping,
    Put,
    PutChildren,
    PutRequest,
    Queued,
    Release,
    RenewSession,
    Reply,
    Scan,
    Settle,
    Verdict,
)
from tenure.engines import open_store
from tenure.engines.redis import RedisClusterEngine, _nodes, _shards
from tenure.engines.redis._shards import SHARDS, shard_of, slot_of, tags

TAGS = tags(SHARDS)


@pytest.mark.full
@pytest.mark.backends("asyncio")
@pytest.mark.usefixtures("fewer_odd_arguments")
class TestContract(EngineContract):
    """What holds on one server holds for the objects and sessions of one shard."""

    walks = depth.walks(3)

    @pytest.fixture(autouse=True)
    def one_shard(self, monkeypatch):
        # it is the shard whose node is listened to, where all nodes tell the others: they take their time for that
        assert shard_of("f") == 0
        monkeypatch.setattr(_shards, "crc32", lambda _: 0)

    @pytest.fixture
    def time(self):
        return Time()

    @pytest.fixture
    def advance(self, time):
        return time.advance

    @pytest.fixture
    def engine(self, time, redis_cluster):
        return RedisClusterEngine(redis_cluster.url, clock=time)


async def one(engine, operation):
    while (answers := await engine.execute([operation])) == [Reply.MORE]:
        pass
    return answers[0]


async def token_of(store, name):
    async with Lock(store, name) as lease:
        return lease.token


async def until(condition):
    with anyio.fail_after(50):
        while not condition():
            await anyio.sleep(0.002)


@pytest.fixture
async def serving(redis_cluster):
    """An engine at work; its hints are in `serving.hints`."""
    engine = RedisClusterEngine(redis_cluster.url)
    engine.hints = []
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", engine.hints.append)
        yield engine
        group.cancel_scope.cancel()


# ------------------------------------------------------------------------------------------------- where things are


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+cluster://one", "redis+cluster://one:6379"),
        ("redis+cluster://me:s%40cret@one,[::1]:7000/", "redis+cluster://me@one:6379,[::1]:7000"),
        ("rediss+cluster://:secret@one", "rediss+cluster://one:6379"),
    ],
)
def test_an_address_is_shown_without_its_password(url, said):
    assert RedisClusterEngine(url).url == open_store(url).url == said
    assert "cret" not in repr(RedisClusterEngine(url))


def test_a_cluster_has_one_database():
    with pytest.raises(
        ValueError, match="redis+cluster://one/3': a cluster has one database".replace("+", r"\+")
    ):
        open_store("redis+cluster://me:secret@one/3")


def test_the_shards_are_spread_over_all_slots():
    assert len(set(TAGS)) == SHARDS
    assert "0" not in TAGS
    assert [slot_of(tag) * SHARDS // 16384 for tag in TAGS] == list(range(SHARDS))


async def test_all_processes_need_the_same_number_of_shards(redis_cluster):
    url = f"{redis_cluster.url}?shards=5"
    async with open_store(url) as store, Lock(store, "x"), open_store(url) as other:
        assert len((await Lock(other, "x").holders().page()).records) == 1
    with pytest.raises(EngineError, match="there are 5 shards, not 16: all processes need the same shards="):
        await opened(redis_cluster.url)
    with pytest.raises(ValueError, match="shards must be at least 1, not 0"):
        RedisClusterEngine("redis+cluster://h", shards=0)


def test_keys_are_in_the_slots_in_which_the_server_sees_them(redis_cluster):
    for tag in TAGS:
        assert redis_cluster.nodes[0]("CLUSTER", "KEYSLOT", f"tenure:{{{tag}}}:state") == slot_of(tag)


def named_in(shard, letter):
    return next(f"{letter}{n}" for n in range(1000) if shard_of(f"{letter}{n}") == shard)


# An object and two sessions in each of the shards.
NAMES, SESSIONS, OTHERS = ([named_in(shard, letter) for shard in range(SHARDS)] for letter in "kst")


def lock_in(store, shard):
    """A lock whose key is in that shard."""
    return next(n for n in map(str, range(1000)) if shard_of(store._handle.key("lock", n)) == shard)


# ----------------------------------------------------------------------------------------- clusters that will not do


async def opened(url, **options):
    async with open_store(url, **options):
        pytest.fail("it was opened")


async def test_a_server_that_is_no_cluster(own_redis_server, free_port):
    own_redis_server("--port", str(port := free_port()))
    with pytest.raises(EngineError, match="cluster support disabled"):
        await opened(f"redis+cluster://127.0.0.1:{port}")


async def test_nobody_is_there(free_port):
    with pytest.raises(StoreUnavailable, match="no node answers"):
        await opened(f"redis+cluster://me:secret@127.0.0.1:{free_port()}")


async def test_a_wrong_password(redis_cluster):
    with pytest.raises(EngineError, match="refuses this user or password: WRONGPASS") as caught:
        await opened(redis_cluster.url.replace("//", "//me:secret@"))
    assert "secret" not in str(caught.value)


async def test_a_user_that_may_not_listen_gets_a_clear_error(redis_cluster):
    for node in redis_cluster.nodes:
        node("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all")
    with pytest.raises(EngineError, match="may not use S?PUBLISH|lacks a permission: NOPERM"):
        await opened(redis_cluster.url.replace("//", "//deaf:secret@"))


async def test_a_node_that_is_taken_for_a_server(redis_cluster):
    async with open_store(f"redis://127.0.0.1:{redis_cluster.ports[0]}") as store:
        with pytest.raises(EngineError, match=r"write redis\+cluster://"):
            for n in range(20):
                await token_of(store, str(n))


async def test_one_node_that_answers_is_enough(redis_cluster, free_port):
    async with open_store(
        f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{redis_cluster.ports[2]}"
    ) as store:
        for shard in range(SHARDS):
            await token_of(store, lock_in(store, shard))


# --------------------------------------------------------------------------------------------------------- sessions


async def holding_everywhere(engine):
    for session in SESSIONS:
        assert await one(engine, OpenSession(session, "p", 30)) is Reply.OK
    for session, name in zip(SESSIONS, NAMES, strict=True):
        assert isinstance(await one(engine, Acquire(session, name, "a", 1)), Granted)


async def test_a_session_is_in_one_shard(serving, redis_cluster):
    await one(serving, OpenSession(SESSIONS[3], "p", 30))
    await one(serving, Acquire(SESSIONS[3], NAMES[3], "a", 1))
    found = [name for node in redis_cluster.nodes[:3] for name in node("KEYS", "*:state")]
    assert len([name for name in found if name != b"tenure:{0}:state"]) == 1  # that has the layout
    assert await one(serving, Acquire(SESSIONS[3], NAMES[4], "a", 1)) is Reply.GONE
    assert await one(serving, RenewSession(SESSIONS[3])) is Reply.OK
    assert await one(serving, CloseSession(SESSIONS[3])) is Reply.OK
    assert await one(serving, CloseSession(SESSIONS[3])) is Reply.GONE
    assert (await one(serving, Scan(HOLDERS, NAMES[3]))).holders == ()


async def test_what_one_node_lost_is_lost_and_nothing_else(redis_cluster):
    home = [redis_cluster.home_of(slot_of(tag)) for tag in TAGS]
    async with open_store(redis_cluster.url, ttl=1) as store:
        kept, lost = [], []

        async def hold(shard, entered):
            try:
                async with Lock(store, lock_in(store, shard)) as lease:
                    entered()
                    await anyio.sleep(1.5)
                    lease.check()
                    kept.append(shard)
            except LeaseLost:
                lost.append(shard)

        async with anyio.create_task_group() as group:
            entered = []
            for shard in range(SHARDS):
                group.start_soon(hold, shard, partial(entered.append, shard))
            await until(lambda: len(entered) == SHARDS)
            redis_cluster.nodes[1]("FLUSHALL")
        assert sorted(lost) == [shard for shard in range(SHARDS) if home[shard] == 1]
        assert sorted(kept) == [shard for shard in range(SHARDS) if home[shard] != 1]


def test_names_with_the_same_tag_share_a_shard():
    assert shard_of("tenure:queue:{crawl}:sites") == shard_of("{crawl}") == shard_of("crawl")
    assert shard_of("{}a") != shard_of("{}b")
    assert len({shard_of(f"a{{{n}") for n in range(100)}) > 1


async def test_children_lie_in_the_shard_of_their_parent(serving):
    queue = "{3}:sites"
    session = next(name for name in map(str, range(1000)) if shard_of(name) == shard_of(queue))
    await one(serving, OpenSession(session, "p", 30))
    request = PutRequest("m", (NewTask(b"root"),))
    await one(serving, Put(session, 1, queue, (request,)))
    (root,) = (await one(serving, Exchange(session, 1, queue, want=1))).tasks
    child = (NewTask(b"child"),)
    other = next(name for name in NAMES if shard_of(name) != shard_of(queue))
    for held in ("", "end"):
        to = PutChildren(queue, root.id, root.token, other, ("a",), child, held=held)
        refused = await one(serving, to)
        assert isinstance(refused, EngineError)
        assert "two shards" in str(refused)
    assert await one(serving, Scan(ENTRIES, queue, only=str(root.id))) == Page(())
    assert (await one(serving, Count(other))).held == 0
    answer = await one(serving, PutChildren(queue, root.id, root.token, "{3}:pages", ("a",), child))
    assert isinstance(answer, Accepted)
    assert await one(serving, CloseSession(session)) is Reply.OK


async def test_a_release_of_the_shard_of_its_owner_begins(serving):
    queue, undo = "{3}:jobs", "{3}:undo"
    session = next(name for name in map(str, range(1000)) if shard_of(name) == shard_of(queue))
    await one(serving, OpenSession(session, "p", 30))
    await one(serving, Put(session, 1, queue, (PutRequest("m", (NewTask(b"root"),)),)))
    (root,) = (await one(serving, Exchange(session, 1, queue, want=1))).tasks
    await one(serving, PutChildren(queue, root.id, root.token, undo, ("x",), (NewTask(b""),), held="end"))
    end = Settle(root.id, root.token, Verdict.DONE)
    await one(serving, Exchange(session, 2, queue, (end,)))
    (release,) = (await one(serving, Exchange(session, 1, undo, want=1))).tasks
    assert (await one(serving, GetResult(queue, root.id))).state == "ending"
    await one(serving, Exchange(session, 2, undo, (Settle(release.id, release.token, Verdict.DONE),)))
    assert (await one(serving, GetResult(queue, root.id))).state == "done"
    assert await one(serving, CloseSession(session)) is Reply.OK


async def test_a_task_gathers_children_of_its_shard_and_is_told_of_another_one(redis_cluster):
    async with open_store(redis_cluster.url) as store:
        sites, pages = WorkQueue(store, "{crawl}:sites"), WorkQueue(store, "{crawl}:pages")
        apart = WorkQueue(store, next(name for name in NAMES if shard_of(name) != shard_of("crawl")))

        async def crawl(task: Task):
            with pytest.raises(EngineError, match="two shards"):
                async with task.children(apart, name="apart") as children:
                    await children.put(0)
            async with task.children(pages) as children:
                await children.put_many(range(10))
            return sum(child.result for child in children)

        async def fetch(page):
            return page

        async with anyio.create_task_group() as group:
            group.start_soon(Worker(sites, crawl).run)
            group.start_soon(Worker(pages, fetch).run)
            assert await sites.result(await sites.put(None)) == 45
            group.cancel_scope.cancel()
        assert (await apart.statistics()).waiting == 0


async def test_all_shards_are_pinged(serving):
    assert await one(serving, Ping()) is Reply.OK


async def test_names_that_cannot_be_sent_fail_alone(serving):
    answers = await serving.execute([Ping(), Release("\ud800", "x"), Acquire("s", "\ud800", "x", 1), Ping()])
    assert answers[::3] == [Reply.OK, Reply.OK]
    assert all(isinstance(answer, EngineError) for answer in answers[1:3])


async def test_forgotten_scripts_are_brought_again(serving, redis_cluster):
    for node in redis_cluster.nodes[:3]:
        node("SCRIPT", "FLUSH")
    await holding_everywhere(serving)


async def test_waiters_are_hinted_wherever_the_object_is(serving):
    await holding_everywhere(serving)
    await serving.execute([OpenSession(other, "p", 30) for other in OTHERS])
    waiting = [Acquire(other, name, "b", 1) for other, name in zip(OTHERS, NAMES, strict=True)]
    for answer in await serving.execute(waiting):
        assert isinstance(answer, Queued)
    serving.hints.clear()
    await serving.execute([Release(name, "a") for name in NAMES])
    await until(lambda: len(serving.hints) >= SHARDS)
    assert {(hint.process, hint.key, hint.name, type(hint.news)) for hint in serving.hints} == {
        ("p", name, "b", Granted) for name in NAMES
    }
    assert len(serving.hints) == SHARDS


async def test_hints_do_not_go_to_all_nodes(serving, redis_cluster):
    channels = [node("PUBSUB", "CHANNELS") for node in redis_cluster.nodes]
    if redis_cluster.version < (7, 0):
        assert sorted(map(len, channels)) == [0, 0, 0, 1]
    else:
        assert channels == [[], [], [], []]
        sharded = [node("PUBSUB", "SHARDCHANNELS") for node in redis_cluster.nodes]
        assert sum(map(len, sharded)) == SHARDS


class Leaving:
    """The link to a node from which the shard moves away right behind the answer to whatever is asked."""

    def __init__(self, leave):
        self.leave = leave

    async def execute(self, _commands):
        self.leave()
        return [[b"ssubscribe", b"c", 1]]


async def test_a_subscription_refused_with_moved_does_not_count_as_listening():
    nodes = RedisClusterEngine("redis+cluster://one")._topology
    node = _nodes._Node(nodes._seeds[0], nodes, 5, 0)
    node.connection = Leaving(lambda: nodes.on_message(node, "c", None))
    await nodes._subscribe(0, node, "SSUBSCRIBE", "c")
    assert node.channels == set()


async def test_stores_share_an_engine_and_hand_the_connections_on(redis_cluster):
    engine = RedisClusterEngine(redis_cluster.url)
    async with anyio.create_task_group() as group:
        ready, leave = anyio.Event(), anyio.Event()

        async def first():
            async with open_store(engine, namespace="a"):
                ready.set()
                await leave.wait()

        group.start_soon(first)
        await ready.wait()
        async with open_store(engine, namespace="b") as store:
            for n in range(40):
                if n == 20:
                    leave.set()
                await token_of(store, str(n))


async def test_stores_that_open_at_once_while_the_server_is_away_all_get_the_error(free_port):
    engine, told = RedisClusterEngine(f"redis+cluster://127.0.0.1:{free_port()}"), []

    async def open_one():
        with pytest.raises(StoreUnavailable):
            async with open_store(engine):
                pytest.fail("it was opened")
        told.append(True)

    with anyio.fail_after(50):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(open_one)
    assert len(told) == 3


# ---------------------------------------------------------------------------------------------- what moves, and dies


async def work(store, name, done, times):
    """Hold a lock again and again, and see that nobody else does."""
    while not done.is_set():
        async with Lock(store, name) as lease:
            assert not times or lease.token > times[-1]
            times.append(lease.token)
            await anyio.sleep(0.002)
            assert times[-1] == lease.token


async def test_a_shard_is_moved_while_locks_change_hands(redis_cluster):
    times = []
    async with open_store(redis_cluster.url) as first, open_store(redis_cluster.url) as second:
        name = lock_in(first, 5)
        home = redis_cluster.home_of(slot_of(TAGS[5]))
        with anyio.fail_after(50):
            async with anyio.create_task_group() as group:
                done = anyio.Event()
                for store in (first, first, second, second):
                    group.start_soon(work, store, name, done, times)
                for to in ((home + 1) % 3, (home + 2) % 3, home):
                    for _ in redis_cluster.move(slot_of(TAGS[5]), to):
                        await anyio.sleep(0.05)
                    before = len(times)
                    while len(times) < before + 10:
                        await anyio.sleep(0.01)
                done.set()
        assert redis_cluster.home_of(slot_of(TAGS[5])) == home


async def test_what_is_held_stays_held_while_its_keys_move_one_by_one(redis_cluster):
    """Of a shard that is half here and half there no script may run: it would find what is missing free."""
    async with open_store(redis_cluster.url) as first, open_store(redis_cluster.url) as second:
        name = lock_in(first, 7)
        home = redis_cluster.home_of(slot_of(TAGS[7]))
        async with Lock(first, name) as lease:
            for to in ((home + 1) % 3, home):
                for _ in redis_cluster.move(slot_of(TAGS[7]), to):
                    with anyio.move_on_after(0.1):
                        async with Lock(second, name):
                            pytest.fail("two hold it")
            lease.check()
        with anyio.fail_after(3):
            async with Lock(second, name) as after:
                assert after.token > lease.token


async def test_a_waiter_follows_a_shard_that_moves(redis_cluster):
    async with (
        open_store(redis_cluster.url, ttl=600) as first,
        open_store(redis_cluster.url, ttl=600) as second,
    ):
        name = lock_in(first, 9)
        home = redis_cluster.home_of(slot_of(TAGS[9]))
        for to in ((home + 1) % 3, home):
            served = anyio.Event()

            async def wait(served=served):
                async with Lock(second, name):
                    served.set()

            async with anyio.create_task_group() as group:
                async with Lock(first, name):
                    group.start_soon(wait)
                    while not (await Lock(first, name).waiters().page()).records:
                        await anyio.sleep(0.01)
                    for _ in redis_cluster.move(slot_of(TAGS[9]), to):
                        await anyio.sleep(0)
                with anyio.fail_after(50):
                    await served.wait()


async def test_connections_that_break_all_at_once(redis_cluster):
    async with open_store(redis_cluster.url, ttl=5) as store:
        async with Lock(store, "held") as lease:
            for n in range(5):
                async with anyio.create_task_group() as group:
                    for shard in range(SHARDS):
                        group.start_soon(token_of, store, f"{lock_in(store, shard)} {n}")
                    await anyio.sleep(0.002 * n)
                    for node in redis_cluster.nodes[:3]:
                        node("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                        node("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
            lease.check()


@pytest.mark.parametrize("killed", [False, True], ids=["frozen", "killed"])
async def test_while_a_node_is_away_the_others_go_on_and_only_its_leases_end(own_redis_cluster, killed):
    cluster = own_redis_cluster
    away = cluster.nodes[1]
    for node in cluster.nodes:
        node("CONFIG", "SET", "cluster-require-full-coverage", "no")
    home = [cluster.home_of(slot_of(tag)) for tag in TAGS]
    healthy = [shard for shard in range(SHARDS) if home[shard] == 2]
    async with open_store(RedisClusterEngine(cluster.url, response_timeout=0.5), ttl=2, retry=50) as store:
        there, here, busy = (lock_in(store, shard) for shard in (home.index(1), *healthy[:2]))
        held, lost, cycles = anyio.Event(), [], 0

        async def hold():
            with pytest.raises(LeaseLost, match="expired"):
                async with Lock(store, there):
                    held.set()
                    try:
                        await anyio.sleep_forever()
                    finally:
                        lost.append(anyio.current_time())

        async with anyio.create_task_group() as group, Lock(store, here) as lease:
            group.start_soon(hold)
            await held.wait()
            since = anyio.current_time()
            away.kill() if killed else os.kill(away.process.pid, signal.SIGSTOP)
            while not lost or anyio.current_time() < since + 3:
                await token_of(store, busy)
                cycles += not lost
                await anyio.sleep(0.01)
            lease.check()
            assert lost[0] - since > 1
            assert cycles > 10  # while the node was away and its leases had not ended
            with anyio.move_on_after(0.1) as scope:
                await token_of(store, there)
            assert scope.cancelled_caught
            away.start() if killed else os.kill(away.process.pid, signal.SIGCONT)
            with anyio.fail_after(50):
                await token_of(store, there)
            lease.check()


async def test_when_a_node_is_killed_its_replica_goes_on(own_redis_cluster, replicate):
    cluster = own_redis_cluster
    lost = cluster.nodes[0]
    shard = next(s for s in range(SHARDS) if cluster.home_of(slot_of(TAGS[s])) == 0)
    elsewhere = next(s for s in range(SHARDS) if cluster.home_of(slot_of(TAGS[s])) == 1)
    async with open_store(cluster.url, ttl=20) as store, open_store(cluster.url, ttl=20) as other:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)
        name = lock_in(store, shard)
        before = await token_of(store, name)
        async with Lock(store, "held") as lease, Lock(store, lock_in(store, elsewhere)):
            replicate(lost, cluster.nodes[3])
            lost.kill()
            with anyio.fail_after(50):
                assert await token_of(other, name) > before
                assert await token_of(store, name) > before
            lease.check()
            with anyio.move_on_after(0.2) as scope:
                await token_of(other, "held")
            assert scope.cancelled_caught
        await queue.put(2)
        assert (await queue.statistics()).waiting == 2
        lost.start()
        for n in range(40):
            await token_of(other, str(n))


async def test_replicas_are_those_of_the_node(redis_cluster):
    home = [redis_cluster.home_of(slot_of(tag)) for tag in TAGS]
    engine = RedisClusterEngine(f"{redis_cluster.url}?replicas=1", response_timeout=0.5)
    async with open_store(engine, ttl=5, settle_timeout=0.1, retry=50) as store:
        with anyio.fail_after(50):
            await token_of(store, lock_in(store, home.index(0)))
        # it has none
        with anyio.move_on_after(0.5) as scope:
            await token_of(store, lock_in(store, home.index(1)))
        assert scope.cancelled_caught


async def test_a_hand_over_waits_for_the_replica_of_the_node(redis_cluster):
    home = [redis_cluster.home_of(slot_of(tag)) for tag in TAGS]
    replica = redis_cluster.nodes[3].process.pid
    engine = RedisClusterEngine(f"{redis_cluster.url}?replicas=1", response_timeout=0.4)
    async with (
        open_store(engine, ttl=20, retry=50) as store,
        open_store(redis_cluster.url, ttl=20) as other,
    ):
        name, granted = lock_in(store, home.index(0)), anyio.Event()

        async def hold():
            async with Lock(store, name):
                granted.set()

        async with anyio.create_task_group() as group:
            async with Lock(other, name):
                group.start_soon(hold)
                while not (await Lock(other, name).waiters().page()).records:
                    await anyio.sleep(0.01)
                os.kill(replica, signal.SIGSTOP)
            try:
                await anyio.sleep(0.5)
                assert (await Lock(other, name).holders().page()).records
                assert not granted.is_set()
            finally:
                os.kill(replica, signal.SIGCONT)
            with anyio.fail_after(50):
                await granted.wait()


async def test_a_node_that_became_a_replica_is_left(own_redis_cluster):
    """It answers MOVED, and an error to the question whether its replicas have what was done."""
    cluster = own_redis_cluster
    home = [cluster.home_of(slot_of(tag)) for tag in TAGS]
    async with open_store(f"{cluster.url}?replicas=1", ttl=20) as store:
        name = lock_in(store, home.index(0))
        before = await token_of(store, name)
        cluster.nodes[3]("CLUSTER", "FAILOVER")
        with anyio.fail_after(50):
            while b"role:slave" not in cluster.nodes[0]("INFO", "replication"):
                await anyio.sleep(0.01)
            assert await token_of(store, name) > before


async def test_a_store_is_opened_although_no_node_has_enough_replicas(redis_cluster):
    with anyio.fail_after(50):
        async with open_store(RedisClusterEngine(f"{redis_cluster.url}?replicas=2")):
            pass


async def test_each_new_connection_is_announced_even_where_messages_do_not_need_it(redis_cluster):
    """Before 7.0 one node's subscription does for all; another one may have been replaced all the same."""
    engine = RedisClusterEngine(redis_cluster.url)
    news = []
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", lambda hint: news.append(hint.news))
        for home in {redis_cluster.home_of(slot_of(tag)) for tag in TAGS}:
            await anyio.sleep(0.5)
            news.clear()
            for kind in ("normal", "pubsub"):
                redis_cluster.nodes[home]("CLIENT", "KILL", "TYPE", kind)
            with anyio.fail_after(50):
                while Notice.MISSED not in news:
                    await anyio.sleep(0.01)
        group.cancel_scope.cancel()
