"""What type checkers make of payloads: a queue determines the type of what is put, taken and looked at.

Not run: .ci/run has mypy and pyright read it, both as strict as they can be. An error that they have to find is
expected by an `ignore`, which is an error itself where there is nothing to ignore.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from dataclasses import dataclass
from typing import Any, assert_type

import tenure


@dataclass
class Mail:
    to: str


class MailCodec:
    def encode(self, value: Mail, /) -> bytes:
        return value.to.encode()

    def decode(self, data: bytes, /) -> Mail:
        return Mail(data.decode())


class AnyCodec:
    def encode(self, value: Any, /) -> bytes:
        return repr(value).encode()

    def decode(self, data: bytes, /) -> Any:
        return data


def without_annotations(store: tenure.Store) -> None:
    queue = tenure.WorkQueue(store, "mail")
    assert_type(queue, tenure.WorkQueue[Any])
    tenure.Worker(queue, print)


def by_codec(store: tenure.Store) -> None:
    queue = tenure.WorkQueue(store, "mail", codec=MailCodec())
    assert_type(queue, tenure.WorkQueue[Mail])
    assert_type(tenure.WorkQueue(store, "mail", codec=AnyCodec()), tenure.WorkQueue[Any])


def by_codec_of_an_extra(store: tenure.Store) -> None:
    queue = tenure.WorkQueue(store, "mail", codec=tenure.MsgspecCodec(Mail))
    assert_type(queue, tenure.WorkQueue[Mail])
    numbers = tenure.WorkQueue(store, "numbers", codec=tenure.PydanticCodec(list[int]))
    assert_type(numbers, tenure.WorkQueue[list[int]])
    assert_type(tenure.MsgspecCodec(Mail | None), tenure.MsgspecCodec[Any])
    either = tenure.PydanticCodec[Mail | None](Mail | None)
    assert_type(tenure.WorkQueue(store, "either", codec=either), tenure.WorkQueue[Mail | None])


def by_annotation(store: tenure.Store) -> None:
    annotated: tenure.WorkQueue[list[int]] = tenure.WorkQueue(store, "numbers")
    assert_type(annotated, tenure.WorkQueue[list[int]])
    assert_type(tenure.WorkQueue[list[int]](store, "numbers"), tenure.WorkQueue[list[int]])
    wrong: tenure.WorkQueue[int] = tenure.WorkQueue(store, "x", codec=MailCodec())  # type: ignore[arg-type]
    del wrong


async def put(queue: tenure.WorkQueue[Mail]) -> None:
    assert_type(await queue.put(Mail("ann"), priority=1), int)
    await queue.put("ann")  # type: ignore[arg-type]
    await queue.try_put("ann")  # type: ignore[arg-type]
    await queue.put_many([Mail("ann"), tenure.Item(Mail("bob"), delay=5)])
    await queue.put_many([tenure.Item(Mail("ann"))])
    await queue.put_many(["ann"])  # type: ignore[list-item]
    await queue.put_in(object(), "ann")  # type: ignore[arg-type]
    assert_type(await queue.put_in(object(), Mail("ann"), delay=5), int)
    assert_type(queue.put_in_sync(object(), Mail("ann"), delay=5), int)


async def put_with_keys(queue: tenure.WorkQueue[Mail]) -> None:
    items = [tenure.Item(Mail("ann"), key=tenure.Key("ann", "replace", ttl=60, within=5))]
    assert_type(await queue.put_many(items), list[int | tenure.DuplicateTask])
    assert_type(await queue.put_many(items, on_duplicate="refuse"), list[int | tenure.DuplicateTask])
    assert_type(await queue.put_many(items, on_duplicate="keep"), list[int])
    assert_type(await queue.put_many(items, on_duplicate="replace"), list[int])
    assert_type(await queue.put(Mail("ann"), key=tenure.Key("ann", "keep")), int)
    await queue.put(Mail("ann"), key=tenure.Key("ann", "ignore"))  # type: ignore[arg-type]


async def put_anything(queue: tenure.WorkQueue) -> None:
    await queue.put({"to": "ann"})
    await queue.put_many(["ann", tenure.Item(7)])


async def take(queue: tenure.WorkQueue[Mail]) -> str:
    async with queue.take(timeout=5) as task:
        assert_type(task, tenure.Task[Mail])
        assert_type(task.payload, Mail)
        return task.payload.to
    return ""  # RetryLater and Discard are swallowed


async def look(queue: tenure.WorkQueue[Mail]) -> None:
    assert_type(await queue.get(1), tenure.types.TaskRecord[Mail] | None)
    assert_type((await queue.tasks("dead").page()).records[0].payload, Mail | None)
    assert_type(await queue.tasks("waiting").page(), tenure.types.Page[tenure.types.TaskRecord[Mail]])
    assert_type([child async for child in queue.children(1)], list[tenure.types.ChildRecord])
    async with queue.follow(1) as changes:
        async for record in changes:
            assert_type(record, tenure.types.TaskRecord[Mail])


async def complete(queue: tenure.WorkQueue[Mail], connection: object, tasks: list[tenure.Task[Mail]]) -> None:
    assert_type(await queue.complete_in(connection, tasks), list[tenure.Task[Mail]])
