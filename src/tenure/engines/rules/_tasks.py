"""Tasks: taken in the order of priority or age, leased, fenced and settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import tenure.engine as e

from ._pages import page_of, place_in
from ._queues import LEASED, SETTINGS, Queue, Queues, StoredSetting
from ._room import Room
from ._rows import Task, TaskRows, shown_state
from ._settling import Settling
from ._state import Session, State
from ._tables import Table
from ._takers import Takers

_PLACES: dict[str, tuple[str | int, ...]] = {
    "waiting": ("", 0, 0, 0),
    "delayed": (0, 0),
    **dict.fromkeys(("leased", "suspended", "ending"), (0,)),
    **dict.fromkeys(("ended", *e.ENDED), (0,)),
}
"""The parts of a place in a listing: group, priority, time and id; time and id; token or id; rank of the ending."""


class Tasks:
    def __init__(
        self, state: State, queues: Queues, rows: TaskRows, room: Room, takers: Takers, settling: Settling
    ) -> None:
        self._state = state
        self._queues = queues
        self._rows = rows
        self._room = room
        self._takers = takers
        self._settling = settling

    def exchange(self, op: e.Exchange) -> e.Exchanged | e.Reply:
        state, takers = self._state, self._takers
        known = state.cached_reply(op.session, op.n, name := f"exchange {op.key}")
        if known is not None:
            return known
        session = state.session(op.session)
        assert session is not None
        queue: Queue = self._queues.get(op.key)
        takeable = queue.takeable
        refused = self._settling.settle_all(queue, session, op.settle)
        if queue.delayed:
            self._promote(queue)
        if queue.groups.is_paced:
            tasks, newly_takeable = self._take_at_pace(queue, session, op.want, takeable)
        else:
            tasks = self._take(queue, session, op.want)
            newly_takeable = queue.takeable - takeable
        takers.register(queue, session, op.want - len(tasks) if op.wait else 0)
        takers.offer(queue, newly_takeable)
        stops = self._rows.stops(queue, session) if queue.stops else ()
        again = state.ask_again_in(state.clock_time(takers.due(queue)))
        answer = e.Exchanged(tuple(tasks), refused, stops, bool(queue.paused), again, queue.revision)
        state.cache_reply(op.session, op.n, name, answer)
        return answer

    def _promote(self, queue: Queue) -> None:
        self._takers.due(queue)
        if queue.known_due is not None and queue.known_due <= self._state.moment:
            moved, in_groups = self._rows.promote(queue, self._state.cap)
            queue.delayed -= moved
            queue.waiting += moved
            queue.due_is_known = False
            for task, group in in_groups:
                queue.groups.add(group, task)

    def _take(self, queue: Queue, session: Session, want: int) -> Sequence[e.Taken]:
        if queue.paused or not queue.waiting or want <= 0:
            return ()
        if queue.groups.named:
            tasks = self._rows.take_turns(queue, session, queue.groups.take(want))
        else:
            tasks = self._rows.take(queue, session, want)
        queue.waiting -= len(tasks)
        return tasks

    def _take_at_pace(
        self, queue: Queue, session: Session, want: int, takeable: int
    ) -> tuple[Sequence[e.Taken], int]:
        """Take what may start now where the queue or a group has a pace; also return how many more can be taken."""
        groups = queue.groups
        was_closed = groups.closed_until > -inf
        groups.pass_time()
        tasks = self._take(queue, session, groups.possible(want))
        if tasks:
            groups.start(len(tasks))
            seconds = max(groups.every * groups.burst, groups.group_every * groups.group_burst)
            if seconds:
                queue.keep_until = max(queue.keep_until, self._state.after(seconds))
        again = groups.regained()
        if was_closed or (groups.every and tasks):
            return tasks, queue.waiting
        return tasks, queue.takeable - takeable + again

    def complete(self, op: e.Complete) -> e.Reply:
        refused = self.complete_all(e.CompleteAll(op.session, op.key, (op.settle,)))
        if isinstance(refused, e.Reply):
            return refused
        if not refused:
            return e.Reply.OK
        task = self._rows.task(self._queues.get(op.key), op.settle.id)
        is_leased = task is not None and task.token == op.settle.token and task.kin
        return e.Reply.CHILDREN if is_leased else e.Reply.REFUSED

    def complete_all(self, op: e.CompleteAll) -> tuple[int, ...] | e.Reply:
        session = self._state.session(op.session)
        if session is None:
            return e.Reply.GONE
        queue: Queue = self._queues.get(op.key)
        takeable = queue.takeable
        refused = self._settling.settle_all(queue, session, op.settle, at_once=True)
        self._takers.offer(queue, queue.takeable - takeable)
        return refused

    # single tasks

    def progress(self, op: e.Progress) -> e.Reply:
        queue = self._queues.find(op.key)
        task = None if queue is None else self._rows.task(queue, op.id)
        if task is None or task.place != LEASED or task.token != op.token:
            return e.Reply.REFUSED
        self._rows.update(queue, task, progress=op.data)
        return e.Reply.REQUESTED if task.stop else e.Reply.OK

    def get_result(self, op: e.GetResult) -> e.Outcome | e.Unfinished | e.Reply:
        state = self._state
        if op.watch and state.session(op.watch) is None:
            return e.Reply.GONE
        queue = self._queues.find(op.key)
        if queue is None:
            return e.Reply.UNKNOWN
        task = self._rows.task(queue, op.id)
        if task is None:
            ended = self._rows.ended_record(queue, op.id)
            return e.Outcome(ended.state, ended.result, ended.attempts) if ended else e.Reply.UNKNOWN
        if op.watch:
            state.watch_task("task", op.key, op.id, op.watch)
        return e.Unfinished(self._state_of(task), state.ask_again_in())

    def one(self, op: e.Scan[e.TaskPage]) -> e.TaskPage:
        state, queue = self._state, self._queues.find(op.key)
        owner = (
            queue and self._rows.owners(queue, {op.only}).get(op.only) if op.index is e.KEYED_TASK else None
        )
        task_id = owner.id if owner else 0 if op.index is e.KEYED_TASK else int(op.only)
        task = queue and self._rows.task(queue, task_id)
        if task is None:
            record = queue and self._rows.ended_record(queue, task_id)
            return e.TaskPage((record,) if record else (), ask_again_in=state.ask_again_in())
        if op.watch:
            state.watch_task("change", op.key, task_id, op.watch)
        moments = (task.deadline,) if task.place >= LEASED else (task.ready_at, task.expires)
        change = min((when for when in moments if when is not None and when > state.moment), default=None)
        record = self._rows.unfinished_record(queue, task, self._state_of(task))
        return e.TaskPage((record,), ask_again_in=state.ask_again_in(state.clock_time(change)))

    def listed(self, op: e.Scan[e.Page[e.Record]]) -> e.Page[e.Record]:
        after, queue = place_in(op, *_PLACES[op.index.name]), self._queues.find(op.key)
        rows = queue and self._rows.listed(queue, op.index.name, after, op.limit + 1)
        return page_of(op, rows or ())

    def groups(self, op: e.Scan[e.Page[e.GroupCounts]]) -> e.Page[e.GroupCounts]:
        after, queue = place_in(op, 0, ""), self._queues.find(op.key)
        rows = queue.group_rows.longest(after, op.limit + 1) if queue else ()
        if queue and queue.groups.is_paced:
            starts_in = queue.groups.starts_in
            pairs = [(place, row, starts_in(row.group)) for place, row in rows]
            rows = [(place, replace(row, starts_in=s, held_off=h)) for place, row, (s, h) in pairs]
        if queue and queue.groups.weights:
            weights = queue.groups.weights
            rows = [(place, replace(row, weight=weights.get(row.group, 1.0))) for place, row in rows]
        return page_of(op, rows)

    def _state_of(self, task: Task) -> str:
        return shown_state(task, self._state.moment)

    # settings

    def set_paused(self, op: e.SetPaused) -> e.Reply:
        queue: Queue = self._queues.get(op.key)
        if op.seconds is None and op.paused:
            queue.paused = True
            return e.Reply.OK
        due, takeable, was_closed = self._takers.due(queue), queue.takeable, queue.groups.closed_until > -inf
        until = queue.groups.hold_off(op.group, op.seconds or 0.0)
        if op.seconds is None:
            queue.paused = False
            self._takers.offer(queue, queue.takeable)
        else:
            self._offer_newly_takeable(queue, takeable, was_closed)
        if op.seconds and op.seconds > 0:
            queue.keep_until = max(queue.keep_until, self._state.after(until - self._state.now))
        self._takers.offer_sooner(queue, due)
        return e.Reply.OK

    def configure(self, op: e.Configure) -> e.Configured:
        state, queue = self._state, self._queues.get(op.key) if op.changes else self._queues.find(op.key)
        if queue is None:
            return e.Configured((), 0)
        stored: Table[StoredSetting] = state.table(SETTINGS)
        record = {setting.name: setting for setting in stored.each("name", op.key)}
        changes: dict[str, StoredSetting] = {}
        for name, text in op.changes:
            known = record.get(name)
            if text != (known.value if known else e.DEFAULT_TEXTS[name]) and not (known and op.missing):
                changes[name] = StoredSetting(op.key, name, text, state.now, op.by)
        if changes:
            for setting in changes.values():
                stored.save(setting)
            record |= changes
            queue.revision = state.token()
            queue.keep_record(state)
            self._have(queue, {name: setting.value for name, setting in record.items()})
        fields = [
            e.Setting(name, its.value, max(0.0, state.now - its.since), its.by)
            for name, its in sorted(record.items())
        ]
        return e.Configured(tuple(fields), queue.revision)

    def _have(self, queue: Queue, texts: Mapping[str, str]) -> None:
        due, takeable, was_closed = self._takers.due(queue), queue.takeable, queue.groups.closed_until > -inf
        queue.settings = e.settings_of(texts.items())
        queue.groups.set(queue.settings)
        self._room.make_room_in_groups(queue)
        self._room.admit(queue)
        self._offer_newly_takeable(queue, takeable, was_closed)
        self._takers.offer_sooner(queue, due)

    def _offer_newly_takeable(self, queue: Queue, takeable: int, was_closed: bool) -> None:
        self._takers.offer(queue, queue.waiting if was_closed else queue.takeable - takeable)
