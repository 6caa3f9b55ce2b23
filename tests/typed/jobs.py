"""What type checkers make of jobs: `put` takes the function's own arguments, and `result` returns what it returns.

Not run, as payloads.py beside it.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from datetime import UTC, datetime, timedelta
from typing import Unpack, assert_type

import tenure


async def send_mail(user: int, text: str = "hello") -> bool:
    return bool(text[user:])


def digest(name: str, *words: str) -> str:
    return name.join(words)


async def resize(task: tenure.Task[object], width: int, *, name: str = "a") -> bytes:
    return bytes(task.attempt + width) + name.encode()


def shrink(task: tenure.Task[object], width: int) -> str:
    return f"{task.id} {width}"


async def with_the_task(store: tenure.Store) -> None:
    job = tenure.Job(tenure.WorkQueue(store, "images"), resize)
    assert_type(await job.put(4, name="b"), int)
    assert_type(await job.result(1), bytes)
    await job.put()  # type: ignore[call-arg]
    await job.put("4")  # type: ignore[arg-type]
    in_thread = tenure.Job(tenure.WorkQueue(store, "images"), shrink)
    await in_thread.put(width=4)
    assert_type(await in_thread.result(1), str)
    await in_thread.put(4, 5)  # type: ignore[call-arg]
    tenure.Worker(job, concurrency=2)


async def waits(store: tenure.Store) -> None:
    send = tenure.Job(tenure.WorkQueue(store, "mail"), send_mail)
    assert_type(await send.put(1), int)
    assert_type(await send.put(user=1, text="hi"), int)
    assert_type(await send.options(delay=5, key="1").put(user=1), int)
    assert_type(await send.result(1), bool)
    assert_type(await send.options(priority=1).result(1), bool)
    await send.put("ann")  # type: ignore[arg-type]
    await send.put(user=1, subject="hi")  # type: ignore[call-arg]
    await send.try_put()  # type: ignore[call-arg]
    await send.queue.put_many([send.item(user=1), send.item(2, "hi")])
    send.item(user="ann")  # type: ignore[arg-type]
    tenure.Worker(send)
    tenure.Worker(send, concurrency=2)
    tenure.Worker(send, print)  # type: ignore[call-overload]


async def in_a_thread(store: tenure.Store) -> None:
    job = tenure.Job(tenure.WorkQueue(store, "digests"), digest)
    await job.put("a", "b", "c")
    await job.put("a", 1)  # type: ignore[arg-type]
    assert_type(await job.result(1), str)


async def wrong_queue(queue: tenure.WorkQueue[int]) -> None:
    tenure.Job(queue, digest)  # type: ignore[arg-type]


async def put_mail(mails: "tenure.WorkQueue[str]", **options: Unpack[tenure.types.PutOptions]) -> None:
    await mails.put("hi", **options)
    await mails.try_put("hi", priority=1, group="ann")
    tenure.Schedule(mails, "hourly", every=3600, payload="hi", priority=1, key="a")
    tenure.Schedule(mails, "hourly", every=3600, payload="hi", at=datetime.now(UTC))  # type: ignore[call-overload]
    tenure.Item("hi", **options)
    await mails.put("hi", prioriti=1)  # type: ignore[call-arg]
    await mails.put("hi", meta="ann")  # type: ignore[arg-type]
    await mails.put("hi", 1)  # type: ignore[call-arg]
    await mails.put("hi", key=tenure.Key("a", "ignore"))  # type: ignore[arg-type]
    await mails.put("hi", at=60)  # type: ignore[arg-type]
    await mails.put("hi", delay=timedelta(minutes=1), at=datetime.now(UTC))
    tenure.Schedule(mails, "hourly", every=3600, key=1)  # type: ignore[call-overload]
    tenure.Schedule(mails, "hourly", every=3600, payload=1)  # type: ignore[misc]
    tenure.Schedule(mails, "hourly", every=3600, cron="0 * * * *")  # type: ignore[call-overload]
    tenure.Schedule(mails, "hourly")  # type: ignore[call-overload]
    await mails.schedules.set("hourly", cron="0 * * * *", payload="hi", tz="Europe/Berlin")
    await mails.schedules.set("hourly", every=3600, cron="0 * * * *")  # type: ignore[call-overload]
    await tenure.serve(mails.schedules, tenure.Schedule(mails, "hourly", every=3600))
    await tenure.serve(mails)  # type: ignore[arg-type]
