"""Tasks: taken in the order of priority or age, leased, fenced and settled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

from tenure.engine import (
    EXPIRED_TTL,
    Complete,
    CompleteAll,
    Ends,
    Exchange,
    Exchanged,
    Found,
    GetResult,
    GetTask,
    GoesBack,
    Outcome,
    Progress,
    Reply,
    SetGroups,
    SetPaused,
    Settle,
    Taken,
    Unfinished,
    Verdict,
    after_verdict,
    how_many_to_forget,
    without_verdict,
)

from ._clock import micros, moment, seconds
from ._endings import Endings
from ._groups import Groups, Turn
from ._queue import LEASED, Queue, Queues
from ._records import decoded_name, encoded_name, ended_record, unfinished_record
from ._session import Session
from ._sql import QUEUES, TASKS
from ._state import State

_PAGE = 64
_UNTRIED = (Verdict.GIVE_BACK, Verdict.POSTPONE)
_STAYS_AHEAD = (Verdict.RETRY, Verdict.POSTPONE)


class Task(NamedTuple):
    """One unfinished task, as it is stored."""

    id: int
    place: int
    ready_at: int
    attempts: int
    deliveries: int
    session: int | None
    token: int
    stop: int | None
    stop_ttl: int | None
    max_deliveries: int
    dead_ttl: int | None
    expires: int | None
    group: bytes


class Lease(NamedTuple):
    """What settling needs of a leased task."""

    id: int
    token: int
    attempts: int
    deliveries: int
    ready_at: int
    stop: int | None
    stop_ttl: int | None
    group: bytes = b""


class Tasks:
    """The family of tasks."""

    def __init__(self, state: State, queues: Queues, endings: Endings) -> None:
        self._state = state
        self._queues = queues
        self._endings = endings

    # ------------------------------------------------------------------------------------------ takers

    def exchange(self, op: Exchange) -> Exchanged | Reply:
        state, queues = self._state, self._queues
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        known = state.replies.cached(session, op.n, name := f"exchange {op.key}")
        if known is not None:
            return known
        queue = queues.get(op.key)
        takeable = queue.takeable
        refused = self._settle_all(queue, session, op.settle)
        self._promote(queue)
        tasks = self._take(queue, session, op)
        queues.register(queue, session, op.want - len(tasks) if op.wait else 0)
        queues.offer(queue, queue.takeable - takeable)
        stop: list[Any] = []
        if queue.stops:
            stop = state.all(TASKS.stops, queue=queue.id, session=session.number)
        again = state.ask_again_in(moment(queues.due(queue)))
        answer = Exchanged(tuple(tasks), refused, tuple(row[0] for row in stop), bool(queue.paused), again)
        state.replies.cache(session, op.n, name, answer)
        return answer

    def _promote(self, queue: Queue) -> None:
        due = self._queues.due(queue)
        if due is None or due > self._state.wall:
            return
        state = self._state
        if queue.groups is not None and queue.groups.named:
            rows = state.all(TASKS.are_due, queue=queue.id, now=state.wall, limit=state.cap)
            for task, group in queue.groups.of_tasks(row[3] for row in rows).items():
                queue.groups.add(group, task)
        moved = state.run(TASKS.promote, queue=queue.id, now=state.wall, count=state.cap).rowcount
        queue.delayed -= moved
        queue.waiting += moved
        queue.due_is_known = False

    def _take(self, queue: Queue, session: Session, op: Exchange) -> list[Taken]:
        tasks: list[Taken] = []
        if queue.paused or not queue.waiting or op.want <= 0:
            return tasks
        if queue.groups is not None and queue.groups.named:
            return self._take_turns(queue, session, op, queue.groups.take(op.want))
        if op.aging is not None:
            before = self._state.wall - micros(op.aging)
            found = self._state.one(TASKS.first_by_age, queue=queue.id, count=op.want, before=before)
            tasks += self._lease(queue, session, op, found)
        if len(tasks) < op.want and queue.waiting:
            found = self._state.one(TASKS.first_by_priority, queue=queue.id, count=op.want - len(tasks))
            tasks += self._lease(queue, session, op, found)
        return tasks

    def _take_turns(self, queue: Queue, session: Session, op: Exchange, turns: list[Turn]) -> list[Taken]:
        """Take the next tasks of groups, in the order of their turns."""
        count = Counter(turn.group for turn in turns)
        before = None if op.aging is None else self._state.wall - micros(op.aging)
        next_in: dict[bytes, Iterator[int]] = {}
        ids: list[int] = []
        for turn in turns:
            if turn.bound:
                ids.append(turn.bound)
            elif count[turn.group] == 1 and before is None:
                ids.append(turn.first)
            else:
                if turn.group not in next_in:
                    next_in[turn.group] = self._next_in(queue, turn.group, count[turn.group], before)
                ids.append(next(next_in[turn.group]))
        names = [decoded_name(turn.group) for turn in turns]
        return self._lease(queue, session, op, self._state.one(TASKS.these, ids=str(ids)), names)

    def _next_in(self, queue: Queue, group: bytes, count: int, before: int | None) -> Iterator[int]:
        """The next tasks of a group: those that have been ready for long, and then the others by priority."""
        about = {"queue": queue.id, "group": group, "count": count}
        old: list[Any] = []
        if before is not None:
            old = self._state.all(TASKS.group_by_age, **about, before=before)
        rows = old
        if len(old) < count:
            rows = dict.fromkeys([*old, *self._state.all(TASKS.group_by_priority, **about)])
        return (row[0] for row in rows)

    def _lease(
        self, queue: Queue, session: Session, op: Exchange, found: Any, groups: Iterable[str] = repeat("")
    ) -> list[Taken]:
        rows = json.loads(found[0])
        if not rows:
            return []
        state, parts = self._state, found[1]
        at = 0
        tasks: list[Taken] = []
        ids: list[int] = []
        for (task, priority, attempts, deliveries, ready_at, size, sizes), group in zip(
            rows, groups, strict=False
        ):
            payload = parts[at : (at := at + size)]
            progress = failure = meta = b""
            if sizes:
                progress, failure, meta = [parts[at : (at := at + int(n))] for n in sizes.split()]
            waited = seconds(state.wall - ready_at)
            token = state.token()
            ids.append(task)
            tasks.append(
                Taken(
                    task,
                    token,
                    payload,
                    priority,
                    attempts,
                    deliveries + 1,
                    waited,
                    progress,
                    failure,
                    meta,
                    group,
                )
            )
        state.run(
            TASKS.lease,
            ids=str(ids),
            session=session.number,
            token=tasks[0].token,
            max_deliveries=op.max_deliveries,
            keep=op.keep,
            dead_ttl=micros_or_none(op.dead_ttl),
        )
        state.changed(ids)
        queue.waiting -= len(ids)
        return tasks

    def drop_taker(self, thing: Any) -> None:
        """The session of an idle taker has ended."""
        name, taker = thing
        self._queues.drop_taker(self._queues.get(name), taker)

    # ------------------------------------------------------------------------------------------ settling

    def _settle_all(self, queue: Queue, session: Session, settles: tuple[Settle, ...]) -> tuple[int, ...]:
        if not settles:
            return ()
        ids = str([settle.id for settle in settles])
        found = self._state.one(TASKS.leased, ids=ids, queue=queue.id, session=session.number)
        leases = {row[0]: Lease(*row) for row in json.loads(found[0])}
        self._endings.expect(queue, list(leases))
        refused: list[int] = []
        accepted: list[tuple[Lease, Settle]] = []
        for settle in settles:
            lease = leases.get(settle.id)
            if lease is None or lease.token != settle.token:
                refused.append(settle.token)
            else:
                accepted.append((leases.pop(settle.id), settle))
        if queue.groups is not None and queue.groups.named:
            accepted = self._in_groups(queue.groups, accepted)
        for lease, settle in accepted:
            if settle.failure:
                self._state.run(TASKS.set_failure, id=settle.id, failure=settle.failure)
            self._settle(queue, session, lease, settle)
        self._endings.write()
        return tuple(refused)

    def _in_groups(self, groups: Groups, accepted: list[tuple[Lease, Settle]]) -> list[tuple[Lease, Settle]]:
        """The same with the groups of the leases, but for groups that end with them: those are forgotten at once."""
        ended = groups.end([lease.id for lease, settle in accepted if settle.verdict is Verdict.DONE])
        if ended == len(accepted):
            return accepted
        names = groups.of_tasks([lease.id for lease, _ in accepted])
        return [(lease._replace(group=names.get(lease.id, b"")), settle) for lease, settle in accepted]

    def complete(self, op: Complete) -> Reply:
        """Within a transaction of the user's."""
        refused = self.complete_all(CompleteAll(op.session, op.key, (op.settle,)))
        if isinstance(refused, Reply):
            return refused
        return Reply.REFUSED if refused else Reply.OK

    def complete_all(self, op: CompleteAll) -> tuple[int, ...] | Reply:
        """Within a transaction of the user's."""
        session = self._state.session(op.session)
        if session is None:
            return Reply.GONE
        queue = self._queues.get(op.key)
        takeable = queue.takeable
        refused = self._settle_all(queue, session, op.settle)
        self._queues.offer(queue, queue.takeable - takeable)
        return refused

    def _settle(self, queue: Queue, session: Session, lease: Lease, settle: Settle) -> None:
        stop = bool(lease.stop)
        stop_ttl = _seconds_or_none(lease.stop_ttl)
        follows = after_verdict(settle, lease.attempts, lease.deliveries, stop=stop, stop_ttl=stop_ttl)
        groups = queue.groups
        if groups is None:
            self._after(queue, lease, follows, session)
            return
        groups.unlease(lease.group)
        if settle.verdict in _STAYS_AHEAD and isinstance(follows, GoesBack):
            groups.bind(lease.group, lease.id)
        self._after(queue, lease, follows, session)
        if settle.verdict in _UNTRIED:
            groups.refund(lease.group)

    def drop(self, thing: Any) -> None:
        """The session that held the task has ended."""
        name, task_id = thing
        queue = self._queues.get(name)
        task = self._task(queue, task_id)
        assert task is not None
        task = task._replace(stop=None if task.stop is None else 1)  # one that is superseded has 0
        takeable = queue.takeable
        if queue.groups is not None:
            queue.groups.unlease(task.group)
        self._endings.expect(queue, [task.id])
        follows = without_verdict(
            task.attempts,
            task.deliveries,
            task.max_deliveries,
            stop=bool(task.stop),
            stop_ttl=_seconds_or_none(task.stop_ttl),
            dead_ttl=_seconds_or_none(task.dead_ttl),
        )
        self._after(queue, task, follows)
        if queue.groups is not None:
            queue.groups.refund(task.group)
        self._endings.write()
        self._queues.offer(queue, queue.takeable - takeable)

    def _after(
        self, queue: Queue, task: Lease | Task, follows: Ends | GoesBack, session: Session | None = None
    ) -> None:
        queue.stops -= bool(task.stop)
        match follows:
            case Ends(state, attempts, result, ttl):
                ttl_of_record = micros_or_none(ttl)
                self._endings.end(queue, task.id, task.group, state, attempts, result, ttl_of_record, session)
            case GoesBack(attempts, deliveries, delay):
                ready_at = task.ready_at if delay is None else self._state.wall + micros(delay)
                self._endings.give_back(queue, task.id, task.group, ready_at, attempts, deliveries)

    # ------------------------------------------------------------------------------------------ single tasks

    def progress(self, op: Progress) -> Reply:
        queue = self._queues.find(op.key)
        task = queue and self._task(queue, op.id)
        if task is None or task.place != LEASED or task.token != op.token:
            return Reply.REFUSED
        self._state.run(TASKS.set_progress, id=op.id, data=op.data)
        self._state.changed([op.id])
        return Reply.REQUESTED if task.stop else Reply.OK

    def get_result(self, op: GetResult) -> Outcome | Unfinished | Reply:
        state = self._state
        session = state.session(op.watch) if op.watch else None
        if op.watch and session is None:
            return Reply.GONE
        queue = self._queues.find(op.key)
        if queue is None:
            return Reply.UNKNOWN
        task = self._task(queue, op.id)
        if task is None:
            ended = state.one(TASKS.outcome, id=op.id, queue=queue.id, now=state.wall)
            return Reply.UNKNOWN if ended is None else Outcome(*ended)
        if session is not None:
            state.watch("task", op.key, op.id, session)
        return Unfinished(self._state_of(task), state.ask_again_in())

    def get_task(self, op: GetTask) -> Found | Reply:
        state = self._state
        session = state.session(op.watch) if op.watch else None
        if op.watch and session is None:
            return Reply.GONE
        queue = self._queues.find(op.key)
        if queue is None:
            return Reply.UNKNOWN
        task_id = op.id
        if op.unique:
            owner = state.one(TASKS.owner, queue=queue.id, key=encoded_name(op.unique), now=state.wall)
            if owner is None:
                return Reply.UNKNOWN
            task_id = owner[0]
        task = self._task(queue, task_id)
        if task is None:
            row = state.one(TASKS.ended_task, id=task_id, queue=queue.id, now=state.wall)
            return Reply.UNKNOWN if row is None else Found(ended_record(state, *row), state.ask_again_in())
        if session is not None:
            state.watch("change", op.key, task_id, session)
        row = state.one(TASKS.show, ids=str([task_id]))
        moments = () if task.place == LEASED else (task.ready_at, task.expires)
        change = min((when for when in moments if when is not None and when > state.wall), default=None)
        return Found(unfinished_record(state, self._state_of(task), *row), state.ask_again_in(moment(change)))

    def _state_of(self, task: Task) -> str:
        if task.place == LEASED:
            return "leased"
        return "delayed" if task.ready_at > self._state.wall else "waiting"

    def set_paused(self, op: SetPaused) -> Reply:
        queue = self._queues.get(op.key)
        queue.paused = int(op.paused)
        if not op.paused:
            self._queues.offer(queue, queue.takeable)
        return Reply.OK

    def set_groups(self, op: SetGroups) -> Reply:
        queue = self._queues.get(op.key)
        takeable = queue.takeable
        self._queues.groups(queue).set(op)
        for (group,) in self._state.all(QUEUES.waited_for, queue=queue.id):
            self._queues.make_room(queue, group)
        self._queues.offer(queue, queue.takeable - takeable)
        return Reply.OK

    # ------------------------------------------------------------------------------------------ clearing up

    def clear_up(self) -> None:
        """Expire tasks, in the order of their time and id; those that had been taken by then stay."""
        state = self._state
        while expired := state.all(TASKS.expired, now=state.wall, count=_PAGE):
            for task, name, place, attempts, group in expired:
                if place == LEASED:
                    state.run(TASKS.expire_no_more, id=task)
                    continue
                if not state.step():
                    self._endings.write()
                    return
                queue = self._queues.get(name)
                takeable = queue.takeable
                self._endings.end_in_order(
                    queue, task, group, place, "expired", attempts, micros(EXPIRED_TTL)
                )
                self._queues.offer(queue, queue.takeable - takeable)
            self._endings.write()
        state.soonest.task = state.one(TASKS.soonest)[0]

    def delete_letters(self) -> None:
        """Delete dead letters whose ttl has passed, as far as the step budget goes."""
        state = self._state
        rows = state.all(TASKS.delete_letters, now=state.wall, count=state.steps_left)
        state.steps_left -= len(rows)
        for queue_id, count in Counter(row[0] for row in rows).items():
            (name,) = state.one(QUEUES.name, id=queue_id)
            queue = self._queues.get(name)
            queue.dead -= count
            queue.purged += count
        state.soonest.letter = soonest = state.one(TASKS.soonest_letter)[0]
        state.unfinished = soonest is not None and soonest <= state.wall

    def forget_records(self) -> None:
        """Forget outdated records: a few at a time, and more than can have come since."""
        state = self._state
        if state.soonest.record is not None and state.soonest.record <= state.wall:
            state.run(TASKS.forget, now=state.wall, count=how_many_to_forget(self._endings.count))

    def _task(self, queue: Queue, task: int) -> Task | None:
        row = self._state.one(TASKS.task, id=task, queue=queue.id)
        return row and Task(*row)


def micros_or_none(ttl: float | None) -> int | None:
    return None if ttl is None else micros(ttl)


def _seconds_or_none(ttl: int | None) -> float | None:
    return None if ttl is None else seconds(ttl)
