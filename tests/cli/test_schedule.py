"""`tenure schedule`: what there is, when it comes next, and a task put by hand."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import anyio
import pytest

import tenure

ROME = ZoneInfo("Europe/Rome")


@pytest.fixture(params=["sqlite", "redis"])
def url(request):
    if request.param == "redis":
        return request.getfixturevalue("redis_server").url
    return "sqlite:///tenure.db"


@pytest.fixture
def scheduled(url):
    """Runs schedules for a moment, and puts a task of each: the name of a queue, its own, and arguments."""

    def make(*descriptions):
        async def main():
            async with tenure.open_store(url) as store:
                for queue, name, arguments in descriptions:
                    schedule = tenure.Schedule(tenure.WorkQueue(store, queue), name, **arguments)
                    await schedule.run_now()
                    async with anyio.create_task_group() as group:
                        group.start_soon(schedule.run)
                        while f"schedule/{name}" not in await schedule.queue.cursors():
                            await anyio.sleep(0.01)
                        group.cancel_scope.cancel()

        anyio.run(main)

    return make


@pytest.fixture
def tell(command, url):
    """Runs `tenure schedule WORDS` on the store; gives its JSON."""

    def run(*words):
        ended = command("schedule", *words, "--json", "--store", url)
        assert (ended.code, ended.err) == (0, "")
        return json.loads(ended.out)

    return run


NIGHTLY = ("jobs", "nightly", {"cron": "30 2 * * *", "tz": "Europe/Rome"})
HOURLY_WITH_KEY = ("keyed", "hourly", {"every": 3600, "key": "k"})
HOURLY = ("mail", "hourly", {"every": 3600, "key": "k"})


def test_ls_lists_the_schedules_of_all_queues_or_of_one(scheduled, tell, command, url):
    scheduled(NIGHTLY, HOURLY)
    both = tell("ls")["schedules"]
    assert [(one["queue"], one["name"], one["every"], one["cron"], one["tz"]) for one in both] == [
        ("jobs", "nightly", None, "30 2 * * *", "Europe/Rome"),
        ("mail", "hourly", 3600.0, None, "UTC"),
    ]
    assert [(one["last"], one["late"]) for one in both] == [(None, 0.0)] * 2
    assert datetime.fromisoformat(both[0]["next"]).astimezone(ROME).strftime("%H:%M") in ("02:30", "03:00")
    assert tell("ls", "mail")["schedules"] == both[1:]
    assert tell("ls", "other")["schedules"] == []
    out = command("schedule", "ls", "--store", url).out
    assert "30 2 * * *" in out
    assert "every 3600 s" in out


def test_a_schedule_is_set_paused_resumed_and_removed(tell, command, url):
    more = ("--tz", "Europe/Rome", "--payload", '{"to": 1}', "--key", "k", "--end", "2100-01-01T00:00")
    ended = command("schedule", "set", "jobs", "nightly", "--cron", "30 2 * * *", *more, "--store", url)
    assert (ended.code, ended.out) == (0, "jobs: schedule nightly set\n")
    # no task was ever put into the queue
    (record,) = tell("ls")["schedules"]
    assert tell("ls", "jobs")["schedules"] == [record]
    assert (record["payload"], record["options"], record["kept_in_store"]) == ({"to": 1}, {"key": "k"}, True)
    assert tell("pause", "jobs", "nightly")["done"] == "paused"
    assert "paused" in command("schedule", "ls", "jobs", "--store", url).out
    task_id = tell("run-now", "jobs", "nightly")["id"]
    shown = command("queue", "show", "jobs", task_id, "--json", "--store", url)
    assert json.loads(shown.out)["task"]["payload"] == {"to": 1}
    assert tell("resume", "jobs", "nightly")["done"] == "resumed"
    assert tell("remove", "jobs", "nightly")["done"] == "removed"
    assert tell("ls")["schedules"] == []
    for words, message in (
        (("remove", "jobs", "nightly"), "has no schedule nightly"),
        (("set", "jobs", "x"), "--every"),
        (("set", "jobs", "x", "--every", "1", "--end", "tomorrow"), "is no time such as"),
        (("set", "jobs", "x", "--cron", "never"), "cron must have five fields"),
        (("set", "jobs", "x", "--every", "1", "--payload", json.dumps("x" * 5000)), "at most 4,096 bytes"),
    ):
        ended = command("schedule", *words, "--store", url)
        assert ended.code == 2 and message in ended.err


def test_ls_says_what_was_last_and_what_is_late(scheduled, tell, command, url):
    scheduled(NIGHTLY)
    last = datetime(2026, 1, 1, 2, 30, tzinfo=ROME)

    async def long_ago():
        async with tenure.open_store(url) as store:
            cursor = {"tick": last.timestamp(), "cron": "30 2 * * *", "tz": "Europe/Rome"}
            await tenure.WorkQueue(store, "jobs").put_many([], cursor=("schedule/nightly", cursor))

    anyio.run(long_ago)
    (one,) = tell("ls")["schedules"]
    assert one["last"] == last.isoformat()
    assert one["late"] > 86400
    assert "late by " in command("schedule", "ls", "--store", url).out


def test_next_prints_ticks_in_the_time_zone(scheduled, tell, command, url):
    scheduled(NIGHTLY, HOURLY)
    coming = list(map(datetime.fromisoformat, tell("next", "mail", "hourly", "--limit", "3")["next"]))
    assert {(b - a).total_seconds() for a, b in pairwise(coming)} == {3600.0}
    ended = command("schedule", "next", "jobs", "nightly", "--store", url)
    assert ended.code == 0
    assert ended.out.strip()[-6:] in ("+01:00", "+02:00")


def test_run_now_puts_a_task_with_the_meta_of_the_schedule(scheduled, tell, command, url):
    scheduled(("mail", "hourly", {"every": 3600, "payload": {"to": "bob"}, "group": "g"}), HOURLY_WITH_KEY)

    async def put():
        async with tenure.open_store(url) as store:
            await tenure.WorkQueue(store, "mail", max_size=7).put(None)

    anyio.run(put)
    task_id = tell("run-now", "mail", "hourly", "--payload", '{"to": "all"}')["id"]
    ended = command("schedule", "run-now", "mail", "hourly", "--store", url)
    assert ended.code == 0

    async def look():
        async with tenure.open_store(url) as store:
            queue = tenure.WorkQueue(store, "mail")
            assert (await queue.statistics()).max_size == 7, "the size that the program has set"
            return [await queue.get(one) for one in (task_id, int(ended.out))]

    one, other = anyio.run(look)
    assert (one.payload, other.payload, one.key) == ({"to": "all"}, {"to": "bob"}, None)
    assert one.group == "g"
    ended = command("schedule", "run-now", "keyed", "hourly", "--store", url)
    assert ended.code == 1 and "has the key 'k'" in ended.err, "its task is unfinished"
    assert one.meta["schedule"] == "hourly"
    assert datetime.fromisoformat(one.meta["scheduled_for"]).tzinfo is not None


def test_there_is_nothing_to_see_before_a_schedule_has_run(scheduled, command, url):
    scheduled()

    async def other_things():
        async with tenure.open_store(url) as store:
            queue = tenure.WorkQueue(store, "jobs")
            await queue.put_many([1], cursor=("input", {"end": True}))
            await queue.put_many([], cursor=("schedule/odd", "something else"))

    anyio.run(other_things)
    assert command("schedule", "ls", "--store", url).out == "there is no schedule\n"
    assert command("schedule", "ls", "jobs", "--store", url).out == "queue jobs has no schedule\n"
    for words in (("next", "jobs", "x"), ("run-now", "jobs", "x"), ("next", "nowhere", "x")):
        ended = command("schedule", *words, "--store", url)
        assert (ended.code, ended.out) == (2, "")
        assert f"queue {words[1]} in namespace tenure has no schedule x" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "a command is missing"),
        (("show",), "there is no command 'schedule show'"),
        (("next", "jobs"), "NAME"),
        (("next", "jobs", "x", "--limit", "0"), "from 1 to 1,000"),
        (("run-now", "jobs", "x", "--payload", "{"), "the payload is not JSON"),
    ],
)
def test_misuse_is_refused_in_one_line(misused, words, said):
    assert said in misused("schedule", *words)


def test_help_names_the_commands(command):
    out = command("schedule", "--help").out
    assert all(name in out for name in ("ls", "next", "run-now"))


@pytest.mark.parametrize(("cron", "seconds"), [("@hourly", 3600), ("*/20 * * * * *", 20)])
def test_next_knows_names_and_seconds(scheduled, tell, cron, seconds):
    scheduled(("jobs", "often", {"cron": cron, "tz": "Pacific/Chatham"}))
    coming = list(map(datetime.fromisoformat, tell("next", "jobs", "often", "--limit", "3")["next"]))
    assert {(b - a).total_seconds() for a, b in pairwise(coming)} == {seconds}
    assert tell("ls")["schedules"][0]["cron"] == cron
