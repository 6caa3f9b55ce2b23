from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from inspect import Parameter
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from tenure.arguments import shows_options
from tenure.handlers import hint_of, is_async, name_of, parameters_of, signature_of
from tenure.store import MsgspecCodec, PydanticCodec

from ._children import Target
from ._conversion import Checked, Conversion, conversion_of
from ._options import Item, PutOptions, check_options
from ._queue import WorkQueue, check_queue
from ._retry import CANNOT_BE_RESULT, Dead
from ._task import Task

Params = ParamSpec("Params")
R = TypeVar("R")


class _Call(Item[dict[str, Any]]):
    """An item of a job: its payload is a call already, and not an argument."""


class Job(Target[Any], Generic[Params, R]):
    """A function that is called in another process: `put` takes its arguments, and `Worker(job)` calls it with them.

        async def send_mail(task: Task[object], user: User, at: datetime) -> Receipt: ...
        task_id = await Job(queue, send_mail).put(user, at)

    A parameter annotated `Task` gets the task from the worker. Arguments and result are written and read by their
    annotations, with pydantic or else msgspec: models, dataclasses, `datetime`, `tuple[int, str]`; types of JSON need
    neither. A value without an annotation is as the codec makes it, and so are the arguments for a queue with a
    `PydanticCodec` or `MsgspecCodec`. The working process supplies defaults. Each function needs a queue of its own. A
    sync function runs in a thread.

    Raises `TypeError` if `function` cannot be called, has no signature or a parameter of a type that cannot be written,
    and `ModuleNotFoundError` if a type needs pydantic or msgspec.
    """

    @overload
    def __init__(
        self,
        queue: WorkQueue[dict[str, Any]],
        function: Callable[Concatenate[Task[Any], Params], Awaitable[R]],
    ) -> None: ...
    @overload
    def __init__(
        self, queue: WorkQueue[dict[str, Any]], function: Callable[Concatenate[Task[Any], Params], R]
    ) -> None: ...
    @overload
    def __init__(
        self, queue: WorkQueue[dict[str, Any]], function: Callable[Params, Awaitable[R]]
    ) -> None: ...
    @overload
    def __init__(self, queue: WorkQueue[dict[str, Any]], function: Callable[Params, R]) -> None: ...
    def __init__(self, queue: WorkQueue[dict[str, Any]], function: Callable[..., Any]) -> None:
        check_queue(queue)
        if not callable(function):
            raise TypeError(f"function must be a function, not {function!r}")
        self._name: str = name_of(function)
        try:
            self._called = signature_of(function)
        except ValueError as problem:
            raise TypeError(f"function must have a signature: {problem}") from None
        self._tasks: list[str] = []
        self._conversions: dict[str, Conversion] = {}
        for parameter, offered, many in parameters_of(function):
            what = f"{self._name}: its parameter {parameter.name}"
            if offered == "Task":
                if many or parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                    raise TypeError(f"{what} is for a list of tasks, and a job is a call for each task")
                self._tasks.append(parameter.name)
            elif not isinstance(queue.codec, (PydanticCodec, MsgspecCodec)):
                hint = hint_of(function, parameter.annotation)
                if (conversion := conversion_of(what, hint)) is not None:
                    self._conversions[parameter.name] = conversion
        result = conversion_of(f"{self._name}: its result", hint_of(function, self._called.return_annotation))
        self._result = None if isinstance(result, Checked) else result
        kept = [each for each in self._called.parameters.values() if each.name not in self._tasks]
        self._signature = self._called.replace(parameters=kept)
        self.queue = queue
        self.function: Callable[..., Any] = function
        self._options: PutOptions = {}

    def __repr__(self) -> str:
        return f"<Job {self._name}{self._signature} of {self.queue.name!r}>"

    @shows_options(PutOptions, priority=0, delay=0.0)
    def options(self, **options: Unpack[PutOptions]) -> Self:
        """The same job, whose tasks are put with these options of `WorkQueue.put`."""
        other = copy.copy(self)
        other._options = check_options(options)
        return other

    async def put(self, *args: Params.args, **kwargs: Params.kwargs) -> int:
        """Put a task that calls the function with these arguments, and return its id; waits while the queue is full.

        Raises `TypeError` for arguments that the function does not take, and what `WorkQueue.put` raises.
        Cancellation: as with `WorkQueue.put`.
        """
        return await self.queue.put(self._arguments(args, kwargs), **self._options)

    async def try_put(self, *args: Params.args, **kwargs: Params.kwargs) -> int:
        """Like `put`, but raises `QueueFull` instead of waiting. Cancellation: it may be put."""
        return await self.queue.try_put(self._arguments(args, kwargs), **self._options)

    def item(self, *args: Params.args, **kwargs: Params.kwargs) -> Item[dict[str, Any]]:
        """The item that `put` puts, for `WorkQueue.put_many`. Raises `TypeError` as `put` does."""
        return _Call(self._arguments(args, kwargs), **self._options)

    async def result(self, task_id: int) -> R:
        """Wait until the task has ended and return the function's result, of the annotated type.

        Raises as `WorkQueue.result` does, and `ValueError` for a result that does not fit the annotation.
        """
        value = await self.queue.result(task_id)
        try:
            return cast("R", self._result_in(value))
        except (TypeError, ValueError) as problem:
            raise ValueError(f"the result of task {task_id} of {self._name} {problem}") from problem

    def _result_in(self, value: Any) -> Any:
        return value if value is None or self._result is None else self._result.decode(value)

    @property
    def _place(self) -> WorkQueue[dict[str, Any]]:
        return self.queue

    def _call(self, item: Item[Any]) -> Item[Any]:
        if isinstance(item, _Call):
            return item
        given = item.payload
        if given is ...:
            self._given("thing")  # refuse now what no worker could call
            return Item(given, **{**self._options, **item.options})
        payload = given.payload if isinstance(given, _Call) else self._arguments((given,), {})
        return Item(payload, **{**self._options, **item.options})

    def _given(self, thing: str) -> dict[str, Any]:
        return self._arguments((thing,) if self._signature.parameters else (), {})

    def _handler(self, instead: Callable[..., Any] | None = None) -> Callable[[Task[Any]], Any]:
        if instead is not None and self._tasks:
            raise TypeError(
                f'{self._name}: executor="process" has no task, since a task stays in the process of its worker: '
                f"leave out the parameter {self._tasks[0]}"
            )
        function = instead or self.function

        def call(task: Task[Any]) -> Any:
            task._job = self._name  # pyright: ignore[reportPrivateUsage]
            bound = self._bound(task)
            made = function(*bound.args, **bound.kwargs)
            return self._awaited(made) if inspect.isawaitable(made) else self._plain_result(made)

        async def call_and_wait(task: Task[Any]) -> Any:
            return await call(task)

        handler = call_and_wait if is_async(function) else call
        handler.__qualname__ = self._name  # warnings name it
        return handler

    async def _awaited(self, made: Awaitable[Any]) -> Any:
        return self._plain_result(await made)

    def _plain_result(self, value: Any) -> Any:
        if value is None or self._result is None:
            return value
        try:
            return self._result.encode(value)
        except (TypeError, ValueError) as problem:
            what = f"{self._name} returned {type(value).__name__}, {CANNOT_BE_RESULT}"
            raise Dead(f"{what}: it {problem}") from problem

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        arguments = dict(self._bind(args, kwargs).arguments)
        return {name: self._converted(name, value, "encode") for name, value in arguments.items()}

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise TypeError(f"{self._refusal}: {problem}") from None

    @property
    def _refusal(self) -> str:
        return f"{self._name}{self._signature} cannot be called with these arguments"

    def _converted(self, name: str, value: Any, direction: str) -> Any:
        conversion = self._conversions.get(name)
        if conversion is None:
            return value
        convert: Callable[[Any], Any] = getattr(conversion, direction)
        kind = self._signature.parameters[name].kind
        try:
            if kind is Parameter.VAR_POSITIONAL:
                return [convert(each) for each in value]
            if kind is Parameter.VAR_KEYWORD:
                return {key: convert(each) for key, each in value.items()}
            return convert(value)
        except (TypeError, ValueError) as problem:
            error = TypeError if isinstance(problem, TypeError) else ValueError
            raise error(f"{self._refusal}: {name} {problem}") from problem

    def _bound(self, task: Task[Any]) -> inspect.BoundArguments:
        payload = task.payload
        if payload == task.thing is not None:
            payload = self._given(payload)
        if not isinstance(payload, dict):
            raise TypeError(f"a task of {self._name} needs a mapping of arguments, not {payload!r}")
        arguments = cast("dict[str, Any]", payload)
        unknown = arguments.keys() - self._signature.parameters.keys()
        if unknown:
            raise TypeError(f"{self._name}{self._signature} takes no {', '.join(sorted(unknown))}")
        bound = inspect.BoundArguments(self._signature, arguments)  # pyright: ignore[reportArgumentType]
        self._bind(bound.args, bound.kwargs)
        values = {name: self._converted(name, value, "decode") for name, value in arguments.items()}
        given: Any = {**values, **dict.fromkeys(self._tasks, task)}
        return inspect.BoundArguments(self._called, given)
