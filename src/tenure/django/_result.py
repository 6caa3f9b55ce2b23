"""The record of a task as a result of Django."""

# Django has no types of its own, and Python 3.11 has no Django with tasks.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.tasks import TaskResult, TaskResultStatus
from django.tasks.base import TaskError
from django.utils import timezone
from django.utils.module_loading import import_string

from tenure.shared import TaskRecord


def result_of(
    alias: str,
    queue_name: str,
    number: int,
    priority: int,
    meta: Mapping[str, str],
    payload: Any,
    progress: Any = None,
) -> TaskResult:
    """The result of a task that has not ended: READY, with the times, workers and errors of its progress.

    Raises `ImportError` if the function of the task is not there.
    """
    progress = progress or {}
    # a task that was cancelled before a worker took it keeps no payload
    payload = payload or {"args": [], "kwargs": {}}
    changes = {"priority": priority, "queue_name": queue_name, "backend": alias}
    return TaskResult(
        task=import_string(meta["task"]).using(**changes, run_after=time_of(meta.get("run_after"))),
        id=f"{queue_name}:{number}",
        status=TaskResultStatus.READY,
        enqueued_at=time_of(meta["enqueued_at"]),
        started_at=time_of(progress.get("started_at")),
        last_attempted_at=time_of(progress.get("last_attempted_at")),
        finished_at=None,
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=alias,
        errors=[TaskError(**error) for error in progress.get("errors", ())],
        worker_ids=list(progress.get("worker_ids", ())),
    )


def read_record(alias: str, queue_name: str, record: TaskRecord[Any]) -> TaskResult:
    result = result_of(
        alias, queue_name, record.id, record.priority, record.meta, record.payload, record.progress
    )
    if record.state == "leased":
        change(result, status=TaskResultStatus.RUNNING)
    elif record.state == "done":
        finished_at = time_of(record.result["finished_at"])
        change(
            result,
            status=TaskResultStatus.SUCCESSFUL,
            finished_at=finished_at,
            _return_value=record.result["value"],
        )
    elif record.ended:
        finished_at = time_of((record.progress or {}).get("failed_at"))
        if finished_at is None:
            # no try has failed: it was cancelled, or its workers died
            finished_at = timezone.now() - timedelta(seconds=record.age)
            path = "tenure.TaskCancelled" if record.state == "cancelled" else "tenure.TaskFailed"
            text = record.traceback or record.error or record.state
            result.errors.append(TaskError(exception_class_path=path, traceback=text))
        change(result, status=TaskResultStatus.FAILED, finished_at=finished_at)
    return result


def change(result: TaskResult, **fields: object) -> None:
    """Set fields of a result, which is frozen for users alone."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)


def time_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
