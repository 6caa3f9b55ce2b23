"""The watch for blocked loops: what it names, what it lets pass, and that it leaves nothing behind.

A loop cannot be blocked in virtual time. Where it matters how long something takes, the looks are scripted; the
tests that really block only say that what is far too long is seen.
"""

import logging
import threading
import time

import anyio
import anyio.lowlevel
import pytest

from tenure.local import _blocking_watch
from tenure.local._blocking_watch import BlockingWatch, _Step
from tenure.testing import assert_checkpoints

ALL_LOOPS = pytest.mark.backends("asyncio", "trio", "uvloop")


def block(seconds):
    time.sleep(seconds)


async def blocking(seconds):
    block(seconds)


@ALL_LOOPS
async def test_it_names_the_task_the_line_and_the_seconds():
    reports = []
    async with BlockingWatch(0.05, reports.append) as watch, anyio.create_task_group() as group:
        group.start_soon(blocking, 1, name="the slow one")
    (report,) = (report for report in reports if report.task == "the slow one")
    assert report.line.startswith(f"{__file__}:")
    assert report.line.endswith(", in block: time.sleep(seconds)")
    assert report.seconds >= 0.3
    assert "in blocking\n    block(seconds)" in report.stack
    assert "run_forever" not in report.stack
    assert str(report).startswith("task 'the slow one' blocked the loop for ")
    assert watch.statistics().blocks == len(reports)
    assert watch.statistics().longest >= 0.3
    assert repr(watch) == f"<BlockingWatch not watching, {len(reports)} blocks seen>"


@ALL_LOOPS
async def test_what_blocks_until_the_very_end_is_reported_before_the_block_is_left():
    reports = []
    async with BlockingWatch(0.05, reports.append):
        time.sleep(1)
    assert "time.sleep(1)" in reports[-1].line
    assert reports[-1].seconds >= 0.3


@ALL_LOOPS
async def test_waiting_is_no_blocking():
    reports = []
    async with BlockingWatch(0.05, reports.append):
        await anyio.sleep(0.3)
    # somebody else's load may hold up the machine, but not in the sleep
    assert [report for report in reports if "sleep" in report.line] == []


async def test_each_block_is_reported_once():
    reports = []
    async with BlockingWatch(0.02, reports.append):
        for _ in range(2):
            time.sleep(1)
            await anyio.sleep(0.05)
    assert len([report for report in reports if "time.sleep(1)" in report.line]) == 2


async def test_without_a_function_a_warning_is_logged(caplog):
    async with BlockingWatch(0.02):
        time.sleep(1)
    records = [record for record in caplog.records if "time.sleep(1)" in record.getMessage()]
    assert [(record.name, record.levelno) for record in records] == [("tenure", logging.WARNING)]
    assert "\n" not in records[0].getMessage()
    assert all(line.startswith("  ") for line in records[0].stack_info.splitlines())
    assert "time.sleep(1)" in records[0].stack_info


async def test_a_function_that_raises_is_logged_and_the_watch_goes_on(caplog):
    reports = []

    def on_block(report):
        reports.append(report)
        raise KeyError

    async with BlockingWatch(0.02, on_block):
        for _ in range(2):
            time.sleep(1)
            await anyio.sleep(0.05)
    assert len(reports) >= 2
    record = caplog.records[0]
    assert "blocking_watch.on_block_failed" in record.getMessage()
    assert (record.name, record.levelname) == ("tenure", "WARNING")
    assert record.exc_info[0] is KeyError


async def test_it_reports_in_its_own_thread_and_ends_it():
    names = []
    async with BlockingWatch(0.02, lambda _: names.append(threading.current_thread().name)):
        time.sleep(1)
    assert set(names) == {"tenure blocking watch"}
    assert "tenure blocking watch" not in [thread.name for thread in threading.enumerate()]


async def test_entering_is_a_checkpoint_and_leaves_nothing_when_cancelled():
    watch = BlockingWatch()
    with assert_checkpoints():
        await watch.__aenter__()
    await watch.__aexit__(None, None, None)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with watch:
            pytest.fail("entered")
    assert repr(watch) == "<BlockingWatch not watching, 0 blocks seen>"


async def test_it_can_be_left_in_a_cancelled_scope_and_entered_again():
    watch = BlockingWatch(0.02, lambda _: None)
    for number in (1, 2):
        with anyio.CancelScope() as scope:
            async with watch:
                time.sleep(1)
                scope.cancel()
        assert watch.statistics().blocks >= number


async def test_entered_twice_at_once_it_is_refused():
    async with BlockingWatch() as watch:
        with pytest.raises(RuntimeError, match="only once at a time"):
            await watch.__aenter__()


async def test_a_thread_that_cannot_be_started_leaves_nothing(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    watch = BlockingWatch()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="start new thread"):
            await watch.__aenter__()
    async with watch:
        pass


@pytest.mark.parametrize("threshold", [0, -1, float("nan")])
def test_arguments_are_checked_by_name(threshold):
    with pytest.raises(ValueError, match="^threshold must be"):
        BlockingWatch(threshold)
    with pytest.raises(TypeError, match="^on_block must be"):
        BlockingWatch(on_block=3)


# --------------------------------------------------------------------------------------------------- scripted looks


class Task:
    def __init__(self, name):
        self.name = name


A, B = Task("a"), Task("b")


class Script:
    """Stands in for the clock, the steps and the event that stops: one look every 0.01 s."""

    def __init__(self, looks):
        self.looks = looks
        self.at = 0

    def monotonic(self):
        return self.at / 100

    def look(self):
        return self.looks[self.at]

    def wait(self, _):
        self.at += 1
        return self.at == len(self.looks) - 1


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([(1, None)] * 50, [], id="an idle loop"),
        pytest.param([(n, A) for n in range(50)], [], id="short steps of one task"),
        pytest.param([(n // 9, A) for n in range(50)], [], id="steps a little below the threshold"),
        pytest.param([(1, A if n % 2 else B) for n in range(50)], [], id="two tasks in one turn"),
        pytest.param([(0, None), *[(1, A)] * 30, (2, None)], [("a", 0.31)], id="a block"),
        pytest.param([(0, None), *[(1, A)] * 30], [], id="one that does not end"),
        pytest.param(
            [(0, None), *[(1, A)] * 20, *[(1, B)] * 20, (2, None)],
            [("a", 0.21), ("b", 0.21)],
            id="two in one turn",
        ),
        pytest.param(
            [(0, None), *[(1, A)] * 20, (2, None), *[(3, A)] * 20, (4, A)],
            [("a", 0.21), ("a", 0.21)],
            id="two of one task",
        ),
    ],
)
def test_what_it_makes_of_looks(looks, expected, monkeypatch):
    script = Script([_Step(*look) for look in looks])
    monkeypatch.setattr(_blocking_watch, "monotonic", script.monotonic)
    reports = []
    watch = BlockingWatch(0.1, reports.append)
    watch._watch(script, script, threading.get_ident())
    assert [(report.task, round(report.seconds, 6)) for report in reports] == expected
    assert watch.statistics().blocks == len(expected)


def test_a_stack_that_was_taken_when_the_step_had_just_ended_is_not_believed(monkeypatch):
    class Passing(Script):
        def look(self):
            self.asked = getattr(self, "asked", 0) + 1
            return _Step(self.asked // 12, A)

    script = Passing(range(20))
    monkeypatch.setattr(_blocking_watch, "monotonic", script.monotonic)
    reports = []
    BlockingWatch(0.1, reports.append)._watch(script, script, threading.get_ident())
    assert reports == []


def test_a_thread_that_is_gone_is_reported_without_a_line(monkeypatch):
    script = Script([_Step(*look) for look in [(0, None), *[(1, A)] * 20, (2, None)]])
    monkeypatch.setattr(_blocking_watch, "monotonic", script.monotonic)
    reports = []
    BlockingWatch(0.1, reports.append)._watch(script, script, -1)
    assert [(report.line, report.stack) for report in reports] == [("unknown", "")]
