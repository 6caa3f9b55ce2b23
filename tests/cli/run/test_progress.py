"""What is shown on the way and at the end."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import anyio
import pytest

import tenure
from tenure.cli.run._progress import (
    Progress,
    Screen,
    Snapshot,
    bar,
    duration,
    prints_above,
    quiet_line,
    snapshot,
)
from tenure.cli.run._report import Outcome, dead_letters, table
from tenure.cli.run._tally import RunTotals, total
from tenure.observe._sketch import Sketch


def seen(**changes):
    given = {
        "done": 0,
        "dead": 0,
        "others": 0,
        "retried": 0,
        "known": 0,
        "exactly": True,
        "guess": 0,
        "rate": 0.0,
    }
    return Snapshot(**given | changes)


def counts(**changes):
    fields = dict.fromkeys(tenure.types.QueueStatistics.__dataclass_fields__, 0) | {
        "paused": False,
        "oldest": 0.0,
    }
    return tenure.types.QueueStatistics(**fields | changes)


@pytest.mark.parametrize(
    ("s", "line"),
    [
        (seen(), "[....................] 0/0  0/s"),
        (seen(known=10, guess=10, done=5, rate=2.5), "[##########..........] 5/10  2.5/s  2 s left"),
        (
            seen(known=5000, exactly=False, guess=20_000, done=2000, rate=100),
            "[##..................] 2,000/~20,000  100/s  3 min 0 s left",
        ),
        (seen(known=40, exactly=False, guess=None, done=20, rate=10), "[##########..........] 20/>40  10/s"),
        (
            seen(known=4, guess=4, done=2, dead=1, others=1, retried=3),
            "[####################] 4/4  0/s  3 retried  1 dead",
        ),
        (seen(known=4, guess=4, paused=True), "[....................] 0/4  0/s  paused"),
        # by one that waits for the lead, and may wait for a dead one
        (seen(known=10, guess=10, done=5, rate=2.5, leads=False), "[##########..........] 5/10  2.5/s"),
    ],
)
def test_the_bar(s, line):
    assert bar(s) == line


def test_the_quiet_line():
    assert (
        quiet_line(seen(known=4000, guess=4000, done=1000, rate=1))
        == "1,000 of 4,000 ended, 1/s, 50 min 0 s left"
    )
    assert quiet_line(seen(known=4000, exactly=False, guess=9000)) == "0 of about 9,000 ended, 0/s"
    assert quiet_line(seen(known=4000, exactly=False, guess=None)) == "0 of 4,000 or more ended, 0/s"


def test_a_snapshot_guesses_from_the_share_that_was_read():
    statistics = counts(put=100, done=10, dead=1, discarded=2, waiting=87)
    s = snapshot(statistics, {"input": {"end": False, "share": 0.25}}, 3, 5.0)
    assert (s.known, s.exactly, s.guess, s.ended, s.retried) == (100, False, 400, 13, 3)
    assert snapshot(statistics, {"input": {"end": True, "share": 1}}, 0, 0).guess == 100
    assert snapshot(statistics, {}, 0, 0).guess is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.2, "1 s"), (59, "59 s"), (61, "1 min 1 s"), (7300, "2 h 1 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_is_said_stands_above_the_bar(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    screen = Screen(stream)
    screen.draw("a bar that is longer than the terminal")
    screen.say("note")
    screen.draw("")
    shown = stream.getvalue().split("\r\x1b[K")
    assert shown == ["", "a bar that is longe", "note\na bar that is longe", ""]


def test_what_is_printed_stands_above_the_bar_line_by_line(monkeypatch):
    err, out, file = Terminal(), Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdout", out)
    screen = Screen(err)
    with prints_above(screen):
        sys.stdout.write("no bar ")
        sys.stdout.write("yet\n")
        screen.draw("bar")
        sys.stderr.write("a part")
        assert "a part" not in err.getvalue()
        sys.stderr.write(" and the rest\nand more\n")
        sys.stdout.writelines(["one\n", "two\n"])
        assert sys.stdout.isatty()
        sys.stdout = file  # as redirect_stdout does
        sys.stdout.write("elsewhere\n")
        sys.stderr.write("never ends")
        screen.draw("")
    assert (sys.stdout, sys.stderr) == (out, err)
    wipe = "\r\x1b[K"
    assert (
        err.getvalue()
        == f"{wipe}bar{wipe}a part and the rest\nand more\nbar{wipe}bar{wipe}bar{wipe}never ends"
    )
    assert out.getvalue() == "no bar yet\none\ntwo\n"
    assert file.getvalue() == "elsewhere\n"


def test_a_file_or_a_pipe_is_left_alone(monkeypatch):
    out, err = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with prints_above(Screen(err)):
        assert sys.stdout is out
    monkeypatch.setattr(sys, "stderr", out)
    with prints_above(Screen(out)):
        assert sys.stderr is out


async def test_the_bar_does_not_go_back(virtual_clock):
    stream = Terminal()
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(store, "jobs", retry=tenure.Retry(attempts=1))
        await queue.put_many([1, 2])
        for _ in range(2):
            with pytest.raises(ValueError):
                async with queue.take():
                    raise ValueError
        async with anyio.create_task_group() as group:
            group.start_soon(Progress(queue, RunTotals(), Screen(stream)).show)
            await anyio.sleep(1)
            assert await queue.requeue() == 2
            await anyio.sleep(5)
            group.cancel_scope.cancel()
    assert "2/" in stream.getvalue()
    assert "0/>" not in stream.getvalue()


def test_without_a_terminal_there_are_only_lines():
    stream = io.StringIO()
    screen = Screen(stream)
    screen.say("note")
    screen.draw("")
    assert stream.getvalue() == "note\n"
    assert not screen.is_terminal


def test_tallies_of_all_processes_add_up():
    one, two = RunTotals(retried=2, seconds=1.5), RunTotals(retried=1, seconds=0.5)
    one.times.record(0.1)
    two.times.record(0.3)
    cursors = {"tally:a": one.value(), "tally:b": two.value(), "input": {"end": True}}
    both = total(cursors)
    assert (both.retried, both.seconds, both.times.count) == (3, 2.0, 2)
    assert total(cursors, without="a").retried == 1


def test_the_table():
    times = Sketch()
    for _ in range(100):
        times.record(0.02)
    outcome = Outcome(
        "x-1", True, counts(put=1200, done=1198, dead=2), RunTotals(7, 4.0, times), results="r.jsonl"
    )
    assert table(outcome).splitlines() == [
        "run        x-1, finished",
        "inputs     1,200",
        "done       1,198",
        "retried    7",
        "dead       2",
        "p50        20 ms",
        "p95        20 ms",
        "p99        20 ms",
        "rate       300.0/s",
        "seconds    4.0",
        "results    r.jsonl",
    ]
    assert not outcome.all_done


def test_the_table_of_a_run_without_anything():
    outcome = Outcome("x-1", True, counts(), RunTotals())
    assert outcome.all_done
    assert table(outcome).splitlines()[1:] == ["inputs     0", "done       0", "retried    0", "dead       0"]
    assert "discarded  1" in table(Outcome("x-1", True, counts(put=1, discarded=1), RunTotals()))


def test_dead_letters_are_shown_in_a_line_each():
    record = tenure.types.TaskRecord(1, "dead", "x" * 500, 0, None, 3, 3, 0.0, error="ValueError: two\nlines")
    lines = dead_letters(Outcome("x-1", True, counts(put=9, dead=5), RunTotals(), dead=(record,)))
    assert lines[0].startswith("dead: 'xxx")
    assert lines[0].endswith("xxx': ValueError: two lines")
    assert lines[1:] == ["dead: and 4 more"]
    assert len(lines[0]) < 300


def test_an_error_is_cut_in_its_middle_and_not_said_again_if_it_was_logged():
    record = tenure.types.TaskRecord(
        1, "dead", "a", 0, None, 3, 3, 0.0, error=f"ValueError: {'x' * 5000} the end"
    )
    other = replace(record, id=2, payload="b")
    lines = dead_letters(
        Outcome("x-1", True, counts(put=2, dead=2), RunTotals(), (record, other), frozenset([2]))
    )
    assert lines[0].startswith("dead: 'a': ValueError: xxx")
    assert lines[0].endswith("~" + "x" * 191 + " the end")
    assert lines[1:] == ["dead: 'b' (its error is in the log above)"]
