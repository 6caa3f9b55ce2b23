"""Producers: putting tasks, several callers' at once, and waiting in line while the queue is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import uniform
from typing import Any

import anyio

from tenure.engine import CAP, Accepted, Leave, NewTask, Operation, Put, PutRequest, Queued, Reply
from tenure.errors import OutcomeUnknown, QueueFull, StoreClosed
from tenure.local._line import Line, Waiter
from tenure.store import Session, Store, Turns

_MOST_BYTES = 4 * 2**20


class _Request:
    """One caller's tasks. It is a thing that its session may lose while it waits on the engine."""

    __slots__ = ("again", "queued_in", "request", "sent", "size", "waiter")

    def __init__(self, request: PutRequest, again: Callable[[_Request], None]) -> None:
        self.request = request
        self.size = sum(len(task.payload) for task in request.tasks)
        self.again = again
        self.sent = False
        self.queued_in: Session | None = None
        self.waiter: Waiter[_Request, Accepted]

    def lose(self, reason: str) -> None:
        """Its place is lost with the session: stand in line again."""
        del reason
        self.again(self)


class Producers:
    """All of this process's puts into one queue.

    Thread safety: none.
    """

    def __init__(self, store: Store, key: str) -> None:
        self.max_size = 0
        self._store = store
        self._key = key
        self._line: Line[_Request, Accepted] = Line(self._left)
        self._turns = Turns(store, store.ttl, self)
        self._gathered: deque[_Request] = deque()
        self._sent: list[_Request] = []
        self._queued: dict[str, _Request] = {}
        self._asking = False

    def __len__(self) -> int:
        return len(self._line)

    async def put(
        self, tasks: tuple[NewTask, ...], *, wait: bool, cursor: tuple[str, bytes] | None = None
    ) -> Accepted:
        """Put tasks, all or none. Raises `QueueFull`, `OutcomeUnknown`, `StoreClosed`, `EngineError`.

        Cancellation: what is still here or in the line on the engine is withdrawn; what is under way may be applied.
        """
        session = await self._store.session(self._store.ttl)
        request = _Request(PutRequest(session.new_name(), tasks, wait, cursor), self._again)
        request.waiter = self._line.join(request)
        self._gathered.append(request)
        self._turns.kick()
        return await self._line.wait(request.waiter)

    # what Turns asks

    def next_operation(self, session: Session, n: int) -> Operation[Any] | None:
        self._sent = []
        tasks = size = 0
        while self._gathered and tasks < CAP and size < _MOST_BYTES:
            request = self._gathered.popleft()
            if request.waiter.waiting:
                request.sent = True
                self._sent.append(request)
                tasks += len(request.request.tasks)
                size += request.size
        if not self._sent:
            return None
        return Put(session.id, n, self._key, tuple(r.request for r in self._sent), self.max_size)

    def on_answer(self, session: Session, answer: Any) -> None:
        sent, self._sent = self._sent, []
        for request, reply in zip(sent, answer.answers, strict=True):
            self._dequeue(request)
            if isinstance(reply, Accepted):
                self._line.grant(request.waiter, reply)
            elif reply is Reply.REFUSED:
                self._line.fail(request.waiter, QueueFull(self._key, self.max_size))
            elif not request.waiter.waiting:
                self._withdraw(request)
            else:
                self._enqueue(session, request, reply)
        self._go_on()

    def on_gone(self, *, resent: bool) -> None:
        if resent:
            self._fail(lambda: OutcomeUnknown(self._key, "putting"))
        else:
            self._gathered.extendleft(reversed(self._sent))
            self._go_on()

    def on_error(self, error: Exception) -> None:
        self._fail(lambda: type(error)(str(error)))

    # hints

    def on_room(self, name: str) -> bool:
        """Slots are reserved for a producer; False if there is none of that name."""
        request = self._queued.get(name)
        if request is not None:
            self._again(request)
        elif all(name != r.request.producer for r in (*self._sent, *self._gathered)):
            return False
        return True

    def ask_everything(self) -> None:
        """Ask again where all of those in the line stand."""
        for request in list(self._queued.values()):
            self._again(request)

    def close(self) -> None:
        """The store closes."""
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    # inside

    def _enqueue(self, session: Session, request: _Request, reply: Queued) -> None:
        if session.lost is not None:
            self._again(request)
            return
        self._queued[request.request.producer] = request
        request.queued_in = session
        session.add(request)
        if not self._asking:
            self._asking = True
            pause = max(0.05, reply.ask_again_in)
            self._store.call_at(anyio.current_time() + pause * uniform(1, 1.1), self._on_time)

    def _on_time(self) -> None:
        self._asking = False
        self.ask_everything()

    def _again(self, request: _Request) -> None:
        self._dequeue(request)
        self._gathered.append(request)
        self._turns.kick()

    def _dequeue(self, request: _Request) -> None:
        if request.queued_in is not None:
            del self._queued[request.request.producer]
            session, request.queued_in = request.queued_in, None
            session.drop(request)

    def _left(self, waiter: Waiter[_Request, Accepted]) -> None:
        request = waiter.want
        self._dequeue(request)
        if request.sent and not waiter.granted:
            self._withdraw(request)

    def _withdraw(self, request: _Request) -> None:
        self._store.send(Leave(self._key, request.request.producer), lambda _: None)

    def _fail(self, make_error: Callable[[], Exception]) -> None:
        for request in self._sent or list(self._gathered):
            self._line.fail(request.waiter, make_error())
        self._go_on()

    def _go_on(self) -> None:
        self._sent = []
        if self._gathered:
            self._turns.kick()


