"""A try of a task, in a thread of a worker."""

# Django has no types of its own, and Python 3.11 has no Django with tasks.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from traceback import format_exception
from typing import Any

import anyio.from_thread
from django.db import close_old_connections
from django.tasks import TaskContext, TaskResult, TaskResultStatus
from django.tasks.base import TaskError
from django.tasks.signals import task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json

from tenure.shared import Dead, Discard, Retry, RetryLater, Task, decisive

from ._result import change, result_of

MOST = 100
"""The number of last workers and errors of a task that are kept."""

LONGEST_TRACEBACK = 8192


@dataclass(frozen=True, slots=True)
class Run:
    """The handler of a worker for a queue of Django; a `backend` sends the signals, `process` names the worker."""

    backend: type[Any]
    alias: str
    queue_name: str
    process: str
    retry: Retry

    def __call__(self, task: Task[Any]) -> dict[str, Any]:
        """Call the function of a task, with the times, the worker and the errors on record. Raises what it raises.

        The record is the progress of the task: later tries see it, and it is refused once the lease is lost.
        """
        now = timezone.now().isoformat()
        record: dict[str, Any] = {"started_at": now, **(task.last_progress or {}), "last_attempted_at": now}
        record["worker_ids"] = [*record.get("worker_ids", ()), self.process][-MOST:]
        record["failed_at"] = None
        anyio.from_thread.run(task.progress, record)
        close_old_connections()
        try:
            return self._call(self._result(task, record))
        except BaseException as error:
            message = decisive(error)
            if isinstance(message, Discard) or (isinstance(message, RetryLater) and not message.counts):
                raise
            record["errors"] = [*record.get("errors", ()), described(error)][-MOST:]
            failed_at = timezone.now()
            anyio.from_thread.run(task.progress, {**record, "failed_at": failed_at.isoformat()})
            if isinstance(message, Dead) or task.attempt >= self.retry.attempts or self.retry.refusal(error):
                with suppress(ImportError):
                    result = self._result(task, record)
                    change(result, status=TaskResultStatus.FAILED, finished_at=failed_at)
                    task_finished.send_robust(self.backend, task_result=result)
            raise
        finally:
            close_old_connections()

    def _result(self, task: Task[Any], record: dict[str, Any]) -> TaskResult:
        return result_of(self.alias, self.queue_name, task.id, task.priority, task.meta, task.payload, record)

    def _call(self, result: TaskResult) -> dict[str, Any]:
        change(result, status=TaskResultStatus.RUNNING)
        task_started.send_robust(self.backend, task_result=result)
        context = (TaskContext(task_result=result),) if result.task.takes_context else ()
        value = normalize_json(result.task.call(*context, *result.args, **result.kwargs))
        finished_at = timezone.now()
        change(result, status=TaskResultStatus.SUCCESSFUL, finished_at=finished_at, _return_value=value)
        task_finished.send_robust(self.backend, task_result=result)
        return {"value": value, "finished_at": finished_at.isoformat()}


def described(error: BaseException) -> dict[str, str]:
    kind = type(error)
    text = "".join(format_exception(error))
    return asdict(
        TaskError(
            exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=text[-LONGEST_TRACEBACK:]
        )
    )
