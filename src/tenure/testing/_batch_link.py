"""A link between one store and an engine, for operations in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import TASK_STATUS_IGNORED

import tenure.engine as e
from tenure.upkeep import unwrapped_task_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    import tenure.engine as e
    from tenure.errors import StoreUnavailable


class BatchLink(e.Engine):
    def __init__(self, engine: e.Engine) -> None:
        self.url: str = engine.url
        self.shards: int = engine.shards
        self._engine = engine
        # the last is for what concerns all shards
        self._shards = [e.Batches(engine.url) for _ in range(engine.shards + (engine.shards > 1))]

    def __repr__(self) -> str:
        return f"<BatchLink to {self._engine!r}>"

    @property
    def unreachable(self) -> StoreUnavailable | None:
        return self._engine.unreachable

    def shard(self, name: str) -> int:
        return self._engine.shard(name)

    def submit(self, operation: e.Operation[Any], on_answer: Callable[[Any], object], /) -> None:
        shard = self.shard(operation.key) if operation.key and self.shards > 1 else -1
        self._shards[shard].submit(operation, on_answer)

    def enlist(self, operation: e.Enlisted[e.A], /) -> e.Enlistment[e.A]:
        return self._engine.enlist(operation)

    async def serve(
        self,
        process: str,
        deliver: Callable[[e.Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        async with unwrapped_task_group() as group:
            for shard in self._shards:
                await group.start(shard.run, self._engine.execute)
            await self._engine.serve(process, deliver, task_status=task_status)
            group.cancel_scope.cancel()
