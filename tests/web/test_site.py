"""What the page's resources return of a real store, by the core that both servers share."""

from __future__ import annotations

import contextlib
import json
import logging
import re

import anyio
import pytest
from filled_store import fails, ids_of

import tenure
from tenure.processor import Context
from tenure.web import Site
from tenure.web._answers import Request
from tenure.web._failures import type_of

SAFE = {
    "x-tenure-action": "1",
    "content-type": "application/json",
    "sec-fetch-site": "same-origin",
    "host": "here",
}


class Asker:
    """Asks a site without a server in between."""

    def __init__(self, store, **options):
        self.site = Site(store, **options)

    async def __call__(self, target, status=200):
        path, _, query = target.partition("?")
        answer = await self.site.answer(Request("GET", path, query, {}))
        assert answer.status == status, answer.body
        assert answer.kind == "application/json"
        return json.loads(answer.body)

    async def act(self, status=200, headers=None, **action):
        body = json.dumps(action).encode()
        request = Request("POST", "/actions", "", {**SAFE, **(headers or {})}, body, "192.0.2.7")
        answer = await self.site.answer(request)
        assert answer.status == status, answer.body
        return json.loads(answer.body)


@pytest.fixture
async def store(virtual_clock):
    async with tenure.open_store("memory:") as store:
        yield store


def ids(found):
    return [task["id"] for task in found["tasks"]]


async def some_dead(store, number, **options):
    queue = tenure.WorkQueue(store, "mails", retry=tenure.Retry(attempts=1), **options)
    for n in range(number):
        await queue.put(
            {"to": f"city-{n}", "n": n, "password": "hidden"}, key=f"order-{n}", meta={"tenant": "acme"}
        )
    await fails(queue, number)
    return queue


# tasks


async def test_dead_letters_are_listed_with_their_errors_the_newest_first_a_page_at_a_time(store):
    first, second, third, fourth, fifth = await ids_of(await some_dead(store, 5))
    ask = Asker(store)
    found = await ask("/queues/mails/tasks?state=dead&limit=2")
    assert ids(found) == [fifth, fourth]
    assert found["tasks"][0]["error"] == "ConnectionError: no route to city-4"
    assert (found["tasks"][0]["key"], found["tasks"][0]["attempts"]) == ("order-4", 1)
    found = await ask(f"/queues/mails/tasks?state=dead&limit=2&after={found['next']}")
    assert ids(found) == [third, second]
    found = await ask(f"/queues/mails/tasks?state=dead&limit=2&after={found['next']}")
    assert (ids(found), found["next"]) == ([first], "")
    assert ids(await ask("/queues/mails/tasks")) == []


async def test_one_task_has_its_traceback_meta_and_failed_tries(store):
    queue = tenure.WorkQueue(store, "mails", retry=tenure.Retry(attempts=2, backoff=0.001))
    own = {"timeout": 5, "retry": tenure.Retry(attempts=2, backoff=0)}
    task_id = await queue.put({"to": "rome", "n": 1}, meta={"tenant": "acme"}, **own)
    await fails(queue, 2)
    task = await Asker(store)(f"/queues/mails/tasks/{task_id}")
    assert (task["state"], task["attempts"], task["meta"]) == ("dead", 2, {"tenant": "acme"})
    assert (task["timeout"], task["retry"]) == (5.0, repr(own["retry"]))
    assert task["traceback"].startswith("Traceback (most recent call last)")
    tries = [re.sub(r"[\d.]+ s", "1 s", line) for line in task["failed_tries"]]
    assert tries == [f"try {number}, ran 1 s: ConnectionError: no route to rome" for number in (1, 2)]
    assert await Asker(store)("/queues/mails/tasks/77") is None
    assert await Asker(store)("/queues/nothing/tasks/1") is None
    for query in ("", "?state=dead", "?find=x", "?limit=1"):
        await Asker(store)(f"/queues/nothing/tasks{query}", 404)
        assert (await Asker(store)(f"/queues/mails/tasks{query}"))["queue"] == "mails"


async def test_progress_is_shown(store):
    queue = tenure.WorkQueue(store, "mails")
    await queue.put(1)
    async with queue.take() as task:
        await task.progress({"percent": 40})
        assert (await Asker(store)(f"/queues/mails/tasks/{task.id}"))["progress"] == '{"percent": 40}'


async def test_the_figures_of_all_queues_are_there_for_prometheus(store):
    await some_dead(store, 2)
    answer = await Site(store).answer(Request("GET", "/metrics", "", {}))
    assert (answer.status, answer.kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'tenure_queue_tasks{queue="mails",state="dead"} 2\n' in answer.body


async def test_payloads_and_results_are_shown_only_if_that_is_allowed(store):
    (dead_id,) = await ids_of(await some_dead(store, 1))
    done = tenure.WorkQueue(store, "done", keep=tenure.Keep(payloads=True))
    done_id = await done.put("a password")
    async with done.take() as task:
        task.set_result("hidden too")
    for path in (f"/queues/mails/tasks/{dead_id}", f"/queues/done/tasks/{done_id}"):
        task = await Asker(store)(path)
        assert "payload" not in task
        assert "result" not in task
        assert "hidden" not in json.dumps(task)
    assert (await Asker(store, payloads=True)(f"/queues/mails/tasks/{dead_id}"))["payload"].endswith(
        '"password": "hidden"}'
    )
    task = await Asker(store, payloads=True)(f"/queues/done/tasks/{done_id}")
    assert (task["payload"], task["result"], task["error"]) == ("a password", "hidden too", None)
    assert "hidden" not in json.dumps(await Asker(store)("/queues/mails/tasks?state=dead"))


async def test_errors_can_be_hidden_and_are_then_not_searched_either(store):
    first, *_ = await ids_of(await some_dead(store, 3))
    ask = Asker(store, errors=False)
    everything = [
        await ask("/queues/mails/tasks?state=dead"),
        await ask(f"/queues/mails/tasks/{first}"),
        await ask("/failures.json"),
    ]
    assert "city" not in json.dumps(everything)
    assert "Traceback" not in json.dumps(everything)
    assert ids(await ask("/queues/mails/tasks?state=dead&find=route")) == []
    assert {kind["type"] for kind in everything[2]["kinds"]} == {"ConnectionError", "KeyError"}


async def test_a_payload_that_the_codec_cannot_read_hides_no_task(virtual_clock):
    class Broken(tenure.store.JsonCodec):
        def decode(self, data):
            raise RuntimeError("not mine")

    async with tenure.open_store("memory:", codec=Broken()) as store:
        task_id = await tenure.WorkQueue(store, "mails").put({"n": 1})
        assert ids(await Asker(store)("/queues/mails/tasks")) == [task_id]
        task = await Asker(store, payloads=True)(f"/queues/mails/tasks/{task_id}")
        assert json.loads(task["payload"]) == {"n": 1}


async def test_search_finds_by_id_key_and_error(store):
    queue = await some_dead(store, 5)
    await queue.put({"n": 9}, key="order-9", delay=60)
    first, second, third, fourth, fifth, sixth = await ids_of(queue)
    ask = Asker(store)
    assert ids(await ask("/queues/mails/tasks?state=dead&find=city-3")) == [fourth]
    assert ids(await ask("/queues/mails/tasks?state=dead&find=ORDER-2")) == [third]
    assert ids(await ask("/queues/mails/tasks?state=dead&find=keyerror")) == [fourth, first]
    # whatever the state: by its id, and an unfinished one by its key
    assert ids(await ask(f"/queues/mails/tasks?state=waiting&find={second}")) == [second]
    assert ids(await ask("/queues/mails/tasks?state=dead&find=order-9")) == [sixth]
    assert ids(await ask(f"/queues/mails/tasks?state=ended&find={fifth}")) == [fifth]
    assert ids(await ask("/queues/mails/tasks?state=dead&find=nobody")) == []
    assert ids(await ask(f"/queues/mails/tasks?state=dead&find={'x' * 512}")) == []


async def test_a_long_search_goes_on_from_where_it_stopped(store, monkeypatch):
    monkeypatch.setattr("tenure.web._tasks._MOST_LOOKED_AT", 64)
    queue = tenure.WorkQueue(store, "mails")
    await queue.put_many([tenure.Item(n, key=f"order-{n}") for n in range(100)])
    ask = Asker(store)
    first = await ask("/queues/mails/tasks?find=order-9")
    assert first["looked_at"] == 64
    second = await ask(f"/queues/mails/tasks?find=order-9&after={first['next'].replace(' ', '+')}")
    assert [task["key"] for task in first["tasks"] + second["tasks"]] == [
        "order-9",
        *(f"order-{n}" for n in range(90, 100)),
    ]
    assert second["next"] == ""


@pytest.mark.parametrize("name", ["a/b", "a/tasks", "x/tasks/5", "a b?c#d", "\u00fc", ".."])
async def test_any_name_of_a_queue_can_be_asked_for(store, name):
    task_id = await tenure.WorkQueue(store, name).put(1)
    ask = Asker(store)
    assert (await ask(f"/queues/{name}/tasks"))["queue"] == name if "?" not in name else True
    answer = await ask.site.answer(Request("GET", f"/queues/{name}/tasks/{task_id}", "", {}))
    assert json.loads(answer.body)["id"] == task_id


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (
            "state=broken",
            "state must be one of waiting, delayed, leased, suspended, ending, ended, done, dead, discarded, ",
        ),
        *(
            (f"limit={limit}", "limit must be a number from 1 to 500")
            for limit in ("0", "x", "501", "9" * 5000)
        ),
        *((f"find={find}", "find must have at most 512 bytes") for find in ("x" * 513, "9" * 5000)),
        ("state=dead&after=x", "after: "),
        ("state=waiting&after=x", "after: "),
        (f"state=dead&after={'9' * 40}", "after: "),
        ("sate=dead", "there is no parameter sate"),
    ],
)
async def test_a_question_that_has_no_answer_is_refused(store, query, problem):
    await some_dead(store, 1)
    error = (await Asker(store)(f"/queues/mails/tasks?{query}", 400))["error"]
    assert error.startswith(problem)
    assert len(error) < 150


async def test_looking_leaves_the_options_of_the_users_queue_alone(store):
    queue = tenure.WorkQueue(
        store, "mails", max_size=1, keep=tenure.Keep(dead=5), retry=tenure.Retry(attempts=1)
    )
    await queue.put({"to": "rome", "n": 1})
    ask = Asker(store, actions=True)
    await ask("/queues/mails/tasks")
    await ask.act(action="pause", queue="mails")
    await ask.act(action="resume", queue="mails")
    with pytest.raises(tenure.QueueFull):
        await queue.try_put(2)
    assert (await queue.settings()).keep.dead == 5


# groups and pools


async def test_the_longest_groups_of_a_queue_are_counted(store):
    queue = tenure.WorkQueue(store, "mails")
    await queue.put_many([tenure.Item(n, group=f"tenant-{n % 7 % 3}") for n in range(70)])
    await queue.put(1)
    async with queue.take():
        found = await Asker(store)("/queues/mails/counts?limit=2")
    assert (found["name"], found["waiting"], found["leased"], found["groups"]) == ("mails", 70, 1, 3)
    assert [
        (group["group"], group["waiting"] + group["leased"], group["delayed"])
        for group in found["longest_groups"]
    ] == [("tenant-0", 30, 0), ("tenant-1", 20, 0)]
    assert (await Asker(store)("/queues/nothing/counts", 404))["error"].startswith("there is no such")
    assert (await Asker(store)("/queues/mails/counts?limit=257", 400))["error"].startswith("limit must be")


async def test_a_queue_and_a_group_that_are_held_off_say_for_how_long(store, virtual_clock):
    queue = tenure.WorkQueue(store, "calls")
    await queue.configure(rate=tenure.Limit(4), groups=tenure.Groups(rate=tenure.Limit(1, per=4)))
    assert (await Asker(store)("/queues/calls/counts"))["rate"] == 4
    await queue.put(1, group="a")
    await queue.hold_off(30, group="a")
    await queue.hold_off(20)
    found = await Asker(store)("/queues/calls/counts")
    assert (found["rate"], found["group_rate"], found["paused"]) == (4, 0.25, False)
    assert (round(found["starts_in"]), round(found["longest_groups"][0]["starts_in"])) == (20, 30)


async def test_a_queue_that_has_a_rate_and_no_task_can_be_paused_and_a_queue_without_a_trace_cannot(store):
    await tenure.WorkQueue(store, "calls").configure(rate=tenure.Limit(4))
    ask = Asker(store, actions=True)
    assert await ask.act(action="pause", queue="calls") == {"changed": 1}
    assert (await ask.act(400, action="pause", queue="typo"))["error"] == "there is no queue typo"


@pytest.mark.one_loop
async def test_the_resources_of_a_pool_are_listed_with_who_has_them_a_page_at_a_time(store):
    pool = tenure.ResourcePool(store, "keys")
    for n in range(300):
        await pool.add(f"key-{n:03}", {"password": "hidden"})
    async with pool.claim() as claim:
        ask = Asker(store)
        first = await ask("/pools/keys/resources")
        second = await ask(f"/pools/keys/resources?after={first['next']}")
    rows = first["resources"] + second["resources"]
    assert [row["resource"] for row in rows] == [f"key-{n:03}" for n in range(300)]
    assert {row["resource"]: row["process"] for row in rows if row["state"] == "claimed"} == {
        claim.resource: store.process
    }
    assert second["next"] == ""
    assert "hidden" not in json.dumps(rows)
    await ask("/pools/nothing/resources", 404)


async def test_the_reason_of_a_retirement_is_shown_unless_errors_are_hidden(store):
    pool = tenure.ResourcePool(store, "keys")
    await pool.add("key-1")
    async with pool.claim() as claim:
        await claim.retire("no route to city-1")
    (row,) = (await Asker(store)("/pools/keys/resources"))["resources"]
    assert (row["state"], row["reason"]) == ("retired", "no route to city-1")
    (row,) = (await Asker(store, errors=False)("/pools/keys/resources"))["resources"]
    assert "reason" not in row


async def test_an_election_names_the_nodes_of_the_leader_and_the_candidates(store, virtual_clock):
    async with anyio.create_task_group() as group:
        for node in ("node-a", "node-b"):
            group.start_soon(
                tenure.Election(store, "scheduler", node=node).lead, lambda _: anyio.sleep_forever()
            )
            await virtual_clock.settle()
        (key,) = (await Asker(store)("/state.json"))["keys"]
        group.cancel_scope.cancel()
    assert [one["node"] for one in (*key["holders"], *key["waiting"])] == ["node-a", "node-b"]


# failures


async def test_failures_are_counted_by_the_type_of_their_error_the_newest_first(store, virtual_clock):
    await some_dead(store, 4)
    await virtual_clock.advance(60)
    images = tenure.WorkQueue(store, "images", retry=tenure.Retry(attempts=3, backoff=600))
    await images.put({"to": "attic", "n": 0})
    await fails(images, 1)
    found = await Asker(store)("/failures.json")
    kinds = [(kind["queue"], kind["type"], kind["dead"], kind["delayed"]) for kind in found["kinds"]]
    assert kinds[0] == ("images", "KeyError", 0, 1)
    assert sorted(kinds[1:]) == [("mails", "ConnectionError", 2, 0), ("mails", "KeyError", 2, 0)]
    kind = next(kind for kind in found["kinds"] if kind["type"] == "ConnectionError")
    assert (kind["error"], kind["task"]) == ("ConnectionError: no route to city-2", 3)
    assert kind["latest"] == pytest.approx(60, abs=1)
    assert found["more"] is False


async def test_only_failures_of_the_last_hour_are_read_and_each_once(store, virtual_clock):
    queue = await some_dead(store, 70)
    await virtual_clock.advance(3000)
    ask = Asker(store)
    assert sum(kind["dead"] for kind in (await ask("/failures.json"))["kinds"]) == 70
    await virtual_clock.advance(700)
    assert (await ask("/failures.json"))["kinds"] == []
    task_id = await queue.put({"to": "rome", "n": 1})
    await fails(queue, 1)
    await virtual_clock.advance(10)
    for site in (ask, Asker(store)):
        (kind,) = (await site("/failures.json"))["kinds"]
        assert (kind["dead"], kind["task"]) == (1, task_id)


async def test_many_failures_are_read_in_portions(store, virtual_clock, monkeypatch):
    monkeypatch.setattr("tenure.web._failures._PORTIONS", 1)
    await some_dead(store, 100)
    ask = Asker(store)
    found = await ask("/failures.json")
    assert (sum(kind["dead"] for kind in found["kinds"]), found["more"]) == (64, True)
    await virtual_clock.advance(6)
    found = await ask("/failures.json")
    assert (sum(kind["dead"] for kind in found["kinds"]), found["more"]) == (100, False)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("KeyError: 'x'", "KeyError"),
        ("TimeoutError", "TimeoutError"),
        ("my.Problem: a\nb", "my.Problem"),
        ("delivered 20 times", "no exception"),
        ("", "no exception"),
    ],
)
def test_the_type_of_an_error(error, name):
    assert type_of(error) == name


async def test_a_failure_by_dead_is_named(store, virtual_clock):
    async def handler(payload):
        raise tenure.Dead("no such user: ann" if payload else "gone\nfor good")

    queue = tenure.WorkQueue(store, "mails")
    await queue.put_many([True, False])
    async with anyio.create_task_group() as group:
        group.start_soon(tenure.Worker(queue, handler).run)
        await virtual_clock.advance(1)
        group.cancel_scope.cancel()
    (kind,) = (await Asker(store)("/failures.json"))["kinds"]
    assert (kind["type"], kind["dead"]) == ("Dead", 2)


# history


@pytest.mark.one_loop
async def test_a_page_that_is_opened_now_has_the_past(store, virtual_clock):
    ask = Asker(store)
    queue = tenure.WorkQueue(store, "mails")
    async with anyio.create_task_group() as group:
        group.start_soon(ask.site.sample)
        for n in range(3):
            await virtual_clock.advance(5)
            await queue.put(n)
            await virtual_clock.advance(5)
        past = await ask("/history.json")
        assert [one["waiting"] for one in past["samples"]][:3] == [0, 1, 2]
        await virtual_clock.advance(3600 + 30)
        past = await ask("/history.json")
        assert len(past["samples"]) == 360
        assert past["samples"][0]["ago"] <= 3610
        group.cancel_scope.cancel()


async def test_many_polls_make_no_more_samples(store, virtual_clock):
    ask = Asker(store)
    for _ in range(30):
        await ask("/state.json")
        await virtual_clock.advance(1)
    assert len((await ask("/history.json"))["samples"]) == 3


@pytest.mark.one_loop
async def test_processors_remember_their_last_minutes(store, virtual_clock):
    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep(0.5)

    async with contextlib.AsyncExitStack() as stack:
        processors = [
            await stack.enter_async_context(tenure.Processor(store, "harvest", handler, workers=3))
            for _ in range(2)
        ]
        await virtual_clock.advance(50)
        for _ in range(12):
            await processors[0].submit(None)
        await virtual_clock.advance(30)
        ask = Asker(store)
        await ask("/state.json")
        (harvest,) = (await ask("/history.json"))["processors"]
        (minute,) = harvest["minutes"]
        assert minute["ended_per_second"] == pytest.approx(12 / 60, rel=0.2)
        assert minute["p99"] > 0.5
        await virtual_clock.advance(3600 + 60)
        await ask("/state.json")
        (harvest,) = (await ask("/history.json"))["processors"]
        assert len(harvest["minutes"]) == 60
        assert len(json.dumps([list(minute.values()) for minute in harvest["minutes"]])) < 2048


# actions


async def test_dead_tasks_are_requeued_and_it_is_logged(store, caplog):
    queue = await some_dead(store, 3)
    caplog.clear()
    ask = Asker(store, actions=True)
    assert await ask.act(action="requeue", queue="mails", ids=[2, 99]) == {"changed": 1}
    assert [task.id for task in (await queue.tasks("dead").page()).records] == [1, 3]
    assert await ask.act(action="requeue", queue="mails", all=True) == {"changed": 2}
    first, second = caplog.records
    assert (first.name, first.levelno) == ("tenure", logging.WARNING)
    assert first.getMessage() == "page.requeue queue='mails' ids=[2, 99] changed=1 by=192.0.2.7"
    assert second.getMessage() == "page.requeue queue='mails' all=True changed=2 by=192.0.2.7"


async def test_every_action_is_logged_however_many_there_are(store, caplog):
    await tenure.WorkQueue(store, "mails").put(1)
    caplog.clear()
    ask = Asker(store, actions=True)
    for _ in range(15):
        await ask.act(action="pause", queue="mails")
        await ask.act(action="resume", queue="mails")
    assert len(caplog.records) == 30


async def test_an_action_whose_outcome_is_unknown_is_logged(store, caplog):
    await tenure.WorkQueue(store, "mails").put(1)
    caplog.clear()
    ask = Asker(store, actions=True)

    def leave(operation, **how):
        scope.cancel()
        return call(operation, **how)

    call, store._handle.call = store._handle.call, leave
    with anyio.CancelScope() as scope:
        await ask.act(action="pause", queue="mails")
    assert scope.cancelled_caught
    assert caplog.records[0].getMessage() == "page.pause queue='mails' outcome=unknown by=192.0.2.7"


async def test_an_action_that_takes_too_long_is_reported(store, caplog, monkeypatch):
    await tenure.WorkQueue(store, "mails").put(1)
    caplog.clear()

    async def stalls(operation, **_):
        await anyio.sleep_forever()

    monkeypatch.setattr(store._handle, "call", stalls)
    said = await Asker(store, actions=True).act(503, action="pause", queue="mails")
    assert said == {"error": "memory:: a part of it may have been done, but not all within 20 s"}
    assert "outcome=unknown" in caplog.records[0].getMessage()


async def test_the_other_actions(store):
    queue = tenure.WorkQueue(store, "mails")
    first, second, third, *_ = await queue.put_many(range(5))
    ask = Asker(store, actions=True)
    assert await ask.act(action="pause", queue="mails") == {"changed": 1}
    assert await ask.act(action="pause", queue="mails") == {"changed": 0}
    assert (await queue.statistics()).paused
    assert await ask.act(action="resume", queue="mails") == {"changed": 1}
    edit = {"action": "edit", "queue": "mails", "id": third, "priority": 2, "group": "a", "delay": 9}
    assert await ask.act(**edit) == {"changed": 1}
    record = await queue.get(third)
    assert (record.state, record.priority, record.group) == ("delayed", 2, "a")
    assert await ask.act(action="cancel", queue="mails", ids=[first, second]) == {"changed": 2}
    said = await ask.act(400, action="edit", queue="mails", id=first, group=None)
    assert said == {"error": f"task {first} is cancelled, and was not changed"}
    assert await ask.act(action="purge", queue="mails", states=["waiting", "delayed"]) == {"changed": 3}
    assert (await queue.statistics()).cancelled == 2


async def test_tasks_are_selected_and_counted_before(store):
    queue = tenure.WorkQueue(store, "mails")
    await queue.put_many(tenure.Item(n, key=f"{n % 2}-{n}", group="ab"[n % 2]) for n in range(6))
    ask, first = Asker(store, actions=True), {"key_prefix": "0-", "limit": 2}
    purge = {"action": "purge", "queue": "mails", "states": ["waiting", "dead"], **first}
    assert await ask.act(**purge, dry_run=True) == {"changed": 2}
    assert await ask.act(**purge) == {"changed": 2}
    assert await ask.act(action="cancel", queue="mails", state="waiting", group="a") == {"changed": 1}
    assert await ask.act(action="requeue", queue="mails", error="OSError") == {"changed": 0}
    assert (await queue.statistics()).waiting == 3


async def test_schedules_are_shown_and_changed_and_no_options_of_the_queue(store, virtual_clock):
    queue = tenure.WorkQueue(store, "mails", max_size=7, aging=60.0, keep=tenure.Keep(payloads=True))
    schedules = queue.schedules
    await schedules.set("hourly", every=3600, payload="secret", key="k")
    ask = Asker(store, actions=True)

    async def seen():
        return (await ask("/state.json"))["schedules"]

    (hourly,) = await seen()
    assert 0 < hourly.pop("next_in") <= 3600
    assert hourly.pop("next").endswith(":00:00+00:00")
    assert hourly == {
        "queue": "mails",
        "name": "hourly",
        "every": 3600.0,
        "cron": None,
        "tz": "UTC",
        "last": None,
        "paused": False,
        "kept_in_store": True,
        "late": 0.0,
        "problem": None,
    }
    of = {"queue": "mails", "name": "hourly"}
    assert await ask.act(action="pause_schedule", **of) == {"changed": 1}
    await virtual_clock.advance(1)
    assert [one["paused"] for one in await seen()] == [True]
    assert await ask.act(action="run_schedule", **of) == {"changed": 1}
    (task,) = (await queue.tasks("waiting").page()).records
    assert (task.payload, task.key, task.meta["schedule"]) == ("secret", "k", "hourly")
    assert "the key 'k'" in (await ask.act(400, action="run_schedule", **of))["error"]
    assert await ask.act(action="resume_schedule", **of) == {"changed": 1}
    await virtual_clock.advance(7300)
    assert [3600 < one["late"] < 7300 for one in await seen()] == [True]
    assert await ask.act(action="remove_schedule", **of) == {"changed": 1}
    assert await ask.act(action="remove_schedule", **of) == {"changed": 0}
    await virtual_clock.advance(1)
    assert await seen() == []
    assert "no schedule 'hourly'" in (await ask.act(400, action="run_schedule", **of))["error"]
    # a task that was taken here, with the options of the program
    settings = await queue.settings()
    assert (settings.max_size, settings.aging, settings.keep.payloads) == (7, 60.0, True)


async def test_a_schedule_whose_time_zone_is_not_known_here_hides_no_other(store):
    queue = tenure.WorkQueue(store, "mails")
    await queue.schedules.set("daily", every=86400)
    await queue.put_many([], cursor=("schedule/odd", {"tick": 1.0, "every": 60.0, "tz": "Mars/Olympus"}))
    daily, odd = (await Asker(store)("/state.json"))["schedules"]
    assert (daily["problem"], odd["next"], odd["late"]) == (None, None, 0.0)
    assert "Mars/Olympus" in odd["problem"]


async def test_the_workers_of_a_queue_are_those_that_have_or_await_its_tasks(store, virtual_clock):
    queue = tenure.WorkQueue(store, "mails")
    ask = Asker(store)
    await ask("/queues/mails/workers", 404)
    task_id = await queue.put(1)
    assert await ask("/queues/mails/workers") == {"queue": "mails", "workers": []}
    async with queue.take():
        await virtual_clock.advance(2)
        (worker,) = (await ask("/queues/mails/workers"))["workers"]
    assert worker == {
        "process": store.process,
        "waits": False,
        "tasks": [{"id": task_id, "seconds": pytest.approx(2, abs=0.1)}],
    }


async def test_a_sample_has_the_busiest_queues(store, virtual_clock, monkeypatch):
    monkeypatch.setattr("tenure.web._history._BUSIEST", 2)
    for number, name in enumerate(("few", "some", "many")):
        await tenure.WorkQueue(store, name).put_many(range(1 + number))
    ask = Asker(store)
    await ask("/state.json")
    (sample,) = (await ask("/history.json"))["samples"]
    assert sample["queues"] == {"many": [3, 0.0], "some": [2, 0.0]}


async def test_a_task_shows_its_deadline(store):
    task_id = await tenure.WorkQueue(store, "mails").put(1, deadline=60)
    assert 59 < (await Asker(store)(f"/queues/mails/tasks/{task_id}"))["deadline"] <= 60


async def test_a_lock_is_broken(store, virtual_clock):
    ask = Asker(store, actions=True)
    with pytest.raises(tenure.LeaseLost):
        async with tenure.Lock(store, "report"):
            (key,) = (await ask("/state.json"))["keys"]
            token = key["holders"][0]["token"]
            assert await ask.act(action="break", kind="lock", name="report", token=token + 1) == {
                "changed": 0
            }
            assert await ask.act(action="break", kind="lock", name="report", token=token) == {"changed": 1}
            await anyio.sleep(5)


async def test_a_limiter_that_makes_callers_wait_is_listed_and_released(store, virtual_clock):
    limiter, ask = tenure.RateLimiter(store, "api", tenure.Limit(1, burst=2)), Asker(store, actions=True)
    await limiter.acquire(2)
    assert (await ask("/state.json"))["limiters"] == []
    await limiter.hold_off(60)
    async with anyio.create_task_group() as group:
        group.start_soon(limiter.acquire)
        await anyio.sleep(5)
        (shown,) = (await ask("/state.json"))["limiters"]
        (limit,) = shown.pop("limits")
        assert shown == {"name": "api", "held_off": pytest.approx(55), "waits": pytest.approx(56, abs=0.1)}
        assert limit == {"unit": "requests", "per": 1.0, "booked": pytest.approx(3, abs=0.1)}
        assert await ask.act(action="release", name="api") == {"changed": 1}
        assert await ask.act(action="release", name="api") == {"changed": 0}


@pytest.mark.parametrize(
    "action",
    [
        {},
        {"action": "burn"},
        {"action": ["pause"]},
        {"action": "pause"},
        {"action": "pause", "queue": "nothing"},
        {"action": "pause", "queue": "mails", "ids": [1]},
        {"action": "pause", "queue": 5},
        {"action": "requeue", "queue": "mails"},
        {"action": "requeue", "queue": "mails", "all": True, "ids": [1]},
        {"action": "requeue", "queue": "mails", "all": "yes"},
        {"action": "requeue", "queue": "mails", "ids": []},
        {"action": "requeue", "queue": "mails", "ids": ["1"]},
        {"action": "cancel", "queue": "mails", "ids": [True]},
        {"action": "cancel", "queue": "mails", "ids": [2], "limit": 1},
        {"action": "cancel", "queue": "mails", "state": "dead"},
        {"action": "requeue", "queue": "mails", "all": True, "error": "OSError"},
        {"action": "requeue", "queue": "mails", "limit": 0},
        {"action": "purge", "queue": "mails", "states": ["dead"], "older_than": "1"},
        {"action": "purge", "queue": "mails", "states": ["dead"], "dry_run": 1},
        {"action": "edit", "queue": "mails", "id": 1},
        {"action": "edit", "queue": "mails", "id": 1, "priority": "high"},
        {"action": "edit", "queue": "mails", "id": 99, "priority": 1},
        {"action": "cancel", "queue": "mails", "ids": list(range(1, 10_002))},
        {"action": "purge", "queue": "mails"},
        {"action": "purge", "queue": "mails", "states": []},
        {"action": "purge", "queue": "mails", "states": ["leased"]},
        {"action": "purge", "queue": "mails", "states": [["dead"]]},
        {"action": "run_schedule", "queue": "mails"},
        {"action": "run_schedule", "queue": "mails", "name": "nightly"},
        {"action": "pause_schedule", "queue": "mails", "name": "nightly", "ids": [1]},
        {"action": "break", "kind": "queue", "name": "mails", "token": 1},
        {"action": "break", "kind": ["lock"], "name": "x", "token": 1},
        {"action": "break", "kind": "lock", "name": "x", "token": "1"},
        {"action": "release"},
        {"action": "release", "queue": "mails", "name": "x"},
    ],
)
async def test_an_action_that_cannot_be_carried_out_changes_nothing(store, caplog, action):
    queue = await some_dead(store, 1)
    await queue.put(1)
    caplog.clear()
    before = await queue.statistics()
    assert (await Asker(store, actions=True).act(400, **action))["error"]
    assert (await queue.statistics()).put == before.put
    assert (await queue.statistics()).dead == before.dead
    assert caplog.records == []


@pytest.mark.parametrize(
    "headers",
    [
        {"x-tenure-action": ""},
        {"x-tenure-action": "0"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": None},
        {"sec-fetch-site": None, "origin": "https://evil.example"},
        {"sec-fetch-site": None, "origin": "null"},
        {"sec-fetch-site": None, "origin": "http://[x"},
        {"sec-fetch-site": None, "origin": "http://here:80"},
        {"sec-fetch-site": None, "origin": "http://", "host": ""},
        {"sec-fetch-site": "cross-site", "origin": "http://here"},
    ],
)
async def test_an_action_that_may_come_from_another_site_is_refused(store, headers):
    queue = await some_dead(store, 1)
    ask = Asker(store, actions=True)
    sent = {name: value for name, value in {**SAFE, **headers}.items() if value is not None}
    body = json.dumps({"action": "requeue", "queue": "mails", "all": True}).encode()
    answer = await ask.site.answer(Request("POST", "/actions", "", sent, body))
    assert answer.status == 403
    assert len((await queue.tasks("dead").page()).records) == 1


async def test_a_browser_that_sends_only_origin_may_act(store):
    await some_dead(store, 1)
    ask = Asker(store, actions=True)
    sent = {**SAFE, "origin": "http://HERE", "content-type": "application/json; charset=utf-8"}
    del sent["sec-fetch-site"]
    body = json.dumps({"action": "requeue", "queue": "mails", "all": True}).encode()
    assert (await ask.site.answer(Request("POST", "/actions", "", sent, body))).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"[]", b"null"])
async def test_a_body_that_is_no_object_is_refused(store, body):
    answer = await Asker(store, actions=True).site.answer(Request("POST", "/actions", "", SAFE, body))
    assert answer.status == 400


async def test_without_actions_nothing_can_be_changed(store):
    ask = Asker(store)
    for method in ("POST", "PUT", "DELETE"):
        answer = await ask.site.answer(Request(method, "/actions", "", SAFE, b"{}"))
        assert (answer.status, dict(answer.headers)["Allow"]) == (405, "GET, HEAD")
    answer = await Asker(store, actions=True).site.answer(Request("GET", "/actions", "", {}))
    assert (answer.status, dict(answer.headers)["Allow"]) == (405, "POST")
    assert b'data-actions="yes"' not in ask.site._body


@pytest.mark.parametrize("trusted", [True, False])
async def test_the_log_names_the_user_only_if_a_proxy_is_trusted(store, caplog, trusted):
    await some_dead(store, 1)
    caplog.clear()
    ask = Asker(store, actions=True, trust_proxy=trusted)
    await ask.act(action="pause", queue="mails", headers={"x-forwarded-user": "ann\nb"})
    by = "'ann\\nb' by 192.0.2.7" if trusted else "192.0.2.7"
    assert caplog.records[0].getMessage().endswith(f"by={by}")
