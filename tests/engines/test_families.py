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
from tenure.engines.rules import ENDING, HELD, LEASED, Families, Groups, _families as module
from tenure.engines.rules._releases import Releases

QUEUE, LEVELS, MOST_STEPS = "q", 3, 9


class World:
    """A memory engine, and handlers: those of lost sessions are still there, and may write late.

    With "releases" as the first action, tasks name what is undone in the end: x, and y unless they are done.
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
        self.named, self.let_go, self.undone = set(), set(), set()
        self.has_releases = path[:1] == (("releases",),)
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
            its = self.families.get(task.id)
            if self.is_late and not (its and its.release):
                self.troubles.append(f"{task.id} begins past its deadline")
            self.handlers[task.id] = task
            self.tries[task.id] = task.attempts
            if task.attempts > self.retries[task.id]:
                self.troubles.append(f"{task.id} is tried as if it had failed {task.attempts} times")
            if its is not None and its.release:
                continue
            parent = None if its is None else self.tasks.get(its.parent)
            if parent is not None and (parent.place == ENDING or parent.stop):
                self.troubles.append(f"{task.id} begins though its parent is to stop")
            late = [
                child.task
                for child in self.children(task.id)
                if not child.release and self.born.get(child.task, 0) < task.attempts
            ]
            if late:
                self.troubles.append(f"try {task.attempts} of {task.id} meets {late} of an earlier one")

    def act(self, what, nth=0):
        task = self.ids[nth - 1]
        handler = self.handlers.get(task)
        if what in ("deadline", "releases"):
            pass
        elif what in ("x", "y"):
            held = "end" if what == "x" else "unless_done"
            op = e.PutChildren(QUEUE, task, handler.token, QUEUE, (f"x/{what}",), (e.NewTask(b""),), 9, held)
            if isinstance(answer := self.do(op), e.Accepted):
                self.in_force(task, what)
                (release,) = answer.ids
                self.ids += [release] if release not in self.ids else []
                self.named.add(release)
        elif what in ("begin", "keep"):
            mine = {x.child for x in self.entries if (x.task, x.name, x.state) == (task, "x/x", "held")}
            undone, self.undone = self.undone, self.undone | (mine if what == "begin" else set())
            let_go, self.let_go = self.let_go, self.let_go | (mine if what == "keep" else set())
            answer = self.do(e.SetEntry(QUEUE, task, handler.token, "x/x", change=what))
            if answer is not e.Reply.OK:
                self.let_go, self.undone = let_go, undone
            else:
                self.in_force(task, what)
                if what == "begin" and any(not child.release for child in self.children(task)):
                    self.troubles.append(f"{task} undoes what its children use")
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
            its = self.families.get(task)
            root = its is None or not its.parent or its.release
            self.retries[task] += root and any(ended.id == task for ended in self.ended)
            forgets = its is not None and bool(its.ran)
            self.do(e.Move(QUEUE, (task,), "waiting"))
            now = [x for x in self.entries if x.task == task and x.life in (0, self.families[task].life)]
            if forgets and any(x.kind == "release" or x.life for x in now):
                self.troubles.append(f"{task} finds what is undone")
        else:
            del self.handlers[task]
            held = self.tasks.get(task)
            in_force = held is not None and held.token == handler.token
            if what is Verdict.DONE and in_force and not self.children(task):
                mine = [x for x in self.entries if (x.task, x.unless_done) == (task, True)]
                self.let_go |= {x.child for x in mine if x.state == "held" and x.token == handler.token}
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
                    if self.has_releases:
                        yield from ((what, self.nth(task)) for what in ("x", "y", "begin", "keep"))
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
        tasks = self.tasks
        children = (f for f in self.families.values() if f.parent == task and f.task in tasks and not f.told)
        return [f for f in children if tasks[f.task].place != HELD]

    def in_force(self, task, what):
        if self.handlers[task].token != self.tasks[task].token:
            self.troubles.append(f"{task}: {what}, and it is not in force")

    def check(self):
        """The laws, in this state."""
        families, tasks, troubles = self.families, self.tasks, self.troubles
        for family in families.values():
            ends_last = family.parent and not family.told
            if ends_last and family.task in tasks and family.parent not in tasks:
                troubles.append(f"{family.parent} ended before its child {family.task}")
            children = self.children(family.task)
            if family.task in tasks and family.unfinished != len(children):
                troubles.append(f"{family.task} counts {family.unfinished} of {len(children)} children")
            place = tasks[family.task].place if family.task in tasks else LEASED
            rest = family.rest if place == module.SUSPENDED else 0
            if LEASED < place < HELD and family.unfinished <= rest and not family.awaited:
                troubles.append(f"{family.task} waits for nothing")
            held = [x for x in self.entries if x.task == family.task and x.state == "held"]
            begun = [f.task for f in self.children(family.task) if f.release and f.task not in self.undone]
            if family.held != len(held) or any(tasks[x.child].place != HELD for x in held):
                troubles.append(f"{family.task} counts {family.held} of {len(held)} releases")
            if begun and len(self.children(family.task)) > 1:
                troubles.append(f"{begun} are undone beside others")
            last = max((x.child for x in held), default=0)
            if begun and begun[0] < last:
                troubles.append(f"{begun} are undone before what was named later")
        if self.queue and self.queue.held != sum(task.place == HELD for task in tasks.values()):
            troubles.append("the queue counts other releases")
        ends = {ended.id: ended for ended in self.ended}
        for release in self.named - self.let_go:
            if release not in tasks and (release not in ends or ends[release].state not in ("done", "dead")):
                troubles.append(f"{release} is forgotten")
        for release in self.let_go:
            if release in self.handlers or release in ends:
                troubles.append(f"{release} was let go, and is undone")
        self.done |= {task for task, ended in ends.items() if ended.state == "done"}
        for entry in self.entries:
            if entry.kind == "child" and entry.task in tasks:
                if (entry.child in tasks) != entry.unfinished:
                    troubles.append(f"{entry.child} and its entry differ")
                if entry.child in ends and ends[entry.child].state != entry.state:
                    troubles.append(f"{entry.child} and its entry end in two ways")
        for family in [family for family in families.values() if not family.release]:
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
            (
                *(nth(f.task), nth(f.parent), f.unfinished, f.ending, f.awaited, f.prefix),
                *(f.named, f.ran, f.told, bool(f.dropped)),
            )
            for f in self.families.values()
        )
        entries = tuple(
            (
                *(nth(x.task), x.name, x.state, x.tries == self.families[x.task].tries, nth(x.child)),
                *(x.life in (0, self.families[x.task].life), x.token == self.tasks[x.task].token),
            )
            for x in self.entries
            if x.task in self.tasks
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
    "releases": (("releases",), ("take",), ("x", 1), ("y", 1)),
    "a child beside a release": (("releases",), ("take",), ("x", 1), ("a", 1), ("take",)),
    "a release that is undone": (("releases",), ("take",), ("x", 1), ("begin", 1), ("take",)),
    "a release with a release": (("releases",), ("take",), ("x", 1), (Verdict.DONE, 1), ("take",), ("x", 2)),
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
    assert f"SWEEP_STEPS = {e.SWEEP_STEPS}\n" in lua
    assert f"SWEEP_PAUSE = {pause} " in lua
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


def _does_not_stop(self, name, task_id, token, **_):
    task = self._rows.task(self._queues.get(name), task_id)
    return task if task and task.token == token else e.Reply.REFUSED


def _has_no_fence(self, name, task_id, token, **_):
    queue = self._queues.find(name)
    return (queue and self._rows.task(queue, task_id)) or e.Reply.REFUSED


def _forgets_the_deadline(self, queue, task, **fields):
    UPDATE(self, queue, task, **fields | {"expires": None} if "kin" in fields else fields)


def _children_hold_their_groups(self, name, task):
    if name and self.keep_order:
        group = self._rows.change(name)
        group.pinned_task, group.rests = task, False
        self.refresh(group)


def _begins_whatever_is_unfinished(self, family):
    while (entry := self._entries.last("held", family.queue, family.task)) is not None:
        self._begin(family, entry)
    return False


def _begins_the_first_first(self, family):
    entry = self._entries.first("held", family.queue, family.task)
    if entry is not None and not family.unfinished:
        self._begin(family, entry)
    return False


def _begins_without_a_look_at_children(self, family, entry, change):
    if change == "keep":
        return CHANGE(self, family, entry, change)
    self._begin(family, entry)
    return e.Reply.OK


def _hands_over_what_another_delivery_has_named(self, family):
    for entry in self._entries.each("held", family.queue, family.task):
        entry.token = family.dropped
    return BEGIN(self, family)


def _begins_nothing_for_a_cancel(self, queue, task, follows):
    family = self._families.get(queue.name, task.id)
    if isinstance(follows, e.Ends) and follows.state == "cancelled" and family and not family.unfinished:
        return False
    return KEEP(self, queue, task, follows)


def _begins_for_a_retry(self, queue, task, follows):
    kept = KEEP(self, queue, task, follows)
    if isinstance(follows, e.GoesBack) and follows.attempts > task.attempts:
        self._begin_next(self._families.get(queue.name, task.id))
    return kept


def _tells_its_owner_again(self, queue, task, state, result):
    family = self._families.get(queue.name, task)
    family.told = False
    ENDED(self, queue, task, state, result)


KEEP, ENDED, TELL, WAIT = Families.keep, Families.ended, Families._tell, Families.wait
UPDATE = MemoryTaskRows.update
BEGIN, CHANGE = Releases._begin_next, Releases._change_held
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


OF_RELEASES = {
    "M1, M11 all begin at once": (Releases, "_begin_next", _begins_whatever_is_unfinished),
    "M3 a cancel begins none": (Families, "keep", _begins_nothing_for_a_cancel),
    "M8 a retry begins them": (Families, "keep", _begins_for_a_retry),
    "M10 the first begins first": (Releases, "_begin_next", _begins_the_first_first),
    "M12, M13, M14 a ghost names, undoes and keeps": (Families, "_leased", _has_no_fence),
    "M16, M17 a requeue forgets nothing": (Families, "live_again", Families.end_try),
    "6 a release ends as it is ended": (e, "as_letter", lambda ends: ends),
    "8 undo does not wait": (Releases, "_change_held", _begins_without_a_look_at_children),
    "10 a letter tells its owner": (Families, "ended", _tells_its_owner_again),
    "14 a delivery hands over what it does not know": (
        *(Releases, "_begin_next"),
        _hands_over_what_another_delivery_has_named,
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", [*MUTANTS, *OF_RELEASES])
def test_a_rule_that_is_put_back_is_noticed(name, monkeypatch):
    owner, method, other = {**MUTANTS, **OF_RELEASES}[name]
    monkeypatch.setattr(owner, method, other)
    for about, beginning in BEGINNINGS.items():
        if name in OF_RELEASES and "release" not in about:
            continue
        try:
            _, _, troubles = explored(600 if name in OF_RELEASES else 260, first=beginning)
        except (AssertionError, KeyError, RecursionError):
            return
        if troubles:
            return
    raise AssertionError(f"nothing noticed that {name}")
