"""Which loops a test runs on, virtual time where asked for, and nothing left behind after any test."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from zlib import crc32

import anyio
import hiredis
import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from tenure.engine import Engine, Reply, clamp_durations
from tenure.engines.redis import CODECS
from tenure.engines.redis._codec import answered, hint
from tenure.engines.redis._resp import pack
from tenure.engines.redis._scripts import all_scripts, script
from tenure.testing import assert_no_leaks, virtual_backend_options
from tenure.testing._batch_link import BatchLink

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))  # for the benchmarks

import depth
import files_in_memory
import shared_bytecode
from needed import (
    NO_REDIS,
    pytest_report_teststatus,
    pytest_sessionfinish,
    pytest_terminal_summary,
    redis_program,
)
from postgres_servers import (
    inline_postgres,
    kept,
    own_postgres_server,
    postgres_process,
    postgres_server,
)
from redis_pushes import RedisSocket
from shared_bytecode import pytest_configure_node, pytest_make_collect_report

__all__ = (
    "inline_postgres",
    "own_postgres_server",
    "postgres_process",
    "postgres_server",
    "pytest_configure_node",
    "pytest_make_collect_report",
    "pytest_report_teststatus",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
)

for profile, examples in (("quick", 30), ("full", 100)):
    hypothesis.settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        print_blob=True,
        # The fixtures of this file hold for all the examples of a test together.
        suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
    )
hypothesis.settings.load_profile("quick")


try:
    import uvloop
except ImportError:
    pass
else:
    # Its first loop opens a pipe that stays for the life of the process.
    uvloop.new_event_loop().close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Report a test that passes once, and not in each of its phases: what xdist sends takes longer than many a test."""
    if not hasattr(item.config, "workerinput") or item.config.getoption("durations"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            report.keywords = {}
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Repeat the alarm of a test's time limit: an event loop may swallow the first, and go on for ever."""
    if left := signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, left, 5)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown():
    """Limit the clearing up behind a test that has failed as well: pytest-timeout limits nothing after a failure."""
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        return (yield)

    def give_up(*_):
        pytest.fail("the clearing up does not end")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 30, 1)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


LOOPS = ("anyio_backend", "backend")
"""What a parameter is called that says on which loop a test runs."""


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also run what the tests leave out to be quick")


def pytest_configure(config):
    # A shell starts a command of a script in the background with SIGINT ignored, and its children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("full"):
        depth.full = True
        hypothesis.settings.load_profile("full")
    # It may have said --full, which the pytest processes that tests start do not know, but those of xdist do.
    if config.getoption("dist", "no") == "no":
        os.environ.pop("PYTEST_ADDOPTS", None)
    files_in_memory.begin(config)
    shared_bytecode.begin(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spare the garbage collector the tests themselves: so many objects would slow down each of its runs."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(obj):
    """Pass over whole classes that are for --full."""
    marks = getattr(obj, "pytestmark", None) if isinstance(obj, type) and not depth.full else None
    return [] if isinstance(marks, list) and any(mark.name == "full" for mark in marks) else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    named = {
        name.strip() for names in given for name in (names.split(",") if isinstance(names, str) else names)
    }
    if "anyio_backend" in metafunc.fixturenames and "anyio_backend" not in named:
        mark = metafunc.definition.get_closest_marker("backends")
        loops = mark.args if mark else ("asyncio", "trio")
        metafunc.parametrize("anyio_backend", loops, indirect=True)
    result = yield
    # What is left out here is not even made, which saves the most.
    metafunc._calls = [call for call in metafunc._calls if not _is_senseless(call.params)]
    metafunc._calls = (_full if depth.full else _quick)(metafunc)
    return result


ASKED_INLINE = ("sqlite", "redis", "postgres")
"""The engines that are asked by blocking calls in virtual time, which know no loop."""


def _full(metafunc):
    """The variants of a test that run with --full: all, but on one loop where that shows as much as both."""
    one_loop = metafunc.definition.get_closest_marker("one_loop")
    inline = ASKED_INLINE if "virtual_clock" in metafunc.fixturenames else ()
    variants = {}
    for call in metafunc._calls:
        alike = LOOPS if one_loop or call.params.get("engine") in inline else ()
        rest = tuple(place for place in call.indices.items() if place[0] not in alike)
        variants.setdefault(rest, []).append(call)
    turn = _turn(metafunc, one_loop)
    return [same[(turn + sum(dict(rest).values())) % len(same)] for rest, same in variants.items()]


def _turn(metafunc, one_loop):
    """A number for a test: of two tests with the same engines, each engine shall not always be on the same loop."""
    return crc32(metafunc.function.__name__.encode()) + (
        one_loop.args[0] if one_loop and one_loop.args else 0
    )


def _quick(metafunc):
    """The variants of a test that run without --full."""
    if metafunc.definition.get_closest_marker("full"):
        return metafunc._calls[:1]  # to be left out later
    calls = [call for call in metafunc._calls if all(mark.name != "full" for mark in call.marks)]
    if not calls:
        return metafunc._calls[:1]
    one_loop = metafunc.definition.get_closest_marker("one_loop")
    if not one_loop and LOOPS[0] in calls[0].params and len(calls[0].params) == 1:
        return calls  # once on each loop, as most tests
    turn = _turn(metafunc, one_loop)
    chosen = _each_once(calls, ("engine",) if one_loop else ("loop", "engine"), turn)
    places = set(map(id, chosen))
    return [call for call in calls if id(call) in places]


def _each_once(calls, axes, turn):
    """So many of the variants that each value on each of these axes is there, and each combination of all else."""
    values = [_values(call) for call in calls]
    needed = [{value for value in of_one if value[0] in (*axes, "else")} for of_one in values]
    times = dict.fromkeys((value for of_one in values for value in of_one), 0)
    turns = [(turn + sum(call.indices.values())) % 2 for call in calls]
    chosen = []
    while missing := {value for of_one in needed for value in of_one if not times[value]}:
        scores = [
            (len(new & missing), -sum(map(times.get, of_one)), own)
            for new, of_one, own in zip(needed, values, turns, strict=True)
        ]
        best = scores.index(max(scores))
        chosen.append(calls[best])
        for value in values[best]:
            times[value] += 1
    return chosen


def _values(call):
    """Where a variant is on each axis: as pairs of the axis and something."""
    loops = [call.params[name] for name in LOOPS if name in call.params]
    engines = [call.indices[name] for name in ("engine",) if name in call.params]
    others = tuple(n for name, n in call.indices.items() if name not in (*LOOPS, "engine"))
    return [*(("loop", str(one)) for one in loops), *(("engine", one) for one in engines), ("else", others)]


def _is_senseless(given):
    """Whether it would cancel natively on trio: that is asyncio's own."""
    native = given.get("native") is True or given.get("how") == "native"
    return native and given.get("anyio_backend") == "trio"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what only --full runs."""
    shared_bytecode.sort(config, items)
    items[:] = [
        item for item in items if not _is_senseless(getattr(getattr(item, "callspec", None), "params", {}))
    ]
    if not depth.full:
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Twice as many as there are cores: tests wait for servers and processes for about half of their time."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else 2 * (os.cpu_count() or 1)


@pytest.fixture
def anyio_backend(request):
    name = request.param
    if name == "uvloop":
        pytest.importorskip("uvloop")
        if "virtual_clock" in request.fixturenames:
            pytest.fail("uvloop has no virtual time")
        return "asyncio", {"use_uvloop": True}
    if "virtual_clock" in request.fixturenames:
        return name, virtual_backend_options(name)
    return name, {}


@pytest.fixture(autouse=True)
def nothing_left_of_the_process(request):
    """Threads, files and sockets, looked at when the event loop has been closed."""
    kept.renew()
    if request.node.get_closest_marker("leaves"):
        yield
        return
    with assert_no_leaks():
        yield


@pytest.fixture(autouse=True)
def nothing_left_of_the_loop(nothing_left_of_the_process, request):
    """Tasks, looked at before the event loop cancels them on closing."""
    # In this order the loop outlives the other fixtures of the test, and sync tests get none.
    if "anyio_backend" in request.fixturenames and not request.node.get_closest_marker("leaves"):
        request.getfixturevalue("no_task_left")


@pytest.fixture
async def no_task_left(anyio_backend, nothing_left_of_the_process):
    async with assert_no_leaks(threads=False, files=False):
        yield


@pytest.fixture
def virtual_clock(virtual_clock, monkeypatch):
    """The plugin's; what takes long in real time is no sleep of the machine meanwhile."""
    monkeypatch.setattr("tenure.store._sessions.boot_time", virtual_clock.now)
    return virtual_clock


class RedisServer:
    """A private Redis server on a socket in `folder`; skips the test where there is no program for it."""

    def __init__(self, folder, *options):
        self.socket = str(folder / "redis.sock")
        self.url = f"unix://{self.socket}"
        self._folder = folder
        self._options = options
        self.process = None
        self._program = redis_program() or pytest.skip(NO_REDIS)

    def start(self):
        with open(self._folder / "log", "ab") as log:
            self.process = subprocess.Popen([self._program, *self._settings()], stdout=log, stderr=log)
        while self._ask("PING") != b"PONG":
            assert self.process.poll() is None, (self._folder / "log").read_text()
            time.sleep(0.005)

    def _settings(self):
        return (
            *("--port", "0", "--unixsocket", self.socket, "--dir", self._folder, "--save", ""),
            *self._options,
        )

    @property
    def version(self):
        info = dict(
            line.split(":", 1) for line in self("INFO", "server").decode().splitlines() if ":" in line
        )
        return tuple(map(int, info["redis_version"].split(".")))

    def __call__(self, *command):
        """The reply to a command."""
        reply = self._ask(*command)
        assert not isinstance(reply, Exception), reply
        return reply

    def ask_all(self, commands):
        """The replies to commands that are sent together."""
        reader = hiredis.Reader()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            connection.sendall(pack(commands))
            replies = []
            while len(replies) < len(commands):
                if (reply := reader.gets()) is False:
                    reader.feed(connection.recv(65536))
                else:
                    replies.append(reply)
        return replies

    def _ask(self, *command):
        reader = hiredis.Reader()
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(self.socket)
                connection.sendall(hiredis.pack_command(command))
                while (reply := reader.gets()) is False:
                    if not (data := connection.recv(65536)):
                        return None
                    reader.feed(data)
            except OSError:
                return None
        return reply

    def kill(self):
        self.process.kill()
        self.process.wait()
        Path(self.socket).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def redis_process(tmp_path_factory):
    # a socket's path has to be short
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:
        server = RedisServer(Path(folder))
        server.start()
        yield server
        server.kill()


@pytest.fixture
def redis_server(redis_process):
    """An empty Redis server, of all tests together."""
    redis_process("FLUSHALL")
    return redis_process


@pytest.fixture
def own_redis_server(request):
    """Makes Redis servers that the test may kill, freeze and start again: `own_redis_server("--appendonly", "yes")`."""
    servers = []
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:

        def make(*options):
            place = Path(folder) / str(len(servers))
            place.mkdir()
            servers.append(RedisServer(place, *options))
            servers[-1].start()
            return servers[-1]

        yield make
        for server in servers:
            server.kill()


class InlineRedis(Engine):
    """The scripts on a real server, each call blocking until it is answered: for tests in virtual time.

    All stores over it share a connection, so that hints come before the answer of the call that caused them.
    Without a clock the time is the server's.
    """

    url = ""

    def __init__(self, server, clock, cap=256):
        self.url = server.url
        self._clock = clock
        self._cap = cap
        self._listeners = {}
        self._connection = RedisSocket(server.socket)
        self._ask(*(("SCRIPT", "LOAD", script.source) for script in all_scripts()))

    def close(self):
        self._connection.close()

    def _ask(self, *commands):
        replies, pushes = self._connection.ask(*commands)
        for kind, channel, message in pushes:
            deliver = self._listeners.get(channel.decode())
            if kind == b"message" and deliver is not None:
                deliver(hint(channel.decode().removeprefix("tenure:"), message))
        return replies

    def _say(self, *command):
        self._connection.tell(command)
        self._ask()

    def _evaluate(self, name, *arguments):
        now = "" if self._clock is None else f"{round(self._clock() * 1e6):016}"
        keys = ("1", "tenure:{0}:")
        return self._ask(("EVALSHA", script(name).sha, *keys, now, self._cap, *arguments))[0]

    def apply_now(self, operation):
        call = CODECS[type(operation)]
        answer = answered(call, self._evaluate(call.script, *call.arguments(clamp_durations(operation))))
        if answer is Reply.MORE:
            self._evaluate("sweep")
        return answer

    def link(self):
        return BatchLink(self)

    async def execute(self, operations):
        answers = [self.apply_now(operation) for operation in operations]
        await anyio.lowlevel.checkpoint()
        return answers

    def listen(self, process, deliver):
        self._listeners[f"tenure:{process}"] = deliver
        self._say("SUBSCRIBE", f"tenure:{process}")

    async def serve(self, process, deliver, *, task_status=anyio.TASK_STATUS_IGNORED):
        self.listen(process, deliver)
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            del self._listeners[f"tenure:{process}"]
            self._say("UNSUBSCRIBE", f"tenure:{process}")


@pytest.fixture
def inline_redis(redis_server):
    """Makes engines in the test's time: `inline_redis(clock)`."""
    made = []

    def make(clock, cap=256):
        made.append(InlineRedis(redis_server, clock, cap))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


# those of a cluster whose servers listen on none yet
_ports = deque(maxlen=100)


def free_port():
    """A port on which a server of a cluster can listen, since the one that is 10,000 above is free as well.

    Each worker has ports of its own, below those that the system gives to connections: between this look and the
    start of the server nobody else may take one.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = 10_000 + worker % 10 * 1000 + random.randrange(1000)
        if port in _ports:
            continue
        try:
            for number in (port, port + 10_000):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", number))
        except OSError:
            continue
        _ports.append(port)
        return port


class Sentinel(RedisServer):
    """A Sentinel with the configuration `lines`, whose first says where it listens."""

    def __init__(self, folder, lines):
        super().__init__(folder)
        self._conf = folder / "sentinel.conf"
        own = f"unixsocket {self.socket}", f"dir {folder}"
        self._conf.write_text("\n".join((*lines, *own, "")))

    def _settings(self):
        return (self._conf, "--sentinel")


class WatchedRedis:
    """A primary, a replica of it, and three Sentinels that agree after 0.3 s that the primary is down."""

    def __init__(self, folder):
        self.ports = [free_port() for _ in range(5)]
        self.servers = []
        for n, port in enumerate(self.ports[:2]):
            replica = ("--replicaof", "127.0.0.1", str(self.ports[0])) if n else ()
            fast = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
            self.servers.append(RedisServer(_folder(folder, n), "--port", str(port), *fast, *replica))
        self.sentinels = [Sentinel(_folder(folder, n), self._watch(n)) for n in range(2, 5)]
        self.processes = [*self.servers, *self.sentinels]
        for one in self.processes:
            one.start()
        wait_until(lambda: b"master_link_status:up" in self.servers[1]("INFO", "replication"))
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports[2:])}/jobs"

    def _watch(self, own):
        yield f"port {self.ports[own]}"
        yield f"sentinel myid {own:040x}"
        yield f"sentinel monitor jobs 127.0.0.1 {self.ports[0]} 2"
        yield "sentinel down-after-milliseconds jobs 300"
        yield "sentinel failover-timeout jobs 3000"
        # what they would tell each other within some seconds
        yield f"sentinel known-replica jobs 127.0.0.1 {self.ports[1]}"
        for n in {2, 3, 4} - {own}:
            yield f"sentinel known-sentinel jobs 127.0.0.1 {self.ports[n]} {n:040x}"


def _folder(parent, name):
    place = Path(parent) / str(name)
    place.mkdir()
    return place


def wait_until(condition):
    """Wait for a server, fifty seconds at most: so long on a busy machine alone."""
    end = time.monotonic() + 50
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def replicate():
    """Waits until a replica has what its primary has now: `replicate(primary, replica)`."""

    def offset(server, name):
        info = server("INFO", "replication").decode()
        return int(next(line for line in info.splitlines() if line.startswith(name)).partition(":")[2])

    def wait(primary, replica):
        there = offset(primary, "master_repl_offset")
        wait_until(lambda: offset(replica, "slave_repl_offset") >= there)

    return wait


@pytest.fixture
def watched_redis():
    """A Redis server whose failure Sentinels notice."""
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:
        watched = WatchedRedis(folder)
        yield watched
        for one in watched.processes:
            one.kill()


@pytest.fixture(name="free_port")
def ports():
    """Finds ports of this machine on which nobody listens."""
    return free_port


class RedisCluster:
    """Three nodes that have the slots, and a replica of the first, or of as many as are `replicated`."""

    def __init__(self, folder, replicated=1):
        self.ports = [free_port() for _ in range(3 + replicated)]
        self.nodes = []
        for n, port in enumerate(self.ports):
            place = _folder(folder, n)
            cluster = ("--cluster-enabled", "yes", "--cluster-config-file", place / "nodes.conf")
            fast = ("--cluster-node-timeout", "500", "--repl-diskless-sync-delay", "0")
            self.nodes.append(RedisServer(place, "--port", str(port), *cluster, *fast))
        for n, node in enumerate(self.nodes):
            node.start()
            node("CLUSTER", "SET-CONFIG-EPOCH", str(n + 1))
        for n, node in enumerate(self.nodes[:3]):
            share = range(n * 16384 // 3, (n + 1) * 16384 // 3)
            node("CLUSTER", "ADDSLOTS", *map(str, share))
        for port in self.ports[1:]:
            self.nodes[0]("CLUSTER", "MEET", "127.0.0.1", str(port))
        self.ids = [node("CLUSTER", "MYID").decode() for node in self.nodes]
        known = len(self.nodes)
        wait_until(lambda: all(node("CLUSTER", "NODES").count(b" connected") == known for node in self.nodes))
        for n, replica in enumerate(self.nodes[3:]):
            replica("CLUSTER", "REPLICATE", self.ids[n])
        for replica in self.nodes[3:]:
            wait_until(lambda one=replica: b"master_link_status:up" in one("INFO", "replication"))
        wait_until(lambda: all(b"cluster_state:ok" in node("CLUSTER", "INFO") for node in self.nodes))
        self.url = f"redis+cluster://127.0.0.1:{self.ports[0]},127.0.0.1:{self.ports[1]}"

    @property
    def version(self):
        return self.nodes[0].version

    def home_of(self, slot):
        """The node that has the slot, as the first node says that is alive."""
        node = next(node for node in self.nodes if node.process.poll() is None)
        # while a replica takes over, its slots belong to no node for a moment
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for first, last, (_, port, *_), *_ in node("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return self.ports.index(port)
            time.sleep(0.01)
        raise AssertionError(slot)

    def move(self, slot, to):
        """Move a slot to another node, step by step: a generator that yields between the steps."""
        source = self.home_of(slot)
        self.nodes[to]("CLUSTER", "SETSLOT", str(slot), "IMPORTING", self.ids[source])
        self.nodes[source]("CLUSTER", "SETSLOT", str(slot), "MIGRATING", self.ids[to])
        yield
        while keys := self.nodes[source]("CLUSTER", "GETKEYSINSLOT", str(slot), "1"):
            self.nodes[source]("MIGRATE", "127.0.0.1", str(self.ports[to]), "", "0", "5000", "KEYS", *keys)
            yield
        for node in (to, source, *({0, 1, 2} - {to, source})):
            self.nodes[node]("CLUSTER", "SETSLOT", str(slot), "NODE", self.ids[to])
            yield

    def close(self):
        for node in self.nodes:
            node.kill()


@pytest.fixture(scope="session")
def cluster_processes():
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:
        cluster = RedisCluster(folder)
        yield cluster
        cluster.close()


@pytest.fixture
def redis_cluster(cluster_processes):
    """An empty Redis cluster, of all tests together."""
    for node in cluster_processes.nodes[:3]:
        node("FLUSHALL")
    return cluster_processes


@pytest.fixture
def own_redis_cluster():
    """A Redis cluster whose nodes the test may kill."""
    with tempfile.TemporaryDirectory(prefix="tenure") as folder:
        cluster = RedisCluster(folder)
        yield cluster
        cluster.close()
