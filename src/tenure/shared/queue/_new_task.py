from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from time import time
from typing import Any, Protocol, TypeVar, cast

import tenure.engine as e
from tenure.arguments import LARGEST, LONGEST, Seconds, check_count, check_name, check_seconds, check_timeout
from tenure.store import Codec

from ._groups import check_group
from ._keys import Key, check_on_duplicate
from ._meta import encode_meta
from ._options import Item, check_options
from ._own_options import with_options
from ._payload import encode
from ._retry import Retry
from ._takes import Takers

T = TypeVar("T")


class DatedTask(e.NewTask):
    __slots__ = ("at",)
    at: float

    def sent_now(self) -> e.NewTask:
        return replace(self, delay=max(0.0, self.at - time()))


class Encoding(Protocol[T]):
    name: str
    key: str
    codec: Codec[T]
    max_payload: int
    _takers: Takers


def new_task(
    queue: Encoding[T],
    payload: T,
    span_meta: Mapping[str, str] | None = None,
    priority: int = 0,
    delay: Seconds = 0.0,
    at: datetime | None = None,
    key: str | Key | None = None,
    group: str | None = None,
    expires: Seconds | None = None,
    deadline: Seconds | None = None,
    timeout: Seconds | None = None,
    retry: Retry | None = None,
    meta: Mapping[str, str] | None = None,
    _text_key: e.OnDuplicate = "refuse",
    _release: str | None = None,
    **unknown: object,
) -> e.NewTask:
    """The task for a put with these options. Raises as `put` does.

    `_text_key` is the `on_duplicate` of a key that is a text. With `_release`, the task is the release of that name,
    whose payload is its thing unless another is given.
    """
    if unknown:
        check_options(unknown)
    seconds = check_seconds("delay", delay) if at is None else _seconds_until(at, delay)
    data = encode_meta(meta, span_meta) if meta is not None or span_meta else b""
    if timeout is not None or retry is not None or _release:
        data = with_options(data, timeout, retry, queue.name if _release else None, _release)
    text = key_ttl = within = None
    on_duplicate: e.OnDuplicate = "refuse"
    if key is not None:
        if isinstance(key, Key):
            text, on_duplicate = key.text, key.on_duplicate
            key_ttl, within = cast("tuple[float | None, float | None]", (key.ttl, key.within))
        else:
            text, on_duplicate = check_name("key", key), check_on_duplicate(_text_key)
        takers = queue._takers  # pyright: ignore[reportPrivateUsage]
        key_ttl = takers.record.current.keys if key_ttl is None else key_ttl
        if within is not None and within < seconds:
            raise ValueError(
                f"within of the key must be at least the delay, {seconds:g} seconds, not {within:g}"
            )
    task = (e.NewTask if at is None else DatedTask)(
        b""
        if _release and payload is ...
        else encode(queue.codec, queue.key, "payload", payload, queue.max_payload),
        check_count("priority", priority, least=-LARGEST),
        seconds,
        text,
        None if expires is None else check_timeout("expires", expires, least=None),
        data,
        "" if group is None else check_group("group", group),
        on_duplicate,
        key_ttl,
        within,
        None if deadline is None else check_timeout("deadline", deadline, least=None),
    )
    if at is not None:
        cast("DatedTask", task).at = at.timestamp()
    return task


def task_of(
    queue: Encoding[T], item: T | Item[T], on_duplicate: e.OnDuplicate, span_meta: Mapping[str, str]
) -> e.NewTask:
    if not isinstance(item, Item):
        payload = encode(queue.codec, queue.key, "payload", item, queue.max_payload)
        return e.NewTask(payload, meta=encode_meta(None, span_meta))
    item = cast("Item[T]", item)
    if item.name is not None:
        raise ValueError(
            f"name is for items of Children.put_many, not {item.name!r} for a task without a parent"
        )
    return new_task(queue, item.payload, span_meta, **item.options, _text_key=on_duplicate)


def with_key_ttl(task: e.NewTask, ttl: float | None) -> e.NewTask:
    if task.key is None or task.key_ttl is not None:
        return task
    kept = replace(task, key_ttl=ttl)
    if isinstance(task, DatedTask):
        cast("DatedTask", kept).at = task.at
    return kept


def _seconds_until(at: Any, delay: Seconds) -> float:
    if delay:
        raise ValueError(f"a put has a delay or at, not both: {delay!r} and {at}")
    if not isinstance(at, datetime):
        raise TypeError(f"at must be a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise ValueError(f"at must have a time zone, as datetime(..., tzinfo=...) has, and {at} has none")
    seconds = max(0.0, at.timestamp() - time())
    if seconds > LONGEST:
        raise ValueError(f"at must be at most {LONGEST:g} seconds from now, and is {at}")
    return seconds
