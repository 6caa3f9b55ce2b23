"""Producers: they put tasks into a queue, or wait in line until slots are reserved for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import tenure.engine as e

from ._cursors import Cursors
from ._keys import Keys, delay_since
from ._queues import Queue, Queues
from ._room import RESERVED, Producer, Room
from ._rows import TaskRows, earlier
from ._settling import Settling
from ._state import State
from ._takers import Takers


class Producers:
    def __init__(
        self, state: State, queues: Queues, rows: TaskRows, room: Room, takers: Takers, settling: Settling
    ) -> None:
        self._state = state
        self._queues = queues
        self._cursors = Cursors(state)
        self._rows = rows
        self._room = room
        self._takers = takers
        self._settling = settling

    def put(self, op: e.Put) -> e.PutAnswer | e.Reply:
        state = self._state
        known = state.cached_reply(op.session, op.n, name := f"put {op.key}")
        if known is not None:
            return known
        session = state.session(op.session)
        assert session is not None
        queue = self._queue(op)
        tasks = [task for request in op.requests for task in request.tasks]
        queue.groups.read({task.group for task in tasks if task.group})
        keys = Keys(state, self._rows, self._room, self._settling, queue, tasks)
        answer = e.PutAnswer(
            tuple([self._put(queue, session.number, request, keys) for request in op.requests]),
            queue.revision,
        )
        state.cache_reply(op.session, op.n, name, answer)
        return answer

    def put_one(self, op: e.PutOne) -> int | e.Duplicate | e.Reply:
        queue = self._queue(op)
        request = e.PutRequest("", (op.task,), wait=False)
        # without waiting, no session is needed
        keys = Keys(self._state, self._rows, self._room, self._settling, queue, request.tasks)
        answer = self._put(queue, 0, request, keys)
        return answer.ids[0] if isinstance(answer, e.Accepted) else e.Reply.REFUSED

    def leave(self, op: e.Leave) -> e.Reply:
        queue = self._queues.find(op.key)
        producer = self._room.find(queue, op.producer) if queue is not None else None
        if queue is None or producer is None:
            return e.Reply.UNKNOWN
        self._room.remove(queue, producer)
        self._room.make_room(queue, producer.group)
        return e.Reply.RELEASED if producer.place == RESERVED else e.Reply.LEFT

    def _queue(self, op: e.Put | e.PutOne) -> Queue:
        queue: Queue = self._queues.get(op.key)
        self._room.admit(queue)
        return queue

    def _put(
        self, queue: Queue, session: int, request: e.PutRequest, keys: Keys
    ) -> e.Accepted | e.Conflict | e.Queued | e.Reply:
        producer = self._room.find(queue, request.producer)
        if producer is None:
            if self._has_room(queue, request, keys):
                return self._accept(queue, request, keys)
            producer = self._wait(queue, session, request)
            if producer is None:
                return e.Reply.REFUSED
        if producer.place == RESERVED:
            self._room.remove(queue, producer)
            answer = self._accept(queue, request, keys)
            self._room.make_room(queue, producer.group)
            return answer
        return e.Queued(self._room.position(producer), self._state.ask_again_in())

    def _has_room(self, queue: Queue, request: e.PutRequest, keys: Keys) -> bool:
        new = _new(request.tasks, keys)
        if not new:
            return True
        if queue.producers or queue.room < len(new):
            return False
        groups = queue.groups
        if not groups.max_size:
            return True
        return all(
            groups.room(group) >= count for group, count in Counter(task.group for task in new).items()
        )

    def _wait(self, queue: Queue, session: int, request: e.PutRequest) -> Producer | None:
        count = len(request.tasks)
        if not request.wait or count > queue.settings.max_size:
            return None
        group = queue.groups.line_of([task.group for task in request.tasks])
        if group is None:
            return None
        return self._room.join(queue, request.producer, session, count, group)

    def _accept(self, queue: Queue, request: e.PutRequest, keys: Keys) -> e.Accepted | e.Conflict:
        if request.cursor is not None and request.expected is not None:
            value = self._cursors.value(queue, request.cursor[0])
            if value != request.expected:
                return e.Conflict(value)
        due, takeable = self._takers.due(queue), queue.takeable
        ids = self._add(queue, request.tasks, keys)
        if request.cursor is not None:
            self._cursors.set(queue, *request.cursor)
        if queue.takers:
            self._takers.offer(queue, queue.takeable - takeable)
            self._takers.offer_sooner(queue, due)
        return e.Accepted(ids)

    def _add(self, queue: Queue, tasks: Sequence[e.NewTask], keys: Keys) -> tuple[int | e.Duplicate, ...]:
        state = self._state
        enqueue, add, now = queue.enqueue, self._rows.add, state.moment
        ids: list[int | e.Duplicate] = []
        for new in tasks:
            delay = new.delay
            if new.key is not None:
                if not keys.is_new(new.key, new):
                    ids.append(keys.on_duplicate_key(new.key, new))
                    continue
                delay = delay_since(new, 0.0)
            task = state.token()
            if new.key is not None:
                keys.give(new.key, new, task)
            ready_at = state.after(delay) if delay else now
            expires = None if new.expires is None else state.after(new.expires)
            deadline = None
            if new.deadline is not None:
                deadline = state.after(new.deadline)
                expires = earlier(expires, deadline)
            place = (queue.enqueue_new if new.group else enqueue)(task, new.group, ready_at, now)
            queue.put += 1
            queue.live += 1
            add(queue, task, new, place, ready_at, expires, deadline)
            ids.append(task)
        return tuple(ids)


def _new(tasks: Sequence[e.NewTask], keys: Keys) -> Sequence[e.NewTask]:
    """The tasks that are put beside the tasks with the same keys; of two new tasks with a key, only the first."""
    if not [task for task in tasks if task.key is not None]:
        return tasks
    seen: set[str] = set()
    new: list[e.NewTask] = []
    for task in tasks:
        if task.key is None:
            new.append(task)
        elif task.key not in seen and keys.is_new(task.key, task):
            seen.add(task.key)
            new.append(task)
    return new
