"""What is asked about queues from outside: counts, listings, dead letters, purging."""

from __future__ import annotations

from typing import Any

from tenure.engine import Browse, Changed, Count, Page, Purge, QueueCounts, Record, Reply, Requeue

from ._clock import seconds
from ._endings import Endings
from ._queue import Queue, Queues
from ._sql import QUEUES, TASKS
from ._state import State

_ENDED_STATES = ("done", "dead", "discarded", "cancelled", "expired")
_PAGE = 64


class Admin:
    """Administration of queues."""

    def __init__(self, state: State, queues: Queues, endings: Endings) -> None:
        self._state = state
        self._queues = queues
        self._endings = endings

    def requeue(self, op: Requeue) -> Changed | Reply:
        state = self._state
        queue = self._queues.get(op.queue)
        wanted = None if op.ids is None else set(op.ids)
        changed = after = 0
        while dead := state.all(TASKS.dead, queue=queue.id, after=after, count=_PAGE):
            after = dead[-1][0]
            for _, task, key in dead:
                if wanted is not None and task not in wanted:
                    continue
                if key is not None and state.one(TASKS.twin, queue=queue.id, key=key) is not None:
                    continue
                if changed == state.cap:
                    return Changed(changed, more=True)
                changed += 1
                self._revive(queue, task)
        return Changed(changed, more=False)

    def _revive(self, queue: Queue, task: int) -> None:
        state = self._state
        state.run(TASKS.revive, id=task, now=state.wall)
        state.run(TASKS.forget_one, id=task)
        queue.dead -= 1
        queue.live += 1
        queue.waiting += 1
        self._queues.offer(queue, 1)

    def purge(self, op: Purge) -> Changed | Reply:
        queue = self._queues.get(op.queue)
        left = self._state.cap
        for state in op.in_order:
            purge = self._purge_unfinished if state in ("waiting", "delayed") else self._purge_ended
            left -= purge(queue, state, left)
        return Changed(self._state.cap - left, left == 0)

    def _purge_unfinished(self, queue: Queue, name: str, count: int) -> int:
        state = self._state
        tasks = state.all(
            TASKS.in_state, queue=queue.id, delayed=name == "delayed", now=state.wall, count=count
        )
        self._endings.expect(queue, [task for task, _ in tasks])
        for task, place in tasks:
            queue.step_out(place)
            queue.purged += 1
            self._endings.remove(queue)
            self._endings.finished(queue, task)
        self._endings.write()
        if tasks:
            state.run(TASKS.delete, ids=str([task for task, _ in tasks]))
        return len(tasks)

    def _purge_ended(self, queue: Queue, name: str, count: int) -> int:
        state = self._state
        purged = state.run(
            TASKS.purge_ended, queue=queue.id, state=name, now=state.wall, count=count
        ).rowcount
        if name == "dead":
            queue.dead -= purged
            queue.purged += purged
        return purged

    def browse(self, op: Browse) -> Page:
        queue = self._queues.find(op.queue)
        if queue is None:
            return Page(())
        if op.state in ("ended", "dead"):
            return Page(self._browse_ended(queue, op))
        about: dict[str, Any] = {"queue": queue.id, "after": op.after, "limit": op.limit}
        if op.state == "leased":
            rows = self._state.all(TASKS.browse_leased, **about)
        elif op.state in ("waiting", "delayed"):
            about |= {"delayed": op.state == "delayed", "now": self._state.wall}
            rows = self._state.all(TASKS.browse_unleased, **about)
        else:
            rows = []
        return Page(tuple(self._show_unfinished(op.state, *row) for row in rows))

    def _browse_ended(self, queue: Queue, op: Browse) -> tuple[Record, ...]:
        wall = self._state.wall
        rows: list[Any] = []
        for name in ("dead",) if op.state == "dead" else _ENDED_STATES:
            rows += self._state.all(
                TASKS.browse_ended, queue=queue.id, state=name, after=op.after, now=wall, limit=op.limit
            )
        return tuple(self._show_ended(*row) for row in sorted(rows)[: op.limit])

    def _show_unfinished(
        self,
        state: str,
        task: int,
        payload: bytes,
        priority: int,
        key: bytes | None,
        attempts: int,
        deliveries: int,
        ready_at: int,
    ) -> Record:
        age = seconds(self._state.wall - ready_at)
        return Record(task, task, state, payload, priority, _key(key), attempts, deliveries, b"", age)

    def _show_ended(
        self,
        seq: int,
        task: int,
        state: str,
        payload: bytes,
        priority: int,
        key: bytes | None,
        attempts: int,
        deliveries: int,
        result: bytes,
        ended_at: int,
    ) -> Record:
        age = seconds(self._state.wall - ended_at)
        return Record(seq, task, state, payload, priority, _key(key), attempts, deliveries, result, age)

    def count(self, op: Count) -> QueueCounts | Reply:
        state = self._state
        if op.watch:
            session = state.session(op.watch)
            if session is None:
                return Reply.GONE
            state.watch("drain", op.queue, 0, session)
        queue = self._queues.find(op.queue) or Queue(0, op.queue, *[0] * 17)
        waiting, delayed, leased = queue.waiting, queue.delayed, queue.live - queue.waiting - queue.delayed
        dead, due = queue.dead, 0
        if op.recount:
            waiting, delayed, leased, dead = state.one(TASKS.recount, queue=queue.id)
        if delayed:
            due = state.one(TASKS.count_due, queue=queue.id, now=state.wall)[0]
        return QueueCounts(
            put=queue.put,
            waiting=waiting + due,
            delayed=delayed - due,
            leased=leased,
            done=queue.done,
            dead=dead,
            cancelled=queue.cancelled,
            expired=queue.expired,
            discarded=queue.discarded,
            purged=queue.purged,
            reserved=queue.reserved,
            producers=queue.producers,
            paused=bool(queue.paused),
            oldest=self._oldest(queue),
            cursors=tuple(sorted(state.all(QUEUES.cursors, queue=queue.id))),
            ask_again_in=state.ask_again_in(),
        )

    def _oldest(self, queue: Queue) -> float:
        """For how many seconds the longest waiting task has been ready."""
        moments = [self._state.wall]
        if queue.waiting:
            moments += self._state.one(TASKS.oldest, queue=queue.id)
        if (due := self._queues.due(queue)) is not None:
            moments.append(due)
        return seconds(self._state.wall - min(moments))


def _key(key: bytes | None) -> str | None:
    return None if key is None else key.decode("utf-8", "surrogatepass")
