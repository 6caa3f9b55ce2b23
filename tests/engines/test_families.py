"""Every way in which a small family can go: the laws hold in each state, and from each there is a way to the end.

A state is a path of actions, applied anew to a memory engine. Two paths that lead to the same state are one.
"""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path

import depth
import pytest
from contract import configured, moving, set_groups

import tenure.engine as e
from tenure.engine import Verdict
from tenure.engines.memory import MemoryEngine
from tenure.engines.memory._tasks import MemoryTaskRows
from tenure.engines.rules import ENDING, LEASED, Families, Groups, _families as module

QUEUE, LEVELS, MOST_STEPS = "q", 3, 9


class World:
    """A memory engine, and handlers: those of lost sessions are still there, and may write late.

    With "deadline" as the first action, the root has a deadline, which passes with the action "late".
    """

    def __init__(self, path=()):
        self.now, self.is_late = 1000.0, False
        self.deadline = 50.0 if path[:1] == (("deadline",),) else None
        self.engine = MemoryEngine(clock=lambda: self.now)
        self.number = 0
        self.handlers = {}
        self.tries = {}
        self.retries = Counter()
        self.born = {}
        self.put = {}
        self.done = set()
        self.ahead = {}
        self.troubles = []
        self.faults = 0
        self.in_groups = False
        self.do(configured(QUEUE, max_size=1, max_deliveries=2, dead=None))
        self.do(e.OpenSession("w", "p", 1e6))
        root = e.PutRequest("m", (e.NewTask(b"", deadline=self.deadline),))
        self.ids = [*self.do(e.Put("w", self.next(), QUEUE, (root,))).answers[0].ids]
        for action in path:
            self.act(*action)

    def next(self):
        self.number += 1
        return self.number

    def nth(self, task):
        """The place of a task among all that were put, from 1; actions and states have it in place of the id."""
        return self.ids.index(task) + 1 if task else 0

    def do(self, operation):
        while (answer := self.engine.apply(operation)) is e.Reply.MORE:
            pass
        self.check()
        return answer

    # what can happen

    def exchange(self, *settle, want=0):
        answer = self.do(e.Exchange("w", self.next(), QUEUE, settle, want, wait=False))
        for task in answer.tasks:
            if self.is_late:
                self.troubles.append(f"{task.id} begins past its deadline")
            self.handlers[task.id] = task
            self.tries[task.id] = task.attempts
            if task.attempts > self.retries[task.id]:
                self.troubles.append(f"{task.id} is tried as if it had failed {task.attempts} times")
            parent = self.tasks.get(self.families[task.id].parent) if task.id in self.families else None
            if parent is not None and (parent.place == ENDING or parent.stop):
                self.troubles.append(f"{task.id} begins though its parent is to stop")
            late = [
                child.task for child in self.children(task.id) if self.born.get(child.task, 0) < task.attempts
            ]
            if late:
                self.troubles.append(f"try {task.attempts} of {task.id} meets {late} of an earlier one")

    def act(self, what, nth=0):
        task = self.ids[nth - 1]
        handler = self.handlers.get(task)
        if what == "deadline":
            pass
        elif what == "late":
            self.now, self.is_late = self.now + 100, True
            self.do(e.Ping())
        elif what == "take":
            self.exchange(want=1)
        elif what == "order groups":
            self.in_groups = True
            self.do(set_groups(QUEUE, group_limit=1))
        elif what in ("a", "b"):
            child = e.NewTask(b"", group=e.OF_CHILDREN + what if self.in_groups else "")
            answer = self.do(e.PutChildren(QUEUE, task, handler.token, QUEUE, (f"x/{what}",), (child,)))
            if isinstance(answer, e.Accepted):
                if handler.token != self.tasks[task].token or self.tasks[task].stop:
                    self.troubles.append(f"{task} puts {what}, and is not in force")
                (child,) = answer.ids
                self.ids += [child] if child not in self.ids else []
                self.born.setdefault(child, self.tries[task])
                former = self.put.setdefault((task, what), child)
                self.put[task, what] = child
                if former != child and former in self.done:
                    self.troubles.append(f"{former} was done, and put again as {child}")
        elif what == "lose":
            self.faults += 1
            self.do(e.CloseSession("w"))
            self.do(e.OpenSession("w", "p", 1e6))
        elif what == "cancel":
            self.faults += 1
            self.do(e.Move(QUEUE, (task,), "cancelled", ttl=None))
        elif what == "give back":
            del self.handlers[task]
            self.exchange(e.Settle(task, handler.token, Verdict.GIVE_BACK))
        elif what == "purge":
            self.faults += 1
            self.do(moving(self.do, QUEUE, "waiting", "purged"))
        elif what == "requeue":
            self.faults += 1
            root = not self.families[task].parent if task in self.families else True
            self.retries[task] += root and any(ended.id == task for ended in self.ended)
            self.do(e.Move(QUEUE, (task,), "waiting"))
        else:
            del self.handlers[task]
            held = self.tasks.get(task)
            self.retries[task] += (
                what is Verdict.RETRY
                and held is not None
                and held.token == handler.token
                and held.stop is None
            )
            rest = max(1, self.families[task].unfinished) - 1 if task in self.families else 0
            result = {Verdict.WAIT: b"x/", Verdict.WAIT_FOR_END: b"%d" % rest}.get(what, b"")
            self.exchange(e.Settle(task, handler.token, what, result))

    def actions(self, most_faults):
        tasks = self.tasks
        yield ("take",)
        if self.deadline is not None and not self.is_late:
            yield ("late",)
        for task in self.handlers:
            if self.is_in_force(task) or self.faults:
                if self.depth(task) < LEVELS - 1:
                    yield ("a", self.nth(task))
                    yield ("b", self.nth(task))
                    yield (Verdict.WAIT, self.nth(task))
                    yield (Verdict.WAIT_FOR_END, self.nth(task))
                for verdict in (Verdict.DONE, Verdict.DEAD, Verdict.RETRY):
                    yield (verdict, self.nth(task))
        if self.faults < most_faults:
            yield ("lose",)
            yield from (("give back", self.nth(task)) for task in self.handlers)
            yield ("purge",)
            yield from (("cancel", self.nth(task)) for task in tasks)
            if self.deadline is None:
                yield from (("requeue", self.nth(ended.id)) for ended in self.ended if ended.state == "dead")

    # what is there

    def is_in_force(self, task):
        return (
            task in self.handlers
            and task in self.tasks
            and self.tasks[task].token == self.handlers[task].token
        )

    @property
    def queue(self):
        return self.engine._queues.stored(QUEUE)

    @property
    def tasks(self):
        return self.queue.tasks if self.queue else {}

    @property
    def ended(self):
        return list(self.queue.records._ended.values()) if self.queue else []

    @property
    def families(self):
        return {f.task: f for f in self.engine._state.tables["family"].rows.values() if not f.over}

    @property
    def entries(self):
        families = self.families
        return [x for x in self.engine._state.tables["entry"].rows.values() if x.task in families]

    def depth(self, task):
        family = self.families.get(task)
        return family.depth if family else 0

    def children(self, task):
        return [f for f in self.families.values() if f.parent == task and f.task in self.tasks]

    def check(self):
        """The laws, in this state."""
        families, tasks, troubles = self.families, self.tasks, self.troubles
        for family in families.values():
            if family.parent and family.task in tasks and family.parent not in tasks:
                troubles.append(f"{family.parent} ended before its child {family.task}")
            children = self.children(family.task)
            if family.task in tasks and family.unfinished != len(children):
                troubles.append(f"{family.task} counts {family.unfinished} of {len(children)} children")
            place = tasks[family.task].place if family.task in tasks else LEASED
            rest = family.rest if place == module.SUSPENDED else 0
            if place > LEASED and family.unfinished <= rest and not family.awaited:
                troubles.append(f"{family.task} waits for nothing")
        ends = {ended.id: ended for ended in self.ended}
        self.done |= {task for task, ended in ends.items() if ended.state == "done"}
        for entry in self.entries:
            if entry.kind == "child" and entry.task in tasks:
                if (entry.child in tasks) != entry.unfinished:
                    troubles.append(f"{entry.child} and its entry differ")
                if entry.child in ends and ends[entry.child].state != entry.state:
                    troubles.append(f"{entry.child} and its entry end in two ways")
        for family in families.values():
            ahead = self.retries[family.task] - family.tries - (family.ending == "retry")
            if family.ending in ("", "retry") and ahead != self.ahead.setdefault(family.task, ahead):
                troubles.append(f"{family.task} is in its try {family.tries}")

    def key(self):
        """The state, by the places of tasks in the tree; numbers alone make no difference."""
        nth = self.nth
        tasks = tuple(
            (
                nth(t.id),
                t.place,
                t.attempts,
                t.deliveries,
                t.stop is None,
                t.token == getattr(self.handlers.get(t.id), "token", 0),
            )
            for t in self.tasks.values()
        )
        families = tuple(
            (nth(f.task), nth(f.parent), f.unfinished, f.ending, f.awaited, f.prefix)
            for f in self.families.values()
        )
        entries = tuple(
            (nth(x.task), x.name, x.state, x.tries == self.families[x.task].tries) for x in self.entries
        )
        ended = tuple(sorted((nth(x.id), x.state) for x in self.ended))
        return tasks, families, entries, ended, tuple(map(nth, self.handlers)), self.faults, self.is_late

    def finish(self):
        """Have every handler do its work without a fault; the number of tasks that are left."""
        self.do(e.CloseSession("w"))
        self.do(e.OpenSession("w", "p", 1e6))
        for _ in range(40):
            self.handlers = {}
            self.exchange(want=10)
            if not self.handlers:
                break
            for task in list(self.handlers):
                self.act(Verdict.DONE, self.nth(task))
        return len(self.tasks)


def explored(most_states, most_faults=2, first=()):
    """Follow all paths, the shortest first, until a law breaks: the number of states, the path and the trouble."""
    seen, paths = set(), deque([first])
    while paths and len(seen) < most_states:
        path = paths.popleft()
        world = World(path)
        if world.troubles:
            return len(seen), path, world.troubles
        if (key := world.key()) in seen:
            continue
        seen.add(key)
        if len(path) - len(first) < MOST_STEPS:
            paths.extend((*path, action) for action in world.actions(most_faults))
        if world.finish() or world.troubles:
            return len(seen), path, world.troubles or ["it never ends"]
    return len(seen), (), []


BEGINNINGS = {
    "ordered groups": (("order groups",), ("take",), ("a", 1), ("take",), ("a", 2)),
    "a deadline": (("deadline",), ("take",), ("a", 1), ("take",)),
    "a child that ends for a retry": (
        ("take",),
        ("a", 1),
        ("take",),
        ("a", 2),
        ("take",),
        (Verdict.RETRY, 2),
    ),
    "one family": (("take",),),
    "a child that waits": (("take",), ("a", 1), ("b", 1), (Verdict.WAIT, 1)),
    "a child that works": (("take",), ("a", 1), ("take",)),
    "three levels": (("take",), ("a", 1), ("take",), ("a", 2)),
}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_the_laws_hold_in_each_state(name):
    most_states = depth.walks(1_300)
    states, path, troubles = explored(most_states, first=BEGINNINGS[name])
    assert not troubles, path
    assert states == most_states


def test_the_three_languages_of_the_rules_sweep_alike():
    engines = Path(module.__file__).parent.parent
    lua = (engines / "redis/lua/families.lua").read_text("utf-8")
    sql = (engines / "postgres/sql/families.sql").read_text("utf-8")
    state = (engines / "postgres/sql/state.sql").read_text("utf-8")
    pause = round(e.SWEEP_PAUSE * 1e6)
    assert f"SWEEP_STEPS, SWEEP_PAUSE = {e.SWEEP_STEPS}, {pause} " in lua
    assert f"steps int := {e.SWEEP_STEPS};" in sql
    assert f"tenure.time(_clock) + {pause} END" in sql
    assert f"'on' THEN _now + {pause} END" in state


def _ends_at_once(self, queue, task, follows):
    if (
        isinstance(follows, e.Ends)
        and (family := self._families.get(queue.name, task.id))
        and family.unfinished
    ):
        self.sweep_from(family, "")
        return False
    return KEEP(self, queue, task, follows)


def _retries_at_once(self, queue, task, follows):
    return isinstance(follows, e.Ends) and KEEP(self, queue, task, follows)


def _ends_a_try_with_each_delivery(self, queue, task, follows):
    if isinstance(follows, e.GoesBack):
        self.end_try(queue, task.id)
    return KEEP(self, queue, task, follows)


def _tells_nothing_of_a_purge(self, queue, task, state, result):
    if state != "purged":
        ENDED(self, queue, task, state, result)


def _forgets_results(self, child, state, result):
    TELL(self, child, state, result)
    entry = self._entries.get(child.parent_queue, child.parent, child.name)
    if entry is not None and state == "done":
        self._entries.remove(entry)


def _parks_without_a_look(self, queue, task, waits):
    family = self._family(queue, task)
    if family.unfinished or waits.entry:
        return WAIT(self, queue, task, waits)
    queue.suspended += 1
    self._settling.release(queue, task, module.SUSPENDED, task.ready_at, task.attempts, task.attempts)
    return True


def _counts_a_wait(self, queue, task, waits):
    task.attempts += 1
    return WAIT(self, queue, task, waits)


def _does_not_stop(self, name, task_id, token):
    task = self._rows.task(self._queues.get(name), task_id)
    return task if task and task.token == token else e.Reply.REFUSED


def _has_no_fence(self, name, task_id, token):
    queue = self._queues.find(name)
    return (queue and self._rows.task(queue, task_id)) or e.Reply.REFUSED


def _forgets_the_deadline(self, queue, task, **fields):
    UPDATE(self, queue, task, **fields | {"expires": None} if "kin" in fields else fields)


def _children_hold_their_groups(self, name, task):
    if name and self.keep_order:
        group = self._rows.change(name)
        group.pinned_task, group.rests = task, False
        self.refresh(group)


KEEP, ENDED, TELL, WAIT = Families.keep, Families.ended, Families._tell, Families.wait
UPDATE = MemoryTaskRows.update
MUTANTS = {
    "1 a task ends at once, and the sweep follows": (Families, "keep", _ends_at_once),
    "3 the result of a child is forgotten with it": (Families, "_tell", _forgets_results),
    "4 a parent is tried again while children run": (Families, "keep", _retries_at_once),
    "8 a purge is silent": (Families, "ended", _tells_nothing_of_a_purge),
    "9 a dead child is made ready again": (Families, "is_child", lambda *_: False),
    "10 a wait counts": (Families, "wait", _counts_a_wait),
    "11 nothing is looked at when the parent is parked": (Families, "wait", _parks_without_a_look),
    "13 failed entries stay over a retry": (Families, "end_try", lambda *_: None),
    "14 failed entries are dropped at each delivery": (Families, "keep", _ends_a_try_with_each_delivery),
    "16 a task told to stop may still put": (Families, "_leased", _does_not_stop),
    "12 a sweep leaves out a child that ends for a retry": (Families, "cancel", lambda *_: None),
    "a deadline ends with the first entry": (MemoryTaskRows, "update", _forgets_the_deadline),
    "15 children are put without a fence": (Families, "_leased", _has_no_fence),
    "17 an ordered group holds children back": (Groups, "pin", _children_hold_their_groups),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_put_back_is_noticed(name, monkeypatch):
    owner, method, other = MUTANTS[name]
    monkeypatch.setattr(owner, method, other)
    for beginning in BEGINNINGS.values():
        try:
            _, _, troubles = explored(260, first=beginning)
        except (AssertionError, KeyError, RecursionError):
            return
        if troubles:
            return
    raise AssertionError(f"nothing noticed that {name}")
