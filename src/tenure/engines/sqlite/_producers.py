"""Producers: they put tasks into a queue that has room, or wait in line until their slots are reserved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tenure.engine import (
    Accepted,
    Conflict,
    Duplicate,
    Leave,
    NewTask,
    Put,
    PutAnswer,
    PutOne,
    PutRequest,
    Queued,
    Reply,
)

from ._clock import micros
from ._keys import Keys, delay_since
from ._queue import IN_GROUP, IN_LINE, RESERVED, Queue, Queues
from ._records import encoded_name
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
        batch = Batch(state, self._queues, queue)
        self._expect_groups(queue, op.requests)
        answer = PutAnswer(tuple(self._put(queue, session, request, batch) for request in op.requests))
        batch.insert()
        state.replies.cache(session, op.n, name, answer)
        return answer

    def put_one(self, op: PutOne) -> int | Duplicate | Reply:
        """Within a transaction of the user's."""
        queue = self._queues.get(op.key)
        queue.max_size = op.max_size
        self._queues.admit(queue)
        batch = Batch(self._state, self._queues, queue)
        request = PutRequest("", (op.task,), wait=False)
        self._expect_groups(queue, (request,))
        # a placeholder: without waiting, no session is needed
        answer = self._put(queue, Session(0, "", 0), request, batch)
        batch.insert()
        return answer.ids[0] if isinstance(answer, Accepted) else Reply.REFUSED

    def _expect_groups(self, queue: Queue, requests: tuple[PutRequest, ...]) -> None:
        names = [task.group for request in requests for task in request.tasks if task.group]
        if names:
            self._queues.groups(queue).expect(map(encoded_name, names))

    def _put(
        self, queue: Queue, session: Session, request: PutRequest, batch: Batch
    ) -> Accepted | Conflict | Queued | Reply:
        state = self._state
        known = None
        if queue.producers or queue.reserved or (queue.groups is not None and queue.groups.producers):
            known = state.one(QUEUES.producer, queue=queue.id, name=request.producer)
        if known is None:
            if self._has_room(queue, request, batch):
                return self._accept(queue, request, batch)
            known = self._wait(queue, session, request)
            if known is None:
                return Reply.REFUSED
        producer, count, ordinal, place, group = known
        if place == RESERVED:
            state.run(QUEUES.delete_producer, id=producer)
            queue.reserved -= count
            if queue.groups is not None:
                queue.groups.reserve(group, -count)
            answer = self._accept(queue, request, batch)
            self._queues.make_room(queue, group)
            return answer
        if place == IN_LINE:
            (head,) = state.one(QUEUES.producers_head, queue=queue.id)
        else:
            *_, head = state.one(QUEUES.first_in_group, queue=queue.id, group=group)
        return Queued(ordinal - head + 1, state.ask_again_in())

    def _has_room(self, queue: Queue, request: PutRequest, batch: Batch) -> bool:
        if not request.tasks:
            return True
        new = batch.count_new(request)
        if not new:
            return True
        if queue.producers or queue.room < new:
            return False
        groups = queue.groups
        if groups is None or not groups.max_size:
            return True
        needs = batch.count_new_in_groups(request)
        return all(groups.room(group) >= count for group, count in needs.items())

    def _wait(self, queue: Queue, session: Session, request: PutRequest) -> Any:
        """Join a line, if the request may wait; returns the row of the producer."""
        count, group, place = len(request.tasks), b"", IN_LINE
        if not request.wait or count > queue.max_size:
            return None
        groups = queue.groups
        if groups is not None:
            line = groups.line_of([encoded_name(task.group) for task in request.tasks])
            if line is None:
                return None
            group = line
            if groups.room(group) < count:
                groups.join(group)
                place = IN_GROUP
            else:
                groups.reserve(group, count)
        queue.ordinal += 1
        queue.producers += place == IN_LINE
        self._state.run(
            QUEUES.new_producer,
            queue=queue.id,
            name=request.producer,
            session=session.number,
            count=count,
            ordinal=queue.ordinal,
            place=place,
            group=group,
        )
        return 0, count, queue.ordinal, place, group

    def _accept(self, queue: Queue, request: PutRequest, batch: Batch) -> Accepted | Conflict:
        if request.cursor is not None and request.expected is not None:
            row = self._state.one(QUEUES.cursor, queue=queue.id, name=request.cursor[0])
            value = b"" if row is None else row[0]
            if value != request.expected:
                return Conflict(value)
        due, takeable = self._queues.due(queue), queue.takeable
        ids = batch.add(request)
        if request.cursor is not None:
            name, value = request.cursor
            self._state.run(QUEUES.set_cursor, queue=queue.id, name=name, value=value)
        if queue.takers:
            self._queues.offer(queue, queue.takeable - takeable)
            self._queues.offer_sooner(queue, due)
        return Accepted(ids)

    def leave(self, op: Leave) -> Reply:
        queue = self._queues.find(op.key)
        known = queue and self._state.one(QUEUES.producer, queue=queue.id, name=op.producer)
        if queue is None or known is None:
            return Reply.UNKNOWN
        producer, count, _, place, group = known
        self._state.run(QUEUES.delete_producer, id=producer)
        if queue.groups is not None and place == IN_GROUP:
            queue.groups.leave(group)
        elif queue.groups is not None:
            queue.groups.reserve(group, -count)
        if place == RESERVED:
            queue.reserved -= count
        elif place == IN_LINE:
            queue.producers -= 1
        self._queues.make_room(queue, group)
        return Reply.RELEASED if place == RESERVED else Reply.LEFT

    def drop(self, thing: Any) -> None:
        """The session of a producer has ended."""
        queue, producer = thing
        self.leave(Leave(queue, producer))


Order = tuple[int, int, int, int | None, bytes, bytes | None]
"""What a new task is but for its payload and group: place, priority, ready_at, expires, meta and key."""


class Batch:
    """The new tasks of one operation, inserted together."""

    def __init__(self, state: State, queues: Queues, queue: Queue) -> None:
        self._state = state
        self._queue = queue
        self._orders: list[Order] = []
        self._groups: list[bytes] = []
        self._payloads: list[bytes] = []
        self._keys = Keys(state, queues, queue)

    def count_new(self, request: PutRequest) -> int:
        """How many tasks of a request are put beside those that have the same keys."""
        keyed = [task for task in request.tasks if task.key is not None]
        return len(request.tasks) - len(keyed) + sum(self._new_ones(keyed) if keyed else ())

    def count_new_in_groups(self, request: PutRequest) -> Counter[bytes]:
        """The same by group."""
        tasks = zip(request.tasks, self._new_ones(request.tasks), strict=True)
        return Counter(encoded_name(task.group) for task, is_new in tasks if is_new)

    def _new_ones(self, tasks: Sequence[NewTask]) -> list[bool]:
        """Of each task whether it is put beside the one that has its key; of two with a key, only one is."""
        keys: set[str] = set()
        new: list[bool] = []
        for task in tasks:
            new.append(task.key is None or (task.key not in keys and self._keys.is_new(task.key, task)))
            if new[-1] and task.key is not None:
                keys.add(task.key)
        return new

    def add(self, request: PutRequest) -> tuple[int | Duplicate, ...]:
        """The ids, or duplicates, of a request's tasks."""
        state, queue = self._state, self._queue
        groups = queue.groups
        ids: list[int | Duplicate] = []
        for new in request.tasks:
            delay = micros(new.delay) if new.delay else 0
            if new.key is not None:
                if not self._keys.is_new(new.key, new):
                    if new.on_duplicate == "replace":
                        self._flush()
                    ids.append(self._keys.meet(new.key, new))
                    continue
                self._keys.give(new.key, new, state.last.task + 1)
                delay = delay_since(new, 0)
            state.last.task += 1
            ready_at = state.wall + delay
            expires = None
            if new.expires is not None:
                expires = state.wall + micros(new.expires)
                state.soonest.task = sooner(expires, state.soonest.task)
            group = b""
            if new.group and groups is not None:
                group = encoded_name(new.group)
                groups.come(group)
            place = queue.line_up(state.last.task, group, ready_at, state.wall)
            key = None if new.key is None else encoded_name(new.key)
            self._orders.append((place, new.priority, ready_at, expires, new.meta, key))
            self._groups.append(group)
            self._payloads.append(new.payload)
            ids.append(state.last.task)
            queue.put += 1
            queue.live += 1
        if not queue.due_is_known:
            self._flush()
        return tuple(ids)

    def _flush(self) -> None:
        """What was added so far has to be found by statements."""
        self.insert()
        self._orders, self._groups, self._payloads = [], [], []

    def insert(self) -> None:
        """Insert what was added, in one statement."""
        if not self._orders:
            return
        kinds = set(self._orders)
        place, priority, ready_at, expires, meta, key = kinds.pop()
        if kinds or key is not None:
            self._insert_each()
            return
        in_groups = any(self._groups)
        parts = self._payloads + self._groups if in_groups else self._payloads
        end = 1
        rows: list[list[int]] = []
        for part in parts:
            rows.append([end, len(part)])
            end += len(part)
        if in_groups:
            count = len(self._payloads)
            rows = [[*payload, *group] for payload, group in zip(rows[:count], rows[count:], strict=True)]
        self._state.run(
            TASKS.insert_alike,
            queue=self._queue.id,
            id=self._first_id,
            place=place,
            priority=priority,
            ready_at=ready_at,
            expires=expires,
            meta=meta,
            in_groups=int(in_groups),
            rows=str(rows),
            bytes=joined(parts),
        )

    def _insert_each(self) -> None:
        tasks = enumerate(zip(self._orders, self._groups, self._payloads, strict=True), self._first_id)
        queue, now = self._queue.id, self._state.wall
        if self._keys.given:
            keyed = [(task, queue, *order, group, now, payload) for task, (order, group, payload) in tasks]
            self._state.many(TASKS.insert_keyed, keyed)
            return
        rows = [(task, queue, *order, group, payload) for task, (order, group, payload) in tasks]
        self._state.many(TASKS.insert, rows)

    @property
    def _first_id(self) -> int:
        return self._state.last.task - len(self._orders) + 1
