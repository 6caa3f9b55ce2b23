"""Histories: in memory, in a file that several processes write, and after one of them was killed."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import threading

import anyio
import pytest

from benchmarks.soak.referees import Event, History
from tenure.errors import BarrierBroken, QueueFull

FLOOD = """
import sys
from benchmarks.soak.referees import History

history = History(sys.argv[1])
for number in range(int(sys.argv[2])):
    history.note("wrote", "x", number=number, filler="." * 5000)
"""


@pytest.fixture(params=["memory", "file"])
def history(request, tmp_path):
    return History() if request.param == "memory" else History(tmp_path / "history", by="me")


def told(history):
    return [(event.kind, event.phase, dict(event.facts)) for event in history]


def test_a_note_is_read_as_it_was_made(history):
    event = history.note("killed", "worker", by="nemesis", signal=9)
    assert list(history) == [event] == history.events()
    assert (event.kind, event.subject, event.by, event.facts) == (
        "killed",
        "worker",
        "nemesis",
        {"signal": 9},
    )
    assert str(event) == f"{event.at:.6f}  nemesis  killed  worker  signal=9"


def test_events_of_some_subjects_are_picked(history):
    for subject in "abcab":
        history.note("x", subject)
    assert [event.subject for event in history.about("a", "c")] == ["a", "c", "a"]


def test_the_process_notes_under_its_id_unless_it_has_a_name(tmp_path):
    assert History().note("x", "y").by == str(os.getpid())
    named = History(tmp_path / "h", by="me")
    assert [named.note("x", "y").by, named.note("x", "y", by="you").by] == ["me", "you"]


async def test_the_clock_may_be_that_of_the_loop(virtual_clock):
    history = History(clock=anyio.current_time)
    await anyio.sleep(1000)
    assert history.note("x", "y").at == virtual_clock.now() == 1000


def test_a_call_is_noted_when_it_begins_and_how_it_ends(history):
    with history.call("wash", "car", colour="red") as call:
        call.still()
        call.tell(clean=True)
    with pytest.raises(QueueFull), history.call("wash", "car", refused=QueueFull):
        raise QueueFull("x", 1)
    with pytest.raises(KeyboardInterrupt), history.call("wash", "car", refused=QueueFull):
        raise KeyboardInterrupt
    assert told(history) == [
        ("wash", "began", {"colour": "red"}),
        ("wash", "still", {}),
        ("wash", "ended", {"clean": True}),
        ("wash", "began", {}),
        ("wash", "refused", {}),
        ("wash", "began", {}),
        ("wash", "unknown", {}),
    ]
    assert len({event.call for event in history}) == 3
    with pytest.raises(RuntimeError, match="one use"), call:
        pass


def test_each_thing_that_referees_know_has_a_form(history):
    place = history.queued(history.asked("lock", priority=2))
    with history.held("lock", token=7, weight=3, place=place):
        pass
    with history.writing("account", token=7):
        pass
    with history.putting("jobs", "a"):
        pass
    history.taken("jobs", "a")
    history.completed("jobs", "a")
    history.found("jobs", "a", "done")
    with pytest.raises(BarrierBroken), history.arriving("gate", turn=1):
        raise BarrierBroken
    assert told(history) == [
        ("wait", "began", {"priority": 2}),
        ("wait", "queued", {}),
        ("hold", "began", {"token": 7, "weight": 3, "place": place.call}),
        ("hold", "ended", {}),
        ("write", "began", {"token": 7}),
        ("write", "ended", {}),
        ("put", "began", {"item": "a"}),
        ("put", "ended", {}),
        ("taken", "", {"item": "a"}),
        ("completed", "", {"item": "a"}),
        ("found", "", {"item": "a", "state": "done"}),
        ("arrive", "began", {"turn": 1}),
        ("arrive", "refused", {}),
    ]


def test_bad_arguments_are_refused(history, tmp_path):
    with pytest.raises(TypeError, match="item: a str or an int, not"):
        history.taken("jobs", ("a", 1))
    with pytest.raises(ValueError, match="place: one in the line for 'lock', not"):
        history.held("lock", place=history.asked("other"))
    with pytest.raises(FileNotFoundError):
        History(tmp_path / "nowhere" / "history")


def test_a_history_goes_to_a_child_process_with_its_path(tmp_path):
    history = History(tmp_path / "history", by="me")
    event = pickle.loads(pickle.dumps(history)).note("x", "y")
    assert history.events() == [event]


@pytest.mark.parametrize("in_a_file", [False, True])
def test_a_copy_of_a_history_gives_no_call_the_name_of_another(tmp_path, in_a_file):
    history = History(tmp_path / "history") if in_a_file else History()
    first = history.asked("lock")
    copy = pickle.loads(pickle.dumps(history))
    assert len({first.call, history.asked("lock").call, copy.asked("lock").call}) == 3
    assert len({event.call for event in copy.events()}) == len(copy.events())


def test_the_path_stays_when_the_process_changes_its_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = History("history")
    monkeypatch.chdir("/")
    history.note("x", "y")
    assert len(History(tmp_path / "history").events()) == 1


# ---------------------------------------------------------------------------------------------- torn lines and writers


@pytest.mark.parametrize("left", [1, 10, 40, -1])
def test_a_line_that_was_torn_off_is_skipped_and_counted(tmp_path, left):
    path = tmp_path / "history"
    history = History(path)
    first = history.note("x", "y", n=1)
    size = path.stat().st_size
    history.note("x", "y", n=2)
    with path.open("rb+") as file:
        file.truncate(size + 1 + left if left > 0 else path.stat().st_size + left)
    assert (history.events(), history.torn) == ([first], 1)
    third = history.note("x", "y", n=3)  # of another process
    assert (history.events(), history.torn) == ([first, third], 1)


def test_what_is_no_history_is_not_taken_for_one(tmp_path):
    path = tmp_path / "other"
    path.write_text('{"colour": "red"}\n')
    with pytest.raises(TypeError):
        History(path).events()


def test_a_write_that_stops_half_way_is_an_error(tmp_path):
    path = tmp_path / "history"
    history = History(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30, hard))
    try:
        with pytest.raises(OSError, match="not written in one piece"):
            history.note("x", "y")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    event = history.note("x", "y")
    assert (history.events(), history.torn, path.stat().st_size > 30) == ([event], 1, True)


def test_threads_write_one_history(history):
    def write(number):
        for n in range(50):
            with history.call("x", "y", number=number, n=n):
                pass

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(history.events()) == 400
    assert len({event.call for event in history}) == 200
    assert history.torn == 0


def test_processes_write_one_history_and_a_killed_one_spoils_at_most_its_last_line(tmp_path):
    path = tmp_path / "history"
    command = [sys.executable, "-c", FLOOD, path]
    endless, other = (subprocess.Popen([*command, str(n)]) for n in (10**9, 300))
    try:
        assert other.wait(50) == 0
    finally:
        endless.send_signal(signal.SIGKILL)
        endless.wait()
    history = History(path)
    events = history.events()
    by = {
        str(process.pid): [event for event in events if event.by == str(process.pid)]
        for process in (endless, other)
    }
    assert len(events) == sum(map(len, by.values()))
    assert history.torn <= 1
    for mine in by.values():
        assert [event.facts["number"] for event in mine] == list(range(len(mine)))
        assert [event.at for event in mine] == sorted(event.at for event in mine)
    assert len(by[str(other.pid)]) == 300


def test_an_event_is_a_value():
    assert Event(1.0, "me", "x", "y") == Event(1.0, "me", "x", "y", "", "", {})
