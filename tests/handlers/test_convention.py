"""The convention for handlers: the first parameter gets the payload, or the task if it is annotated so."""

from __future__ import annotations

import functools
import importlib
import sys
import typing
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, Optional, Union

import pytest
from workers import work_off

import tenure
from tenure import BatchWorker, Task, Worker, WorkQueue
from tenure.handlers import adapted
from tenure.processor import Context, Processor

TASK = SimpleNamespace(payload="payload", check=lambda: None)
CONTEXT = object.__new__(Context)

if typing.TYPE_CHECKING:
    from shop import Mail


def payload(word): ...
def payload_of_type(word: str): ...
def payload_and_more(word, times=2, *words, retry=True, **options): ...
def payload_named_task(task: str): ...
def payload_named_context(context): ...
def payload_and_no_task(word, work: Task | None = None): ...
def payload_and_no_context(word, context=None): ...
def payload_annotated_elsewhere(word: Mail): ...
def payload_of_tasks(tables: dict[str, Task]): ...
def payload_annotated_with_nonsense(word: 1 / 0): ...
def payload_with_metadata(word: Annotated[str, "Task"]): ...
def everything(*args, **kwargs): ...


class Shop:
    def method(self, word): ...
    def task_method(self, task: Task): ...
    def __call__(self, word): ...
    @classmethod
    def of_class(cls, task: tenure.Task[int]): ...
    @staticmethod
    def static(task: Task[int]): ...


class OfTasks:
    async def __call__(self, task: Task): ...


class Payload:
    def __init__(self, word): ...


@functools.wraps(payload)
def wrapped_payload(*args): ...


def task(work: Task): ...
def task_of_front_door(work: tenure.Task): ...
def task_of_type(work: Task[dict[str, int]]): ...
def task_of_unresolved(work: Task[Mail]): ...
def task_or_none(work: Task | None): ...
def task_optional(work: Optional[Task[int]] = None): ...  # noqa: UP045
def task_union(work: Union[Task[int], None]): ...  # noqa: UP007
def task_with_metadata(work: Annotated[Task[int], "of numbers"]): ...
def task_quoted_twice(work: "Task[Mail]"): ...  # noqa: UP037
def task_by_position(work: Task, /): ...
def tasks_each(*work: Task): ...


@functools.wraps(task)
def wrapped_task(*args, **kwargs): ...


def decorated(function):
    @functools.wraps(function)
    async def call(*args):
        return await function(*args)

    return call


PAYLOADS = [
    payload,
    payload_of_type,
    payload_and_more,
    payload_named_task,
    payload_named_context,
    payload_and_no_task,
    payload_and_no_context,
    payload_annotated_elsewhere,
    payload_of_tasks,
    payload_annotated_with_nonsense,
    payload_with_metadata,
    everything,
    wrapped_payload,
    Shop().method,
    Shop(),
    Payload,
    len,
    min,  # has no signature that can be read
    print,
    lambda word: None,
    lambda *words: None,
    functools.partial(payload_and_more, times=3),
    functools.partial(lambda store, word: None, "store"),
    functools.partial(lambda word, *, store: None, store="store"),
    decorated(payload_of_type),
]
TASKS = [
    task,
    task_of_front_door,
    task_of_type,
    task_of_unresolved,
    task_or_none,
    task_optional,
    task_union,
    task_with_metadata,
    task_quoted_twice,
    task_by_position,
    tasks_each,
    wrapped_task,
    Shop().task_method,
    Shop.of_class,
    Shop.static,
    OfTasks(),
    OfTasks().__call__,
    functools.partial(task_of_type),
    decorated(functools.partial(task)),
    decorated(decorated(task)),
]


def got(handler: Callable[..., Any], *work: Any, **options: Any) -> Any:
    """The arguments with which the handler is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    call.__wrapped__ = handler
    return adapted(call, **options)(*work)


def name(value: object) -> str | None:
    return getattr(value, "__qualname__", type(value).__name__) if callable(value) else None


@pytest.mark.parametrize("handler", PAYLOADS, ids=name)
def test_a_handler_gets_the_payload(handler):
    assert got(handler, TASK) == (("payload",), {})
    assert got(handler, TASK, [CONTEXT], around=True) == (("payload",), {})
    assert got(handler, [TASK, TASK], batch=True) == ((["payload", "payload"],), {})


@pytest.mark.parametrize("handler", TASKS, ids=name)
def test_a_handler_gets_the_task_if_its_first_parameter_is_annotated_so(handler):
    assert got(handler, TASK) == ((TASK,), {})
    assert got(handler, TASK, [CONTEXT], around=True) == ((TASK,), {})


def batch(work: list[Task]): ...
def batch_of_type(work: list[Task[dict[str, int]]]): ...
def batch_as_sequence(work: Sequence[Task[int]]): ...
def batch_of_unresolved(work: Sequence[Task[Mail]]): ...
def batch_of_typing(work: typing.List[tenure.Task[int]]): ...  # noqa: UP006
def batch_with_quotes(work: list[Task[int]]): ...
def batch_or_none(work: list[Task] | None): ...


@pytest.mark.parametrize(
    "handler",
    [
        batch,
        batch_of_type,
        batch_as_sequence,
        batch_of_unresolved,
        batch_of_typing,
        batch_with_quotes,
        batch_or_none,
    ],
    ids=name,
)
def test_a_handler_of_batches_gets_the_tasks_if_annotated_so(handler):
    tasks = [TASK, TASK]
    assert got(handler, tasks, batch=True) == ((tasks,), {})
    with pytest.raises(TypeError, match="its parameter work is for a list of tasks; .* or use BatchWorker"):
        adapted(handler)


@pytest.mark.parametrize("handler", TASKS, ids=name)
def test_a_handler_of_single_tasks_is_no_handler_of_batches(handler):
    with pytest.raises(
        TypeError, match=r"is for a single task; annotate it list\[tenure.Task\], or use Worker"
    ):
        adapted(handler, batch=True)


# annotations that are no strings


REAL = """
import typing
import tenure
from tenure import Task as T
from tenure.processor import Context

Mails = T[str]

class Task: ...

def task(work: T): ...
def task_of_type(work: T[int]): ...
def alias(work: Mails): ...
def quoted(work: "T[int]"): ...
def optional(work: "Mails | None"): ...
def own(task: Task): ...
def own_quoted(task: "Task"): ...
def tasks(work: list[T[int]]): ...
def tasks_quoted(work: list["T"]): ...
def with_context(context: Context, work): ...
"""

UNRESOLVED = """
from __future__ import annotations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tenure
    from tenure import Task
    from tenure.processor import Context
    from shop import Mail, Taskforce, models

def task(work: Task): ...
def task_of_type(work: Task[Mail]): ...
def alias(work: tenure.Task): ...
def quoted(work: "Task[Mail]"): ...
def optional(work: Optional[tenure.Task[Mail]]): ...
def own(task: models.Task): ...
def own_quoted(task: Taskforce): ...
def tasks(work: list[Task[Mail]]): ...
def tasks_quoted(work: collections.abc.Sequence[tenure.Task]): ...
def with_context(context: Context, work: Mail): ...
"""


_FUTURE = "from __future__ import annotations\n"
LAZY = UNRESOLVED.replace(_FUTURE, "")
"""From Python 3.14 on annotations are evaluated when they are read."""


@pytest.mark.parametrize(
    "source",
    [
        *(REAL, REAL.replace("import", f"{_FUTURE}import", 1), UNRESOLVED),
        pytest.param(LAZY, marks=pytest.mark.skipif(sys.version_info < (3, 14), reason="needs Python 3.14")),
    ],
)
def test_annotations_that_are_resolved_and_those_that_cannot_be(tmp_path, monkeypatch, source):
    (tmp_path / "annotated_handlers.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "annotated_handlers", raising=False)
    module = importlib.import_module("annotated_handlers")
    for handler in (module.task, module.task_of_type, module.alias, module.quoted, module.optional):
        assert got(handler, TASK) == ((TASK,), {}), handler
    for handler in (module.own, module.own_quoted):
        assert got(handler, TASK) == (("payload",), {}), handler
    for handler in (module.tasks, module.tasks_quoted):
        assert got(handler, [TASK], batch=True) == (([TASK],), {}), handler
    assert got(module.with_context, TASK, [CONTEXT], around=True) == ((CONTEXT, "payload"), {})


# the context


def context_last(word, context: Context): ...
def context_first(context: Context, word): ...
def context_by_name(word, *, context: Context): ...
def context_behind_more(word, times=2, *, context: Context): ...
def context_or_none(word, times=2, context: Context | None = None): ...
def context_with_task(work: Task[int], ctx: Context): ...
def context_around_all(context: Context, *words): ...


@pytest.mark.parametrize(
    ("handler", "arguments"),
    [
        (context_last, (("payload", CONTEXT), {})),
        (context_first, ((CONTEXT, "payload"), {})),
        (context_by_name, (("payload",), {"context": CONTEXT})),
        (context_behind_more, (("payload",), {"context": CONTEXT})),
        (context_with_task, ((TASK, CONTEXT), {})),
        (context_around_all, ((CONTEXT, "payload"), {})),
    ],
    ids=name,
)
def test_parameters_that_are_annotated_so_get_the_context(handler, arguments):
    assert got(handler, TASK, [CONTEXT], around=True) == arguments
    with pytest.raises(
        TypeError, match=r"nothing fills its parameter (context|ctx|a); .* context of a Processor"
    ):
        adapted(handler)


# what is refused


def no_parameter(): ...
def only_by_name(*, word): ...
def only_names(**words): ...
def only_context(context: Context): ...
def two(word, other): ...
def also(word, *, other): ...
def second_task(word, work: Task): ...
def bare_context(word, context): ...
def bare_task(task): ...
def bare_tasks(tasks): ...
def a_store(store: tenure.Store): ...


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (no_parameter, "must take the payload, or the task as a parameter annotated tenure.Task"),
        (only_names, "must take the payload"),
        (lambda: None, "<lambda> must take the payload"),
        (only_by_name, "nothing fills its parameter word"),
        (two, "two: nothing fills its parameter other; the first parameter gets the payload, or the task if"),
        (also, "nothing fills its parameter other"),
        (second_task, "nothing fills its parameter work"),
        (bare_context, "nothing fills its parameter context; .*annotated tenure.processor.Context"),
        (
            bare_task,
            "its parameter task has no annotation; annotate it: task: tenure.Task, or rename it, as a",
        ),
        (bare_tasks, "its parameter tasks has no annotation"),
        (lambda task: None, "its parameter task has no annotation"),
        (functools.partial(lambda store, task: None, 1), "its parameter task has no annotation"),
        (a_store, "nothing fills its parameter store"),
        (Shop.task_method, "Shop.task_method: nothing fills its parameter task"),
    ],
    ids=name,
)
def test_a_handler_whose_parameters_do_not_fit_is_refused(handler, words):
    for options in ({}, {"around": True}):
        with pytest.raises(TypeError, match=words):
            adapted(handler, **options)


def test_a_context_with_a_default_is_for_processors_and_for_workers():
    assert got(context_or_none, TASK) == (("payload",), {})
    assert got(context_or_none, TASK, [CONTEXT], around=True) == (("payload",), {"context": CONTEXT})
    bound = functools.partial(context_last, context=CONTEXT)
    assert got(bound, TASK) == (("payload",), {})


def test_a_context_is_no_payload():
    with pytest.raises(TypeError, match="only_context must take the payload"):
        adapted(only_context, around=True)
    with pytest.raises(TypeError, match="nothing fills its parameter context"):
        adapted(only_context)


def test_a_list_of_tasks_without_an_annotation_is_refused():
    with pytest.raises(
        TypeError, match=r"annotate it: tasks: list\[tenure.Task\], or rename it, as .* the payloads"
    ):
        adapted(bare_tasks, batch=True)


# who uses it


async def double(number: int) -> int:
    return 2 * number


async def triple(task: Task[int]) -> int:
    return 3 * task.payload


@pytest.mark.parametrize(("handler", "result"), [(double, 14), (triple, 21)], ids=name)
async def test_a_function_is_a_handler_of_workers_and_of_processors_alike(handler, result):
    async with tenure.open_store("memory:") as store:
        queue = WorkQueue[int](store, "of a worker")
        number = await queue.put(7)
        await work_off(queue, Worker(queue, handler))
        assert await queue.result(number) == result
        async with Processor(store, "of a processor", handler) as processor:
            number = await processor.submit(7)
            assert await processor.queue().result(number) == result


async def test_a_processor_hands_over_its_context():
    async def handler(ctx: Context, word: str) -> str:
        async with ctx.lock("cache") as lease:
            lease.check()
        return f"{word} of {ctx.kind}"

    async with tenure.open_store("memory:") as store:
        async with Processor(store, "words", handler, kinds={"short": 1}) as processor:
            number = await processor.submit("hi", kind="short")
            assert await processor.queue("short").result(number) == "hi of short"


def test_workers_and_processors_refuse_handlers_at_once():
    memory = tenure.open_store("memory:")
    for refused in (bare_task, second_task, no_parameter):
        with pytest.raises(TypeError, match=refused.__name__):
            Worker(WorkQueue(memory, "jobs"), refused)
    with pytest.raises(TypeError, match="bare_tasks"):
        BatchWorker(WorkQueue(memory, "jobs"), bare_tasks, size=3)
    with pytest.raises(TypeError, match="context_last: nothing fills its parameter context"):
        Worker(WorkQueue(memory, "jobs"), context_last)

    async def refused(task, context): ...

    with pytest.raises(TypeError, match="its parameter task has no annotation"):
        Processor(memory, "jobs", refused)
