"""The page finds tasks and failures, and acts, alike on every engine."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from urllib.parse import quote

import anyio
import pytest
from family import bear, three_levels
from filled_store import fails

import tenure
from tenure.engines.memory import MemoryEngine
from tenure.engines.postgres import PostgresEngine
from tenure.engines.redis import RedisEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.web import Site
from tenure.web._answers import Request

SAFE = {"x-tenure-action": "1", "content-type": "application/json", "sec-fetch-site": "same-origin"}


@pytest.fixture(params=("memory", "sqlite", "redis", "postgres"))
async def store(request, tmp_path):
    match request.param:
        case "memory":
            engine = MemoryEngine()
        case "sqlite":
            engine = SqliteEngine(tmp_path / "store.db")
        case "redis":
            engine = RedisEngine(request.getfixturevalue("redis_server").url)
        case _:
            engine = PostgresEngine(request.getfixturevalue("postgres_server").url())
    async with tenure.open_store(engine) as store:
        yield store


async def asked(site, target):
    path, _, query = target.partition("?")
    answer = await site.answer(Request("GET", path, query, {}))
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


async def test_tasks_are_listed_searched_counted_and_requeued(store):
    site = Site(store, actions=True)
    ask = partial(asked, site)

    async def act(**action):
        answer = await site.answer(Request("POST", "/actions", "", SAFE, json.dumps(action).encode()))
        assert answer.status == 200, answer.body
        return json.loads(answer.body)["changed"]

    queue = tenure.WorkQueue(store, "mails", retry=tenure.Retry(attempts=1))
    items = [
        tenure.Item({"to": f"city-{n}", "n": n}, key=f"order-{n}", meta={"tenant": "acme"}) for n in range(70)
    ]
    ids = await queue.put_many(items)
    await fails(queue, 70)
    images = tenure.WorkQueue(store, "images", retry=tenure.Retry(attempts=3, backoff=600))
    await images.put({"to": "attic", "n": 1})
    await fails(images, 1)
    tenants = tenure.WorkQueue(store, "tenants")
    await tenants.put_many([tenure.Item(n, group=f"tenant-{n % 5 % 2}") for n in range(10)])
    pool = tenure.ResourcePool(store, "keys")
    await pool.add("key-1")

    found, after = [], ""
    while True:
        page = await ask(f"/queues/mails/tasks?state=dead&limit=30&after={quote(after)}")
        found += [task["id"] for task in page["tasks"]]
        if not (after := page["next"]):
            break
    assert found == ids[::-1]
    groups = (await ask("/queues/tenants/counts?limit=1"))["longest_groups"]
    assert groups == [
        {
            "group": "tenant-0",
            "waiting": 6,
            "delayed": 0,
            "leased": 0,
            "children": False,
            "starts_in": 0,
            "held_off": 0,
            "weight": 1,
        }
    ]
    async with pool.claim():
        (row,) = (await ask("/pools/keys/resources"))["resources"]
        assert (row["resource"], row["state"], row["process"]) == ("key-1", "claimed", store.process)
    named = await ask("/queues/mails/tasks?state=dead&find=city-69")
    assert [task["key"] for task in named["tasks"]] == ["order-69"]
    task = await ask(f"/queues/mails/tasks/{ids[1]}")
    assert (task["state"], task["error"], task["meta"]) == (
        "dead",
        "ConnectionError: no route to city-1",
        {"tenant": "acme"},
    )
    assert "Traceback" in task["traceback"]
    kinds = (await ask("/failures.json"))["kinds"]
    assert sorted((kind["queue"], kind["type"], kind["dead"], kind["delayed"]) for kind in kinds) == [
        ("images", "ConnectionError", 0, 1),
        ("mails", "ConnectionError", 46, 0),
        ("mails", "KeyError", 24, 0),
    ]
    state = await ask("/state.json")
    assert state["totals"]["dead"] == 70
    assert isinstance(state["problems"], list)

    assert await act(action="pause", queue="mails") == 1
    assert await act(action="requeue", queue="mails", ids=ids[:2]) == 2
    assert await act(action="purge", queue="mails", ids=ids[1:3], states=["dead"]) == 1
    assert await act(action="requeue", queue="mails", all=True) == 67
    assert await act(action="cancel", queue="mails", ids=ids[:4]) == 3
    assert await act(action="purge", queue="mails", states=["waiting"]) == 66
    assert (await queue.statistics()).unfinished == 0


async def test_lists_have_the_payload_if_that_is_allowed_and_the_last_error(store):
    queue = tenure.WorkQueue(store, "images", retry=tenure.Retry(attempts=3, backoff=600))
    await queue.put({"to": "attic", "n": 1, "text": "x" * 1000})
    await fails(queue, 1)
    (task,) = (await asked(Site(store, payloads=True), "/queues/images/tasks?state=delayed"))["tasks"]
    assert (task["error"], len(task["payload"])) == ("ConnectionError: no route to attic", 200)
    assert task["payload"].startswith('{"to": "attic", "n": 1, "text": "xxx')
    (task,) = (await asked(Site(store), "/queues/images/tasks?state=delayed"))["tasks"]
    assert "payload" not in task


async def test_a_task_has_its_times_and_its_process_and_is_listed_while_it_runs(store):
    site = Site(store)
    queue = tenure.WorkQueue(store, "mails", retry=tenure.Retry(attempts=2, backoff=600))
    task_id = await queue.put(1)
    await anyio.sleep(0.2)
    async with queue.take():
        await anyio.sleep(0.1)
        (running,) = (await asked(site, "/state.json"))["running"]
        seen = await asked(site, f"/queues/mails/tasks/{task_id}")
        assert 0.09 < running.pop("seconds") <= seen["started"] < seen["put"] - 0.15 < 5
        assert running == {"queue": "mails", "id": task_id, "process": store.process}
        assert (seen["process"], seen["ended"]) == (store.process, None)
    seen = await asked(site, f"/queues/mails/tasks/{task_id}")
    assert seen["process"] is None
    assert 0 <= seen["ended"] < seen["started"] < seen["put"] - 0.15 < 5
    assert 0.09 < seen["ran"] == pytest.approx(seen["started"] - seen["ended"])


async def test_a_schedule_of_a_queue_without_tasks_is_shown_and_changed(store):
    site = Site(store, actions=True)
    schedules = tenure.WorkQueue(store, "reports").schedules
    await schedules.set("nightly", cron="30 2 * * *", tz="Europe/Berlin")

    async def act(action):
        body = json.dumps({"action": action, "queue": "reports", "name": "nightly"}).encode()
        answer = await site.answer(Request("POST", "/actions", "", SAFE, body))
        assert (answer.status, json.loads(answer.body)) == (200, {"changed": 1})

    state = await asked(site, "/state.json")
    assert [queue["name"] for queue in state["queues"]] == ["reports"]
    assert [(one["queue"], one["name"], one["paused"]) for one in state["schedules"]] == [
        ("reports", "nightly", False)
    ]
    assert 0 < state["schedules"][0]["next_in"] < 90_000
    await act("pause_schedule")
    assert (await schedules.list().page()).records[0].paused
    await act("run_schedule")
    task = (await asked(site, "/queues/reports/tasks"))["tasks"][0]
    assert (await asked(site, f"/queues/reports/tasks/{task['id']}"))["meta"]["schedule"] == "nightly"
    await act("remove_schedule")
    assert (await schedules.list().page()).records == []


async def test_a_task_has_its_tree_and_the_children_for_which_it_waits(store):
    root, a, b, c = await three_levels(store)
    ask = partial(asked, Site(store))
    task = await ask(f"/queues/sites/tasks/{root}")
    assert (task["state"], task["parent"], task["children"]) == ("suspended", None, 1)
    assert [(one["depth"], one["name"], one["queue"], one["id"], one["state"]) for one in task["tree"]] == [
        (1, "pages/a", "pages", a, "done"),
        (1, "pages/b", "pages", b, "suspended"),
        (2, "pages/c", "images", c, "waiting"),
    ]
    assert [(one["id"], one["unfinished"]) for one in task["waits_for"]] == [(b, 1), (c, 0)]
    assert task["more"] is False
    task = await ask(f"/queues/images/tasks/{c}")
    assert (task["parent"], task["parent_queue"], task["tree"], task["waits_for"]) == (b, "pages", [], [])
    page = await ask("/queues/sites/tasks?state=suspended")
    assert [task["id"] for task in page["tasks"]] == [root]
    assert (await ask("/queues/sites/counts"))["suspended"] == 1
    (sites,) = [queue for queue in (await ask("/state.json"))["queues"] if queue["name"] == "sites"]
    assert (sites["suspended"], sites["ending"]) == (1, 0)


async def test_a_task_has_its_releases_and_a_release_says_what_it_undoes(store):
    pulls, sandboxes = tenure.WorkQueue(store, "pulls"), tenure.WorkQueue(store, "sandboxes")
    root = await pulls.put("pull")
    with suppress(tenure.Dead):
        async with pulls.take(timeout=5) as task:
            await task.at_end("seat", sandboxes)
            await task.at_end("sandbox", sandboxes)
            raise tenure.Dead("no such pull")
    with suppress(tenure.Dead):
        async with sandboxes.take(timeout=5) as letter:
            raise tenure.Dead("no such region")
    ask = partial(asked, Site(store))
    task = await ask(f"/queues/pulls/tasks/{root}")
    assert [(one["name"], one["state"], one["error"]) for one in task["releases"]] == [
        ("sandbox", "dead", "no such region"),
        ("seat", "unfinished", None),
    ]
    assert task["waits_for"][0]["name"] == "seat"
    page = await ask("/queues/sandboxes/tasks?state=dead")
    assert [(task["id"], task["release"], task["parent"]) for task in page["tasks"]] == [
        (letter.id, "sandbox", root)
    ]


async def test_of_a_large_tree_the_first_hundred_tasks_are_shown(store):
    sites, pages = tenure.WorkQueue(store, "sites"), tenure.WorkQueue(store, "pages")
    root = await sites.put(1)
    async with sites.take() as task:
        await bear(sites, task, pages, *(f"{n:02}" for n in range(60)))
    async with pages.take() as task:
        await bear(pages, task, pages, *(f"{n:02}" for n in range(60)))
    task = await asked(Site(store), f"/queues/sites/tasks/{root}")
    assert [one["depth"] for one in task["tree"]] == [1, *[2] * 40, *[1] * 59]
    assert [one["state"] for one in task["tree"]] == ["suspended", *["waiting"] * 99]
    assert task["more"] is True


async def test_a_task_is_put_once_with_its_options(store):
    site = Site(store, puts=True)

    async def put(**body):
        request = Request("POST", "/queues/mails", "", SAFE, json.dumps(body).encode())
        answer = await site.answer(request)
        return answer.status, json.loads(answer.body)

    queue = tenure.WorkQueue(store, "mails", max_size=3)
    options = {"key": "k", "priority": 5, "delay": 60, "group": "ann", "expires": 600, "deadline": 900}
    status, said = await put(payload={"to": "Zo\u00eb"}, **options)
    assert status == 201
    record = await queue.get(said["id"])
    assert (record.payload, record.key, record.priority) == ({"to": "Zo\u00eb"}, "k", 5)
    assert (record.state, record.group) == ("delayed", "ann")
    assert 800 < record.deadline <= 900
    assert await put(payload=1, key="k") == (200, said)
    assert (await put(payload=2, at="2100-01-01T00:00:00Z"))[0] == 400  # longer than any duration
    assert (await put(payload=2, at="2001-01-01T00:00:00+01:00"))[0] == 201
    with anyio.fail_after(50):
        async with anyio.create_task_group() as group, queue.take() as task:
            assert task.payload == 2

            async def wait():
                async with queue.take() as woken:
                    assert woken.payload is None

            group.start_soon(wait)
            await anyio.sleep(0.05)
            assert (await put(payload=None))[0] == 201
    assert [(await put(payload=3))[0] for _ in range(3)] == [201, 201, 503]


async def test_a_queue_that_is_held_off_is_resumed(store):
    site = Site(store, actions=True)
    queue = tenure.WorkQueue(store, "mails", groups=tenure.Groups(limit=2))
    await queue.put("x")

    async def resume():
        action = json.dumps({"action": "resume", "queue": "mails"}).encode()
        answer = await site.answer(Request("POST", "/actions", "", SAFE, action))
        return json.loads(answer.body)["changed"]

    for change in (queue.pause, lambda: queue.hold_off(36_000)):
        await change()
        assert await resume() == 1
        assert await resume() == 0
    await queue.hold_off(36_000)
    shown = await asked(site, "/queues/mails/counts")
    assert 35_000 < shown["held_off"] <= 36_000
    assert shown["settings"]["groups.limit"]["value"] == 2
    assert await resume() == 1
    async with queue.take(0):
        pass
