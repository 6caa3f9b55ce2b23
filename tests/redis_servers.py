"""Redis servers of the tests: a private one, one that Sentinels watch, and a cluster."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path

import hiredis
import pytest
from needed import NO_REDIS, redis_program

from tenure.engines.redis._resp import pack


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
