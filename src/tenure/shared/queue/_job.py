"""The job: a function with a queue, called by putting its arguments there."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from tenure.arguments import shows_options
from tenure.handlers import is_async, name_of, signature_of

from ._children import Target
from ._options import Item, PutOptions, check_options
from ._queue import WorkQueue, check_queue

Params = ParamSpec("Params")
R = TypeVar("R")


class _Call(Item[dict[str, Any]]):
    """An item of a job: its payload is a call already, and not an argument."""


class Job(Target[Any], Generic[Params, R]):
    """A function that is called in another process: `put` takes its arguments, and `Worker(job)` calls it with them.

    The arguments are bound to the function's signature by `put`, and travel as a mapping of parameters to values; only
    the given ones, so that the process that works supplies the defaults. The function gets what the queue's
    codec makes of them: with JSON, a list for a tuple. If they do not fit the function there, which may be of another
    version, the try fails. Each function needs a queue of its own. A sync function runs in a thread, as any handler.

    Raises `TypeError` if `function` cannot be called, or has no signature.

    Thread safety: none; a description, to be shared between tasks.
    """

    @overload
    def __init__(
        self, queue: WorkQueue[dict[str, Any]], function: Callable[Params, Awaitable[R]]
    ) -> None: ...
    @overload
    def __init__(self, queue: WorkQueue[dict[str, Any]], function: Callable[Params, R]) -> None: ...
    def __init__(self, queue: WorkQueue[dict[str, Any]], function: Callable[Params, Any]) -> None:
        check_queue(queue)
        if not callable(function):
            raise TypeError(f"function must be a function, not {function!r}")
        try:
            self._signature = signature_of(function)
        except ValueError as problem:
            raise TypeError(f"function must have a signature: {problem}") from None
        self.queue = queue
        self.function: Callable[Params, Any] = function
        self._name: str = name_of(function)
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
        """Wait until the task has ended and return what the function has returned, as the codec makes it.

        Raises `TaskFailed`, `TaskCancelled`, `ResultUnavailable`, `StoreClosed`, `EngineError`.
        """
        return cast("R", await self.queue.result(task_id))

    @property
    def place(self) -> WorkQueue[dict[str, Any]]:
        """The queue of the job. For `Children` alone."""
        return self.queue

    def call(self, item: Item[Any]) -> Item[Any]:
        """The call with this only argument, or that `item` has made, with the job's options. For `Children` alone."""
        if isinstance(item, _Call):
            return item
        given = item.payload
        payload = given.payload if isinstance(given, _Call) else self._arguments((given,), {})
        return Item(payload, **{**self._options, **item.options})

    def handler(self, instead: Callable[..., Any] | None = None) -> Callable[[object], Any]:
        """A handler of payloads that calls the function, or `instead` in its place. For the worker alone."""
        function = instead or self.function

        def call(payload: object) -> Any:
            bound = self._bound(payload)
            return function(*bound.args, **bound.kwargs)

        async def call_and_wait(payload: object) -> Any:
            return await call(payload)

        handler = call_and_wait if is_async(function) else call
        handler.__qualname__ = self._name  # warnings name it
        return handler

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as problem:
            raise TypeError(
                f"{self._name}{self._signature} cannot be called with these arguments: {problem}"
            ) from None

    def _bound(self, payload: object) -> inspect.BoundArguments:
        """The call that a payload stands for. Raises `TypeError` if it is none of this function."""
        if not isinstance(payload, dict):
            raise TypeError(f"a task of {self._name} needs a mapping of arguments, not {payload!r}")
        arguments = cast("dict[str, Any]", payload)
        unknown = arguments.keys() - self._signature.parameters.keys()
        if unknown:
            raise TypeError(f"{self._name}{self._signature} takes no {', '.join(sorted(unknown))}")
        bound = inspect.BoundArguments(self._signature, arguments)  # pyright: ignore[reportArgumentType]
        self._arguments(bound.args, bound.kwargs)
        return bound
