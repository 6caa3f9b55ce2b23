"""`tenure queue`, `lock`, `claims` and `leader`: what a store holds, told to people and to programs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from family import three_levels

import tenure
from tenure.cli import main

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture(params=["sqlite", "redis"])
def url(request):
    """A store that another process could open; for SQLite the one that commands look at by themselves."""
    if request.param == "redis":
        return request.getfixturevalue("redis_server").url
    return "sqlite:///tenure.db"


@pytest.fixture
def portal():
    with start_blocking_portal() as portal:
        yield portal


class Inhabitant:
    """A process that uses the store, in a thread of its own."""

    def __init__(self, portal, store):
        self._portal = portal
        self.store = store
        self._tasks = []

    def do(self, function, *args):
        return self._portal.call(function, *args)

    def hold(self, *makers, then=None):
        """Enter what each maker makes, one inside the other, in one task, until the test is over."""

        async def run():
            async with contextlib.AsyncExitStack() as stack:
                for make in makers:
                    await stack.enter_async_context(make())
                if then is not None:
                    await then()
                held.set()
                await anyio.sleep_forever()

        held = self._portal.call(anyio.Event)
        self._tasks.append(self._portal.start_task_soon(run))
        if then is None:
            self._portal.call(held.wait)

    def end(self):
        for task in self._tasks:
            task.cancel()


@pytest.fixture
def inhabitant(portal, url, here):
    async def enter():
        return tenure.open_store(url, ttl=5.0, close_timeout=0.1)

    store = portal.call(enter)
    with portal.wrap_async_context_manager(store):
        one = Inhabitant(portal, store)
        yield one
        one.end()


@pytest.fixture
def tell(command, url):
    """Runs `tenure WORDS` on the store; gives its exit code and its JSON."""

    def run(*words):
        ended = command(*words, "--json", "--store", url)
        assert ended.err == ""
        return ended.code, json.loads(ended.out)

    return run


@pytest.fixture
def show(command, url):
    """Runs `tenure WORDS` on the store; gives its exit code and the lines of its table, parted at wide gaps."""

    def run(*words):
        ended = command(*words, "--store", url)
        assert ended.err == ""
        return ended.code, [line.split() for line in ended.out.splitlines()]

    return run


def put(inhabitant, name="mail", count=3, dead=0):
    async def fill():
        queue = tenure.WorkQueue(inhabitant.store, name, retry=tenure.Retry(attempts=1))
        ids = [await queue.put({"to": i}, priority=i) for i in range(count)]
        for _ in range(dead):
            with contextlib.suppress(LookupError):
                async with queue.take():
                    raise LookupError("no such address")
        return ids

    return inhabitant.do(fill)


# queues


def test_queues_are_listed_with_their_counts(inhabitant, show, tell):
    put(inhabitant, "mail", 3, dead=1)
    put(inhabitant, "news", 1)
    code, lines = show("queue", "ls")
    assert code == 0
    assert lines[0] == ["queue", "waiting", "delayed", "leased", "done", "dead", "oldest"]
    assert [line[:6] for line in lines[1:]] == [
        ["mail", "2", "0", "0", "0", "1"],
        ["news", "1", "0", "0", "0", "0"],
    ]
    code, document = tell("queue", "ls")
    assert code == 0
    mail, news = document["queues"]
    assert (mail["name"], mail["put"], mail["waiting"], mail["dead"], mail["unfinished"]) == (
        "mail",
        3,
        2,
        1,
        2,
    )
    assert (news["name"], news["paused"]) == ("news", False)
    assert set(mail) == {
        *(
            "name",
            "unfinished",
            "put",
            "waiting",
            "delayed",
            "leased",
            "suspended",
            "ending",
            "done",
            "dead",
            "cancelled",
            "expired",
        ),
        *("discarded", "purged", "reserved", "producers", "paused", "oldest", "groups", "max_size"),
        *("starts_in", "rate", "group_rate", "held_off", "held"),
    }


def test_queues_of_other_namespaces_are_not_listed(inhabitant, command, url):
    put(inhabitant)
    ended = command("queue", "ls", "--store", url, "--namespace", "other")
    assert (ended.code, ended.out) == (0, "there is no queue\n")


def test_a_queue_is_shown_with_some_of_its_tasks(inhabitant, show, tell):
    ids = put(inhabitant, count=5)
    code, lines = show("queue", "show", "mail", "--limit", 2)
    assert code == 0
    assert ["waiting", "5"] in lines
    assert ["paused", "no"] in lines
    code, document = tell("queue", "show", "mail", "--limit", 2)
    first = [task["id"] for task in document["tasks"]]
    assert [line[0] for line in lines[-3:]] == [*map(str, first), "and"] and document["more"]
    code, document = tell("queue", "show", "mail", "--limit", 5)
    assert document["waiting"] == 5
    assert sorted(task["id"] for task in document["tasks"]) == ids
    assert not document["more"]
    for task in document["tasks"]:
        assert (task["payload"], task["state"]) == ({"to": ids.index(task["id"])}, "waiting")


def test_rates_and_hold_offs_are_shown(inhabitant, command, show, tell, url):
    put(inhabitant, "mail", 1)
    assert [line for line in show("queue", "show", "mail")[1] if line[:1] == ["rate"]] == [
        ["rate", "none", "default"]
    ]

    async def limit():
        queue = tenure.WorkQueue(inhabitant.store, "calls")
        await queue.configure(rate=tenure.Limit(100), groups=tenure.Groups(rate=tenure.Limit(5, per=60)))
        await queue.put_many([tenure.Item(n, group="ab"[n % 2]) for n in range(4)])
        await queue.hold_off(3000, group="b")

    inhabitant.do(limit)
    assert ["rate", "100", "a", "second,", "1", "in", "12", "s", "of", "each", "group"] in show(
        "queue", "show", "calls"
    )[1]
    a, b = tell("queue", "groups", "calls")[1]["groups"]
    assert (a["group"], a["starts_in"], b["group"]) == ("a", 0, "b")
    assert 2900 < b["starts_in"] <= 3000
    assert show("queue", "groups", "calls")[1][-1] == ["b", "2", "0", "0", "held", "off", "for", "50", "min"]
    odd = command("queue", "pause", "calls", "3", "--group", "")
    assert "--group: it must not be empty" in odd.err
    assert show("queue", "pause", "calls", "3000")[0] == 0
    assert "held off for 50 min" in command("queue", "show", "calls", "--store", url).out
    assert "held off for 50 min" in command("queue", "ls", "--store", url).out
    assert 2900 < tell("queue", "show", "calls")[1]["starts_in"] <= 3000
    assert "held off no longer: 50 min were left" in command("queue", "resume", "calls", "--store", url).out
    assert "nothing changed: it was not paused" in command("queue", "resume", "calls", "--store", url).out
    ended = tell("queue", "resume", "calls", "--group", "b")[1]
    assert (ended["group"], ended["held_off"]) == ("b", 0)
    assert [group["held_off"] for group in tell("queue", "groups", "calls")[1]["groups"]] == [0, 0]


def test_the_limits_of_groups_are_shown(inhabitant, command, show, tell, url):
    async def limit():
        queue = tenure.WorkQueue(
            *(inhabitant.store, "calls"),
            groups=tenure.Groups(limit=1, max_size=7, weights={"a": 2.0, "z": 3.0}, on_retry="pass"),
        )
        await queue.put_many([tenure.Item(n, group="ab"[n % 2]) for n in range(4)])

    inhabitant.do(limit)
    lines = [line[:3] for line in show("queue", "show", "calls")[1]]
    name = inhabitant.store.process
    assert ["groups.limit", "1", name] in lines
    assert ["groups.max_size", "7", name] in lines
    assert ["groups.on_retry", "pass", name] in lines
    assert ["max_size", "10,000", "default"] in lines
    assert show("queue", "groups", "calls")[1][1:] == [
        ["a", "2", "0", "0", "weight", "2"],
        ["b", "2", "0", "0"],
    ]
    document = tell("queue", "show", "calls")[1]["settings"]
    assert document["groups.weights"]["value"] == {"a": 2, "z": 3}
    assert (document["groups.limit"]["value"], document["groups.limit"]["set_by"]) == (1, name)
    assert document["max_size"] == {"value": 10_000, "set_at": None, "set_by": None}


def test_settings_are_changed(inhabitant, command, show, tell, url):
    words = ("--max-size", 5, "--aging", "none", "--rate", "100/60", "keep.results=forever")
    words += ("--group-limit", "2", "groups.weights=gold=4", "groups.weights==2", "keep.payloads=yes")
    code, document = tell("queue", "set", "mail", *words)
    values = {name: it["value"] for name, it in document["settings"].items() if it["set_by"]}
    assert (code, values) == (
        0,
        {
            "max_size": 5,
            "rate": {"rate": 100, "per": 60},
            "keep.results": None,
            "keep.payloads": True,
            "groups.limit": 2,
            "groups.weights": {"": 2, "gold": 4},
        },
    )

    async def holds():
        return (await tenure.WorkQueue(inhabitant.store, "mail").settings()).max_size

    assert inhabitant.do(holds) == 5
    lifted = show("queue", "set", "mail", "--group-limit", "none", "groups.weights=none")[1]
    assert [line[:2] for line in lifted if line[0] in ("groups.limit", "groups.weights", "keep.results")] == [
        ["keep.results", "for"],
        ["groups.limit", "none"],
        ["groups.weights", "none"],
    ]
    for *wrong, named in (
        ("--max-size", 0, "--max-size"),
        ("--rate", "fast", "--rate"),
        ("groups.weights=gold", "groups.weights"),
        ("groups.weights=4", "groups.weights"),
        ("groups.weights=gold=-1", "groups.weights['gold']"),
        ("groups.on_retry=stay", "groups.on_retry"),
        ("groups.limit", "groups.limit"),
        ("keep.payloads=1", "keep.payloads: '1' is neither yes nor no"),
        ("keep.limit=1", "keep.limit"),
        ("name a setting",),
    ):
        ended = command("queue", "set", "mail", *wrong, "--store", url)
        assert ended.code == 2
        assert ended.err.count("\n") == 1
        assert named in ended.err


def test_the_processes_that_work_on_a_queue_are_listed(inhabitant, show, tell):
    put(inhabitant)
    assert show("queue", "workers", "mail") == (0, [["no", "process", "works", "on", "it"]])
    assert tell("queue", "workers", "mail") == (0, {"name": "mail", "workers": []})


def test_dead_letters_say_why(inhabitant, show, tell):
    put(inhabitant, dead=2)
    code, lines = show("queue", "dead", "mail")
    assert (code, len(lines)) == (0, 3)
    assert "LookupError:" in lines[1]
    code, document = tell("queue", "dead", "mail")
    assert [task["error"] for task in document["tasks"]] == ["LookupError: no such address"] * 2
    assert document["tasks"][0]["rank"] < document["tasks"][1]["rank"]


def test_a_task_that_has_ended_is_shown_with_how_long_it_ran(inhabitant, command, tell, url):
    async def done():
        queue = tenure.WorkQueue(inhabitant.store, "mail")
        task_id, waits = await queue.put_many([1, 2])
        async with queue.take():
            await anyio.sleep(0.1)
        return task_id, waits

    task_id, waits = map(str, inhabitant.do(done))
    assert tell("queue", "show", "mail", waits)[1]["task"]["ran"] is None
    assert 0.09 < tell("queue", "show", "mail", task_id)[1]["task"]["ran"] < 5
    assert "\nran        " in command("queue", "show", "mail", task_id, "--store", url).out
    assert "\nran " not in command("queue", "show", "mail", waits, "--store", url).out


def test_a_task_is_put_with_its_own_timeout_and_tries(inhabitant, command, tell, url):
    own = ("--timeout", "2.5", "--retries", "1")
    code, put = tell("queue", "put", "mail", '{"to": "ann"}', *own)
    assert code == 0
    task = tell("queue", "show", "mail", str(put["id"]))[1]["task"]
    assert (task["timeout"], task["retry"][:17]) == (2.5, "Retry(attempts=1,")
    assert "'0' is not a number of seconds above 0" in command("queue", "put", "mail", "--timeout", "0").err
    assert "'0' is not a whole number from 1" in command("queue", "put", "mail", "--retries", "0").err


def test_a_task_is_put_with_a_deadline_or_expires(inhabitant, command, tell, url):
    code, put = tell("queue", "put", "mail", "--deadline", "3600")
    assert code == 0
    assert 3500 < tell("queue", "show", "mail", str(put["id"]))[1]["task"]["deadline"] <= 3600
    assert "deadline   in 60 min" in command("queue", "show", "mail", str(put["id"]), "--store", url).out
    code, put = tell("queue", "put", "mail", "--expires", "0.2")
    assert code == 0

    async def gone():
        queue = tenure.WorkQueue(inhabitant.store, "mail")
        while (await queue.get(put["id"])).state == "waiting":
            await anyio.sleep(0.05)
        return (await queue.get(put["id"])).state

    assert inhabitant.do(gone) == "expired"
    for option in ("--deadline", "--expires"):
        assert "'0' is not a number of seconds above 0" in command("queue", "put", "mail", option, "0").err


def test_a_task_is_put_for_a_time(inhabitant, command, tell):
    for at, state in (("2050-01-31T17:00+01:00", "delayed"), ("2001-01-31T17:00Z", "waiting")):
        code, put = tell("queue", "put", "mail", "--at", at)
        assert code == 0
        assert tell("queue", "show", "mail", str(put["id"]))[1]["task"]["state"] == state
    for words, message in (
        (("--at", "tomorrow"), "'tomorrow' is not a time such as 2027-01-31T17:00+01:00"),
        (
            ("--at", "2050-01-31T17:00"),
            "has no offset from UTC: write 2050-01-31T17:00+01:00, or 2050-01-31T17:00Z",
        ),
        (("--at", "2050-01-31T17:00Z", "--delay", "5"), "--delay: not allowed with argument --at"),
        (("--at", "9999-01-31T17:00Z"), "at must be at most 1e+09 seconds from now"),
    ):
        ended = command("queue", "put", "mail", *words)
        assert ended.code == 2 and message in ended.err


def test_one_task_is_shown_with_all_that_is_known_of_it(inhabitant, command, tell, url):
    async def fill():
        queue = tenure.WorkQueue(inhabitant.store, "mail")
        own = {"timeout": 300, "retry": tenure.Retry(attempts=2, backoff=60)}
        task_id = await queue.put({"to": "ann"}, key="ann", meta={"request": "r-42"}, **own)
        with contextlib.suppress(LookupError):
            async with queue.take() as task:
                await task.progress("half")
                raise LookupError("no such address")
        return task_id

    task_id = inhabitant.do(fill)
    for one in ((str(task_id),), ("--key", "ann")):
        code, document = tell("queue", "show", "mail", *one)
        task = document["task"]
        assert (code, task["id"], task["state"], task["progress"]) == (0, task_id, "delayed", "half")
        assert (task["error"], task["meta"]) == ("LookupError: no such address", {"request": "r-42"})
        assert (task["timeout"], task["retry"][:18]) == (300, "Retry(attempts=2, ")
    ended = command("queue", "show", "mail", str(task_id), "--store", url)
    assert "meta request r-42" in ended.out
    assert "progress   half" in ended.out
    assert "timeout    5 min for each try\nretry      Retry(attempts=2, backoff=60.0," in ended.out
    assert ended.out.endswith("LookupError: no such address\n")
    assert "Traceback" in ended.out
    for one in ((str(task_id + 1),), ("--key", "bob")):
        assert tell("queue", "show", "mail", *one) == (1, {"name": "mail", "task": None})
        assert command("queue", "show", "mail", *one, "--store", url).code == 1


def test_a_task_is_shown_with_its_tree_and_for_which_children_it_waits(inhabitant, command, tell, url):
    root, a, b, c = inhabitant.do(three_levels, inhabitant.store)
    shown = command("queue", "show", "sites", str(root), "--store", url).out.splitlines()
    assert "state      suspended" in shown
    assert "children   1 unfinished" in shown
    of_b = f"pages/b: task {b} of pages, suspended, 1 unfinished"
    assert f"waits for  {of_b} > pages/c: task {c} of images, waiting" in shown
    assert shown[shown.index("children:") :] == [
        "children:",
        f"  pages/a: task {a} of pages, done",
        f"  {of_b}",
        f"    pages/c: task {c} of images, waiting",
    ]
    _, document = tell("queue", "show", "sites", str(root))
    assert (document["task"]["state"], document["task"]["children"]) == ("suspended", 1)
    assert [(one["depth"], one["id"], one["queue"], one["state"]) for one in document["tree"]] == [
        (1, a, "pages", "done"),
        (1, b, "pages", "suspended"),
        (2, c, "images", "waiting"),
    ]
    assert [one["id"] for one in document["waits_for"]] == [b, c]
    assert document["more"] is False
    shown = command("queue", "show", "images", str(c), "--store", url).out.splitlines()
    assert f"parent     task {b} of pages" in shown
    assert "children:" not in shown
    _, document = tell("queue", "show", "sites", "--state", "suspended")
    assert [task["id"] for task in document["tasks"]] == [root]
    assert (document["suspended"], document["ending"], document["unfinished"]) == (1, 0, 1)
    assert "1 suspended" in command("queue", "ls", "--store", url).out


@on_sqlite
def test_a_task_is_followed_until_it_has_ended(inhabitant, start, command, tell, url):
    root, _, b, c = inhabitant.do(three_levels, inhabitant.store)

    async def finish(name):
        async with tenure.WorkQueue(inhabitant.store, name).take():
            pass

    follower = start("queue", "follow", "pages", b, "--store", url)
    assert (
        follower.stdout.readline() == f"suspended, 1 unfinished child, such as pages/c: task {c} of images\n"
    )
    inhabitant.do(finish, "images")
    assert follower.stdout.readline() == "waiting\n"
    inhabitant.do(finish, "pages")
    out, err = follower.communicate(timeout=50)
    assert (out.splitlines()[-1], err, follower.returncode) == ("done", "", 0)
    inhabitant.do(tenure.WorkQueue(inhabitant.store, "sites").cancel, root)
    code, document = tell("queue", "follow", "sites", root)
    task = document["task"]
    assert (code, task["id"], task["state"], task["unfinished_child"]) == (1, root, "cancelled", None)
    assert tell("queue", "follow", "sites", 10_000) == (1, {"name": "sites", "task": None})
    ended = command("queue", "follow", "sites", 10_000, "--store", url)
    assert (ended.code, ended.out) == (1, "sites: no such task, or its record has been forgotten\n")


def test_delayed_tasks_are_made_ready(inhabitant, command, tell, url):
    async def fill():
        return await tenure.WorkQueue(inhabitant.store, "mail").put(1, delay=1000)

    task_id = inhabitant.do(fill)
    code, document = tell("queue", "reschedule", "mail", str(task_id), str(task_id + 1))
    assert (code, document) == (0, {"name": "mail", "rescheduled": 1, "unknown": [task_id + 1]})
    ended = command("queue", "reschedule", "mail", str(task_id), "--delay", "60", "--store", url)
    assert ended.out == f"mail: 1 rescheduled: {task_id}\n"
    assert tell("queue", "show", "mail", str(task_id))[1]["task"]["state"] == "delayed"


def test_a_task_that_waits_is_edited(inhabitant, command, tell, url):
    async def fill():
        queue = tenure.WorkQueue(inhabitant.store, "mail")
        return [await queue.put("taken", priority=1), await queue.put("old", key="ann", group="a")]

    taken, task_id = inhabitant.do(fill)
    inhabitant.hold(tenure.WorkQueue(inhabitant.store, "mail").take)
    changes = ("--payload", '"new"', "--priority", "-2", "--delay", "60", "--group", "")
    assert tell("queue", "edit", "mail", "--key", "ann", *changes) == (0, {"name": "mail", "id": task_id})
    task = tell("queue", "show", "mail", str(task_id))[1]["task"]
    assert (task["state"], task["payload"], task["priority"], task["group"]) == ("delayed", "new", -2, None)
    ended = command("queue", "edit", "mail", str(task_id), "--group", "b", "--store", url)
    assert (ended.code, ended.out) == (0, f"mail: task {task_id} changed\n")
    ended = command("queue", "edit", "mail", str(taken), "--priority", "1", "--store", url)
    assert (ended.code, ended.out) == (1, "")
    assert f"mail: not changed: task {taken} is leased" in ended.err
    ended = command("queue", "edit", "mail", "--key", "bob", "--priority", "1", "--store", url)
    assert "mail: not changed: the task with the key 'bob' is unknown" in ended.err


def test_tasks_are_selected(inhabitant, command, tell, url):
    async def fill():
        queue = tenure.WorkQueue(inhabitant.store, "mail", retry=tenure.Retry(attempts=1))
        for number in range(4):
            await queue.put(number, key=f"user-{number}", group="ab"[number % 2], meta={"app": "x"})
        for _ in range(2):
            with contextlib.suppress(LookupError):
                async with queue.take():
                    raise LookupError("no such address")

    inhabitant.do(fill)
    page = tell(
        "queue", "show", "mail", "--where", "key_prefix=user-", "--group", "a", "--where", "meta.app=x"
    )[1]
    assert [task["payload"] for task in page["tasks"]] == [2]
    assert len(tell("queue", "dead", "mail", "--where", "error=LookupError")[1]["tasks"]) == 2
    tried = command("queue", "requeue", "mail", "--where", "error=LookupError", "--dry-run", "--store", url)
    assert (tried.code, tried.out) == (0, "mail: 2 would be requeued\n")
    done = ("queue", "requeue", "mail", "--where", "error=LookupError", "--limit", "1")
    assert tell(*done) == (0, {"name": "mail", "requeued": 1, "dry_run": False})
    purged = command("queue", "purge", "mail", "dead", "--where", "older_than=3600", "--yes", "--store", url)
    assert purged.out == "mail: 0 purged\n"
    assert tell("queue", "purge", "mail", "waiting", "--group", "b", "--dry-run")[1]["purged"] > 0
    cancelled = tell("queue", "cancel", "mail", "--state", "waiting", "--where", "key_prefix=user-")
    assert cancelled == (0, {"name": "mail", "cancelled": 3, "dry_run": False})
    assert tell("queue", "show", "mail", "--state", "dead")[1]["cancelled"] == 3


def test_a_stuck_holder_is_broken(inhabitant, command, tell, url):
    inhabitant.hold(tenure.Lock(inhabitant.store, "x").hold)
    inhabitant.hold(tenure.Semaphore(inhabitant.store, "y", 2).hold)
    for kind, name in (("lock", "x"), ("semaphore", "y")):
        found = {one["name"]: one for one in tell("holders")[1]["locks"]}
        token = str(found[name]["holders"][0]["token"])
        broken = command("holders", "break", kind, name, "--token", token, "--store", url)
        assert broken.code == 0
        assert f"{name}: broken; the block of its holder is cancelled and raises LeaseLost" in broken.out
        assert "ends its whole program unless the program catches it" in broken.out
        code, document = tell("holders", "break", kind, name, "--token", token)
        assert (code, document) == (1, {"name": name, "token": int(token), "broken": False})
    assert tell("holders")[1]["locks"] == []


def test_an_error_is_shown_in_full_where_there_is_room(inhabitant, command, url, monkeypatch):
    error = f"LookupError: {'x' * 100} the end"

    async def fill():
        queue = tenure.WorkQueue(inhabitant.store, "mail", retry=tenure.Retry(attempts=1))
        await queue.put("p" * 70)
        with contextlib.suppress(LookupError):
            async with queue.take():
                raise LookupError("x" * 100 + " the end")

    inhabitant.do(fill)
    words = ("queue", "dead", "mail", "--store", url)
    monkeypatch.setenv("COLUMNS", "80")
    assert error in command(*words).out and "p" * 70 in command(*words).out  # in a pipe
    monkeypatch.setattr("tenure.cli.queue._queue.columns_of_terminal", lambda: 80)
    cut = command(*words).out
    assert f"{error[:57]}..." in cut
    assert "the end" not in cut
    assert f"{'p' * 57}..." in cut
    monkeypatch.setenv("COLUMNS", "300")
    assert error in command(*words).out


def test_the_time_of_the_longest_waiting_task_is_left_out_where_none_waits(inhabitant, show):
    put(inhabitant, count=1, dead=1)
    assert ["oldest", "-"] in show("queue", "show", "mail")[1]


def test_a_task_is_sent_a_signal(inhabitant, command, tell, url):
    async def fill():
        return await tenure.WorkQueue(inhabitant.store, "mail").put(1, key="ann")

    task_id = inhabitant.do(fill)
    sent = {"name": "mail", "signal": "go", "sent": True}
    assert tell("queue", "signal", "mail", task_id, "go", '{"yes": true}') == (0, sent)
    assert tell("queue", "signal", "mail", "--key", "ann", "go", '{"yes": true}') == (0, sent)
    assert tell("queue", "signal", "mail", "--key", "ann", "go") == (1, sent | {"sent": False})
    ended = command("queue", "signal", "mail", str(task_id), "stop", "--store", url)
    assert (ended.code, ended.out) == (0, "mail: stop sent\n")
    ended = command("queue", "signal", "mail", str(task_id + 1), "stop", "--store", url)
    assert ended.code == 1 and ended.out.startswith("mail: stop not sent: no such task")


def test_dead_letters_are_requeued_by_id_or_all(inhabitant, show, tell):
    put(inhabitant, count=4, dead=4)
    ids = [task["id"] for task in tell("queue", "dead", "mail")[1]["tasks"]]
    assert tell("queue", "requeue", "mail", ids[0]) == (0, {"name": "mail", "requeued": 1, "unknown": []})
    code, (done, left) = show("queue", "requeue", "mail", ids[1], 999_999, ids[1])
    assert (code, done) == (0, ["mail:", "1", "requeued:", str(ids[1])])
    assert " ".join(left) == "mail: 1 not requeued: 999999 (not dead, or its key is in use again)"
    assert tell("queue", "requeue", "mail", 999_999) == (
        1,
        {"name": "mail", "requeued": 0, "unknown": [999_999]},
    )
    assert show("queue", "requeue", "mail", "--yes") == (0, [["mail:", "2", "requeued"]])
    code, (line,) = show("queue", "requeue", "mail", "--yes")
    assert (code, " ".join(line)) == (0, "mail: nothing requeued: no task is dead")
    assert tell("queue", "show", "mail")[1]["waiting"] == 4


def test_tasks_are_cancelled_by_id(inhabitant, show, tell):
    put(inhabitant, count=3)
    first, second, _ = (task["id"] for task in tell("queue", "show", "mail")[1]["tasks"])
    assert show("queue", "cancel", "mail", first) == (0, [["mail:", "1", "cancelled:", str(first)]])
    assert tell("queue", "cancel", "mail", first, second) == (
        0,
        {"name": "mail", "cancelled": 1, "unknown": [first]},
    )
    code, lines = show("queue", "cancel", "mail", first)
    assert (code, lines) == (
        1,
        [f"mail: 1 not cancelled: {first} (no such task, or it has ended)".split()],
    )
    statistics = tell("queue", "show", "mail")[1]
    assert (statistics["waiting"], statistics["cancelled"]) == (1, 2)


def test_tasks_are_purged_by_state(inhabitant, show, tell):
    put(inhabitant, count=4, dead=1)
    assert show("queue", "purge", "mail", "dead", "--yes") == (0, [["mail:", "1", "purged"]])
    assert tell("queue", "purge", "mail", "waiting", "delayed", "--yes") == (0, {"name": "mail", "purged": 3})
    assert tell("queue", "show", "mail")[1]["purged"] == 4


def test_without_a_terminal_nothing_is_purged_unasked(inhabitant, command, tell, url):
    put(inhabitant, count=4)
    ended = command("queue", "purge", "mail", "waiting", "--store", url)
    assert (ended.code, ended.out) == (2, "")
    assert "use --yes" in ended.err
    assert tell("queue", "show", "mail")[1]["waiting"] == 4


@pytest.mark.parametrize(
    ("typed", "code", "left"),
    [
        (b"y\n", 0, 0),
        pytest.param(b"yes\n", 0, 0, marks=pytest.mark.full),
        pytest.param(b"\n", 1, 4, marks=pytest.mark.full),
        (b"no\n", 1, 4),
        pytest.param(b"\x04", 1, 4, marks=pytest.mark.full),
    ],
)
def test_on_a_terminal_purging_is_confirmed(inhabitant, command, tell, url, typed, code, left, monkeypatch):
    put(inhabitant, count=4)
    own, its = pty.openpty()
    with open(its) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        try:
            os.write(own, typed)
            ended = command("queue", "purge", "mail", "waiting", "done", "--store", url)
        finally:
            os.close(own)
    question, _, err = ended.err.partition("] ")
    assert question == "mail: purge 4 waiting, all records of done tasks? [y/N"
    assert (ended.code, ended.out) == (code, "" if code else "mail: 4 purged\n")
    assert err == ("mail: nothing purged\n" if code else "")
    # what is empty is forgotten
    assert [queue["waiting"] for queue in tell("queue", "ls")[1]["queues"]] == [left] * bool(left)


def test_a_queue_or_a_group_is_held_off(inhabitant, show, tell, command):
    put(inhabitant)
    assert show("queue", "pause", "mail", "30") == (0, [["mail:", "held", "off", "for", "30", "s"]])
    said = tell("queue", "pause", "mail", "0.5", "--group", "a")
    assert said == (0, {"name": "mail", "group": "a", "held_off": 0.5})
    assert tell("queue", "show", "mail")[1]["paused"] is False
    assert command("queue", "pause", "mail", "--group", "a").code == 2


def test_a_queue_is_paused_and_resumed(inhabitant, show, tell):
    put(inhabitant)
    assert show("queue", "pause", "mail") == (0, [["mail:", "paused"]])
    assert show("queue", "ls")[1][1][-1] == "paused"
    assert tell("queue", "pause", "mail") == (0, {"name": "mail", "paused": True, "changed": False})
    assert show("queue", "resume", "mail") == (0, [["mail:", "resumed"]])
    assert tell("queue", "show", "mail")[1]["paused"] is False
    assert show("queue", "resume", "mail") == (
        0,
        [["mail:", "nothing", "changed:", "it", "was", "not", "paused"]],
    )


@pytest.mark.parametrize(
    "words",
    [
        ("show", "typo"),
        ("dead", "typo", "--json"),
        ("requeue", "typo", "--yes"),
        ("requeue", "typo", "1"),
        ("cancel", "typo", "1"),
        ("purge", "typo", "dead", "--yes"),
        ("pause", "typo"),
        ("resume", "typo"),
    ],
)
def test_a_queue_that_never_had_a_task_is_an_error(inhabitant, command, url, words):
    ended = command("queue", *words, "--store", url)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("tenure: there is no queue typo in namespace tenure; ")
    assert ended.err.count("\n") == 1
    assert "typo" not in command("queue", "ls", "--store", url).out


def test_a_queue_that_a_program_has_paused_before_its_first_task_can_be_resumed(inhabitant, show):
    inhabitant.do(tenure.WorkQueue(inhabitant.store, "later").pause)
    assert show("queue", "resume", "later") == (0, [["later:", "resumed"]])


@on_sqlite
def test_long_names_do_not_break_a_terminal(inhabitant, url):
    put(inhabitant, f"queue {'x' * 500} one")
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    words = [sys.executable, "-m", "tenure.cli", "queue", "ls", "--store", url]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    try:
        subprocess.run(words, stdout=its, timeout=50, check=True, env=environment)
        header, row = os.read(own, 1 << 16).decode().splitlines()
    finally:
        os.close(own)
        os.close(its)
    assert max(len(header), len(row)) <= 80
    assert row.startswith("queue x")
    assert "x one " in row


# who holds what


def test_locks_show_their_holders_and_waiters(inhabitant, show, tell):
    store = inhabitant.store
    inhabitant.hold(lambda: tenure.Lock(store, "report"))
    inhabitant.hold(lambda: tenure.Semaphore(store, "seats", 3).hold(permits=2))
    inhabitant.hold(lambda: tenure.RWLock(store, "config").read())
    inhabitant.hold(lambda: tenure.Lock(store, "report"), then=anyio.sleep_forever)
    wait_for(lambda: tell("holders")[1]["locks"][0]["waiting"])
    code, document = tell("holders")
    assert (code, document["deadlocks"]) == (0, [])
    report, config, seats = document["locks"]
    assert (report["kind"], report["name"], report["capacity"], report["used"]) == ("lock", "report", 1, 1)
    (holder,), (waiter,) = report["holders"], report["waiting"]
    assert holder["process"] == waiter["process"] == store.process
    assert holder["token"] > 0 == waiter["token"]
    assert holder["task"] != waiter["task"]
    assert holder["seconds"] >= waiter["seconds"] >= 0
    assert config["holders"][0]["mode"] == "read"
    assert (seats["used"], seats["holders"][0]["weight"]) == (2, 2)
    code, lines = show("holders")
    assert [line[:3] for line in lines[1:]] == [
        ["lock", "report", "holds"],
        ["lock", "report", "waits"],
        ["rwlock", "config", "holds"],
        ["semaphore", "seats", "holds"],
    ]
    assert lines[3][-2] == "read"
    assert lines[4][-4:-1] == ["2", "of", "3"]
    assert lines[1][-1] == str(holder["token"])


def test_a_deadlock_is_shown_and_sets_the_exit_code(inhabitant, command, tell, url):
    store = inhabitant.store
    both = inhabitant.do(anyio.Event)
    came = []

    async def meet():
        came.append(1)
        if len(came) == 2:
            both.set()
        await both.wait()

    for first, second in (("A", "B"), ("B", "A")):
        inhabitant.hold(lambda first=first: tenure.Lock(store, first), then=into(meet, store, second))
    wait_for(lambda: tell("holders")[1]["deadlocks"])
    code, document = tell("holders")
    (deadlock,) = document["deadlocks"]
    assert code == 1
    assert deadlock["certain"]
    assert {(w["for"], *w["holds"]) for w in deadlock["waits"]} == {
        ("lock A", "lock B"),
        ("lock B", "lock A"),
    }
    assert len({w["task"] for w in deadlock["waits"]}) == 2
    ended = command("holders", "--store", url)
    assert ended.code == 1
    assert "\ndeadlock, for " in ended.out
    assert "holds lock A and waits for lock B\n" in ended.out


def into(meet, store, name):
    async def run():
        await meet()
        async with tenure.Lock(store, name):
            pass

    return run


def test_pools_list_their_resources_and_no_metadata(inhabitant, command, show, tell, url):
    store = inhabitant.store
    pool = tenure.ResourcePool(store, "keys")

    async def fill():
        await pool.add("one", {"secret": "do not tell"}, preference=1)
        await pool.add("two")

    inhabitant.do(fill)
    inhabitant.hold(lambda: pool.claim(where={"secret": "do not tell"}))
    inhabitant.hold(lambda: pool.claim(where={"secret": "do not tell"}), then=anyio.sleep_forever)
    wait_for(lambda: tell("holders", "claim")[1]["pools"][0]["waiting"])
    code, document = tell("holders", "claim", "keys")
    (keys,) = document["pools"]
    assert (code, keys["name"], keys["waiting"]) == (0, "keys", 1)
    one, two = keys["resources"]
    assert (one["resource"], one["state"], one["process"]) == ("one", "claimed", store.process)
    assert (two["resource"], two["state"], two["process"]) == ("two", "free", "")
    code, lines = show("holders", "claim")
    assert [line[:3] for line in lines[1:3]] == [["keys", "one", "claimed"], ["keys", "two", "free"]]
    assert lines[3] == ["1", "waits", "for", "a", "resource", "of", "keys"]
    for more in ((), ("--json",)):
        assert "do not tell" not in command("holders", "claim", "--store", url, *more).out
    assert command("holders", "claim", "nosuch", "--store", url).out == "nothing is held: no claim nosuch\n"


def test_leaders_are_identified_by_name(inhabitant, show, tell):
    store = inhabitant.store
    assert tell("holders", "leader") == (0, {"leaders": []})
    assert show("holders", "leader") == (0, [["nothing", "is", "held:", "no", "leader"]])
    assert show("holders", "leader", "boss") == (1, [["nothing", "is", "held:", "no", "leader", "boss"]])
    inhabitant.hold(lambda: tenure.Election(store, "boss", node="ann").term())
    code, document = tell("holders", "leader", "boss")
    (boss,) = document["leaders"]
    assert code == 0
    assert (boss["election"], boss["leader"], boss["process"], boss["candidates"]) == (
        "boss",
        "ann",
        store.process,
        0,
    )
    assert boss["term"] > 0
    code, lines = show("holders", "leader")
    assert lines[1][:2] == ["boss", "ann"]
    assert show("holders")[1][1][:2] == ["boss", "ann"]
    assert tell("holders")[1]["locks"] == []


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
    raise AssertionError("waited in vain")


# usage errors


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("queue", "ls"), "the default store, sqlite:///tenure.db: there is no file tenure.db; name another"),
        (
            ("queue", "ls", "--store", "sqlite:///x.db"),
            "tenure: --store: there is no file x.db; name another",
        ),
        (("holders", "--store", "memory:"), "visible only to its own process"),
        (("queue", "ls", "--store", "nonsense"), "'nonsense' is not a store URL"),
        (("queue",), "a command is missing"),
        (("queue", "list"), "there is no command 'queue list'; did you mean ls? There are ls, show,"),
        (("queue", "all"), "there is no command 'queue all'; choose from ls, show,"),
        (("queue", "requeue", "mail"), "all dead tasks become ready again: use --yes"),
        (("queue", "requeue", "mail", "1", "--yes"), "name the ids of dead tasks, or select them"),
        (("queue", "purge", "mail"), "required: STATE"),
        (("queue", "purge", "mail", "leased"), "invalid choice: 'leased'"),
        (("queue", "show", "mail", "--limit", "0"), "'0' is not a whole number from 1 to 1,000,000,000"),
        (("queue", "show", "m" * 513), "NAME: a name must have at most 512 bytes"),
        (("queue", "requeue", "mail", "x"), "ID: 'x' is not a whole number from 1"),
        (("queue", "requeue", "mail", "0"), "ID: '0' is not a whole number from 1"),
        (("queue", "requeue", "mail", "9" * 23), f"ID: '{'9' * 23}' is not a whole number from 1"),
        (("queue", "requeue", "mail", "9" * 5000), "is not a whole number from 1"),
        (("queue", "cancel", "mail", "1.5"), "ID: '1.5' is not a whole number from 1"),
        (("queue", "purge", "mail", "dead"), "use --yes"),
        (("holders", "barrier"), "KIND: invalid choice: 'barrier'"),
        (("holders", "break", "lock", "x"), "required: --token"),
        (("holders", "break", "lock", "x", "--token", "0"), "'0' is not a whole number from 1"),
        (("queue", "show", "mail", "1", "--key", "ann"), "by its ID or by --key, not by both"),
        (("queue", "reschedule", "mail"), "required: ID"),
        (("queue", "edit", "mail"), "name a task by its ID or by --key"),
        (("queue", "cancel", "mail"), "name the ids of tasks, or the --state"),
        (("queue", "cancel", "mail", "1", "--where", "error=X"), "tasks are selected by their --state first"),
        (
            ("queue", "requeue", "mail", "1", "--where", "error=X"),
            "name the ids of dead tasks, or select them",
        ),
        (
            ("queue", "purge", "mail", "dead", "--where", "x=1"),
            "'x=1' is not one of older_than, key_prefix, error or",
        ),
        (("queue", "show", "mail", "--where", "older_than=no"), "is not a number of seconds above 0"),
        (("queue", "edit", "mail", "1"), "say what to change"),
        (("queue", "signal", "mail"), "required: [ID] SIGNAL [JSON]"),
        (("queue", "signal", "mail", "go", "1"), "ID: 'go' is not a whole number from 1"),
        (("queue", "signal", "mail", "1"), "name the task by its ID or by --key, then the signal"),
        (("queue", "signal", "mail", "1", "go", "{"), "JSON"),
        (("queue", "reschedule", "mail", "1", "--delay", "-1"), "is not a number of seconds above 0"),
        (
            ("queue", "show", "tenure:queue:mail"),
            "tenure:queue:mail is a key of the store: write mail, the name",
        ),
        (("queue", "put", "tenure:queue:mail"), "write mail, the name of the queue"),
        (("queue", "pause", "shop:queue:a:b", "--namespace", "shop"), "write a:b, the name of the queue"),
        (
            ("holders", "break", "semaphore", "tenure:semaphore:x", "--token", "1"),
            "write x, the name of the semaphore",
        ),
        (("holders", "leader", "tenure:election:boss"), "write boss, the name of the election"),
        (("holders", "claim", "tenure:pool:keys"), "write keys, the name of the pool"),
        (("schedule", "ls", "tenure:queue:mail"), "write mail, the name of the queue"),
    ],
)
def test_misuse_is_reported_in_a_line(misused, words, line):
    assert line in misused(*words)


def test_a_server_that_is_away_is_reported(command):
    ended = command("queue", "ls", "--store", "redis://127.0.0.1:1")
    assert ended.code == 1
    assert ended.err.startswith("tenure: redis://127.0.0.1:1")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("words", [("queue",), ("queue", "ls"), ("holders",), ("holders", "break")])
def test_help(words, capsys):
    with contextlib.suppress(SystemExit):
        main([*words, "--help"])
    assert capsys.readouterr().out.startswith("usage: tenure ")


def test_an_operator_sees_what_is_not_undone(inhabitant, url, tell, command):
    async def review():
        pulls = tenure.WorkQueue(inhabitant.store, "pulls")
        sandboxes = tenure.WorkQueue(inhabitant.store, "sandboxes")
        task_id = await pulls.put("pull")
        with contextlib.suppress(tenure.Dead):
            async with pulls.take(timeout=5) as task:
                await task.at_end("seat", sandboxes)
                await task.at_end("sandbox", sandboxes)
                raise tenure.Dead("no such pull")
        with contextlib.suppress(tenure.Dead):
            async with sandboxes.take(timeout=5) as release:
                raise tenure.Dead("no such region")
        return task_id, release.id

    task_id, letter = inhabitant.do(review)
    shown = command("queue", "show", "pulls", str(task_id), "--store", url).out
    assert "releases   1 under way, 1 not undone\n" in shown
    assert f"not undone sandbox (no such region): task {letter} of sandboxes\n" in shown
    assert (
        "release    sandbox, not undone\n"
        in command("queue", "show", "sandboxes", str(letter), "--store", url).out
    )
    code, document = tell("queue", "show", "pulls", str(task_id))
    assert code == 0
    assert [(r["name"], r["state"], r["error"]) for r in document["task"]["releases"]] == [
        ("sandbox", "dead", "no such region"),
        ("seat", "unfinished", None),
    ]
    dead = command("queue", "dead", "sandboxes", "--store", url).out
    assert f"sandbox of task {task_id} of pulls is not undone: no such region" in dead
    doctor = command("doctor", url)
    assert doctor.code == 1
    assert (
        f"problem: 1 of sandboxes is not undone, such as sandbox of task {task_id} of pulls (no such region): "
        "mend that, then `tenure queue requeue sandboxes`"
    ) in doctor.out


# ------------------------------------------------------------------------------------------------------ limiters


@pytest.fixture(params=["sqlite", "redis", pytest.param("postgres", marks=pytest.mark.full)])
def limiter_url(request):
    if request.param == "sqlite":
        return "sqlite:///tenure.db"
    server = request.getfixturevalue(f"{request.param}_server")
    return server.url if request.param == "redis" else server.url()


def test_a_limiter_is_shown_and_its_hold_is_ended(command, limiter_url):
    async def use(hold):
        async with tenure.open_store(limiter_url) as store:
            limiter = tenure.RateLimiter(
                store, "api", tenure.Limit(0.01, burst=9), tenure.Limit(0.1, unit="tokens", burst=500)
            )
            if hold:
                await limiter.acquire({"requests": 2, "tokens": 300})
                await limiter.hold_off(3600)
            return await limiter.state()

    anyio.run(use, True)
    words = ("api", "--store", limiter_url)
    shown = json.loads(command("limiter", "show", *words, "--json").out)
    assert shown["name"] == "api"
    assert 3500 < shown["held_off"] <= 3600
    booked = {limit["unit"]: (limit["per"], limit["booked"]) for limit in shown["limits"]}
    assert booked["tokens"] == (1, pytest.approx(300, abs=5))
    assert booked["requests"] == (1, pytest.approx(2, abs=0.2))
    (listed,) = json.loads(command("limiter", "ls", "--store", limiter_url, "--json").out)["limiters"]
    assert (listed["name"], listed["waits"], len(listed["limits"])) == ("api", 0, 2)
    header, row = command("limiter", "ls", "--store", limiter_url).out.splitlines()
    assert header.split("  ")[0] == "limiter" and row.split()[:4] == ["api", "60", "min", "-"]
    text = command("limiter", "show", *words).out
    assert "held off for 60 min" in text
    assert [line.split()[-2:] for line in text.splitlines()[:3]] == [["unit", "per"], ["1", "s"], ["1", "s"]]
    assert command("limiter", "release", *words).out == "api: held off no longer: 60 min were left\n"
    assert anyio.run(use, False).held_off == 0
    assert command("limiter", "release", *words).out == "api: nothing changed: it was not held off\n"
    assert "held" not in command("limiter", "show", *words).out
    assert command("limiter", "ls", "--store", limiter_url).out == "no limiter makes a caller wait\n"
    assert command("limiter", "show", "none", "--store", limiter_url).out == "nothing is booked of none\n"


def test_a_limiter_is_named_by_its_name(misused, url):
    assert "write api, the name of the rate limiter" in misused(
        "limiter", "show", "tenure:rate:api", "--store", "redis://localhost:1"
    )
    assert "a command is missing: tenure limiter ls" in misused("limiter")
