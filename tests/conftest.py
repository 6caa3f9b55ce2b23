"""Which loops a test runs on, virtual time where asked for, and nothing left behind after any test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from tenure.testing import assert_no_leaks, virtual_backend_options

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))  # for the benchmarks

import depth
import files_in_memory
import levels
import shared_bytecode
import variants
from inline_redis import inline_redis
from needed import pytest_report_teststatus, pytest_sessionfinish, pytest_terminal_summary
from postgres_servers import (
    inline_postgres,
    kept,
    own_postgres_server,
    postgres_process,
    postgres_server,
)
from redis_servers import (
    cluster_processes,
    own_redis_cluster,
    own_redis_server,
    ports,
    redis_cluster,
    redis_process,
    redis_server,
    replicate,
    watched_redis,
)
from shared_bytecode import pytest_configure_node, pytest_make_collect_report

__all__ = (
    "cluster_processes",
    "inline_postgres",
    "inline_redis",
    "own_postgres_server",
    "own_redis_cluster",
    "own_redis_server",
    "ports",
    "postgres_process",
    "postgres_server",
    "pytest_configure_node",
    "pytest_make_collect_report",
    "pytest_report_teststatus",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "redis_cluster",
    "redis_process",
    "redis_server",
    "replicate",
    "watched_redis",
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
    if not hasattr(item.config, "workerinput") or item.config.option.durations or item.config.option.measure:
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


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run all tests in all their variants")
    parser.addoption("--measure", action="store_true", help="write heavy.txt anew, from a run of everything")
    parser.addoption("--engine", help="module:factory of an engine for tests/engines/test_named_engine.py")


def pytest_configure(config):
    # A shell starts a command of a script in the background with SIGINT ignored, nohup ignores SIGHUP, and children
    # inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    depth.engine = config.getoption("engine")
    if config.getoption("full"):
        depth.full = True
        hypothesis.settings.load_profile("full")
    # It may have said --full, which the pytest processes that tests start do not know, but those of xdist do.
    if config.getoption("dist", "no") == "no":
        os.environ.pop("PYTEST_ADDOPTS", None)
    files_in_memory.begin(config)
    shared_bytecode.begin(config)
    config.pluginmanager.register(levels)


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


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    variants.parametrize(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    shared_bytecode.sort(config, items)
    items[:] = [
        item
        for item in items
        if not hasattr(item, "callspec") or not variants.is_senseless(item.callspec.params)
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Twice as many as there are cores: tests wait for servers and processes for about half of their time."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else 2 * (os.cpu_count() or 1)


@pytest.fixture
def anyio_backend(request):
    name = getattr(request, "param", None)
    if name is None:
        name = variants.loop_of(request.node)
        request.node.add_report_section("setup", "loop", name)
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
    # on a busy machine a thread ends late; nothing waits where nothing is left
    with assert_no_leaks(grace=10):
        yield


@pytest.fixture(autouse=True)
def nothing_left_of_the_loop(nothing_left_of_the_process, request):
    """Tasks, looked at before the event loop cancels them on closing."""
    # In this order the loop outlives the other fixtures of the test, and sync tests get none.
    if "anyio_backend" in request.fixturenames and not request.node.get_closest_marker("leaves"):
        request.getfixturevalue("no_task_left")


@pytest.fixture
async def no_task_left(anyio_backend, nothing_left_of_the_process):
    async with assert_no_leaks(threads=False, files=False, grace=10):
        yield


@pytest.fixture
def virtual_clock(virtual_clock, monkeypatch):
    """The plugin's; what takes long in real time is no sleep of the machine meanwhile."""
    monkeypatch.setattr("tenure.store._sessions.boot_time", virtual_clock.now)
    return virtual_clock
