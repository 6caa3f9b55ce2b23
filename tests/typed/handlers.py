"""What type checkers make of handlers: the payload, or the task if the parameter is annotated so, and the context.

Not run, as payloads.py beside it.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import tenure
from tenure.processor import Context, Processor


async def handle(number: int) -> str:
    return str(number)


def handle_in_a_thread(number: int) -> str:
    return str(number)


async def handle_task(task: tenure.Task[int]) -> int:
    return task.payload


def handle_task_in_a_thread(task: tenure.Task[int]) -> int:
    return task.payload


async def handle_any_task(task: tenure.Task) -> int:
    return task.id


async def handle_object(task: tenure.Task[object]) -> str:
    return repr(task.payload)


async def handle_with_more(number: int, times: int = 2) -> int:
    return number * times


async def handle_text(text: str) -> str:
    return text


async def handle_task_of_text(task: tenure.Task[str]) -> str:
    return task.payload


async def handle_pair(first: int, second: int) -> int:
    return first + second


async def handle_nothing() -> None: ...


class Handles:
    async def __call__(self, number: int) -> int:
        return number

    async def method(self, task: tenure.Task[int]) -> int:
        return task.payload


def work(queue: tenure.WorkQueue[int], anything: tenure.WorkQueue) -> None:
    tenure.Worker(queue, handle)
    tenure.Worker(queue, handle_in_a_thread)
    tenure.Worker(queue, handle_task)
    tenure.Worker(queue, handle_task_in_a_thread)
    tenure.Worker(queue, handle_any_task)
    tenure.Worker(queue, handle_object)
    tenure.Worker(queue, handle_with_more)
    tenure.Worker(queue, partial(handle_pair, 1))
    tenure.Worker(queue, Handles())
    tenure.Worker(queue, Handles().method)
    tenure.Worker(queue, lambda number: number + 1)
    tenure.Worker(anything, handle)
    tenure.Worker(anything, handle_task)
    tenure.Worker(queue, handle_text)  # type: ignore[arg-type]
    tenure.Worker(queue, handle_task_of_text)  # type: ignore[arg-type]
    tenure.Worker(queue, handle_pair)  # type: ignore[arg-type]
    tenure.Worker(queue, handle_nothing)  # type: ignore[arg-type]
    tenure.Worker(queue, handle_with_context)  # type: ignore[arg-type]


async def handle_many(numbers: list[int]) -> None:
    numbers.sort()


def handle_many_in_a_thread(numbers: Sequence[int]) -> None:
    numbers.index(1)


async def handle_many_tasks(tasks: list[tenure.Task[int]]) -> None:
    tasks[0].set_result(tasks[0].payload)


def handle_many_tasks_in_a_thread(tasks: Sequence[tenure.Task[int]]) -> None:
    tasks[0].set_result(tasks[0].payload)


async def handle_many_texts(texts: list[str]) -> None:
    texts.sort()


async def handle_many_tasks_of_text(tasks: list[tenure.Task[str]]) -> None:
    tasks[0].set_result(tasks[0].payload)


async def handle_many_with_result(numbers: list[int]) -> int:
    return sum(numbers)


def work_in_batches(queue: tenure.WorkQueue[int]) -> None:
    tenure.BatchWorker(queue, handle_many, size=100)
    tenure.BatchWorker(queue, handle_many_in_a_thread, size=100)
    tenure.BatchWorker(queue, handle_many_tasks, size=100)
    tenure.BatchWorker(queue, handle_many_tasks_in_a_thread, size=100, linger=0)
    tenure.BatchWorker(queue, lambda numbers: numbers.sort(), size=100)
    tenure.Worker(queue, handle_many)  # type: ignore[arg-type]
    tenure.Worker(queue, handle_many_tasks)  # type: ignore[arg-type]
    tenure.BatchWorker(queue, handle, size=100)  # type: ignore[arg-type]
    tenure.BatchWorker(queue, handle_task, size=100)  # type: ignore[arg-type]
    tenure.BatchWorker(queue, handle_many_texts, size=100)  # type: ignore[arg-type]
    tenure.BatchWorker(queue, handle_many_tasks_of_text, size=100)  # type: ignore[arg-type]
    tenure.BatchWorker(queue, handle_many_with_result, size=100)  # type: ignore[arg-type]


@asynccontextmanager
async def span(task: tenure.Task) -> AsyncGenerator[float]:
    yield float(task.id)


async def handle_with_span(number: int, begun: float) -> float:
    return number + begun


def work_around(queue: tenure.WorkQueue[int], pool: tenure.ResourcePool) -> None:
    tenure.Worker(queue, handle_with_span, around=[span, lambda task: pool.claim()], concurrency=1)
    tenure.Worker(queue, handle, around=[span])
    tenure.Worker(tenure.Job(tenure.WorkQueue(queue.store, "job"), handle), around=(span,))
    tenure.Worker(queue, handle, around=[handle])  # type: ignore[list-item]
    tenure.Worker(queue, handle_with_span)  # type: ignore[arg-type]


async def handle_with_context(number: int, context: Context) -> object:
    return number, context.kind


async def handle_task_with_context(task: tenure.Task[int], context: Context) -> object:
    return task.payload, context.kind


async def handle_behind_context(context: Context, number: int) -> object:
    return number, context.kind


async def handle_with_context_by_name(number: int, *, context: Context) -> object:
    return number, context.kind


def handle_in_a_thread_with_context(number: int, context: Context) -> object:
    return number, context.kind


def process(store: tenure.Store) -> None:
    Processor(store, "a", handle)
    Processor(store, "a", handle_task)
    Processor(store, "a", handle_with_more)
    Processor(store, "a", Handles().method)
    Processor(store, "a", handle_with_context)
    Processor(store, "a", handle_task_with_context)
    Processor(store, "a", handle_behind_context)
    Processor(store, "a", handle_with_context_by_name)
    Processor(store, "a", handle_in_a_thread)
    Processor(store, "a", handle_in_a_thread_with_context)
