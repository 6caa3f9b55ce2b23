from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import tenure.engine as e
from tenure.errors import OutcomeUnknown, QueueFull, StoreClosed
from tenure.store import Batcher, Held, Session, StoreHandle, Timer, outcome_of
from tenure.waiting import Line, Waiter

from ._new_task import DatedTask, with_key_ttl
from ._ring import Watch, at_work
from ._settings import QueueRecord

_MOST_BYTES = 4 * 2**20


class _Request(Held):
    __slots__ = ("again", "dated", "queued_in", "request", "room", "runner", "sent", "size", "waiter")

    def __init__(self, request: e.PutRequest, again: Callable[[_Request], None]) -> None:
        self.request = request
        self.size = sum([len(task.payload) for task in request.tasks])
        self.dated = DatedTask in map(type, request.tasks)
        self.again = again
        self.runner = at_work.get()
        self.sent = False
        self.room = False
        self.queued_in: Session | None = None
        self.waiter: Waiter[_Request, e.Accepted | e.Conflict]

    def sent_now(self) -> e.PutRequest:
        tasks = (task.sent_now() if isinstance(task, DatedTask) else task for task in self.request.tasks)
        return replace(self.request, tasks=tuple(tasks))

    def _lose(self, reason: str) -> None:
        del reason
        self.again(self)


class Producers:
    def __init__(self, store: StoreHandle, key: str, record: QueueRecord) -> None:
        self.record = record
        self._store = store
        self._key = key
        self._line: Line[_Request, e.Accepted | e.Conflict] = Line(self._left, f"the queue {key}")
        self._turns = Batcher(store, key, store.ttl, self)
        self._gathered: deque[_Request] = deque()
        self._sent: list[_Request] = []
        self._queued: dict[str, _Request] = {}
        self._alarm = Timer(store.call_at, self.ask_everything)
        self._watch: Watch | None = None

    def __len__(self) -> int:
        return len(self._line)

    async def put(
        self,
        tasks: tuple[e.NewTask, ...],
        *,
        wait: bool,
        cursor: tuple[str, bytes] | None = None,
        expected: bytes | None = None,
    ) -> e.Accepted | e.Conflict:
        """Put tasks, all or none. Raises as `WorkQueue.put` does, and `StoreUnavailable` unless it is to `wait`.

        Cancellation: puts that are still here or in the line on the engine are withdrawn; puts under way may be
        applied.
        """
        reads = not self.record.is_known and any(task.key is not None for task in tasks)
        session = self._store.sessions.current(self._store.ttl, self._key)
        if reads or session is None:
            with (
                nullcontext()
                if wait
                else self._store.promptly(self._key, f"putting {outcome_of(sent=False)}")
            ):
                if reads:
                    keys = (await self.record.read(patient=True)).keys
                    tasks = tuple([with_key_ttl(task, keys) for task in tasks])
                session = await self._store.session(self._store.ttl, self._key)
        request = _Request(e.PutRequest(session.new_name(), tasks, wait, cursor, expected), self._again)
        request.waiter = self._line.join(request)
        self._gathered.append(request)
        self._turns.schedule()
        if wait:
            return await self._line.wait(request.waiter)
        return await self._turns.answered(
            self._line, request.waiter, lambda: f"putting {outcome_of(sent=request.sent)}"
        )

    # what Turns asks

    def next_operation(self, session: Session, n: int) -> e.Operation[Any] | None:
        tasks = size = 0
        while self._gathered and tasks < e.CAP and size < _MOST_BYTES:
            request = self._gathered.popleft()
            if request.waiter.waiting:
                request.sent, request.room = True, False
                self._sent.append(request)
                tasks += len(request.request.tasks)
                size += request.size
        if not self._sent:
            return None
        record = self.record
        if record.sent_in is not session or record.pending or session.deadline > record.send_again_at:
            record.send(session)
        return e.Put(
            session.id, n, self._key, tuple([r.sent_now() if r.dated else r.request for r in self._sent])
        )

    def on_answer(self, session: Session, answer: Any) -> None:
        sent, self._sent = self._sent, []
        if answer.revision != self.record.revision:
            self.record.seen(answer.revision)
        for request, reply in zip(sent, answer.answers, strict=True):
            if isinstance(reply, (e.Accepted, e.Conflict)):
                self._line.grant(request.waiter, reply)
            elif reply is e.Reply.REFUSED:
                group = next((task.group for task in request.request.tasks if task.group), None)
                self._line.fail(request.waiter, QueueFull(self._key, self.record.current.max_size, group))
            elif not request.waiter.waiting:
                self._withdraw(request.request.producer)
            elif request.room or session.lost is not None:
                self._again(request)
            else:
                self._queued[request.request.producer] = request
                request.queued_in = session
                session.add(request)
                self._alarm.set(reply.ask_again_in)
                if request.runner is not None:
                    self._watch = self._watch or Watch(self._store, self._key)
                    self._watch.add(request.runner, request.waiter)
                    request.runner = None
        self._go_on()

    def on_session_lost(self, *, resent: bool) -> None:
        if resent:
            self._fail(lambda: OutcomeUnknown(self._key, "putting"))
        else:
            self._gathered.extendleft(reversed(self._sent))
            self._sent = []
            self._go_on()

    def on_error(self, error: Exception, session: Session | None) -> None:
        if session is None:
            self._sent.extend(self._gathered)
            self._gathered.clear()
        for request in self._sent:
            # it may have a place from an earlier answer
            self._withdraw(request.request.producer)
        self._fail(lambda: type(error)(*error.args))

    # hints

    def on_room(self, name: str) -> None:
        if (request := self._queued.get(name)) is not None:
            self._again(request)
            return
        for request in self._sent:
            if request.request.producer == name:
                # the answer on its way is older than this
                request.room = True
                return
        self.on_found(name)

    def on_found(self, name: str) -> None:
        requests = (*self._queued.values(), *self._sent, *self._gathered)
        if all(request.request.producer != name for request in requests):
            self._withdraw(name)

    def ask_everything(self) -> None:
        for request in list(self._queued.values()):
            self._again(request)

    def close(self) -> None:
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    # inside

    def _again(self, request: _Request) -> None:
        self._dequeue(request)
        self._gathered.append(request)
        self._turns.schedule()

    def _dequeue(self, request: _Request) -> None:
        if request.queued_in is not None:
            del self._queued[request.request.producer]
            session, request.queued_in = request.queued_in, None
            session.drop(request)

    def _left(self, waiter: Waiter[_Request, e.Accepted | e.Conflict]) -> None:
        request = waiter.want
        self._dequeue(request)
        if request.sent and not waiter.granted:
            self._withdraw(request.request.producer)

    def _withdraw(self, producer: str) -> None:
        self._store.send(e.Leave(self._key, producer), lambda _: None)

    def _fail(self, make_error: Callable[[], Exception]) -> None:
        sent, self._sent = self._sent, []
        for request in sent:
            self._line.fail(request.waiter, make_error())
        self._go_on()

    def _go_on(self) -> None:
        if self._gathered:
            self._turns.schedule()
