"""The options of a put: every way to put takes the same ones, and hands them all on."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from tenure import (
    DuplicateTask,
    Item,
    Job,
    MoreOptions,
    Processor,
    PutOptions,
    Retry,
    Schedule,
    WorkQueue,
    blocking,
)

OPTIONS = {
    "priority": 3,
    "delay": 60.0,
    "key": "invoice-7",
    "expires": 90.0,
    "meta": {"tenant": "ann"},
    "group": "ann",
    "on_duplicate": "replace",
    "key_ttl": 120.0,
    "max_wait": 70.0,
    "deadline": 300.0,
    "timeout": 20.0,
    "retry": Retry(attempts=5, never=(LookupError,)),
}


async def handle(payload):
    return payload


async def by_put(queue, **options):
    return await queue.put({}, **options)


async def by_try_put(queue, **options):
    return await queue.try_put({}, **options)


async def by_many(queue, **options):
    (outcome,) = await queue.put_many([Item({}, **options)])
    if isinstance(outcome, DuplicateTask):
        raise outcome
    return outcome


async def by_job(queue, **options):
    return await Job(queue, lambda: None).options(**options).put()


async def by_schedule(queue, **options):
    return await Schedule(queue, "hourly", every=3600, payload={}, **options).run_now()


async def by_submitting(queue, **options):
    processor = Processor(queue.store, "books", handle)
    return await processor.submit({}, **options)


WAYS = [by_put, by_try_put, by_many, by_job, by_schedule, by_submitting]


def queue_of(store, way):
    return Processor(store, "books", handle).queue() if way is by_submitting else WorkQueue(store, "books")


@pytest.mark.parametrize("way", WAYS)
async def test_every_option_reaches_the_task(store, virtual_clock, way):
    queue = queue_of(store, way)
    task_id = await way(queue, **OPTIONS)
    record = await queue.get(task_id)
    assert (record.state, record.priority, record.key, record.group) == ("delayed", 3, "invoice-7", "ann")
    assert record.meta["tenant"] == "ann"
    assert record.deadline == pytest.approx(300.0, abs=0.5)
    assert (record.timeout, record.retry) == (20.0, OPTIONS["retry"])
    # "replace", max_wait: the delay begins anew, but the task waits at most 70 seconds from its first put on
    await virtual_clock.advance(30)
    assert await way(queue, **OPTIONS) == task_id
    await virtual_clock.advance(39)
    assert (await queue.statistics()).delayed == 1
    await virtual_clock.advance(2)
    async with queue.take(timeout=0) as task:
        assert (task.id, task.timeout, task.meta["tenant"]) == (task_id, 20.0, "ann")
    # key_ttl: the key lasts beyond the end of the task
    with pytest.raises(DuplicateTask):
        await queue.put({}, key="invoice-7")


@pytest.mark.parametrize("way", WAYS)
async def test_an_option_that_is_misspelt_is_refused(store, way):
    queue = queue_of(store, way)
    with pytest.raises(TypeError, match="unexpected keyword argument 'prioriti'"):
        await way(queue, prioriti=1)
    assert (await queue.statistics()).put == 0


def test_an_item_is_a_payload_with_all_options():
    fields = {field.name: field for field in dataclasses.fields(Item)}
    assert fields.keys() - {"payload"} == PutOptions.__annotations__.keys() == OPTIONS.keys()
    for name, hint in PutOptions.__annotations__.items():
        assert fields[name].type == hint.__forward_arg__


@pytest.mark.parametrize(
    "function",
    [
        *(WorkQueue.put, WorkQueue.try_put, WorkQueue.put_in, Job.options, Schedule, Processor.submit),
        *(blocking.WorkQueue.put, blocking.WorkQueue.try_put, blocking.Job.options),
    ],
    ids=lambda function: function.__qualname__,
)
def test_the_signature_that_help_shows_names_every_option(function):
    shown = inspect.signature(function).parameters
    defaults = {field.name: field.default for field in dataclasses.fields(Item)}
    assert {name: shown[name].default for name in OPTIONS} == {name: defaults[name] for name in OPTIONS}
    assert all(shown[name].kind is inspect.Parameter.KEYWORD_ONLY for name in MoreOptions.__annotations__)
