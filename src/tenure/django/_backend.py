"""The backend: from a task of Django to a task of a queue, and back to a result."""

# Django has no types of its own, and Python 3.11 has no Django with tasks.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any
from urllib.parse import unquote, urlsplit

from django.db import connections
from django.tasks import Task, TaskResult
from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
from django.tasks.signals import task_enqueued
from django.utils import timezone
from django.utils.json import normalize_json

from tenure import blocking
from tenure.shared import Keep, Retry, Worker, WorkQueue
from tenure.store import Store

from ._bases import BaseTaskBackend
from ._result import read_record, result_of
from ._run import Run

LONGEST_QUEUE_NAME = 43
"""Characters: an id of Django has less than 64, and 20 of them are the number of the task and a colon."""


@cache
def opened(options: tuple[tuple[str, Any], ...]) -> blocking.Store:
    """The store of this process with these options: Django makes a backend for each thread."""
    where, *others = options
    return blocking.open_store(where[1], **dict(others))


class TenureBackend(BaseTaskBackend):
    """A backend for `TASKS`: it puts the tasks of Django into queues, and reads their results.

    The `OPTIONS` are `store`, a URL (the variable TENURE_STORE by default), `queue`, a mapping of options of a
    `WorkQueue`, `database`, an alias of `DATABASES`, and else the options of `tenure.open_store`. A queue of Django is
    the queue "django/NAME" of the store. By default a task has one try; write `"queue": {"retry": tenure.Retry()}` for
    more. With `database`, a task enqueued within `atomic()` of that database is enqueued if the transaction is
    committed; the store has to be in this database.

    Raises `InvalidTaskBackend` for wrong options.

    Thread safety: any, as for `tenure.blocking`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        options = dict(self.options)
        where = options.pop("store", None)
        self._database = options.pop("database", None)
        queue = options.pop("queue", {})
        self._store_options = options
        try:
            self._queue_options = {"retry": Retry(attempts=1), "keep": Keep(payloads=True), **queue}
            self._store = opened((("where", where), *options.items()))
            blocking.WorkQueue(self._store, "django/default", **self._queue_options)
            if self._database is not None:
                connections[self._database]
            check_database(self._store.url, self._database)
        except Exception as problem:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]['OPTIONS']: {problem}") from problem
        self._queues: dict[str, blocking.WorkQueue[Any]] = {}

    def validate_task(self, task: Task) -> None:
        """Raise `InvalidTask` for a task that Django refuses, or whose queue has a name of more than 43 characters."""
        super().validate_task(task)
        if not 0 < len(task.queue_name) <= LONGEST_QUEUE_NAME:
            raise InvalidTask(
                f"queue_name must have 1 to {LONGEST_QUEUE_NAME} characters, not {len(task.queue_name)}"
            )

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Put the task into its queue, and return its result, which is READY.

        Raises `InvalidTask`, `TypeError` for arguments that are no JSON, `tenure.QueueFull` at once if the queue is
        full, and what `WorkQueue.try_put` raises.
        """
        self.validate_task(task)
        payload = {"args": normalize_json(args), "kwargs": normalize_json(kwargs)}
        meta = {"task": task.module_path, "enqueued_at": timezone.now().isoformat()}
        if task.run_after is not None:
            meta["run_after"] = task.run_after.isoformat()
        put = self._putting(task.queue_name)
        number = put(payload, priority=task.priority, at=task.run_after, meta=meta)
        result = result_of(self.alias, task.queue_name, number, task.priority, meta, payload)
        # a subclass of Task may have more fields
        object.__setattr__(result, "task", task)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """The result of a task as it is now.

        Raises `TaskResultDoesNotExist` if there is none any longer (`keep.results`), and `ImportError` if the function
        of the task is no longer there.
        """
        queue_name, _, number = str(result_id).rpartition(":")
        record = None
        if queue_name and (not self.queues or queue_name in self.queues):
            with suppress(TypeError, ValueError):
                record = self._queue(queue_name).get(int(number))
        if record is None or "task" not in record.meta:
            raise TaskResultDoesNotExist(result_id)
        return read_record(self.alias, queue_name, record)

    def worker(self, store: Store, queue_name: str, **options: Any) -> Worker:
        """A worker for a queue of Django, over an open asynchronous store, for `tenure.serve`.

        `options` are the options of `tenure.Worker`. A task runs in a thread, also a coroutine function.
        """
        queue = WorkQueue[Any](store, f"django/{queue_name}", **self._queue_options)
        retry: Retry = options.get("retry") or queue.retry
        return Worker(queue, Run(type(self), self.alias, queue_name, store.process, retry), **options)

    @property
    def store_options(self) -> dict[str, Any]:
        """The arguments of `tenure.open_store` for the store of this backend."""
        return {"where": self.options.get("store"), **self._store_options}

    @property
    def url(self) -> str:
        """The place of the store, without a password."""
        return self._store.url

    def _queue(self, queue_name: str) -> blocking.WorkQueue[Any]:
        if queue_name not in self._queues:
            queue = blocking.WorkQueue[Any](self._store, f"django/{queue_name}", **self._queue_options)
            self._queues[queue_name] = queue
        return self._queues[queue_name]

    def _putting(self, queue_name: str) -> Callable[..., int]:
        queue = self._queue(queue_name)
        if self._database is not None:
            database = connections[self._database]
            if database.in_atomic_block or not (database.connection is None or database.autocommit):
                return partial(queue.put_in_sync, database.connection)
        return queue.try_put


def check_database(url: str, database: str | None) -> None:
    """Raise `ValueError` for a store in the file of a database of Django, unless `database` is its alias.

    A put of its own would wait for the transaction of the caller, which has the lock of the file.
    """
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite":
        same = [alias for alias in connections if is_file(connections[alias], path)]
        if same and database not in same:
            raise ValueError(
                f"the store is the file of DATABASES[{same[0]!r}], and enqueue within atomic() would wait for its own "
                f"transaction: write 'database': {same[0]!r}, or give the store another file"
            )


def is_file(database: Any, path: str) -> bool:
    if database.vendor != "sqlite" or database.is_in_memory_db():
        return False
    name = str(database.settings_dict["NAME"])
    file = unquote(urlsplit(name).path) if name.startswith("file:") else name
    return os.path.realpath(file) == os.path.realpath(path)
