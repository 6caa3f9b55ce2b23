"""Tasks: a bounded priority queue whose tasks are leased, fenced and settled, with a line of waiting producers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any, cast

from tenure.engine import (
    A_FEW,
    CAP,
    EXPIRED_TTL,
    Accepted,
    Browse,
    Changed,
    Conflict,
    Count,
    Duplicate,
    Ends,
    Exchange,
    Exchanged,
    Found,
    GetResult,
    GetTask,
    GoesBack,
    GroupPage,
    Groups,
    Leave,
    Move,
    NewTask,
    Notice,
    OnDuplicate,
    Outcome,
    Page,
    Progress,
    Put,
    PutAnswer,
    PutRequest,
    QueueCounts,
    Queued,
    Record,
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
from tenure.errors import EngineError

from ._due import Due
from ._order import Rank
from ._queue import Ended, Producer, Queue, Task
from ._state import ItemKey, Session, State

_UNTRIED = (Verdict.GIVE_BACK, Verdict.POSTPONE)
_STAYS_AHEAD = (Verdict.RETRY, Verdict.POSTPONE)


class Tasks:
    """The family of tasks."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues: dict[str, Queue] = {}
        self._last_id = 0
        self._last_ending = 0
        self._ended_lately = 0
        self._expiring: list[tuple[float, int, str]] = []
        self._outdated: list[tuple[float, int, str]] = []
        self._due = Due(self._look)
        self._keys_kept = 0
        self._keys_due = Due(self._look_at_key)

    def _queue(self, name: str) -> Queue:
        queue = self._find(name)
        if queue is None:
            queue = self._queues[name] = Queue(name)
            self._due.add(name, self._state.now)
        return queue

    def _find(self, name: str) -> Queue | None:
        """A queue as it is now. It is looked at again later: the caller may leave nothing that keeps it."""
        queue = self._queues.get(name)
        if queue is not None:
            if queue.is_forgotten(self._state.now):
                queue.forget()
            self._due.add(name, queue.keep_until)
        return queue

    def _known(self, name: str) -> Queue:
        queue = self._find(name)
        assert queue is not None
        return queue

    def in_use(self) -> list[str]:
        """The queues into which a task was put and that are not forgotten."""
        now = self._state.now
        return [name for name, q in self._queues.items() if q.counts["put"] and not q.is_forgotten(now)]

    def has_slots(self, item: ItemKey) -> bool:
        """Whether a producer has its slots reserved, and does not wait for them."""
        return item[1] in self._queues[item[0]].reserved

    def token(self, item: ItemKey) -> int:
        """The token of a leased task."""
        return self._queues[item[0]].tasks[int(item[1])].token

    # ------------------------------------------------------------------------------------------ producers

    def put(self, op: Put) -> PutAnswer | Reply:
        known = self._state.cached_reply(op.session, op.n, name := f"put {op.key}")
        if known is not None:
            return known
        queue = self._queue(op.key)
        queue.max_size = op.max_size
        self._admit(queue)
        session = self._state.sessions[op.session]
        answer = PutAnswer(tuple(self._put(queue, session, request) for request in op.requests))
        self._state.cache_reply(op.session, op.n, name, answer)
        return answer

    def _put(
        self, queue: Queue, session: Session, request: PutRequest
    ) -> Accepted | Conflict | Queued | Reply:
        name = request.producer
        if (producer := queue.reserved.pop(name, None)) is not None:
            producer.session.detach("producers", queue.name, name)
            queue.reserved_slots -= producer.count
            queue.groups.reserve(producer.group, -producer.count)
            answer = self._accept(queue, request)
            self._admit(queue, producer.group)
            return answer
        producer = queue.producers.get(name) or queue.in_groups.get(name)
        if producer is None:
            if self._has_room(queue, request):
                return self._accept(queue, request)
            if not request.wait or len(request.tasks) > queue.max_size:
                return Reply.REFUSED
            group = queue.groups.line_of([task.group for task in request.tasks])
            if group is None:
                return Reply.REFUSED
            producer = self._wait(queue, session, request, group)
        if name in queue.producers:
            first = next(iter(queue.producers.values()))
        else:
            first = queue.in_groups[queue.groups.first_producer(producer.group)]
        return Queued(producer.ordinal - first.ordinal + 1, self._state.ask_again_in())

    def _wait(self, queue: Queue, session: Session, request: PutRequest, group: str) -> Producer:
        queue.ordinal += 1
        producer = Producer(request.producer, session, len(request.tasks), queue.ordinal, group)
        session.attach("producers", queue.name, producer.name)
        if queue.groups.room(group) < producer.count:
            queue.groups.join(group, producer.name, producer.count)
            queue.in_groups[producer.name] = producer
        else:
            queue.groups.reserve(group, producer.count)
            queue.producers[producer.name] = producer
        return producer

    def _has_room(self, queue: Queue, request: PutRequest) -> bool:
        if not request.tasks:
            return True
        new = self._new(queue, request)
        if not new:
            return True
        return not queue.producers and self._room(queue) >= len(new) and queue.groups.have_room(new)

    def _room(self, queue: Queue) -> int:
        return queue.max_size - len(queue.tasks) - queue.reserved_slots

    def _new(self, queue: Queue, request: PutRequest) -> list[str]:
        """The groups of those tasks of the request for which there is none that has their key."""
        keys: set[str] = set()
        new: list[str] = []
        for task in request.tasks:
            if task.key is None:
                new.append(task.group)
            elif task.key not in keys and self._is_new(queue, task.key, task.on_duplicate):
                keys.add(task.key)
                new.append(task.group)
        return new

    def _is_new(self, queue: Queue, key: str, on_duplicate: OnDuplicate) -> bool:
        """Whether a task with this key is put beside the one that has the key, or there is none."""
        owner = queue.owner(key, self._state.now)
        if owner is None:
            return True
        task = queue.tasks.get(owner)
        return on_duplicate == "replace" and (task is None or task.session is not None)

    def _accept(self, queue: Queue, request: PutRequest) -> Accepted | Conflict:
        if request.cursor is not None and request.expected is not None:
            value = queue.cursors.get(request.cursor[0], b"")
            if value != request.expected:
                return Conflict(value)
        now = self._state.now
        due, takeable, last_id = queue.next_due(), queue.groups.takeable, self._last_id
        ids: list[int | Duplicate] = []
        for new in request.tasks:
            delay = new.delay
            if new.key is not None:
                if not self._is_new(queue, new.key, new.on_duplicate):
                    ids.append(self._meet(queue, new.key, new))
                    continue
                self._give_key(queue, new.key, self._last_id + 1, new.key_ttl)
                delay = _delay(new, 0.0)
            self._last_id += 1
            expires = None if new.expires is None else now + new.expires
            task = Task(self._last_id, new.payload, new.priority, new.key, expires, now + delay)
            task.first_put = now
            task.meta, task.group = new.meta, new.group
            if expires is not None:
                heappush(self._expiring, (expires, task.id, queue.name))
            queue.tasks[task.id] = task
            if task.group:
                queue.groups.come(task.group)
            queue.line_up(task, now)
            ids.append(task.id)
        queue.counts["put"] += self._last_id - last_id
        if request.cursor is not None:
            queue.cursors[request.cursor[0]] = request.cursor[1]
        self._offer(queue, queue.groups.takeable - takeable)
        self._offer_sooner(queue, due)
        return Accepted(tuple(ids))

    # keys

    def _meet(self, queue: Queue, key: str, new: NewTask) -> int | Duplicate:
        """Another task has the key of a new one, which is not put."""
        owner = queue.keys[key]
        if new.on_duplicate == "refuse":
            return Duplicate(owner)
        if new.on_duplicate == "replace":
            self._replace(queue, queue.tasks[owner], new)
            self._keep_key(queue, key, new.key_ttl)
        return owner

    def _replace(self, queue: Queue, task: Task, new: NewTask) -> None:
        """A task that is not leased becomes the new one."""
        now, group = self._state.now, task.group
        first_put = now if task.attempts or task.deliveries else task.first_put
        queue.step_out(task)
        if new.group:
            queue.groups.come(new.group)
        if group:
            queue.groups.go(task)
        task.payload, task.priority, task.meta, task.group = new.payload, new.priority, new.meta, new.group
        task.attempts = task.deliveries = 0
        task.progress = task.failure = b""
        task.keep, task.first_put = False, first_put
        task.ready_at = now + _delay(new, now - first_put)
        task.expires = None if new.expires is None else now + new.expires
        if task.expires is not None:
            heappush(self._expiring, (task.expires, task.id, queue.name))
        queue.line_up(task, now)
        self._changed(queue, task)
        self._admit(queue, group)

    def _give_key(self, queue: Queue, key: str, task_id: int, ttl: float | None) -> None:
        """A new task has the key from now on."""
        former = queue.tasks.get(queue.keys.get(key, 0))
        if former is not None:
            former.key, former.superseded = None, True
        queue.keys[key] = task_id
        queue.kept.pop(key, None)
        self._keep_key(queue, key, ttl)

    def _keep_key(self, queue: Queue, key: str, ttl: float | None) -> None:
        """The task with the key has it for so long at least."""
        if ttl is not None:
            queue.kept[key] = until = max(queue.kept.get(key, 0.0), self._state.now + ttl)
            queue.keep_until = max(queue.keep_until, until)
            self._keys_due.add((queue.name, key), until)
            self._keys_kept += 1

    def leave(self, op: Leave) -> Reply:
        queue = self._find(op.key)
        producer = queue.producer(op.producer) if queue else None
        if queue is None or producer is None:
            return Reply.UNKNOWN
        producer.session.detach("producers", op.key, op.producer)
        return self._remove_producer(queue, producer)

    def drop_producer(self, item: ItemKey) -> None:
        """The session of a producer has ended."""
        queue = self._known(item[0])
        producer = queue.producer(item[1])
        assert producer is not None
        self._remove_producer(queue, producer)

    def _remove_producer(self, queue: Queue, producer: Producer) -> Reply:
        answer = Reply.LEFT
        if queue.in_groups.pop(producer.name, None) is not None:
            queue.groups.leave(producer.group, producer.name)
        else:
            queue.groups.reserve(producer.group, -producer.count)
            if queue.producers.pop(producer.name, None) is None:
                del queue.reserved[producer.name]
                queue.reserved_slots -= producer.count
                answer = Reply.RELEASED
        self._admit(queue, producer.group)
        return answer

    def _admit(self, queue: Queue, *groups: str) -> None:
        """Reserve slots for the heads of the lines of these groups and of the queue, for as long as they fit."""
        for group in groups if queue.in_groups else ():
            for name in queue.groups.admit(group):
                producer = queue.producers[name] = queue.in_groups.pop(name)
                queue.ordinal += 1
                producer.ordinal = queue.ordinal
        while queue.producers:
            producer = next(iter(queue.producers.values()))
            if producer.count > self._room(queue) and (queue.tasks or queue.reserved_slots):
                return
            del queue.producers[producer.name]
            queue.reserved[producer.name] = producer
            queue.reserved_slots += producer.count
            self._state.hint(producer.session.process, queue.name, producer.name, Notice.ROOM)

    # ------------------------------------------------------------------------------------------ takers

    def exchange(self, op: Exchange) -> Exchanged | Reply:
        known = self._state.cached_reply(op.session, op.n, name := f"exchange {op.key}")
        if known is not None:
            return known
        queue = self._queue(op.key)
        session = self._state.sessions[op.session]
        takeable = queue.groups.takeable
        refused = tuple(s.token for s in op.settle if not self._settle(queue, session, s))
        queue.promote(self._state.now, self._state.cap)
        tasks: list[Taken] = []
        while not queue.paused and len(tasks) < op.want:
            task = queue.pop_next(self._state.now, op.aging)
            if task is None:
                break
            tasks.append(self._take(queue, session, task, op))
        self._register(queue, session, op.want - len(tasks) if op.wait else 0)
        self._offer(queue, queue.groups.takeable - takeable)
        stop = tuple(token for token, holder in queue.stops.items() if holder is session)
        due = queue.next_due()
        again = self._state.ask_again_in(due)
        answer = Exchanged(tuple(tasks), refused, stop, queue.paused, again)
        self._state.cache_reply(op.session, op.n, name, answer)
        return answer

    def _take(self, queue: Queue, session: Session, task: Task, op: Exchange) -> Taken:
        task.session, task.token = session, self._state.token()
        task.deliveries += 1
        task.max_deliveries, task.keep, task.dead_ttl = op.max_deliveries, op.keep, op.dead_ttl
        session.attach("tasks", queue.name, str(task.id))
        self._changed(queue, task)
        waited = max(0.0, self._state.now - task.ready_at)
        return Taken(
            task.id,
            task.token,
            task.payload,
            task.priority,
            task.attempts,
            task.deliveries,
            waited,
            task.progress,
            task.failure,
            task.meta,
            task.group,
        )

    def _register(self, queue: Queue, session: Session, want: int) -> None:
        if want > 0:
            queue.takers[session.id] = want
            session.attach("takers", queue.name)
        elif queue.takers.pop(session.id, None) is not None:
            session.detach("takers", queue.name)

    def drop_taker(self, session: Session, item: ItemKey) -> None:
        """The session of an idle taker has ended."""
        del self._known(item[0]).takers[session.id]

    def _offer(self, queue: Queue, count: int) -> None:
        """Hint idle takers that `count` more tasks can be taken, as many takers as are needed."""
        while count > 0 and queue.takers and not queue.paused:
            session, want = queue.takers.popitem(last=False)
            known = self._state.sessions[session]
            known.detach("takers", queue.name)
            self._state.hint(known.process, queue.name, "", Notice.READY)
            count -= want

    def _offer_sooner(self, queue: Queue, due: float | None) -> None:
        """A new earliest due time: one idle taker must know, to ask in time."""
        now_due = queue.next_due()
        if now_due is not None and (due is None or now_due < due):
            self._offer(queue, 1)

    # ------------------------------------------------------------------------------------------ settling

    def _settle(self, queue: Queue, session: Session, settle: Settle) -> bool:
        task = queue.tasks.get(settle.id)
        if task is None or task.token != settle.token or task.session is not session:
            return False
        self._unlease(queue, task)
        task.failure = settle.failure or task.failure
        follows = after_verdict(
            settle, task.attempts, task.deliveries, stop=_must_end(task), stop_ttl=_ttl_if_it_must(task)
        )
        if settle.verdict in _STAYS_AHEAD and isinstance(follows, GoesBack):
            queue.groups.bind(task)
        self._after(queue, task, follows, session)
        if settle.verdict in _UNTRIED:
            queue.groups.refund(task)
        return True

    def drop(self, item: ItemKey) -> None:
        """The session that held the task has ended."""
        queue = self._known(item[0])
        task, takeable = queue.tasks[int(item[1])], queue.groups.takeable
        self._unlease(queue, task, ended=True)
        follows = without_verdict(
            task.attempts,
            task.deliveries,
            task.max_deliveries,
            stop=_must_end(task),
            stop_ttl=_ttl_if_it_must(task),
            dead_ttl=task.dead_ttl,
        )
        self._after(queue, task, follows)
        queue.groups.refund(task)
        self._offer(queue, queue.groups.takeable - takeable)

    def _after(
        self, queue: Queue, task: Task, follows: Ends | GoesBack, session: Session | None = None
    ) -> None:
        task.attempts = follows.attempts
        match follows:
            case Ends(state, _, result, ttl):
                self._end(queue, task, state, result, ttl, session)
            case GoesBack(_, deliveries, delay):
                task.deliveries = deliveries
                if delay is not None:
                    task.ready_at = self._state.now + delay
                self._return(queue, task)

    def _unlease(self, queue: Queue, task: Task, *, ended: bool = False) -> None:
        assert task.session is not None
        if not ended:
            task.session.detach("tasks", queue.name, str(task.id))
        queue.stops.pop(task.token, None)
        task.session, task.token = None, 0
        if task.group:
            queue.groups.unlease(task)

    def _return(self, queue: Queue, task: Task) -> None:
        """The task enters the order; the caller offers what can be taken."""
        due = queue.next_due()
        queue.line_up(task, self._state.now)
        self._changed(queue, task)
        if task.delayed:
            self._offer_sooner(queue, due)

    def _end(
        self,
        queue: Queue,
        task: Task,
        state: str,
        result: bytes,
        ttl: float | None,
        session: Session | None = None,
    ) -> None:
        """The task, neither leased nor in an order, has ended, settled by the session if there is one.

        `ttl` None keeps the record for good.
        """
        self._remove(queue, task)
        queue.counts[state] += 1
        self._last_ending += 1
        self._ended_lately += 1
        now = self._state.now
        expires = None if ttl is None else now + ttl
        if expires is not None:
            heappush(self._expiring if state == "dead" else self._outdated, (expires, task.id, queue.name))
        settled = now if session is None else now + 2 * session.ttl
        # a dead letter keeps its queue by being there
        listed = now if expires is None or state == "dead" else expires
        queue.keep_until = max(queue.keep_until, settled, listed)
        payload = task.payload if task.keep or state == "dead" else b""
        queue.log(
            Ended(
                self._last_ending,
                task.id,
                state,
                payload,
                task.priority,
                task.key,
                task.attempts,
                task.deliveries,
                result,
                now,
                expires,
                task.progress,
                task.failure,
                task.meta,
                task.group,
            )
        )
        self._finished(queue, task)

    def _remove(self, queue: Queue, task: Task) -> None:
        del queue.tasks[task.id]
        if task.key is not None:
            queue.drop_key(task.key)
        if task.group:
            queue.groups.go(task)
        self._admit(queue, task.group)
        if not queue.tasks:
            self._state.fire(("drain", queue.name), queue.name, "", Notice.DRAINED)

    def _finished(self, queue: Queue, task: Task) -> None:
        self._state.fire(("task", queue.name, str(task.id)), queue.name, str(task.id), Notice.FINISHED)
        self._changed(queue, task)

    def _changed(self, queue: Queue, task: Task) -> None:
        self._state.fire(("change", queue.name, str(task.id)), queue.name, str(task.id), Notice.CHANGED)

    # ------------------------------------------------------------------------------------------ single tasks

    def progress(self, op: Progress) -> Reply:
        queue = self._find(op.key)
        task = queue.tasks.get(op.id) if queue else None
        if task is None or task.session is None or task.token != op.token:
            return Reply.REFUSED
        task.progress = op.data
        assert queue is not None
        self._changed(queue, task)
        return Reply.REQUESTED if task.stop else Reply.OK

    def get_result(self, op: GetResult) -> Outcome | Unfinished | Reply:
        if op.watch and op.watch not in self._state.sessions:
            return Reply.GONE
        queue = self._find(op.key)
        if queue is None:
            return Reply.UNKNOWN
        now = self._state.now
        if (task := queue.tasks.get(op.id)) is not None:
            if op.watch:
                self._state.watch(op.watch, ("task", op.key, str(op.id)))
            return Unfinished(queue.state_of(task, now), self._state.ask_again_in())
        ended = queue.ended.get(op.id)
        if ended is None or ended.is_over(now):
            return Reply.UNKNOWN
        return Outcome(ended.state, ended.result, ended.attempts)

    def get_task(self, op: GetTask) -> Found | Reply:
        if op.watch and op.watch not in self._state.sessions:
            return Reply.GONE
        queue = self._find(op.key)
        if queue is None:
            return Reply.UNKNOWN
        now = self._state.now
        task_id = queue.owner(op.unique, now) or 0 if op.unique else op.id
        if (task := queue.tasks.get(task_id)) is not None:
            if op.watch:
                self._state.watch(op.watch, ("change", op.key, str(task_id)))
            return Found(
                queue.record(task, now),
                self._state.ask_again_in(min(queue.next_changes(task, now), default=None)),
            )
        ended = queue.ended.get(task_id)
        if ended is None or ended.is_over(now):
            return Reply.UNKNOWN
        return Found(self._show(ended), self._state.ask_again_in())

    # ------------------------------------------------------------------------------------------ administration

    def move(self, op: Move) -> Changed | Reply:
        queue = self._find(op.key)
        if queue is None:
            return Changed(0, more=False)
        move = {
            "cancelled": self._cancel,
            "delayed": self._postpone,
            "waiting": self._revive,
            "purged": self._purge,
        }[op.to]
        after = op.after if op.to == "waiting" else 0
        takeable = queue.groups.takeable
        moved, left, last = 0, self._state.cap, 0
        for i in op.ids:
            if (one := queue.tasks.get(i) or queue.ended.get(i)) is not None:
                moved += move(queue, one, op)
        for state in op.states:
            for one in self._first(queue, state, after, left):
                moved += move(queue, one, op)
                left -= 1
                last = one.seq if op.to == "waiting" and isinstance(one, Ended) else 0
        self._offer(queue, queue.groups.takeable - takeable)
        return Changed(moved, left == 0, last if left == 0 else 0)

    def _first(self, queue: Queue, state: str, after: int, count: int) -> Sequence[Task | Ended]:
        now = self._state.now
        if state in ("waiting", "delayed"):
            return [task for _, task in queue.listed(state, (), count, now)]
        return list(islice(queue.endings(after, now, state), count))

    def _postpone(self, queue: Queue, task: Task | Ended, op: Move) -> bool:
        if isinstance(task, Ended) or task.session is not None:
            return False
        queue.step_out(task)
        task.ready_at = self._state.now + op.delay
        self._return(queue, task)
        return True

    def _cancel(self, queue: Queue, task: Task | Ended, op: Move) -> bool:
        if isinstance(task, Ended):
            return False
        if task.session is None:
            queue.step_out(task)
            self._end(queue, task, "cancelled", b"", op.ttl)
        elif not task.stop:
            task.stop, task.ttl = True, op.ttl
            queue.stops[task.token] = task.session
            self._state.hint(task.session.process, queue.name, str(task.token), Notice.STOP)
        return True

    def _revive(self, queue: Queue, ended: Task | Ended, _: Move) -> bool:
        """Make a dead task ready, unless another one has its key."""
        if isinstance(ended, Task) or ended.state != "dead":
            return False
        if ended.key is not None and queue.owner(ended.key, self._state.now) not in (None, ended.id):
            return False
        queue.unlog(ended)
        queue.counts["dead"] -= 1
        task = Task(ended.id, ended.payload, ended.priority, ended.key, None, self._state.now)
        task.progress, task.failure, task.meta = ended.progress, ended.failure, ended.meta
        task.group, task.first_put = ended.group, self._state.now
        if task.key is not None:
            queue.keys[task.key] = task.id
        queue.tasks[task.id] = task
        if task.group:
            queue.groups.come(task.group)
        self._return(queue, task)
        return True

    def _purge(self, queue: Queue, task: Task | Ended, _: Move | None) -> bool:
        if isinstance(task, Ended):
            queue.unlog(task)
            if task.state == "dead":
                queue.counts["dead"] -= 1
                queue.counts["purged"] += 1
        else:
            queue.step_out(task)
            queue.counts["purged"] += 1
            self._remove(queue, task)
            self._finished(queue, task)
        return True

    def browse(self, op: Browse) -> Page:
        queue = self._find(op.key) or Queue(op.key)
        now = self._state.now
        limit = min(op.limit, CAP)
        if op.state in ("ended", "dead"):
            (seq,) = _place(f"[{op.after}]", (0,)) if op.after else (0,)
            endings = list(islice(queue.endings(seq, now, op.state), limit + 1))
            records = tuple(map(self._show, endings[:limit]))
            return Page(records, str(records[-1].seq) if len(endings) > limit else "")
        after = _place(op.after, ("", 0, 0.0, 0) if op.state == "waiting" else (0.0, 0))
        listed = queue.listed(op.state, after, limit + 1, now)
        records = tuple(queue.record(task, now) for _, task in listed[:limit])
        return Page(records, json.dumps(listed[limit - 1][0]) if len(listed) > limit else "")

    def _show(self, ended: Ended) -> Record:
        return Record(
            ended.seq,
            ended.id,
            ended.state,
            ended.payload,
            ended.priority,
            ended.key,
            ended.attempts,
            ended.deliveries,
            ended.result,
            max(0.0, self._state.now - ended.ended_at),
            ended.progress,
            ended.failure,
            ended.meta,
            ended.group,
        )

    def set_groups(self, op: SetGroups) -> Reply:
        queue = self._queue(op.key)
        takeable = queue.groups.takeable
        queue.groups.set(op)
        self._admit(queue, *queue.groups.with_producers())
        self._offer(queue, queue.groups.takeable - takeable)
        return Reply.OK

    def groups(self, op: Groups) -> GroupPage:
        queue = self._find(op.key)
        return GroupPage(queue.groups.longest(min(op.limit, CAP)) if queue else ())

    def set_paused(self, op: SetPaused) -> Reply:
        queue = self._queue(op.key)
        queue.paused = op.paused
        if not op.paused:
            self._offer(queue, queue.groups.takeable)
        return Reply.OK

    def count(self, op: Count) -> QueueCounts | Reply:
        if op.watch and op.watch not in self._state.sessions:
            return Reply.GONE
        queue = self._find(op.key) or Queue(op.key)
        if op.watch and queue.tasks:
            self._state.watch(op.watch, ("drain", op.key))
        now = self._state.now
        due = queue.due(now)
        waiting, delayed = queue.waiting + due, queue.delayed - due
        leased = len(queue.tasks) - waiting - delayed
        dead, groups = queue.counts["dead"], queue.groups.unfinished
        if op.recount:
            states = Counter(queue.state_of(task, now) for task in queue.tasks.values())
            waiting, delayed, leased = states["waiting"], states["delayed"], states["leased"]
            dead = sum(ended.state == "dead" for ended in queue.ended.values())
            groups = len({task.group for task in queue.tasks.values()} - {""})
        return QueueCounts(
            put=queue.counts["put"],
            waiting=waiting,
            delayed=delayed,
            leased=leased,
            done=queue.counts["done"],
            dead=dead,
            cancelled=queue.counts["cancelled"],
            expired=queue.counts["expired"],
            discarded=queue.counts["discarded"],
            purged=queue.counts["purged"],
            reserved=queue.reserved_slots,
            producers=len(queue.producers) + len(queue.in_groups),
            groups=groups,
            paused=queue.paused,
            oldest=now - queue.oldest(now),
            cursors=tuple(sorted(queue.cursors.items())),
            ask_again_in=self._state.ask_again_in(),
            now=self._state.wall_time(),
            max_size=queue.max_size if queue.counts["put"] else 0,
            group_counter=queue.groups.unfinished,
        )

    # ------------------------------------------------------------------------------------------ clearing up

    def clear_up(self) -> None:
        """Expire tasks and dead letters, in the order of their time and id."""
        now = self._state.now
        while self._expiring and self._expiring[0][0] <= now:
            due, task_id, name = self._expiring[0]
            queue = self._queues.get(name)
            task = queue.tasks.get(task_id) if queue else None
            # one that was replaced has another time, and an entry for that
            if queue is not None and task is not None and task.session is None and task.expires == due:
                if not self._state.step():
                    return
                takeable = queue.groups.takeable
                queue.step_out(task)
                self._end(queue, task, "expired", b"", EXPIRED_TTL)
                self._offer(queue, queue.groups.takeable - takeable)
            ended = queue.ended.get(task_id) if queue else None
            if queue is not None and ended is not None and ended.state == "dead" and ended.is_over(now):
                if not self._state.step():
                    return
                self._purge(queue, ended, None)
                self._due.add(name, now)
            heappop(self._expiring)

    def forget(self) -> None:
        """Forget outdated records, a few more than came, and a few queues that nothing keeps any more."""
        now = self._state.now
        forget, self._ended_lately = how_many_to_forget(self._ended_lately), 0
        for _ in range(forget):
            if not self._outdated or self._outdated[0][0] > now:
                break
            _, task_id, name = heappop(self._outdated)
            queue = self._queues.get(name)
            ended = queue.ended.get(task_id) if queue else None
            if queue and ended and ended.is_over(now):
                queue.unlog(ended)
        forget, self._keys_kept = how_many_to_forget(self._keys_kept), 0
        self._keys_due.look(now, forget)
        self._due.look(now, A_FEW)

    def _look_at_key(self, name: tuple[str, str]) -> float | None:
        queue = self._queues.get(name[0])
        return queue and queue.look_at_key(name[1], self._state.now)

    def _look(self, name: str) -> float | None:
        queue = self._queues[name]
        now = self._state.now
        if queue.is_forgotten(now):
            # what is left of its records goes before
            if queue.ended:
                return now
            if not queue.takers:
                del self._queues[name]
        return queue.keep_until if queue.keep_until > now else None


def _delay(new: NewTask, since: float) -> float:
    """When a new task is ready, so many seconds since its first put."""
    return new.delay if new.max_wait is None else max(0.0, min(new.delay, new.max_wait - since))


def _must_end(task: Task) -> bool:
    """Whether it ends instead of going back."""
    return task.stop or task.superseded


def _ttl_if_it_must(task: Task) -> float | None:
    return task.ttl if task.stop else EXPIRED_TTL


def _place(after: str, pattern: Rank) -> Rank:
    """The rank after which a page begins: its parts are of the same types as those of the pattern."""
    if not after:
        return ()
    try:
        place: Any = json.loads(after)
    except ValueError:
        place = None
    if isinstance(place, list) and list(map(type, cast("list[Any]", place))) == list(map(type, pattern)):
        return tuple(cast("list[Any]", place))
    raise EngineError(f"no page ended at {after!r}")
