"""Settling: the next state of tasks that leave their lease, or end without a lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenure.engine as e

from ._queues import DELAYED, ENDING, LEASED, Queue, Queues
from ._room import Room
from ._rows import Task, TaskRows
from ._state import Moment, Session, State
from ._takers import Takers

_UNTRIED = (e.Verdict.GIVE_BACK, e.Verdict.POSTPONE)
_STAYS_AHEAD = (
    e.Verdict.RETRY,
    e.Verdict.POSTPONE,
    e.Verdict.WAIT,
    e.Verdict.WAIT_FOR,
    e.Verdict.WAIT_FOR_END,
)


class Settling:
    families: Any
    """The `Families`, which set themselves here."""

    def __init__(self, state: State, queues: Queues, rows: TaskRows, room: Room, takers: Takers) -> None:
        self._state = state
        self._queues = queues
        self._rows = rows
        self._room = room
        self._takers = takers

    def settle_all(
        self, queue: Queue, session: Session, settles: Sequence[e.Settle], *, at_once: bool = False
    ) -> tuple[int, ...]:
        """Apply verdicts; return the refused tokens. The caller offers the tasks that can be taken.

        With `at_once`, the verdicts of tasks with unfinished children are refused too.
        """
        if not settles:
            return ()
        leases = self._rows.leased(queue, session, [settle.id for settle in settles])
        refused: list[int] = []
        accepted: list[tuple[Task, e.Settle]] = []
        behind: list[tuple[Task, e.Settle]] = []
        for settle in settles:
            lease = leases.get(settle.id)
            if at_once and lease is not None and lease.kin and self.families.unfinished(queue, lease.id):
                lease = None
            if lease is None or lease.token != settle.token:
                refused.append(settle.token)
            elif settle.verdict in (e.Verdict.NOTE, e.Verdict.ALONE):
                if settle.failure:
                    self._rows.update(queue, lease, failure=settle.failure)
                if settle.verdict is e.Verdict.ALONE:
                    self._rows.update(queue, lease, max_deliveries=0)
            else:
                del leases[settle.id]
                (behind if lease.kin or self._is_late(lease) else accepted).append((lease, settle))
        if accepted and queue.groups.named:
            self._end_groups(queue, accepted)
        self._settle(queue, session, accepted + behind)
        return tuple(refused)

    def _end_groups(self, queue: Queue, accepted: Sequence[tuple[Task, e.Settle]]) -> None:
        names = {lease.group for lease, _ in accepted if lease.group}
        gone = queue.groups.end([lease.id for lease, settle in accepted if settle.verdict is e.Verdict.DONE])
        left = queue.groups.read(names) if gone < len(names) else ()
        for lease, _ in accepted if gone else ():
            if lease.group not in left:
                lease.group = ""

    def _settle(self, queue: Queue, session: Session, accepted: Sequence[tuple[Task, e.Settle]]) -> None:
        groups = queue.groups
        for lease, settle in accepted:
            if settle.failure:
                self._rows.update(queue, lease, failure=settle.failure)
            follows = e.after_verdict(
                settle,
                lease.attempts,
                lease.deliveries,
                stop=lease.stop is not None,
                stop_ttl=lease.stop_ttl,
                unfinished=self.families.unfinished(queue, lease.id) if lease.kin else 0,
                late=self._is_late(lease),
            )
            if lease.group:
                groups.unlease(lease.group)
            if settle.verdict in _STAYS_AHEAD and not isinstance(follows, e.Ends):
                groups.pin(lease.group, lease.id)
            self._after(queue, lease, follows, session)
            if settle.verdict in _UNTRIED:
                groups.refund(lease.group)

    def _is_late(self, lease: Task) -> bool:
        return lease.stop is not None and lease.is_late(self._state.moment)

    def drop(self, found: tuple[str, int]) -> None:
        name, task_id = found
        queue: Queue = self._queues.get(name)
        task = self._rows.task(queue, task_id)
        assert task is not None
        takeable = queue.takeable
        if task.group:
            queue.groups.unlease(task.group)
        follows = e.without_verdict(
            task.attempts,
            task.deliveries,
            task.max_deliveries,
            self._state.process(task.session),
            stop=task.stop is not None,
            stop_ttl=task.stop_ttl,
            dead_ttl=task.dead_ttl,
            late=task.is_late(self._state.moment),
        )
        self._after(queue, task, follows)
        queue.groups.refund(task.group)
        self._takers.offer(queue, queue.takeable - takeable)

    def _after(
        self, queue: Queue, task: Task, follows: e.Ends | e.GoesBack | e.Waits, session: Session | None = None
    ) -> None:
        queue.stops -= bool(task.stop)
        if isinstance(follows, e.Waits):
            if self.families.wait(queue, task, follows):
                return
            follows = e.GoesBack(task.attempts, task.attempts, None)
        elif task.kin and self.families.keep(queue, task, follows):
            return
        if isinstance(follows, e.Ends):
            self.end(queue, task, follows, session)
        else:
            was_ready = min(task.ready_at, self._state.moment)  # wherever the clock was set back to
            ready_at = was_ready if follows.delay is None else self._state.after(follows.delay)
            self.give_back(queue, task, ready_at, follows.attempts, follows.deliveries)

    def give_back(self, queue: Queue, task: Task, ready_at: Moment, attempts: int, deliveries: int) -> None:
        """Put a task that is in no order back; the caller of this and the next methods offers the tasks that can be
        taken.
        """
        due = self._takers.due(queue)
        place = queue.enqueue(task.id, task.group, ready_at, self._state.moment)
        self.release(queue, task, place, ready_at, attempts, deliveries)
        if place == DELAYED:
            self._takers.offer_sooner(queue, due)

    def release(
        self, queue: Queue, task: Task, place: int, ready_at: Moment, attempts: int, deliveries: int
    ) -> None:
        self._rows.update(
            *(queue, task),
            place=place,
            ready_at=ready_at,
            attempts=attempts,
            deliveries=deliveries,
            session=None,
            token=0,
            stop=None,
        )

    def postpone(self, queue: Queue, task: Task, op: e.Move) -> None:
        former, state = task.group, self._state
        if op.group is not None and op.group != former:
            if op.group:
                queue.groups.count_in(op.group, queue.waiting)
            if former:
                queue.groups.count_out(former, task.id)
            task.group = op.group
        self.edit(queue, task, op)
        ready_at = task.ready_at if op.delay is None else state.after(op.delay)
        self.give_back(queue, task, ready_at, task.attempts, task.deliveries)
        if task.group != former:
            self._room.make_room(queue, former)

    def edit(self, queue: Queue, task: Task, op: e.Move) -> None:
        new = {"payload": op.payload, "priority": op.priority, "group": op.group}
        if changes := {name: value for name, value in new.items() if value is not None}:
            self._rows.update(queue, task, **changes)

    def cancel(self, queue: Queue, task: Task, ttl: float | None, state: str = "cancelled") -> None:
        if task.place == LEASED:
            if not task.stop:
                queue.stops += 1
                self._rows.update(queue, task, stop=self._state.rank(), stop_ttl=ttl)
                process = self._state.process(task.session)
                self._state.hint(process, queue.name, str(task.token), e.Notice.STOP)
                if task.kin:
                    self.families.sweep_children(queue, task)
        elif task.place == ENDING:
            self.families.cancel(queue, task, ttl, state)
        else:
            self.end_untaken(queue, task, state, ttl)

    def end_untaken(self, queue: Queue, task: Task, state: str, ttl: float | None) -> None:
        queue.dequeue(task.place, task.group)
        ends = e.Ends(state, task.attempts, b"", ttl)
        if not (task.kin and self.families.keep(queue, task, ends)):
            self.end(queue, task, ends)

    def remove(self, queue: Queue, task: int, group: str) -> None:
        queue.live -= 1
        if group:
            queue.groups.count_out(group, task)
        if queue.producers or queue.groups.producers:
            self._room.make_room(queue, group)
        if not queue.live:
            self._state.notify_watchers("drain", queue.name, e.Notice.DRAINED)

    def end(self, queue: Queue, task: Task, ends: e.Ends, session: Session | None = None) -> None:
        if ends.state != "done" and task.kin and self.families.is_release(queue, task.id):
            ends = e.as_letter(ends)
        state, ttl = self._state, ends.ttl
        self.remove(queue, task.id, task.group)
        queue.count(ends.state)
        expires = None if ttl is None else state.after(ttl)
        if ends.state != "purged":
            queue.lasting += ttl is None
            settled = state.moment if session is None else state.after(2 * session.ttl)
            # a dead letter keeps its queue by being there
            listed = state.moment if expires is None or ends.state == "dead" else expires
            queue.keep_until = max(queue.keep_until, settled, listed)
            state.last.ending += 1
        self._rows.end(queue, task, ends, expires)
        if task.kin:
            self.families.ended(queue, task.id, ends.state, ends.result)

    def expire(self) -> None:
        while expired := self._rows.expired():
            for name, task in expired:
                if not self._state.step():
                    return
                queue: Queue = self._queues.get(name)
                takeable = queue.takeable
                self._expire(queue, task)
                self._takers.offer(queue, queue.takeable - takeable)

    def _expire(self, queue: Queue, task: Task) -> None:
        now, rows = self._state.moment, self._rows
        if task.kin:  # its children that came before it may have changed it
            found = rows.task(queue, task.id)
            if found is None or found.expires is None or found.expires > now:
                return
            task = found
        if task.place >= LEASED and not task.is_late(now):  # it began before its time came
            rows.update(queue, task, expires=task.deadline)
            return
        if task.place >= LEASED or task.kin:
            rows.update(queue, task, expires=None)
        self.cancel(queue, task, e.EXPIRED_TTL, "expired")
