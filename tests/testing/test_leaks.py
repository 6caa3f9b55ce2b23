import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from tenure.local import Threads
from tenure.testing import LeakError, assert_no_leaks, run


async def test_a_clean_block_passes():
    async with assert_no_leaks():
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.01)
        await anyio.to_thread.run_sync(time.sleep, 0)
        with open(os.devnull):
            pass


@pytest.mark.parametrize("how", ["with", "async with"])
async def test_a_task_is_found(how):
    async with anyio.create_task_group() as group:
        with pytest.raises(LeakError, match="task .*the-stray") as caught:
            if how == "with":
                with assert_no_leaks(grace=0):
                    group.start_soon(anyio.sleep_forever, name="the-stray")
            else:
                async with assert_no_leaks(grace=0.05):
                    group.start_soon(anyio.sleep_forever, name="the-stray")
        assert len(caught.value.leaks) == 1
        group.cancel_scope.cancel()


async def test_a_task_that_is_about_to_end_has_the_time_for_it():
    async def ends_soon():
        for _ in range(50):
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        async with assert_no_leaks():
            group.start_soon(ends_soon)


async def test_the_check_lets_no_virtual_time_pass(virtual_clock):
    async with anyio.create_task_group() as group:
        with pytest.raises(LeakError):
            async with assert_no_leaks(grace=0.05):
                group.start_soon(anyio.sleep, 1)
        assert virtual_clock.now() == 0


async def test_a_block_that_is_cancelled_is_still_checked():
    with anyio.CancelScope() as scope, socket.socket() as kept:
        async with assert_no_leaks(grace=0.05):
            scope.cancel()
    assert kept is not None


def test_a_thread_is_found():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="the-stray")
    with pytest.raises(LeakError, match="thread 'the-stray'"):
        with assert_no_leaks(grace=0.05):
            thread.start()
    stop.set()
    thread.join()


async def test_a_busy_worker_thread_is_found_and_an_idle_one_is_not():
    started, stop = threading.Event(), threading.Event()

    def work():
        started.set()
        stop.wait(50)

    async with anyio.create_task_group() as group:
        with pytest.raises(LeakError, match="thread"):
            async with assert_no_leaks(grace=0.05, tasks=False):
                group.start_soon(anyio.to_thread.run_sync, work)
                while not started.is_set():
                    await anyio.sleep(0.01)
        stop.set()
    async with assert_no_leaks():
        await anyio.to_thread.run_sync(time.sleep, 0.01)


def test_files_and_sockets_are_found():
    kept = []
    with pytest.raises(LeakError) as caught:
        with assert_no_leaks(grace=0):
            kept += [open(os.devnull), socket.socket()]
    for left in kept:
        left.close()
    assert [text.split(":")[1].strip() for text in caught.value.leaks] == ["/dev/null", "tcp, not connected"]


def left_of(make):
    """The leaks that are told of the sockets that `make` makes, by their numbers."""
    kept = []
    with pytest.raises(LeakError) as caught:
        with assert_no_leaks(grace=0):
            kept += make()
    told = dict(text.removeprefix("socket ").split(": ", 1) for text in caught.value.leaks)
    names = [told[str(left.fileno())] for left in kept]
    for left in kept:
        left.close()
    assert len(told) == len(kept)
    return names


def address(sock):
    return "{}:{}".format(*sock.getsockname())


def test_a_listener_is_reported_with_its_address():
    made = []

    def make():
        made.append(socket.create_server(("127.0.0.1", 0)))
        made.append(address(made[0]))
        return made[:1]

    assert left_of(make) == [f"tcp, listening, {made[1]}"]


def test_a_connection_is_reported_with_both_addresses():
    addresses = []

    def make():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            server, _ = listener.accept()
        addresses.extend([address(client), address(server)])
        return [client, server]

    client, server = left_of(make)
    assert client == "tcp, established, {} to {}".format(*addresses)
    assert server == "tcp, established, {1} to {0}".format(*addresses)


def test_a_connection_that_the_peer_has_closed_is_reported_as_such():
    def make():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            listener.accept()[0].close()
        return [client]

    assert left_of(make)[0].startswith("tcp, closed by the peer, 127.0.0.1:")


def test_unix_and_udp_sockets_are_reported_as_such(tmp_path):
    def make():
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "it"))
        listener.listen()
        nameless = socket.socket(socket.AF_UNIX)
        nameless.bind("")  # the system finds an abstract name
        return [listener, nameless, *socket.socketpair(), socket.socket(type=socket.SOCK_DGRAM)]

    listener, abstract, one, other, udp = left_of(make)
    assert abstract.startswith("unix, not connected, @")
    assert listener == f"unix, listening, {tmp_path / 'it'}"
    assert one == other == "unix, connected"
    assert udp == "udp, not connected"


def test_naming_a_socket_leaves_it_as_it_was():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        client.setblocking(False)
        server, _ = listener.accept()
        assert left_of(lambda: [client.dup()])
        assert not client.getblocking()
        client.send(b"still here")
        assert server.recv(20) == b"still here"
        client.close()
        server.close()


def test_what_was_there_before_does_not_count():
    with open(os.devnull), assert_no_leaks():
        pass


def test_kinds_can_be_left_out():
    with socket.socket() as first, assert_no_leaks(files=False):
        second = socket.socket()
    second.close()
    assert first is not None


def test_the_blocks_own_error_comes_first():
    with pytest.raises(KeyError):
        with assert_no_leaks(grace=0):
            left = open(os.devnull)
            raise KeyError
    left.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_outside_of_pytest(backend):
    async def main():
        async with assert_no_leaks():
            await anyio.sleep(3)

    with assert_no_leaks():
        run(main, backend=backend)


def test_grace_is_checked():
    with pytest.raises(ValueError, match="^grace:"):
        assert_no_leaks(grace=-1)


async def test_a_token_that_is_not_given_back_is_found():
    limiter = anyio.CapacityLimiter(2)
    with pytest.raises(LeakError, match=r"CapacityLimiter.*: borrowed_tokens was 0, is 1$") as caught:
        async with assert_no_leaks(limiter, grace=0.02):
            await limiter.acquire()
    assert len(caught.value.leaks) == 1
    limiter.release()


async def test_a_slot_of_a_semaphore_that_is_not_given_back_is_found():
    semaphore = anyio.Semaphore(1)
    with pytest.raises(LeakError, match=r"Semaphore.*: value was 1, is 0$"):
        async with assert_no_leaks(semaphore, grace=0.02):
            await semaphore.acquire()


async def test_a_lock_that_stays_locked_is_found():
    lock = anyio.Lock()
    with pytest.raises(LeakError, match=r"Lock.*: locked was False, is True$"):
        with assert_no_leaks(lock, grace=0):
            lock.acquire_nowait()
    lock.release()


async def test_the_lock_of_a_condition_is_looked_at_too():
    condition = anyio.Condition()
    with pytest.raises(LeakError, match=r"Condition.*: lock_statistics\.locked was False, is True$"):
        async with assert_no_leaks(condition, grace=0.02):
            await condition.acquire()
    condition.release()


async def test_items_and_ends_of_a_stream_that_stay_are_found():
    send, receive = anyio.create_memory_object_stream(3)
    with send, receive, pytest.raises(LeakError) as caught:
        async with assert_no_leaks(receive, grace=0.02):
            send.send_nowait("a long item" * 20)
            clone = send.clone()
    clone.close()
    assert [text.rpartition(": ")[2] for text in caught.value.leaks] == [
        "current_buffer_used was 0, is 1",
        "open_send_streams was 1, is 2",
    ]
    assert "a long item" not in str(caught.value)


async def test_a_task_that_still_waits_is_found():
    event = anyio.Event()
    async with anyio.create_task_group() as group:
        with pytest.raises(LeakError, match="tasks_waiting was 0, is 1"):
            async with assert_no_leaks(event, tasks=False, grace=0.02):
                group.start_soon(event.wait)
                while not event.statistics().tasks_waiting:
                    await anyio.lowlevel.checkpoint()
        event.set()


async def test_a_thread_that_runs_on_keeps_its_slot():
    threads = Threads(1)
    stop = threading.Event()
    with pytest.raises(LeakError) as caught:
        async with assert_no_leaks(threads, threads=False, grace=0.02):
            with anyio.move_on_after(0.05):
                await threads.run(stop.wait)
    stop.set()
    assert [text.rpartition(": ")[2] for text in caught.value.leaks] == [
        "abandoned was 0, is 1",
        "busy was 0, is 1",
    ]


async def test_what_is_given_back_is_no_leak():
    things = anyio.Lock(), anyio.CapacityLimiter(1), anyio.Semaphore(1), Threads(1)
    lock, limiter, semaphore, threads = things
    async with assert_no_leaks(*things):
        async with lock, limiter, semaphore:
            pass
        await threads.run(int)


async def test_what_was_in_use_before_and_still_is_no_leak():
    limiter = anyio.CapacityLimiter(2)
    limiter.acquire_nowait()
    async with assert_no_leaks(limiter):
        await limiter.acquire_on_behalf_of("another")
        limiter.release_on_behalf_of("another")
    limiter.release()


async def test_what_was_in_use_before_may_be_given_back():
    lock, semaphore = anyio.Lock(), anyio.Semaphore(1)
    await lock.acquire()
    await semaphore.acquire()
    async with assert_no_leaks(lock, semaphore):
        lock.release()
        semaphore.release()


async def test_what_is_about_to_be_given_back_has_the_time_for_it():
    limiter = anyio.CapacityLimiter(1)

    async def soon():
        async with limiter:
            for _ in range(50):
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        async with assert_no_leaks(limiter, tasks=False):
            group.start_soon(soon)
            await anyio.lowlevel.checkpoint()


class Counting:
    """Has gauges and counters, and collections of holders."""

    def __init__(self):
        self.gauge = 0
        self.counter = 0
        self.holding = []

    def statistics(self):
        return SimpleNamespace(in_use=self.gauge, served=self.counter, limit=3, holders=tuple(self.holding))

    def __repr__(self):
        return "<Counting>"


def test_what_is_only_counted_may_differ():
    thing = Counting()
    with assert_no_leaks(thing, grace=0):
        thing.counter += 1


def test_each_gauge_of_each_thing_is_reported():
    one, other = Counting(), Counting()
    with pytest.raises(LeakError) as caught:
        with assert_no_leaks(one, other, grace=0):
            one.gauge = 1
            one.holding.append("A")
            other.gauge = 2
    assert caught.value.leaks == (
        "<Counting>: holders was 0, is 1",
        "<Counting>: in_use was 0, is 1",
        "<Counting>: in_use was 0, is 2",
    )


def test_what_has_no_statistics_is_refused():
    with pytest.raises(TypeError, match="^things: .*'lock'"):
        assert_no_leaks("lock")


def test_what_has_no_gauges_is_refused():
    thing = Counting()
    thing.statistics = lambda: SimpleNamespace(served=1)
    with pytest.raises(TypeError, match="^things: .*<Counting>"):
        with assert_no_leaks(thing):
            pass


def test_statistics_that_are_awaited_are_refused():
    class Shared:
        async def statistics(self):
            raise AssertionError("asked")

    with pytest.raises(TypeError, match="^things: .*Shared"):
        assert_no_leaks(Shared())


LEAKY_SUITE = """
import asyncio, socket, threading, time, pytest
pytestmark = pytest.mark.backends("asyncio")
kept = []

def test_socket():
    kept.append(socket.socket())

async def test_task():
    kept.append(asyncio.ensure_future(asyncio.sleep(1000)))

def test_thread():
    threading.Thread(target=time.sleep, args=[1.5]).start()

async def test_clean():
    await asyncio.sleep(0)
"""


@pytest.mark.full
def test_this_suites_own_checks_catch_leaks(tmp_path):
    # less time for what is about to end than the thread takes
    checks = (Path(__file__).parents[1] / "conftest.py").read_text().replace("grace=10", "grace=0.2")
    (tmp_path / "conftest.py").write_text(checks)
    (tmp_path / "test_it.py").write_text(LEAKY_SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\nmarkers =\n    backends\n    leaves\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )
    assert "4 passed, 3 errors" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("LeakError: left behind:") >= 3
