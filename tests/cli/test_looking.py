"""`tenure queue`, `lock`, `claims` and `leader`: what a store holds, told to people and to programs."""

from __future__ import annotations

import contextlib
import json

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

import tenure
from tenure.cli import main


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
        for i in range(count):
            await queue.put({"to": i}, priority=i)
        for _ in range(dead):
            with contextlib.suppress(LookupError):
                async with queue.take():
                    raise LookupError("no such address")

    inhabitant.do(fill)


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
            "done",
            "dead",
            "cancelled",
            "expired",
        ),
        *("discarded", "purged", "reserved", "producers", "paused", "oldest"),
    }


def test_queues_of_other_namespaces_are_not_listed(inhabitant, command, url):
    put(inhabitant)
    ended = command("queue", "ls", "--store", url, "--namespace", "other")
    assert (ended.code, ended.out) == (0, "no queue has had a task yet\n")


def test_a_queue_is_shown_with_some_of_its_tasks(inhabitant, show, tell):
    put(inhabitant, count=5)
    code, lines = show("queue", "show", "mail", "--limit", 2)
    assert code == 0
    assert ["waiting", "5"] in lines
    assert ["paused", "no"] in lines
    code, document = tell("queue", "show", "mail", "--limit", 2)
    first = [task["id"] for task in document["tasks"]]
    assert [line[0] for line in lines[-3:]] == [*map(str, first), "more:"]
    code, document = tell("queue", "show", "mail", "--after", document["next"])
    assert document["waiting"] == 5
    assert sorted(first + [task["id"] for task in document["tasks"]]) == [1, 2, 3, 4, 5]
    assert document["next"] == ""
    for task in document["tasks"]:
        assert (task["payload"], task["state"]) == ({"to": task["id"] - 1}, "waiting")


def test_dead_letters_tell_why(inhabitant, show, tell):
    put(inhabitant, dead=2)
    code, lines = show("queue", "dead", "mail")
    assert (code, len(lines)) == (0, 3)
    assert "LookupError:" in lines[1]
    code, document = tell("queue", "dead", "mail")
    assert [task["error"] for task in document["tasks"]] == ["LookupError: no such address"] * 2
    assert document["tasks"][0]["rank"] < document["tasks"][1]["rank"]


def test_dead_letters_are_requeued_by_id_or_all(inhabitant, show, tell):
    put(inhabitant, count=4, dead=4)
    ids = [task["id"] for task in tell("queue", "dead", "mail")[1]["tasks"]]
    assert tell("queue", "requeue", "mail", ids[0]) == (0, {"name": "mail", "requeued": 1})
    assert show("queue", "requeue", "mail", "--all") == (0, [["3", "requeued"]])
    assert tell("queue", "show", "mail")[1]["waiting"] == 4


def test_tasks_are_purged_by_state(inhabitant, show, tell):
    put(inhabitant, count=4, dead=1)
    assert show("queue", "purge", "mail", "dead") == (0, [["1", "purged"]])
    assert tell("queue", "purge", "mail", "waiting", "delayed") == (0, {"name": "mail", "purged": 3})
    assert tell("queue", "show", "mail")[1]["purged"] == 4


def test_a_queue_is_paused_and_resumed(inhabitant, show, tell):
    put(inhabitant)
    assert show("queue", "pause", "mail") == (0, [["mail", "is", "paused"]])
    assert show("queue", "ls")[1][1][-1] == "paused"
    assert tell("queue", "resume", "mail") == (0, {"name": "mail", "paused": False})
    assert tell("queue", "show", "mail")[1]["paused"] is False


def test_a_queue_that_never_had_a_task_is_told(inhabitant, command, url):
    ended = command("queue", "dead", "typo", "--store", url)
    assert (ended.code, ended.out) == (0, "no task is dead\n")
    assert ended.err == "tenure: no task was ever put into queue typo\n"


def test_payloads_cannot_command_the_terminal(inhabitant, command, url):
    class Raw:
        def encode(self, value):
            return value

        def decode(self, data):
            return data

    async def fill():
        inhabitant.store.codec = Raw()
        await tenure.WorkQueue(inhabitant.store, "mail\x1b[2J").put(b"\x1b[31mred \xff")

    inhabitant.do(fill)
    for words in (("queue", "ls"), ("queue", "show", "mail\x1b[2J")):
        ended = command(*words, "--store", url)
        assert (ended.code, ended.err) == (0, "")
        assert "\x1b" not in ended.out
        assert "\\x1b[" in ended.out


# who holds what


def test_locks_tell_who_holds_and_who_waits(inhabitant, show, tell):
    store = inhabitant.store
    inhabitant.hold(lambda: tenure.Lock(store, "report"))
    inhabitant.hold(lambda: tenure.Semaphore(store, "seats", 3).hold(permits=2))
    inhabitant.hold(lambda: tenure.RWLock(store, "config").read())
    inhabitant.hold(lambda: tenure.Lock(store, "report"), then=anyio.sleep_forever)
    wait_for(lambda: tell("lock", "ls")[1]["locks"][0]["waiting"])
    code, document = tell("lock", "ls")
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
    code, lines = show("lock", "ls")
    assert [line[:3] for line in lines[1:]] == [
        ["lock", "report", "holds"],
        ["lock", "report", "waits"],
        ["rwlock", "config", "holds"],
        ["semaphore", "seats", "holds"],
    ]
    assert lines[3][-1] == "read"
    assert lines[4][-3:] == ["2", "of", "3"]


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
    wait_for(lambda: tell("lock", "ls")[1]["deadlocks"])
    code, document = tell("lock", "ls")
    (deadlock,) = document["deadlocks"]
    assert code == 1
    assert deadlock["certain"]
    assert {(w["for"], *w["holds"]) for w in deadlock["waits"]} == {
        ("lock A", "lock B"),
        ("lock B", "lock A"),
    }
    assert len({w["task"] for w in deadlock["waits"]}) == 2
    ended = command("lock", "ls", "--store", url)
    assert ended.code == 1
    assert "\ndeadlock, for " in ended.out
    assert "holds lock A and waits for lock B\n" in ended.out


def into(meet, store, name):
    async def run():
        await meet()
        async with tenure.Lock(store, name):
            pass

    return run


def test_pools_tell_their_resources_and_no_metadata(inhabitant, command, show, tell, url):
    store = inhabitant.store
    pool = tenure.ResourcePool(store, "keys")

    async def fill():
        await pool.add("one", {"secret": "do not tell"}, preference=1)
        await pool.add("two")

    inhabitant.do(fill)
    inhabitant.hold(lambda: pool.claim(where={"secret": "do not tell"}))
    inhabitant.hold(lambda: pool.claim(where={"secret": "do not tell"}), then=anyio.sleep_forever)
    wait_for(lambda: tell("claims", "ls")[1]["pools"][0]["waiting"])
    code, document = tell("claims", "ls", "keys")
    (keys,) = document["pools"]
    assert (code, keys["name"], keys["waiting"]) == (0, "keys", 1)
    one, two = keys["resources"]
    assert (one["resource"], one["state"], one["process"]) == ("one", "claimed", store.process)
    assert (two["resource"], two["state"], two["process"]) == ("two", "free", "")
    code, lines = show("claims", "ls")
    assert [line[:3] for line in lines[1:3]] == [["keys", "one", "claimed"], ["keys", "two", "free"]]
    assert lines[3] == ["1", "wait", "for", "a", "resource", "of", "keys"]
    for more in ((), ("--json",)):
        assert "do not tell" not in command("claims", "ls", "--store", url, *more).out


def test_leaders_are_told_by_name(inhabitant, show, tell):
    store = inhabitant.store
    assert tell("leader") == (0, {"leaders": []})
    assert show("leader", "boss") == (1, [["nobody", "leads"]])
    inhabitant.hold(lambda: tenure.Election(store, "boss", node="ann").term())
    code, document = tell("leader", "boss")
    (boss,) = document["leaders"]
    assert code == 0
    assert (boss["election"], boss["leader"], boss["process"], boss["candidates"]) == (
        "boss",
        "ann",
        store.process,
        0,
    )
    assert boss["term"] > 0
    code, lines = show("leader")
    assert lines[1][:2] == ["boss", "ann"]
    assert tell("lock", "ls")[1]["locks"] == []


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
    raise AssertionError("waited in vain")


# misuse


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("queue", "ls"), "--store: there is no file tenure.db; name the store with --store URL"),
        (("lock", "ls", "--store", "memory:"), "seen by nobody but its own process"),
        (("queue", "ls", "--store", "nonsense"), "'nonsense' is no store URL"),
        (("queue",), "a command is missing"),
        (("queue", "list"), "there is no command 'queue list'; there is ls, show,"),
        (("queue", "requeue", "mail"), "name the ids of dead tasks, or give --all"),
        (("queue", "requeue", "mail", "1", "--all"), "name the ids of dead tasks, or give --all"),
        (("queue", "purge", "mail"), "required: STATE"),
        (("queue", "purge", "mail", "leased"), "invalid choice: 'leased'"),
        (("queue", "show", "mail", "--limit", "0"), "no whole number of at least 1"),
        (("lock",), "write tenure lock ls"),
        (("claims", "list"), "write tenure claims ls"),
    ],
)
def test_misuse_is_told_in_a_line(misused, words, line):
    assert line in misused(*words)


def test_a_server_that_is_away_is_told(command):
    ended = command("queue", "ls", "--store", "redis://127.0.0.1:1")
    assert ended.code == 1
    assert ended.err.startswith("tenure: redis://127.0.0.1:1")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("queue",), ("queue", "ls"), ("lock", "ls"), ("lock",), ("claims",), ("leader",)]
)
def test_help(words, capsys):
    with contextlib.suppress(SystemExit):
        main([*words, "--help"])
    assert capsys.readouterr().out.startswith("usage: tenure ")
