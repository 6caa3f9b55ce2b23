"""A task to put: payload and options, checked and encoded for the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from tenure.arguments import LARGEST, check_count, check_name, check_seconds, check_timeout
from tenure.engine import NewTask, OnDuplicate, Settings
from tenure.store import Codec

from ._groups import check_group
from ._keys import with_key
from ._meta import encode_meta
from ._options import Item, PutOptions
from ._own_options import with_options
from ._payload import encode
from ._retry import Retry

T = TypeVar("T")


class Encoding(Protocol[T]):
    """The settings of a queue that its new tasks depend on."""

    key: str
    codec: Codec[T]
    max_payload: int

    @property
    def record(self) -> Settings: ...


def new_task(
    queue: Encoding[T],
    payload: T,
    priority: int = 0,
    delay: float = 0.0,
    key: str | None = None,
    expires: float | None = None,
    *,
    meta: Mapping[str, str] | None = None,
    group: str | None = None,
    on_duplicate: OnDuplicate | None = None,
    key_ttl: float | None = None,
    max_wait: float | None = None,
    deadline: float | None = None,
    timeout: float | None = None,
    retry: Retry | None = None,
    span_meta: Mapping[str, str] | None = None,
    **unknown: object,
) -> NewTask:
    """The task that a put with these options puts; `span_meta` is what its span adds. Raises what `put` raises."""
    if unknown:
        check_options(unknown)
    task = NewTask(
        encode(queue.codec, queue.key, "payload", payload, queue.max_payload),
        check_count("priority", priority, least=-LARGEST),
        check_seconds("delay", delay),
        None if key is None else check_name("key", key),
        check_timeout("expires", expires, least=None),
        b"" if meta is None and span_meta is None else encode_meta(meta, span_meta),
        "" if group is None else check_group("group", group),
    )
    if deadline is not None:
        task = replace(task, deadline=check_timeout("deadline", deadline, least=None))
    if timeout is not None or retry is not None:
        task = replace(task, meta=with_options(task.meta, timeout, retry))
    if key is None and on_duplicate in (None, "refuse") and key_ttl is max_wait is None:
        return task
    return with_key(task, on_duplicate, key_ttl, max_wait, queue.record.keys)


def task_of(queue: Encoding[T], item: Item[T], span_meta: Mapping[str, str] | None = None) -> NewTask:
    """The task that an item stands for. Raises what `put` raises."""
    return new_task(
        *(queue, item.payload, item.priority, item.delay, item.key, item.expires),
        meta=item.meta,
        group=item.group,
        on_duplicate=item.on_duplicate,
        key_ttl=item.key_ttl,
        max_wait=item.max_wait,
        deadline=item.deadline,
        timeout=item.timeout,
        retry=item.retry,
        span_meta=span_meta,
    )


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse names that are no options of a put. Raises `TypeError`."""
    for name in options:
        if name not in PutOptions.__annotations__:
            known = ", ".join(PutOptions.__annotations__)
            raise TypeError(f"unexpected keyword argument {name!r}; the options of a put are {known}")
