"""Jobs: a function's own arguments, checked when they are put, and called with where they are taken."""

from __future__ import annotations

import functools
import threading

import pytest
import workers

import tenure
from tenure import Job, QueueFull, Retry, TaskFailed, Worker, WorkQueue


async def send_mail(user, text="hello", *, urgent=False):
    return [user, text, urgent]


async def work_off(job, **options):
    worker = Worker(job, **options)
    await workers.work_off(job.queue, worker)
    return worker.statistics()


async def test_the_function_is_called_with_what_was_put(store):
    send = Job(WorkQueue(store, "mail"), send_mail)
    ids = [await send.put(1), await send.put(user=2, urgent=True), await send.try_put(3, "hi")]
    assert (await send.queue.get(ids[1])).payload == {"user": 2, "urgent": True}  # no defaults
    assert (await work_off(send)).done == 3
    results = [await send.result(task_id) for task_id in ids]
    assert results == [[1, "hello", False], [2, "hello", True], [3, "hi", False]]
    assert repr(send) == "<Job send_mail(user, text='hello', *, urgent=False) of 'mail'>"


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"user": 1}), ((1,), {"subject": ""})]
)
async def test_arguments_that_the_function_does_not_take_are_refused_at_once(store, args, kwargs):
    send = Job(WorkQueue(store, "mail"), send_mail)
    with pytest.raises(TypeError, match=r"^send_mail\(user, .*\) cannot be called with these arguments: "):
        await send.put(*args, **kwargs)
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        await send.try_put(*args, **kwargs)
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        send.item(*args, **kwargs)
    assert (await send.queue.statistics()).put == 0


async def test_every_kind_of_parameter(store):
    def call(a, /, b, *rest, c=3, **more):
        return [a, b, rest, c, more]

    job = Job(WorkQueue(store, "calls"), call)
    ids = [await job.put(1, 2, 3, 4, c=5, a=6, more=7), await job.put(1, b=2), await job.put(1, 2, rest=3)]
    await work_off(job)
    assert [await job.result(task_id) for task_id in ids] == [
        [1, 2, [3, 4], 5, {"a": 6, "more": 7}],
        [1, 2, [], 3, {}],
        [1, 2, [], 3, {"rest": 3}],
    ]


async def test_a_sync_function_runs_in_a_thread_and_a_method_is_a_function(store):
    class Sender:
        def send(self, user):
            return [user, threading.current_thread() is not threading.main_thread()]

    job = Job(WorkQueue(store, "mail"), Sender().send)
    partly = Job(WorkQueue(store, "others"), functools.partial(send_mail, text="bye"))
    task_id, other = await job.put(user=1), await partly.put(2)
    await work_off(job)
    await work_off(partly)
    assert await job.result(task_id) == [1, True]
    assert await partly.result(other) == [2, "bye", False]


async def test_options_are_those_of_put(store):
    send = Job(WorkQueue(store, "mail", max_size=3), send_mail)
    later = send.options(delay=1000, key="one", priority=3, expires=2000, meta={"tenant": "7"})
    record = await send.queue.get(await later.put(1))
    assert (record.state, record.key, record.priority, record.meta) == ("delayed", "one", 3, {"tenant": "7"})
    with pytest.raises(tenure.DuplicateTask):
        await later.put(1)
    record = await send.queue.get(await send.put(2))
    assert (record.state, record.key, record.priority) == ("waiting", None, 0)
    await send.queue.put_many([send.item(3)])
    with pytest.raises(QueueFull):
        await send.try_put(4)
    item = send.options(key="x").item(5)
    assert (item.payload, item.options) == ({"user": 5}, {"key": "x"})
    with pytest.raises(ValueError, match="delay"):
        await send.options(delay=-1).put(1)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ([1], r"a task of send_mail needs a mapping of arguments, not \[1\]"),
        ({"user": 1, "subject": ""}, r"send_mail\(user, .*\) takes no subject"),
        ({"text": ""}, r"send_mail\(user, .*\) cannot be called with these arguments: "),
    ],
)
async def test_a_payload_that_does_not_fit_fails_the_try_and_is_kept(store, payload, words):
    send = Job(WorkQueue(store, "mail", retry=Retry(attempts=1)), send_mail)
    task_id = await send.queue.put(payload)
    assert (await work_off(send)).dead == 1
    with pytest.raises(TaskFailed, match=f"TypeError: {words}"):
        await send.result(task_id)
    (letter,) = (await send.queue.tasks("dead").page()).records
    assert letter.payload == payload


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
async def test_what_is_no_job(store):
    queue = WorkQueue(store, "mail")
    with pytest.raises(TypeError, match="function must be a function, not 7"):
        Job(queue, 7)
    with pytest.raises(TypeError, match="function must have a signature"):
        Job(queue, dict)
    with pytest.raises(TypeError, match="handler must not be given with a job"):
        Worker(Job(queue, send_mail), send_mail)
    with pytest.raises(TypeError, match="handler must be a function, not None"):
        Worker(queue)
