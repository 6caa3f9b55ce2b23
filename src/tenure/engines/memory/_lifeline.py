"""The engine that renews the sessions of a memory engine while its loop is blocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

import tenure.engine as e
from tenure.errors import EngineError

from ._state import MemoryState


class Lifeline(e.Engine):
    """Renews sessions of a memory engine from another thread, and does nothing else.

    The loop may use the state at any moment, so a renewal assigns a single attribute. It adds a ttl, since another
    thread cannot read the loop's clock; the next heartbeat corrects the sum.
    """

    url = "memory:"
    alone = True

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def submit(self, operation: e.Operation[Any], on_answer: Callable[[Any], object], /) -> None:
        if not isinstance(operation, e.RenewSession):
            on_answer(EngineError(f"{self.url}: another thread can only renew sessions"))
        elif (session := self._state.session(operation.key)) is None:
            on_answer(e.Reply.GONE)
        else:
            session.expires += session.ttl
            on_answer(e.Reply.OK)

    async def serve(
        self,
        process: str,
        deliver: Callable[[e.Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        del process, deliver
        task_status.started()
        await anyio.sleep_forever()
