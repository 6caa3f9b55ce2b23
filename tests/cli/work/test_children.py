"""What the parent of several processes logs of their deaths, in an hour of virtual time."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from tenure.cli.work import _children
from tenure.cli.work._children import CHILD, TOLD, Children
from tenure.cli.work._failure import report


class World:
    """Time, and processes that live for so many seconds and end with so many errors in turn."""

    def __init__(self, lives, errors, begin=lambda number: None):
        self.now, self.starts, self._lives, self._errors = 0.0, [], lives, errors
        self.until = 3600.0
        self.begin = begin

    def sleep(self, seconds):
        self.now += seconds
        if self.now > self.until:
            raise TimeoutError

    def start(self, command, *, env, **_):
        number, _, file, deaths = map(int, env[CHILD].split(":"))
        self.starts.append(deaths)
        began, life = self.now, self._lives(number, self.now)
        error = self._errors[len(self.starts) % len(self._errors)]

        def poll():
            if process.returncode is None and self.now >= began + life:
                report(error, "shop", text=True, ours=True, told=(file, 2 * TOLD * (number - 1)))
                process.returncode = 1
            return process.returncode

        process = SimpleNamespace(pid=number, returncode=None, poll=poll, kill=list, wait=list)
        return process


@pytest.fixture
def an_hour(monkeypatch, caplog):
    """The lines of an hour, with those that the processes log as they begin and end."""

    def run(processes, lives, *errors):
        caplog.clear()
        world = World(lives, errors)
        monkeypatch.setattr(
            _children, "time", SimpleNamespace(monotonic=lambda: world.now, sleep=world.sleep)
        )
        monkeypatch.setattr(_children, "_TURN", 0.5)
        monkeypatch.setattr(_children.subprocess, "Popen", world.start)
        with caplog.at_level(logging.INFO, "tenure"), pytest.raises(TimeoutError):
            Children(["work"], processes, 30.0, None).run()
        lines = [
            line.strip()
            for record in caplog.records
            for line in logging.Formatter().format(record).splitlines()
        ]
        begun = sum(deaths <= 1 for deaths in world.starts)  # after that a process says nothing of it
        return world, lines, len(lines) + 2 * begun

    return run


def fault(text="no such table"):
    try:
        raise LookupError(text)
    except LookupError as error:
        return error


@pytest.mark.parametrize("processes", [1, 4, 8])
def test_processes_that_die_at_each_start_are_told_as_one(an_hour, processes):
    world, lines, count = an_hour(processes, lambda number, now: 0.3, fault())
    assert len(world.starts) > 100 * processes
    assert count < 40
    assert lines.count("LookupError: no such table") == 1
    told = [line for line in lines if "starts it again" in line]
    assert told[0] == "process 1 (1) ended with exit code 1; starts it again in 1 s"
    assert told[-1].endswith(f", like {64 * processes - 1} others before; starts it again in 30 s")


def test_different_ends_are_told_apart(an_hour):
    _, lines, count = an_hour(4, lambda number, now: 0.3, fault("one"), fault("other"))
    assert count < 60
    assert len([line for line in lines if line == "LookupError: one"]) < 4
    assert len([line for line in lines if line == "LookupError: other"]) < 4


def test_an_end_is_told_again_once_all_are_well(an_hour):
    _, lines, _ = an_hour(2, lambda number, now: 0.3 if now < 600 or now > 900 else 1000 - now, fault())
    assert lines.count("LookupError: no such table") == 2
    first = [line for line in lines if line.endswith("ended with exit code 1; starts it again in 1 s")]
    assert len(first) == 4
    assert lines.count("all processes have run for a minute") == 1


def test_while_one_process_dies_at_each_start_another_is_told_seldom(an_hour):
    _, lines, count = an_hour(2, lambda number, now: 0.3 if number == 1 else 70.0, fault())
    assert lines.count("LookupError: no such table") < 3
    assert sum("starts it again" in line for line in lines) < 10
    assert count < 90
