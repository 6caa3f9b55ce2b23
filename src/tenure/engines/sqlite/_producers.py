"""Producers: they put tasks into a queue that has room, or wait in line until their slots are reserved."""

from __future__ import annotations

import json
from typing import Any

from tenure.engine import Accepted, Duplicate, Leave, Put, PutAnswer, PutOne, PutRequest, Queued, Reply

from ._clock import micros
from ._queue import Queue, Queues
from ._records import encoded_key
from ._session import Session
from ._sql import QUEUES, TASKS, joined
from ._state import State, sooner


class Producers:
    """The family of producers."""

    def __init__(self, state: State, queues: Queues) -> None:
        self._state = state
        self._queues = queues

    def put(self, op: Put) -> PutAnswer | Reply:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        known = state.replies.cached(session, op.n, name := f"put {op.key}")
        if known is not None:
            return known
        queue = self._queues.get(op.key)
        queue.max_size = op.max_size
        self._queues.admit(queue)
        batch = Batch(state, queue)
        answer = PutAnswer(tuple(self._put(queue, session, request, batch) for request in op.requests))
        batch.insert()
        state.replies.cache(session, op.n, name, answer)
        return answer

    def put_one(self, op: PutOne) -> int | Duplicate | Reply:
        """Within a transaction of the user's."""
        queue = self._queues.get(op.key)
        queue.max_size = op.max_size
        self._queues.admit(queue)
        batch = Batch(self._state, queue)
        # a placeholder: without waiting, no session is needed
        answer = self._put(queue, Session(0, "", 0), PutRequest("", (op.task,), wait=False), batch)
        batch.insert()
        return answer.ids[0] if isinstance(answer, Accepted) else Reply.REFUSED

    def _put(
        self, queue: Queue, session: Session, request: PutRequest, batch: Batch
    ) -> Accepted | Queued | Reply:
        state = self._state
        known = None
        if queue.producers or queue.reserved:
            known = state.one(QUEUES.producer, queue=queue.id, name=request.producer)
        if known is not None and known[3]:
            state.run(QUEUES.delete_producer, id=known[0])
            queue.reserved -= known[1]
            answer = self._accept(queue, request, batch)
            self._queues.admit(queue)
            return answer
        if known is None:
            if not request.tasks or (not queue.producers and queue.room >= batch.count_new(request)):
                return self._accept(queue, request, batch)
            if not request.wait or len(request.tasks) > queue.max_size:
                return Reply.REFUSED
            queue.ordinal += 1
            count = len(request.tasks)
            state.run(
                QUEUES.new_producer,
                queue=queue.id,
                name=request.producer,
                session=session.id,
                count=count,
                ordinal=queue.ordinal,
            )
            queue.producers += 1
        ordinal = queue.ordinal if known is None else known[2]
        head = state.one(QUEUES.producers_head, queue=queue.id)[0]
        return Queued(ordinal - head + 1, state.ask_again_in())

    def _accept(self, queue: Queue, request: PutRequest, batch: Batch) -> Accepted:
        due = self._queues.due(queue)
        ids, ready = batch.add(request)
        if request.cursor is not None:
            name, value = request.cursor
            self._state.run(QUEUES.set_cursor, queue=queue.id, name=name, value=value)
        if queue.takers:
            self._queues.offer(queue, ready)
            self._queues.offer_sooner(queue, due)
        return Accepted(ids)

    def leave(self, op: Leave) -> Reply:
        queue = self._queues.find(op.key)
        known = queue and self._state.one(QUEUES.producer, queue=queue.id, name=op.producer)
        if queue is None or known is None:
            return Reply.UNKNOWN
        producer, count, _, reserved = known
        self._state.run(QUEUES.delete_producer, id=producer)
        if reserved:
            queue.reserved -= count
        else:
            queue.producers -= 1
        self._queues.admit(queue)
        return Reply.RELEASED if reserved else Reply.LEFT

    def drop(self, thing: Any) -> None:
        """The session of a producer has ended."""
        queue, producer = thing
        self.leave(Leave(queue, producer))


Order = tuple[int, int, int, int | None, bytes, str | None]
"""What a new task is but for its payload: place, priority, ready_at, expires, meta and key."""


class Batch:
    """The new tasks of one operation, inserted together."""

    def __init__(self, state: State, queue: Queue) -> None:
        self._state = state
        self._queue = queue
        self._orders: list[Order] = []
        self._payloads: list[bytes] = []
        self._twins: dict[str, int | None] = {}

    def count_new(self, request: PutRequest) -> int:
        """How many tasks of a request are no duplicates."""
        keys: set[str] = set()
        new = 0
        for task in request.tasks:
            if task.key is None:
                new += 1
            elif task.key not in keys and self._twin(task.key) is None:
                keys.add(task.key)
                new += 1
        return new

    def add(self, request: PutRequest) -> tuple[tuple[int | Duplicate, ...], int]:
        """The ids, or duplicates, of a request's tasks, and how many are ready."""
        state, queue = self._state, self._queue
        waiting = queue.waiting
        ids: list[int | Duplicate] = []
        for new in request.tasks:
            if new.key is not None:
                if (twin := self._twin(new.key)) is not None:
                    ids.append(Duplicate(twin))
                    continue
                self._twins[new.key] = state.last.task + 1
            state.last.task += 1
            ready_at = state.wall + (micros(new.delay) if new.delay else 0)
            expires = None
            if new.expires is not None:
                expires = state.wall + micros(new.expires)
                state.soonest.task = sooner(expires, state.soonest.task)
            place = queue.line_up(ready_at, state.wall)
            self._orders.append((place, new.priority, ready_at, expires, new.meta, new.key))
            self._payloads.append(new.payload)
            ids.append(state.last.task)
            queue.put += 1
            queue.live += 1
        return tuple(ids), queue.waiting - waiting

    def insert(self) -> None:
        """Insert what was added, in one statement."""
        if not self._orders:
            return
        kinds = set(self._orders)
        place, priority, ready_at, expires, meta, key = kinds.pop()
        if kinds or key is not None:
            self._insert_each()
            return
        end = 1
        rows: list[list[int]] = []
        for payload in self._payloads:
            rows.append([end, len(payload)])
            end += len(payload)
        self._state.run(
            TASKS.insert_alike,
            queue=self._queue.id,
            id=self._first_id,
            place=place,
            priority=priority,
            ready_at=ready_at,
            expires=expires,
            meta=meta,
            rows=str(rows),
            bytes=joined(self._payloads),
        )

    def _insert_each(self) -> None:
        parts: list[bytes] = []
        rows: list[tuple[int | None, ...]] = []
        end = 1
        tasks = zip(self._orders, self._payloads, strict=True)
        for task, ((*order, meta, key), payload) in enumerate(tasks, self._first_id):
            key_at = key_size = None
            if key is not None:
                encoded = encoded_key(key)
                parts.append(encoded)
                key_at, key_size = end, len(encoded)
                end += key_size
            parts += meta, payload
            payload_at = end + len(meta)
            rows.append((task, *order, key_at, key_size, end, len(meta), payload_at, len(payload)))
            end = payload_at + len(payload)
        self._state.run(TASKS.insert, queue=self._queue.id, rows=json.dumps(rows), bytes=joined(parts))

    @property
    def _first_id(self) -> int:
        return self._state.last.task - len(self._orders) + 1

    def _twin(self, key: str) -> int | None:
        if key not in self._twins:
            row = self._state.one(TASKS.twin, queue=self._queue.id, key=encoded_key(key))
            self._twins[key] = row and row[0]
        return self._twins[key]
