from __future__ import annotations

import inspect

import anyio
import pytest

import tenure
from tenure import EngineError, Lock, StoreClosed, StoreUnavailable, open_store
from tenure.engine import HOLDERS, Ping, Scan
from tenure.engines.memory import MemoryEngine
from tenure.store import JsonCodec, Store
from tenure.testing import FaultyEngine


class Away(FaultyEngine):
    """Can be away."""

    down = False

    async def execute(self, operations):
        if self.down:
            await anyio.lowlevel.checkpoint()
            raise StoreUnavailable("away")
        return await super().execute(operations)


@pytest.fixture
def away():
    return Away(MemoryEngine())


# opening


async def test_it_is_opened_once():
    store = open_store("memory:")
    async with store:
        with pytest.raises(RuntimeError):
            async with store:
                pytest.fail("opened twice")
    with pytest.raises(RuntimeError, match="only once"):
        async with store:
            pytest.fail("opened again")


async def test_before_it_is_opened():
    store = open_store("memory:")
    assert repr(store) == "<Store memory: new pending=0>"
    with pytest.raises(RuntimeError, match="not open: use `async with open_store"):
        await store.ping()
    with pytest.raises(RuntimeError, match="not open"):
        await store.statistics()
    with pytest.raises(RuntimeError, match="not open"):
        await store._handle.session(30.0)


async def test_once_it_is_closed():
    async with open_store("memory:") as store:
        assert repr(store) == "<Store memory: open pending=0>"
    assert repr(store) == "<Store memory: closing pending=0>"
    for call in (store.ping, lambda: store._handle.session(30.0), lambda: store._handle.call(Ping())):
        with pytest.raises(StoreClosed):
            await call()
    statistics = await store.statistics()
    assert statistics.closing
    assert statistics.jobs == ()


@pytest.mark.parametrize("engine", ["memory", "wire"])
async def test_what_it_reports_of_itself(engine, virtual_clock):
    where = "memory:" if engine == "memory" else FaultyEngine(MemoryEngine())
    async with open_store(where) as store, Lock(store, "a"), Lock(store, "b", ttl=5):
        async with anyio.create_task_group() as group:
            group.start_soon(Lock(store, "a").__aenter__)
            await virtual_clock.settle()
            statistics = await store.statistics()
            group.cancel_scope.cancel()
    assert statistics.url == "memory:"
    assert statistics.process == store.process
    assert (statistics.sessions, statistics.held, statistics.waiting, statistics.pending) == (2, 3, 1, 0)
    assert statistics.jobs[:3] == ("link", "wire", "timers")
    assert len(statistics.jobs) == 5
    assert statistics.available
    assert not statistics.closing


async def test_processes_have_names_of_their_own():
    assert len({open_store("memory:").process for _ in range(100)}) == 100


async def test_ping_takes_a_round_trip(away, virtual_clock):
    async with open_store(away) as store:
        assert await store.ping() == 0
        away.pause()
        async with anyio.create_task_group() as group:
            pinged = []

            async def ping():
                pinged.append(await store.ping())

            group.start_soon(ping)
            await anyio.sleep(3)
            away.resume()
        assert pinged == [3]


async def test_a_link_that_cannot_be_made_is_the_error_of_opening():
    class Broken(FaultyEngine):
        async def serve(self, process, deliver, *, task_status):
            await anyio.lowlevel.checkpoint()
            raise EngineError("wrong version")

    store = open_store(Broken(MemoryEngine()))
    with pytest.raises(EngineError, match="wrong version"):
        async with store:
            pytest.fail("opened")
    with pytest.raises(StoreClosed):
        await store.ping()


async def test_opening_can_be_cancelled(virtual_clock):
    class Slow(FaultyEngine):
        async def serve(self, process, deliver, *, task_status):
            await anyio.sleep_forever()

    with anyio.move_on_after(1) as scope:
        async with open_store(Slow(MemoryEngine())):
            pytest.fail("opened")
    assert scope.cancelled_caught


async def test_a_link_that_breaks_for_good_ends_the_block():
    class Brittle(FaultyEngine):
        async def serve(self, process, deliver, *, task_status):
            task_status.started()
            await anyio.lowlevel.checkpoint()
            raise EngineError("the file is gone")

    with pytest.raises(EngineError, match="the file is gone"):
        async with open_store(Brittle(MemoryEngine())):
            await anyio.sleep_forever()


async def test_an_engine_with_a_fault_ends_the_block_too(virtual_clock):
    class Faulty(FaultyEngine):
        async def execute(self, operations):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with open_store(Faulty(MemoryEngine())) as store:
            async with Lock(store, "a"):
                pytest.fail("granted")


async def test_the_blocks_own_error_leaves_as_it_was_raised():
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with open_store("memory:") as store, Lock(store, "a"):
            raise error
    assert caught.value is error


# URLs and arguments


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is not a store URL"),
        ("jobs.db", "is not a store URL"),
        ("/tmp/jobs.db", "is not a store URL"),
        ("memory:shared", "write memory: and nothing behind it"),
        ("sqlite:jobs.db", "write sqlite:///FILE"),
        ("sqlite:/jobs.db", "write sqlite:///FILE"),
        ("sqlite://jobs.db", "write sqlite:///FILE"),
        ("sqlite:///", "write sqlite:///FILE"),
        ("sqlite:///jobs.db?mode=ro", "write sqlite:///FILE"),
        ("sqlite:///jobs.db#1", "write sqlite:///FILE"),
        ("redis://user:secret@localhost/x", "a database is a number"),
        ("rediss://user:secret@localhost?ssl=1", "the only options that a Redis URL has are db and replicas"),
        ("unix://secret@localhost", "write unix:///absolute/path"),
        ("redis://user:secret@localhost:70000", "is not a port"),
        ("postgresql://user:secret@localhost/jobs?colour=red", "libpq does not understand this URL"),
        ("mysql://user:secret@localhost", "'mysql' is not an engine"),
        ("secret@localhost", "'...@localhost' is not a store URL"),
        (
            "secret@localhost:6379",
            "'...@localhost:6379' is a host and a port, .*: write redis://...@localhost:6379",
        ),
        ("memory://user:secret@localhost", "'...@localhost': write memory:"),
        ("sqlite://user:secret@localhost/jobs.db", "'...@localhost/jobs.db': write sqlite:///FILE"),
        ("sqlite://user:secret\u2100@localhost/jobs.db", "write sqlite:///FILE"),
    ],
)
def test_a_wrong_url_is_named(url, words):
    with pytest.raises(ValueError, match=words) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["memory:", "memory://", "MEMORY:"])
def test_memory_by_url(url):
    assert open_store(url).url == "memory:"


@pytest.mark.parametrize("where", [5, b"memory:", MemoryEngine])
def test_what_is_no_engine_is_refused(where):
    if where is MemoryEngine:
        where = object()
    with pytest.raises(TypeError, match="by its URL or over an engine"):
        open_store(where)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"ttl": 0.49}, ValueError, "ttl must be at least 0.5 seconds"),
        ({"ttl": -1}, ValueError, "ttl must be"),
        ({"ttl": float("nan")}, ValueError, "ttl must be"),
        ({"ttl": float("inf")}, ValueError, r"ttl must be at most 1e\+09 seconds, not inf"),
        ({"ttl": "30"}, TypeError, "ttl must be a number of seconds or a timedelta, not str"),
        ({"settle_timeout": -1}, ValueError, "settle_timeout must be"),
        ({"settle_timeout": None}, TypeError, "settle_timeout must be"),
        ({"close_timeout": float("nan")}, ValueError, "close_timeout must be"),
        ({"close_timeout": True}, TypeError, "close_timeout must be"),
        ({"namespace": "a:b"}, ValueError, "namespace must not have a colon"),
        ({"namespace": ""}, ValueError, "namespace must not be empty"),
        ({"namespace": 5}, TypeError, "namespace must be a str"),
        ({"retries": 5}, TypeError, "retries"),
    ],
)
def test_wrong_options_are_named(options, error, words):
    with pytest.raises(error, match=words):
        open_store("memory:", **options)


def test_every_option_of_a_store_is_spelled_out():
    """So that an editor completes them, and a type checker finds a wrong one."""
    ours = dict(inspect.signature(open_store).parameters)
    stores = dict(inspect.signature(Store.__init__).parameters)
    del ours["where"], ours["response_timeout"], stores["self"], stores["engine"]
    assert list(ours.values()) == list(stores.values())


def test_the_url_may_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TENURE_STORE", f"sqlite:///{tmp_path}/jobs.db")
    assert open_store(ttl=5).url.endswith("jobs.db")
    assert open_store("memory:").url == "memory:"
    monkeypatch.setenv("TENURE_STORE", "")
    with pytest.raises(
        ValueError, match=r"^open_store\(\) without a URL takes it from TENURE_STORE, which is not"
    ):
        open_store()


@pytest.mark.parametrize(
    "server", ["redis://h", "redis+cluster://h", "redis+sentinel://h/s", "postgresql://h/db"]
)
def test_the_response_timeout_is_an_option_of_servers(server):
    def timeout_of(store):
        engine = store._handle._engine
        if "cluster" in server:
            return engine._topology._link_options[0]
        return (engine._topology._connection if "redis" in server else engine._connection)._response_timeout

    assert timeout_of(open_store(server)) == 5
    assert timeout_of(open_store(server, response_timeout=2)) == 2
    for more in ("", "&replicas=1" if "redis" in server else "&sslmode=require"):
        store = open_store(f"{server}?response_timeout=0.5{more}")
        assert timeout_of(store) == 0.5
        assert "response_timeout" not in store.url
    assert timeout_of(open_store(f"{server}?response_timeout=0.5", response_timeout=2)) == 2
    for wrong in ("x", "", "-1", "0", "inf", "nan", "1e10"):
        with pytest.raises(ValueError, match="^response_timeout must be"):
            open_store(f"{server}?response_timeout={wrong}")
    with pytest.raises(
        TypeError, match="^response_timeout must be a number of seconds or a timedelta, not str"
    ):
        open_store(server, response_timeout="2")


@pytest.mark.parametrize("where", ["memory:", "sqlite:///x.db", MemoryEngine()])
def test_the_response_timeout_is_no_option_of_others(where):
    with pytest.raises(ValueError, match="^response_timeout is "):
        open_store(where, response_timeout=2)


def test_keys_are_made_of_namespace_kind_and_name():
    store = open_store("memory:", namespace="app")
    assert store._handle.key("lock", "a") == "app:lock:a"
    assert store._handle.key("queue", "a") != store._handle.key("lock", "a")


def test_the_codec_is_json_by_default():
    codec = open_store("memory:").codec
    assert isinstance(codec, JsonCodec)
    assert codec.encode({"a": [1, "ä", None]}) == '{"a":[1,"ä",null]}'.encode()
    assert codec.decode(codec.encode({"a": [1, "ä", None]})) == {"a": [1, "ä", None]}
    with pytest.raises(ValueError):
        codec.encode(float("nan"))
    with pytest.raises(TypeError):
        codec.encode(object())
    own = JsonCodec()
    assert open_store("memory:", codec=own).codec is own


# closing


async def test_a_caller_while_the_engine_is_away_is_woken_by_closing(away, virtual_clock):
    caught = []

    async def call(store):
        with pytest.raises(StoreClosed):
            await store.ping()
        caught.append(virtual_clock.now())

    async def wait(store):
        with pytest.raises(StoreClosed):
            async with Lock(store, "a"):
                pytest.fail("granted")
        caught.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        async with open_store(away) as store:
            away.down = True
            for _ in range(3):
                group.start_soon(call, store)
                group.start_soon(wait, store)
            await anyio.sleep(3)
    # the waiters at once, the callers when a second of settling has passed in vain
    assert caught == pytest.approx([3] * 3 + [4] * 3)


async def test_closing_takes_no_longer_than_it_may(away, virtual_clock):
    async def hold(store):
        with pytest.raises(tenure.LeaseLost):
            async with Lock(store, "a"):
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(100)

    async with anyio.create_task_group() as group:
        async with open_store(away, ttl=3.0, close_timeout=2, settle_timeout=0.5) as store:
            group.start_soon(hold, store)
            await virtual_clock.settle()
            away.down = True
        assert virtual_clock.now() == pytest.approx(2.5)


async def test_what_is_under_way_is_still_answered(away, virtual_clock):
    got = []

    async def call(store):
        got.append(await store.ping())

    async with anyio.create_task_group() as group:
        async with open_store(away) as store:
            away.pause()
            group.start_soon(call, store)
            await virtual_clock.settle()
            group.start_soon(later, 0.5, away.resume)
    assert got == [0.5]


async def later(seconds, fn):
    await anyio.sleep(seconds)
    fn()


async def test_the_engine_forgets_the_process(virtual_clock):
    engine = MemoryEngine()
    async with open_store(engine) as store:
        async with Lock(store, "a"), Lock(store, "b", ttl=5):
            assert repr(engine) == "<MemoryEngine sessions=2>"
    assert repr(engine) == "<MemoryEngine sessions=0>"


async def test_a_body_of_a_lost_session_is_waited_for_too(virtual_clock):
    ended = []

    async def hold(store):
        with pytest.raises(tenure.LeaseLost, match="gone"):
            async with Lock(store, "a") as lease:
                lease._session.lose("gone")
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(3)
                ended.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        async with open_store("memory:", ttl=0.5, close_timeout=5) as store:
            group.start_soon(hold, store)
            await virtual_clock.advance(1)
            await store._handle.session(0.5)  # another one, in the meantime
        assert ended == [pytest.approx(3)]
        assert virtual_clock.now() == ended[0]


async def test_cancelled_it_closes_all_the_same(away, virtual_clock):
    with anyio.CancelScope() as scope:
        async with open_store(away) as store, Lock(store, "a"):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert (await store.statistics()).jobs == ()
    assert repr(away._engine) == "<MemoryEngine sessions=0>"


async def test_cancelled_it_still_waits_for_bodies_in_other_tasks(away, virtual_clock):
    ended = []

    async def hold(store):
        with pytest.raises(tenure.LeaseLost, match="closed"):
            async with Lock(store, "a"):
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(3)
                    ended.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with open_store(away, ttl=0.5) as store:
                group.start_soon(hold, store)
                await virtual_clock.settle()
                scope.cancel()
        assert ended == [pytest.approx(3)]
        assert repr(away._engine) == "<MemoryEngine sessions=0>"


async def test_several_stores_over_one_engine_are_several_processes():
    engine = MemoryEngine()
    async with open_store(engine) as one, open_store(engine) as two:
        async with Lock(one, "a") as lease:
            (holder,) = (await Lock(two, "a").holders().page()).records
            assert (holder.process, holder.token) == (one.process, lease.token)
            with pytest.raises(tenure.AcquireTimeout):
                async with Lock(two, "a").hold(timeout=0):
                    pytest.fail("held twice")
        async with Lock(two, "a").hold(timeout=0):
            pass


async def test_one_that_is_granted_in_the_turn_of_closing_does_not_enter():
    engine = MemoryEngine()
    async with open_store(engine) as store:
        session = await store._handle.session(30.0)

        def submit(operation, on_answer):
            store._handle.home.closed = True  # what closing does first
            engine.submit(operation, on_answer)

        store._handle.dispatchers.of("")._engine_submit = submit
        with pytest.raises(StoreClosed):
            async with Lock(store, "a"):
                pytest.fail("entered")
        # bodies that clean up while the store closes hold what they hold
        assert session.lost is None
        assert engine.apply(Scan(HOLDERS, "tenure:lock:a")).holders == ()
