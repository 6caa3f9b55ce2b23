"""Families: the entries of tasks, their children, and the verdicts that wait for these.

The laws are in `tenure.engine._families`. Rows of a file are copies: save a row before anything else is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import tenure.engine as e
from tenure.errors import EngineError

from ._queues import ENDING, HELD, LEASED, SUSPENDED, Queue, Queues
from ._releases import Releases
from ._rows import Task, TaskRows, earlier
from ._settling import Settling
from ._state import Moment, State
from ._tables import Layout, Order, Table
from ._takers import Takers

_RETRY = "retry"


@dataclass(slots=True)
class Family:
    """The row of a task that is a child or has entries: its place in the tree, and what it waits for.

    `unfinished` and `ends` count children. Entries of tries before `born` count as gone; so do the entries of children
    that failed in a try before `tries`. A suspended task waits for the entry `awaited`, or until `rest` children are
    unfinished; a child that fails cancels the children whose names begin with `prefix`. An ending task keeps its
    verdict in `ending`, `result` and `ttl`. A sweep of the names that begin with `swept` has come to `swept_to`.
    `over`: the task has ended.

    Of the entries, `held` are releases that have not begun. Entries written after the first release was `named` bear
    `life`, which changes after a death in which a release `ran`. The releases of the delivery `dropped` are handed
    over; the last release to begin may have others `beside` it. A `release` has `seconds` for its work; it is `told`
    once it has told its owner.
    """

    queue: str
    task: int
    parent_queue: str = ""
    parent: int = 0
    name: str = ""
    depth: int = 0
    total: int = 0
    unfinished: int = 0
    ends: int = 0
    tries: int = 0
    born: int = 0
    awaited: str = ""
    prefix: str = ""
    rest: int = 0
    timed: bool = False
    until: float = 0.0
    ending: str = ""
    result: bytes = b""
    ttl: float | None = None
    swept: str = ""
    swept_to: str = ""
    sweeps: bool = False
    over: bool = False
    held: int = 0
    life: int = 1
    named: bool = False
    ran: bool = False
    dropped: int = 0
    beside: bool = False
    release: bool = False
    told: bool = False
    seconds: float | None = None


@dataclass(slots=True)
class Entry:
    """An entry of a task, of the try `tries`: in which it was written, or the child ended, as the `ended`th.

    An entry with `life` 0 is there in any life. A `held` release that is `unless_done` was named last under `token`.
    """

    queue: str
    task: int
    name: str
    kind: str
    state: str
    value: bytes = b""
    child_queue: str = ""
    child: int = 0
    swept: bool = False
    unfinished: bool = False
    failed: bool = False
    ended: int = 0
    tries: int = 0
    life: int = 0
    held: bool = False
    unless_done: bool = False
    together: bool = False
    token: int = 0


_OF_TASK = ("queue", "task")
FAMILIES = Layout(
    "family",
    Family,
    _OF_TASK,
    sweeps=Order((), _OF_TASK, when=("sweeps", True)),
    timed=Order((), ("until", *_OF_TASK), when=("timed", True)),
    over=Order((), _OF_TASK, when=("over", True)),
)
ENTRIES = Layout(
    "entry",
    Entry,
    (*_OF_TASK, "name"),
    name=Order(_OF_TASK, ("name",)),
    unfinished=Order(_OF_TASK, ("name",), when=("unfinished", True)),
    failed=Order((*_OF_TASK, "tries"), ("name",), when=("failed", True)),
    held=Order(_OF_TASK, ("child",), when=("held", True)),
)


class Families(Releases):
    def __init__(
        self, state: State, queues: Queues, rows: TaskRows, takers: Takers, settling: Settling
    ) -> None:
        self._state = state
        self._queues = queues
        self._rows = rows
        self._takers = takers
        self._settling = settling
        self._families: Table[Family] = state.table(FAMILIES)
        self._entries: Table[Entry] = state.table(ENTRIES)
        self._forget = partial(forget_family, state)
        settling.families = self

    # operations

    def put_children(self, op: e.PutChildren) -> e.Accepted | e.Entry | e.TooMany | e.Reply:
        task = self._leased(op.key, op.id, op.token)
        if isinstance(task, e.Reply):
            return task
        family = self._family(self._queues.get(op.key), task)
        known = {name: self._entry(family, name) for name in op.names}
        kind, held = ("release", True) if op.held else ("child", False)
        for entry, spec in zip(known.values(), op.tasks, strict=True):
            if entry is not None and (entry.kind != kind or (held and self._differs(entry, op.to, spec))):
                return _shown(entry)
        new = [name for name, entry in known.items() if entry is None]
        more = sum(self._entries.get(op.key, op.id, name) is None for name in new)
        most = min(op.most, e.MOST_ENTRIES)
        if more and family.total + more > most:
            return e.TooMany(most)
        if new and family.depth >= e.DEEPEST:
            raise EngineError(f"task {op.id} is {e.DEEPEST} levels below its root and can have no children")
        family.total += more
        if held:
            family.held += len(new)
            family.named = True
        else:
            family.unfinished += len(new)
        self._families.save(family)
        to: Queue = self._queues.get(op.to)
        to.groups.read({spec.group for spec in op.tasks if spec.group})
        due, takeable = self._takers.due(to), to.takeable
        ids: list[int] = []
        for name, spec in zip(op.names, op.tasks, strict=True):
            if (entry := known[name]) is not None:
                ids.append(entry.child)
                if held:
                    entry.token = op.token
                    self._entries.save(entry)
                continue
            child = self._state.token()
            its = Family(to.name, child, op.key, op.id, name, family.depth + 1, release=held)
            entry = Entry(op.key, op.id, name, kind, "held", b"", to.name, child, tries=family.tries)
            entry.held, entry.unfinished, entry.life = held, not held, _life(family)
            if held:
                to.held += 1
                self._rows.add(to, child, spec, HELD, self._state.moment, None, None, kin=True)
                its.seconds = spec.deadline
                entry.unless_done, entry.together = op.held == "unless_done", op.together
                entry.token = op.token
            else:
                ready_at = self._state.after(spec.delay)
                to.put += 1
                to.live += 1
                if spec.group:
                    to.groups.count_in(spec.group, to.waiting)
                place = to.enqueue(child, spec.group, ready_at, self._state.moment)
                own = None if spec.deadline is None else self._state.after(spec.deadline)
                deadline = earlier(own, task.deadline)
                self._rows.add(to, child, spec, place, ready_at, deadline, deadline, kin=True)
                entry.state = "unfinished"
            self._families.save(its)
            self._write(entry)
            ids.append(child)
        if new:
            self._takers.offer(to, to.takeable - takeable)
            self._takers.offer_sooner(to, due)
        if held:
            states = ["held" if entry is None else entry.state for entry in known.values()]
            return e.Named(tuple(ids), tuple(states))
        return e.Accepted(tuple(ids))

    def set_entry(self, op: e.SetEntry) -> e.Entry | e.TooMany | e.Reply:
        queue = self._queues.find(op.key)
        task: Task | e.Reply | None
        if op.change:
            return self._change(op)
        if op.token:
            task = self._leased(op.key, op.id, op.token)
        else:
            task = None if queue is None else self._rows.task(queue, op.id)
        if isinstance(task, e.Reply):
            return task
        if queue is None or task is None:
            return e.Reply.UNKNOWN
        family = self._family(queue, task)
        if (entry := self._entry(family, op.name)) is not None:
            return _shown(entry)
        if family.total >= e.MOST_ENTRIES:
            return e.TooMany(e.MOST_ENTRIES)
        if op.token and task.attempts:
            self._rows.update(queue, task, attempts=0, deliveries=task.deliveries - task.attempts)
        self._set(queue, family, op.name, "value" if op.token else "signal", "done", op.value)
        return e.Reply.OK

    def _change(self, op: e.SetEntry) -> e.Entry | e.Reply:
        task = self._leased(op.key, op.id, op.token, is_to_stop=True)
        if isinstance(task, e.Reply):
            return task
        family = self._family(self._queues.get(op.key), task)
        entry = self._entry(family, op.name)
        if entry is None or entry.kind != "release":
            return e.Reply.UNKNOWN
        return _shown(entry) if entry.state != "held" else self._change_held(family, entry, op.change)

    def entries(self, op: e.Scan[e.Page[e.Entry]]) -> e.Page[e.Entry]:
        task = int(op.only)
        order = "unfinished" if op.index is e.UNFINISHED_CHILDREN else "name"
        family = self._families.get(op.key, task)
        if family is None or family.over:
            return e.Page(())
        after = (op.after,) if op.after else ()
        page: list[e.Entry] = []
        size, last = 0, ""
        for looked, row in enumerate(
            self._entries.some(order, op.key, task, limit=op.limit + 1, after=after)
        ):
            if looked == op.limit or size > e.ENTRY_BYTES:
                return e.Page(tuple(page), last)
            last = row.name
            if _is_there(row, family):
                page.append(_shown(row))
                size += len(row.value)
        return e.Page(tuple(page))

    # what settling asks

    def unfinished(self, queue: Queue, task: int) -> int:
        family = self._families.get(queue.name, task)
        return 0 if family is None else family.unfinished

    def is_waited_for(self, queue: Queue, task: int) -> bool:
        """True if a task has unfinished children, or releases that have not begun."""
        family = self._families.get(queue.name, task)
        return family is not None and bool(family.unfinished or family.held)

    def is_child(self, queue: Queue, task: int) -> bool:
        family = self._families.get(queue.name, task)
        return family is not None and bool(family.parent) and not family.release

    def is_release(self, queue: Queue, task: int) -> bool:
        family = self._families.get(queue.name, task)
        return family is not None and bool(family.release)

    def keep(self, queue: Queue, task: Task, follows: e.Ends | e.GoesBack) -> bool:
        """Store the end of a task, or of its try, until its children have ended; False without children."""
        family = self._family(queue, task)
        if isinstance(follows, e.Ends):
            ends, deliveries, ready_at = follows, task.deliveries, task.ready_at
        elif follows.attempts <= task.attempts:
            return False
        else:
            ends, deliveries = e.Ends(_RETRY, follows.attempts, b"", None), follows.deliveries
            ready_at = self._state.after(follows.delay or 0.0)
            if not family.unfinished:
                self.end_try(queue, task.id)
        if not (family.unfinished or (ends.state != _RETRY and family.held)):
            return False
        family.dropped, family.beside = task.token if ends.state == "done" else 0, False
        family.awaited = family.prefix = ""
        family.ending, family.result, family.ttl = ends.state, ends.result, ends.ttl
        self._families.save(family)
        _untime(self._state, self._families, family)
        queue.ending += 1
        self._hold_group(queue, task)
        self._settling.release(queue, task, ENDING, ready_at, ends.attempts, deliveries)
        if family.unfinished:
            self.sweep_from(family, "")
        else:
            self._go_on(family)
        return True

    def end_try(self, queue: Queue, task: int) -> None:
        family = self._families.get(queue.name, task)
        if family is not None:
            family.tries += 1
            self._families.save(family)

    def live_again(self, queue: Queue, task: int) -> None:
        """Make a dead letter ready, by law 17."""
        family = self._families.get(queue.name, task)
        if family is not None and family.ran:
            family.life += 1
            family.named = family.ran = False
            self._families.save(family)
        self.end_try(queue, task)

    def begin_anew(self, queue: Queue, task: int) -> None:
        family = self._families.get(queue.name, task)
        if family is not None:
            family.tries = family.born = family.tries + 1
            self._families.save(family)

    def wait(self, queue: Queue, task: Task, waits: e.Waits) -> bool:
        if not (waits.entry or task.kin):
            return False
        family = self._family(queue, task)
        if waits.entry:
            if self._entry(family, waits.entry) is not None:
                return False
        elif family.unfinished <= waits.rest:
            return False
        family.awaited, family.prefix, family.rest = waits.entry, waits.prefix, waits.rest
        self._families.save(family)
        if waits.timeout:
            until = self._state.now + waits.timeout
            self._families.move(family, timed=True, until=until)
            self._state.wake_at("timeout", until)
            self._takers.offer(queue, 1, to_ask=True)  # an idle taker must know, to ask in time
        queue.suspended += 1
        self._hold_group(queue, task)
        self._settling.release(queue, task, SUSPENDED, task.ready_at, task.attempts, task.attempts)
        if waits.prefix and self._has_failed(family):
            self._sweep_failed(family)
        return True

    def ended(self, queue: Queue, task: int, state: str, result: bytes) -> None:
        """Tell the parent of a task that has ended; forget its entries, unless it is a dead letter."""
        family = self._families.get(queue.name, task)
        if family is None:
            return
        tells = family.parent and not family.told
        if state != "dead":
            forget_family(self._state, queue.name, task)
        elif family.release:  # it may have been suspended
            family.told, family.awaited, family.prefix = True, "", ""
            self._families.save(family)
            _untime(self._state, self._families, family)
        if tells:
            self._tell(family, state, result)

    def cancel(self, queue: Queue, task: Task, ttl: float | None, state: str) -> None:
        family = self._families.get(queue.name, task.id)
        assert family is not None
        if family.ending == _RETRY:
            family.ending, family.ttl = state, ttl
            self._families.save(family)

    def sweep_children(self, queue: Queue, task: Task) -> None:
        family = self._families.get(queue.name, task.id)
        if family is not None and family.unfinished:
            self.sweep_from(family, "")

    def sweep_from(self, family: Family, prefix: str) -> None:
        family.swept = family.swept_to = prefix
        self._families.save(family)
        self._families.move(family, sweeps=True)
        self._state.wake_at("sweep", self._state.now)

    # the work of time

    def sweep(self) -> None:
        for _ in range(e.SWEEP_STEPS):
            family = self._families.first("sweeps")
            if family is None:
                break
            after = (family.swept_to,) if family.swept_to else ()
            rows = self._entries.some("unfinished", family.queue, family.task, limit=1, after=after)
            if not rows or not rows[0].name.startswith(family.swept):
                self._families.move(family, sweeps=False)
                if family.held and not family.unfinished and family.ending not in ("", _RETRY):
                    self._go_on(family)
                    break
                continue
            (entry,) = rows
            family.swept_to, entry.swept = entry.name, True
            self._families.save(family)
            self._entries.save(entry)
            queue: Queue = self._queues.get(entry.child_queue)
            child = self._rows.task(queue, entry.child)
            assert child is not None
            takeable = queue.takeable
            self._settling.cancel(queue, child, e.EXPIRED_TTL)
            self._takers.offer(queue, queue.takeable - takeable)
        self._state.wake_at("sweep", None)
        if self._families.first("sweeps") is not None:
            self._state.wake_at("sweep", self._state.now + e.SWEEP_PAUSE)

    def time_out(self) -> None:
        while (family := self._families.first("timed")) is not None and family.until <= self._state.now:
            if not self._state.step():
                return
            queue: Queue = self._queues.get(family.queue)
            self._set(queue, family, family.awaited, "signal", "expired")

    def forget(self, count: int) -> None:
        while count > 0 and (family := self._families.first("over")) is not None:
            rows = self._entries.some("name", family.queue, family.task, limit=count)
            for row in rows:
                self._entries.remove(row)
            if len(rows) < count:
                self._families.remove(family)
            count -= max(1, len(rows))
        self._state.wake_at("family", None)
        if self._families.first("over") is not None:
            self._state.wake_at("family", self._state.now)

    # inside

    def _leased(self, name: str, task_id: int, token: int, *, is_to_stop: bool = False) -> Task | e.Reply:
        queue = self._queues.find(name)
        task = None if queue is None else self._rows.task(queue, task_id)
        if task is None or task.place != LEASED or task.token != token:
            return e.Reply.REFUSED
        return e.Reply.REQUESTED if task.stop and not is_to_stop else task

    def _family(self, queue: Queue, task: Task) -> Family:
        family = self._families.get(queue.name, task.id) if task.kin else None
        if family is None:
            family = Family(queue.name, task.id)
            self._families.save(family)
            self._rows.update(queue, task, kin=True, expires=task.deadline)
        return family

    def _entry(self, family: Family, name: str) -> Entry | None:
        entry = self._entries.get(family.queue, family.task, name)
        return entry if entry is not None and _is_there(entry, family) else None

    def _write(self, entry: Entry) -> None:
        former = self._entries.get(entry.queue, entry.task, entry.name)
        if former is not None:
            self._entries.remove(former)
        self._entries.save(entry)

    def _set(
        self, queue: Queue, family: Family, name: str, kind: str, state: str, value: bytes = b""
    ) -> None:
        family.total += 1
        self._families.save(family)
        life = 0 if (kind, state) == ("signal", "done") else _life(family)
        self._write(Entry(family.queue, family.task, name, kind, state, value, tries=family.tries, life=life))
        if name and family.awaited == name:
            self._wake(queue, family)

    def _tell(self, child: Family, state: str, result: bytes) -> None:
        family = self._families.get(child.parent_queue, child.parent)
        entry = self._entries.get(child.parent_queue, child.parent, child.name)
        assert family is not None
        assert entry is not None
        failed = state != "done" and not child.release
        family.ends += not child.release
        entry.state, entry.value, entry.ended = state, result, 0 if child.release else family.ends
        self._entries.save(entry)
        self._entries.move(entry, unfinished=False, failed=failed, tries=family.tries)
        family.unfinished -= 1
        self._families.save(family)
        queue: Queue = self._queues.get(family.queue)
        task = self._rows.task(queue, family.task)
        assert task is not None
        if task.place == ENDING:
            if not family.unfinished or family.beside:
                self._go_on(family)
        elif task.place == SUSPENDED and not family.awaited:
            if family.unfinished <= family.rest:
                self._wake(queue, family)
            elif failed and family.prefix and entry.name.startswith(family.prefix):
                self._sweep_failed(family)

    def _go_on(self, family: Family) -> None:
        is_final = family.ending != _RETRY
        if is_final and self._begin_next(family):
            self.sweep_from(family, "")
        if family.unfinished or (is_final and family.held):
            return
        queue: Queue = self._queues.get(family.queue)
        task = self._rows.task(queue, family.task)
        assert task is not None
        self._apply(queue, task, family)

    def _wake(self, queue: Queue, family: Family) -> None:
        task = self._rows.task(queue, family.task)
        assert task is not None
        family.awaited = family.prefix = ""
        self._families.save(family)
        self._families.move(family, sweeps=False)
        _untime(self._state, self._families, family)
        self._go_back(queue, task, min(task.ready_at, self._state.moment))

    def _apply(self, queue: Queue, task: Task, family: Family) -> None:
        self._families.move(family, sweeps=False)
        state, family.ending = family.ending, ""
        self._families.save(family)
        if state == _RETRY:
            self.end_try(queue, task.id)
            self._go_back(queue, task, task.ready_at)
            return
        queue.dequeue(ENDING, "")
        self._settling.end(queue, task, e.Ends(state, task.attempts, family.result, family.ttl))

    def _go_back(self, queue: Queue, task: Task, ready_at: Moment) -> None:
        takeable = queue.takeable
        queue.dequeue(task.place, "")
        self._settling.give_back(queue, task, ready_at, task.attempts, task.deliveries)
        self._takers.offer(queue, queue.takeable - takeable)

    def _sweep_failed(self, family: Family) -> None:
        prefix, family.prefix = family.prefix, ""
        self.sweep_from(family, prefix)

    def _has_failed(self, family: Family) -> bool:
        of = (family.queue, family.task, family.tries)
        rows = self._entries.some("failed", *of, limit=1, after=(family.prefix,))
        return bool(rows) and rows[0].name.startswith(family.prefix)

    def _hold_group(self, queue: Queue, task: Task) -> None:
        if task.group:
            queue.groups.pin(task.group, task.id)
            queue.groups.rest(task.group, task.id)


def forget_family(state: State, queue: str, task: int) -> None:
    families: Table[Family] = state.table(FAMILIES)
    family = families.get(queue, task)
    if family is None:
        return
    _untime(state, families, family)
    if family.total:
        families.move(family, over=True, sweeps=False)
        state.wake_at("family", state.now)
    else:
        families.remove(family)


def _untime(state: State, families: Table[Family], family: Family) -> None:
    if family.timed:
        families.move(family, timed=False)
        first = families.first("timed")
        state.wake_at("timeout", None)
        if first is not None:
            state.wake_at("timeout", first.until)


Tree = tuple[int, str, int, bool]
"""A family as a record shows it: the parent, its queue, how many children are unfinished, whether it has releases."""

ALONE: Tree = (0, "", 0, False)


def tree_of(family: Family | None) -> Tree:
    if family is None:
        return ALONE
    return (family.parent, family.parent_queue, family.unfinished, bool(family.named))


def _life(family: Family) -> int:
    return family.life if family.named else 0


def _is_there(entry: Entry, family: Family) -> bool:
    is_of_now = entry.tries >= family.born and entry.life in (0, family.life)
    return is_of_now and (not entry.failed or entry.tries == family.tries)


def _shown(entry: Entry) -> e.Entry:
    return e.Entry(
        *(entry.name, entry.kind, entry.state, entry.value),  # pyright: ignore[reportArgumentType]
        *(entry.child_queue, entry.child, bool(entry.swept), entry.ended),
    )
