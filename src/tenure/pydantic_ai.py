"""Durable runs of agents of pydantic-ai: each call of a model or a tool is a step of a task.

`TenureDurability` is a capability of an `Agent`; within `durable(task)` its runs keep their steps on record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tenure.shared import Task

if TYPE_CHECKING:
    # The parts in use: so types do not depend on whether pydantic-ai is installed.
    class Backend:
        """`pydantic_ai.durable_exec.JournalCallableOperationBackend`."""

        def __init__(self, *, agent_name: str, default_model_id: str | None, config: Any) -> None: ...

    class Capability:
        """`pydantic_ai.durable_exec.BaseDurabilityCapability`."""

        name: str
        default_model_id: str

        def __init__(
            self, *, models: Mapping[str, Any] | None, event_stream_handler: Any, name: str | None
        ) -> None: ...

    JSON_CODEC: Any
    Config: Any
    Spec: Any
else:
    try:
        from pydantic_ai.durable_exec import (
            JSON_CODEC,
            BaseDurabilityCapability as Capability,
            DurabilityEngineSpec as Spec,
            JournalCallableOperationBackend as Backend,
            RoleBasedOperationConfig as Config,
        )
    except ImportError as _error:
        raise ModuleNotFoundError(
            "tenure.pydantic_ai needs pydantic-ai 2.68 or later: pip install 'tenure[pydantic-ai]'",
            name="pydantic_ai",
        ) from _error

__all__ = ("TenureDurability", "durable")


class _Run:
    """A delivery of a task, and how often it has run a step of a name."""

    def __init__(self, task: Task[Any]) -> None:
        self.task = task
        self.names: Counter[str] = Counter()


_run: ContextVar[_Run | None] = ContextVar("_run", default=None)


@contextmanager
def durable(task: Task[Any]) -> Generator[None]:
    """Keep the calls of the agents that run in this block on the record of a task.

    A later delivery of the task gets the stored answers of models and tools in place of calls. Enter the block once in
    a handler; several runs in it are numbered in their order, so do not run agents at the same time in one block.
    Raises `TypeError` for another object than a `Task`, and `RuntimeError` within another such block.
    """
    if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] users choose it
        raise TypeError(f"task must be a tenure.Task, not {type(task).__name__}")
    if _run.get() is not None:
        raise RuntimeError("a block of durable() was entered before, in this task of the loop")
    token = _run.set(_Run(task))
    try:
        yield
    finally:
        _run.reset(token)


class _Steps(Backend):
    async def execute(
        self,
        *,
        operation_id: object,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: object,
    ) -> object:
        del operation_id, cache_key, config
        run = _run.get()
        if run is None:
            return await body()
        run.names[name] += 1
        return await run.task.step(f"{name} {run.names[name]}", body)


class TenureDurability(Capability):
    """A capability of an `Agent` that makes its runs within `durable(task)` durable; elsewhere it does nothing.

    `Agent(model, name="support", capabilities=[TenureDurability()])`. The arguments are as for the other engines of
    pydantic-ai: `models` by id for models that are chosen at the run, `event_stream_handler`, and `name`, by default
    the agent's. Steps are named after the agent, so a new name runs everything anew. Tools run one after the other, so
    that their numbers are the same in each delivery. Returned values are stored as JSON, at most `max_payload` bytes
    for a step.
    """

    if not TYPE_CHECKING:
        engine_spec = Spec(
            engine_name="tenure",
            durable_unit_noun="step",
            durable_container_noun="task",
            codec=JSON_CODEC,
            sequential_tools_in_durable_context=True,
        )

    def __init__(
        self,
        *,
        models: Mapping[str, Any] | None = None,
        event_stream_handler: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)

    @property
    def in_durable_context(self) -> bool:
        """True within a block of `durable`."""
        return _run.get() is not None

    def get_durable_operation_backend(self) -> Any:
        """The backend of pydantic-ai's interface."""
        config = Config(model=None, event=None, capability=None, tool=None)
        return _Steps(agent_name=self.name, default_model_id=self.default_model_id, config=config)
