"""`tenure top`: frames that fit, rates that are right, and a terminal that is left as it was."""

from __future__ import annotations

import json
import os
import re
import signal
import termios
import unicodedata
from dataclasses import replace

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from counted import counts

import tenure
from tenure.cli._frame import frame
from tenure.engine import Holder, Resource, ResourcePage
from tenure.processor._metrics import Latencies, Latency
from tenure.web._document import document
from tenure.web._flows import Flow
from tenure.web._processors import SeenProcessor
from tenure.web._view import SeenKey, SeenPool, SeenProcess, View
from tenure.web._waits import Deadlock, Wait

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def view(**given):
    empty = {
        "queues": {},
        "keys": (),
        "limiters": {},
        "pools": (),
        "processes": (),
        "processors": (),
        "deadlocks": (),
        "more": frozenset(),
    }
    return View(**{"at": 0.0, "ping": 0.001, **empty, **given})


def busy(count=50):
    """A view with more of everything than fits."""
    process = "a-rather-long-host-name.example.org:{}:0123abcd"
    holder = Holder(process.format(1), "x/1.1@7f", 17, 1, b"", 12.0)
    wait = Wait(process.format(1), "7f", "lock A", 9.0, ("lock B",))
    return view(
        queues={
            f"queue-{i}-{'x' * 60}": counts(waiting=i, leased=3, dead=2, oldest=4.0) for i in range(count)
        },
        keys=tuple(SeenKey("lock", f"key-{i}", 1, 1, (holder,), (holder,) * i) for i in range(count)),
        pools=tuple(
            SeenPool(
                f"pool {i}", ResourcePage((Resource("r", (), 0, "claimed", "p", 1, 0.0, ""),), waiting=3)
            )
            for i in range(count)
        ),
        processes=tuple(SeenProcess(process.format(i), {"q": i}, {"q", "r"}, 1, 2, 3) for i in range(count)),
        deadlocks=(Deadlock((wait, wait), certain=True, behind=4), Deadlock((wait, wait), certain=False)) * 3,
    )


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (80, 23), (132, 50), (40, 12), (20, 5), (1, 1)])
def test_a_frame_fits_its_screen(columns, lines):
    seen = busy()
    drawn = frame(
        "redis://host", seen, dict.fromkeys(seen.queues, Flow(1.5, 1000.0, 0.25, None)), columns, lines
    )
    assert len(drawn) <= lines
    assert all(len(ANSI.sub("", line)) <= columns for line in drawn)


def test_a_screen_of_80_by_24_shows_a_part_of_everything():
    seen = busy()
    text = "\n".join(frame("redis://host", seen, dict.fromkeys(seen.queues, Flow()), 80, 24, colour=False))
    for word in ("queue-49", "process", "lock key-49", "deadlock, for 9 s", "more"):
        assert word in text
    assert "\x1b" not in text


def test_a_queue_whose_tasks_no_process_takes_is_named_at_the_top():
    process = SeenProcess("host:1:ab", {"busy": 1}, {"idle"})
    seen = view(
        queues={
            "left": counts(waiting=12, oldest=9.0),
            "new": counts(waiting=12, oldest=4.0),
            "paused": counts(waiting=12, oldest=9.0, paused=True),
            "busy": counts(waiting=12, oldest=9.0),
            "idle": counts(waiting=12, oldest=9.0),
            "run:files": counts(waiting=12, oldest=9.0),
        },
        keys=(SeenKey("lock", "run:files", 1, 1, (), ()),),
        processes=(process,),
    )
    flows = dict.fromkeys(seen.queues, Flow())
    drawn = frame("redis://host", seen, flows, 100, 24, colour=False)
    assert [line for line in drawn if "no process" in line] == [
        "queue left: 12 tasks wait, and no process works on it"
    ]
    assert drawn[1].startswith("queue left")
    shown = document("redis://host", "default", seen, flows)["queues"]
    assert [queue["takers"] for queue in shown] == [0, 0, 0, 1, 1, 1]
    unread = replace(seen, more=frozenset({"sessions"}))
    assert "no process" not in "\n".join(frame("redis://host", unread, flows, 100, 24))


WIDTHS = (40, 60, 80, 100, 132)
NAMES = {
    "short": "mail",
    "long": "orders/eu/" + "x" * 502,
    "wide": "\u6f22\u5b57" * 85,
    "escapes": "\x1b[2J\x1b]0;owned\x07" * 34,
    "turned": "\u202e\u2066" * 85,
    "stacked": "e" + "\u0301" * 255,
}


def columns_taken(line):
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me") else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in line
    )


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_figures_are_never_cut_whatever_the_names(name, columns):
    holder = Holder(f"{name}:1:ab", "x/1.1@7f", 17, 1, b"", 12.0)
    some = Latency(9, 0.3, 0.25, 1.5, 29.1, 29.1)
    seen = view(
        queues={name: counts(waiting=12_345, leased=30, dead=117, oldest=29.1, paused=True), "m": counts()},
        keys=(SeenKey("lock", name, 1, 1, (holder,), (holder,)),),
        pools=(SeenPool(name, ResourcePage((), waiting=3)),),
        processes=(SeenProcess(f"{name}:1:ab", {name: 1}, {name}, 1, 2, 3),),
        processors=(SeenProcessor(name, 2, 2000, 700, 1200.0, Latencies(some, some, some)),),
    )
    drawn = frame(
        "u", seen, dict.fromkeys(seen.queues, Flow(1.5, 1234.0, 29.1, 0.2)), columns, 24, colour=False
    )
    assert len(drawn) <= 24
    assert all(line.isprintable() for line in drawn)
    assert all(columns_taken(line) <= columns for line in drawn)
    for i, line in enumerate(drawn):
        if line.startswith(("queue ", "processor ", "process ", "held ", "pool ")):
            assert "~" not in line
            assert columns_taken(drawn[i + 1]) == len(line)  # each column ends where its header does
    queue = next(line for line in drawn if line.startswith("queue "))
    assert queue.endswith("oldest")
    assert drawn[drawn.index(queue) + 1].endswith(" 29.1 s")
    assert " 12,345 " in drawn[drawn.index(queue) + 1]


def test_the_columns_that_matter_least_are_left_out_first():
    seen = view(queues={"orders/europe/invoices": counts(waiting=5, leased=2, dead=3, oldest=2.1)})

    def header(columns):
        drawn = frame(
            "u", seen, {"orders/europe/invoices": Flow(0.5, 1.0, 2.0, 3.0)}, columns, 24, colour=False
        )
        return drawn[2].split()[1:]

    assert header(100) == [
        "waiting",
        "delayed",
        "leased",
        "dead",
        "in/s",
        "out/s",
        "waits",
        "runs",
        "oldest",
    ]
    assert header(80) == ["waiting", "leased", "dead", "in/s", "out/s", "waits", "oldest"]
    assert header(60) == ["waiting", "leased", "dead", "out/s", "oldest"]
    assert header(40) == ["waiting", "oldest"]


def test_suspended_and_ending_tasks_have_columns_where_there_are_any():
    seen = view(queues={"sites": counts(waiting=5, suspended=1_234), "pages": counts(leased=2)})
    drawn = frame("u", seen, dict.fromkeys(seen.queues, Flow()), 120, 24, colour=False)
    assert drawn[2].split()[-2:] == ["oldest", "suspended"]
    assert [line.split()[-1] for line in drawn[3:5]] == ["1,234", "0"]


def test_columns_stay_where_they_are_while_figures_change():
    def header(put, oldest):
        seen = view(queues={"orders/europe/invoices": counts(oldest=oldest)})
        flows = {"orders/europe/invoices": Flow(put, 0.0, None, oldest)}
        return frame("u", seen, flows, 80, 24, colour=False)[2]

    assert header(0.0, 0.0) == header(1234.0, 29.1)


def test_an_idle_store_says_so():
    assert frame("u", view(), {}, 80, 24)[-1] == "nothing is in this store yet"


def test_rates_and_times_are_shown():
    seen = view(queues={"mail": counts(waiting=5, leased=2, oldest=3.0)})
    text = "\n".join(frame("u", seen, {"mail": Flow(0.5, 1234.0, 0.02, 1.5)}, 80, 24, colour=False))
    assert re.search(r"mail +5 +0 +2 +0 +0\.5 +1,234 +~20 ms +~1\.5 s +3 s", text)


def test_trouble_comes_first():
    assert frame("u", view(), {}, 80, 24, trouble="no answer", colour=False)[0] == "u: no answer"
    for columns in (40, 80):
        (line, *_) = frame(
            "redis://" + "x" * 200, view(), {}, columns, 24, trouble="no answer for 3 s", colour=False
        )
        assert len(line) <= columns
        assert line.startswith("redis://")
        assert line.endswith(": no answer for 3 s")


def test_names_cannot_command_the_terminal():
    seen = view(queues={"\x1b[2Jq": counts(waiting=1)})
    assert "\x1b" not in "".join(frame("u\x07", seen, {"\x1b[2Jq": Flow()}, 80, 24, colour=False))


# the command


@pytest.fixture
def store_with_a_queue(here):
    async def fill():
        async with tenure.open_store("sqlite:///tenure.db") as store:
            await tenure.WorkQueue(store, "mail").put("hello")

    anyio.run(fill)


def test_a_frame_is_printed_without_a_terminal(store_with_a_queue, command):
    ended = command("top")
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"mail +1 +0 +0", ended.out)
    assert "\x1b" not in ended.out


def test_programs_get_a_document(store_with_a_queue, command):
    document = json.loads(command("top", "--json").out)
    assert {
        "store",
        "namespace",
        "ping",
        "more",
        "queues",
        "keys",
        "pools",
        "processes",
        "running",
        "processors",
        "deadlocks",
        "limiters",
        "totals",
    } == set(document)
    assert document["queues"][0]["name"] == "mail"
    assert "hello" not in json.dumps(document)


def test_rates_are_those_of_all_processes(here, command):
    stop = []

    async def work():
        async with tenure.open_store("sqlite:///tenure.db") as store:
            queue = tenure.WorkQueue(store, "mail")
            await queue.put(1)
            started.set()
            while not stop:
                await queue.put(1)
                async with queue.take():
                    await anyio.sleep(0.01)

    with start_blocking_portal() as portal:
        started = portal.call(anyio.Event)
        work_done = portal.start_task_soon(work)
        portal.call(started.wait)
        (queue,) = json.loads(command("top", "--json").out)["queues"]
        stop.append(1)
        work_done.result()
    assert queue["put_per_second"] > 0
    assert queue["ended_per_second"] > 0
    assert queue["mean_wait"] > 0


@pytest.mark.parametrize("how", ["q", pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
def test_on_a_terminal_it_is_redrawn_until_asked_to_end(store_with_a_queue, terminal, how):
    top = terminal("top", "--every", "0.05")
    top.until(lambda: len(top.frames) >= 3)
    for drawn in top.frames:
        assert len(drawn) <= 24
        assert all(len(line) <= 80 for line in drawn)
        assert any(line.startswith("mail ") for line in drawn)
    if how == "q":
        os.write(top.own, b"xq")
    else:
        top.child.send_signal(how)
    assert top.child.wait(50) == 0
    top.read()
    assert top.shown.startswith("\x1b[?1049h\x1b[?25l")
    assert top.shown.endswith("\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(top.its) == top.before


def test_a_server_that_goes_away_is_reported_and_comes_back(own_redis_server, terminal):
    server = own_redis_server()
    top = terminal("top", "--every", "0.05", "--store", server.url)
    top.until(lambda: top.frames)
    server.process.send_signal(signal.SIGSTOP)
    try:
        top.until(lambda: any("no answer for" in drawn[0] for drawn in top.frames))
    finally:
        server.process.send_signal(signal.SIGCONT)
    count = len(top.frames)
    top.until(lambda: len(top.frames) > count + 3 and "round trip" in top.frames[-1][0])
    os.write(top.own, b"q")
    assert top.child.wait(50) == 0
