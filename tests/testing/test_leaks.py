import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest

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
    stop = threading.Event()
    async with anyio.create_task_group() as group:
        with pytest.raises(LeakError, match="thread"):
            async with assert_no_leaks(grace=0.05, tasks=False):
                group.start_soon(anyio.to_thread.run_sync, stop.wait)
                await anyio.sleep(0.05)
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
    assert [text.split(":")[1].strip() for text in caught.value.leaks] == ["/dev/null", "socket"]


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


def test_this_suites_own_checks_catch_leaks(tmp_path):
    (tmp_path / "conftest.py").write_text((Path(__file__).parents[1] / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(LEAKY_SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\nmarkers =\n    backends\n    leaves\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, cwd=tmp_path)
    assert "4 passed, 3 errors" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("LeakError: left behind:") >= 3
