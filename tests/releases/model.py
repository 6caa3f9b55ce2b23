"""A model of releases: all states of a small tree of tasks whose things are undone when their owners end.

A *release* is named before its thing exists, and begins when its owner would end. The engine's rules stand here a
second time, in few lines. `without` takes rules away, one at a time: a test sees which law breaks then.

A handler runs a program of one word at a time. One whose lease was lost is a ghost: it goes on at any time, or never.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, NamedTuple

UNFINISHED = ("ready", "leased", "suspended", "ending")


class Task(NamedTuple):
    kind: str
    program: str
    parent: int | None = None
    name: str = ""
    place: str = "ready"
    thing: Any = None
    stop: str = ""
    ending: str = ""
    verdict: str = ""
    awaited: str = ""
    deliveries: int = 0
    life: int = 1
    named: bool = False
    ran: bool = False
    told: bool = False


class Entry(NamedTuple):
    kind: str
    state: str
    life: int
    task: int = 0
    unless_done: bool = False
    together: bool = False
    mine: bool = True  # the delivery in force has named it


class Handler(NamedTuple):
    task: int
    program: tuple[str, ...]
    seen: tuple[str, ...]
    force: bool = True
    at: int = 0
    things: tuple[tuple[str, Any], ...] = ()


class Broken(Exception):
    """A law does not hold."""


class World:
    """A state. `faults` are the faults that may still come; `without` are the rules that are left out."""

    def __init__(self, programs, faults, without=(), options=()):
        self.programs, self.without, self.options = programs, frozenset(without), frozenset(options)
        self.tasks = {0: Task("root", "root")}
        self.entries, self.things = {}, {}
        self.handlers, self.messages = (), ()
        self.faults, self.sent = dict(faults), False

    def copy(self):
        other = object.__new__(World)
        other.__dict__.update(self.__dict__)
        other.tasks, other.entries = dict(self.tasks), dict(self.entries)
        other.things, other.faults = dict(self.things), dict(self.faults)
        return other

    def key(self):
        parts = (self.tasks, self.entries, self.things, self.faults)
        return (
            *(tuple(part.items()) for part in parts),
            tuple(sorted(self.handlers)),
            self.messages,
            self.sent,
        )

    def change(self, task, **fields):
        self.tasks[task] = self.tasks[task]._replace(**fields)

    def has(self, rule):
        return rule not in self.without

    # entries

    def entry(self, owner, name):
        entry = self.entries.get((owner, name))
        return entry if entry is not None and entry.life in (0, self.tasks[owner].life) else None

    def of(self, owner, state, kind=("child", "release")):
        life = self.tasks[owner].life
        return [
            name
            for (task, name), entry in self.entries.items()
            if task == owner and entry.state == state and entry.kind in kind and entry.life in (0, life)
        ]

    def set(self, owner, name, **fields):
        self.entries[owner, name] = self.entries[owner, name]._replace(**fields)

    def write(self, owner, name, kind, state, task=0, **flags):
        self.entries.pop((owner, name), None)
        its = self.tasks[owner]
        life = its.life if (its.named or kind == "release") and kind != "signal" else 0
        if kind == "signal" and not self.has("M20 signals stay"):
            life = its.life
        self.entries[owner, name] = Entry(kind, state, life, task, **flags)

    def put(self, kind, program, parent, name, thing, place):
        task = len(self.tasks)
        self.tasks[task] = Task(kind, program, parent, name, place, task if thing is None else thing)
        return task

    # the rules

    def settle(self, handler, verdict):
        """A delivery ends with this verdict; with "lost", its session ends."""
        self.handlers = tuple(h for h in self.handlers if h is not handler)
        if not handler.force:
            return
        owner, it = handler.task, self.tasks[handler.task]
        unfinished = self.of(owner, "unfinished")
        waits = verdict == "wait" or (verdict == "done" and unfinished)
        if it.stop and (waits or verdict in ("retry", "lost")):
            verdict, waits = it.stop, False
        self.change(owner, stop="")
        if verdict == "lost":
            self.change(owner, place="ready")
        elif waits:
            if not self.has("M9 a suspension begins nothing"):
                self.begin_next(owner)
            is_missing = unfinished or (it.awaited and self.entry(owner, it.awaited) is None)
            self.change(owner, place="suspended" if is_missing else "ready")
        elif verdict == "retry":
            if not self.has("M8 a retry begins nothing"):
                self.begin_next(owner)
            self.change(owner, place="ending", ending="retry")
            self.sweep(owner)
            self.go_on(owner)
        else:
            self.final(owner, verdict, handler.things)

    def final(self, owner, state, things=()):
        """A verdict that ends the task."""
        kept = ()
        if state == "done":
            rule = self.has("14 a delivery drops what it has named")
            names = self.of(owner, "held", ("release",))
            entries = {name: self.entries[owner, name] for name in names}
            kept = [n for n, x in entries.items() if x.unless_done and (x.mine or not rule)]
        for name in kept:
            self.set(owner, name, state="dropped")
            self.change(self.entries[owner, name].task, place="dropped")
        for name, thing in things:
            if name in kept and self.things.get(thing) in ("alive", "prepared"):
                self.things[thing] = "handed"
        self.change(owner, place="ending", ending=state, verdict=state)
        if not self.has(f"M3-5 {state} begins"):
            return self.end(owner)
        if not self.has("M1 children first"):
            self.begin_next(owner)
        self.sweep(owner)
        return self.go_on(owner)

    def go_on(self, owner):
        """What follows for a task that is ending, if nothing of it is unfinished."""
        it = self.tasks[owner]
        if it.place != "ending":
            return
        last = it.ending != "retry" and self.begin_next(owner)
        if last and not self.has("M2 a release is awaited"):
            self.end(owner)
        elif not last and not self.of(owner, "unfinished"):
            if it.ending == "retry":
                self.end_try(owner)
                self.change(owner, place="ready", ending="")
            else:
                self.end(owner)

    def begin_next(self, owner):
        """Begin what is held, the last first; with `together` as many as the cap allows."""
        cap, begun = 2, False
        while held := self.of(owner, "held"):
            unfinished = [self.entries[owner, n] for n in self.of(owner, "unfinished")]
            name = held[-1] if self.has("M10 the last first") else held[0]
            alike = self.entries[owner, name].together and all(x.together for x in unfinished)
            mutant = self.without & {"M11 one at a time", "M1 children first", "M8 a retry begins nothing"}
            if unfinished and not (alike and len(unfinished) < cap) and not mutant:
                break
            begun = self.begin(owner, name, "end")
        return begun

    def begin(self, owner, name, cause):
        entry, it = self.entries[owner, name], self.tasks[owner]
        if self.of(owner, "unfinished", ("child",)):
            raise Broken("4: begins beside children")
        if cause == "end":
            if it.ending in ("", "retry"):
                raise Broken("2: begins without an end")
            if self.of(owner, "held")[-1] != name:
                raise Broken("4: begins before a later one")
            beside = [self.entries[owner, n] for n in self.of(owner, "unfinished")]
            if beside and not (entry.together and len(beside) < 2 and all(x.together for x in beside)):
                raise Broken("4: begins beside another release")
        self.set(owner, name, state="unfinished")
        self.change(owner, ran=True)
        if self.tasks[entry.task].place != "held":
            raise Broken("3: begins twice")
        if "messages" in self.options:
            self.messages = (*self.messages, ("begin", entry.task))
        else:
            self.change(entry.task, place="ready")
        return True

    def sweep(self, owner):
        kinds = ("child",) if self.has("M6 sweeps skip releases") else ("child", "release")
        for name in self.of(owner, "unfinished", kinds):
            if self.entry(owner, name) and self.entries[owner, name].state == "unfinished":
                self.cancel(self.entries[owner, name].task, "cancelled", "sweep")

    def cancel(self, task, state, cause=""):
        it = self.tasks[task]
        if cause and it.kind == "release":
            raise Broken(f"11: reached by {cause}")
        if it.place == "leased":
            self.change(task, stop=it.stop or state)
            self.sweep(task)
        elif it.place == "ending" and it.ending == "retry":
            self.change(task, ending=state, verdict=state)
        elif it.place in ("ready", "suspended"):
            self.final(task, state)

    def end_try(self, owner):
        for name in [n for (task, n) in self.entries if task == owner]:
            entry = self.entries[owner, name]
            gone = ("child",) if self.has("9 releases stay over a try") else ("child", "release")
            if entry.kind in gone and entry.state not in ("unfinished", "held", "done"):
                del self.entries[owner, name]

    def end(self, task):
        it = self.tasks[task]
        state = it.ending
        if it.verdict != state:
            raise Broken("10: another verdict")
        if it.kind == "release" and state != "done" and self.has("6 an end is a dead letter"):
            state = "dead"
        self.change(task, place=state, ending="", verdict="")
        if state != "dead":
            self.entries = {key: entry for key, entry in self.entries.items() if key[0] != task}
        if it.parent is not None and not (it.told and self.has("10 a letter tells nobody")):
            self.change(task, told=it.kind == "release")
            if "messages" in self.options:
                self.messages = (*self.messages, ("told", task, state))
            else:
                self.tell(task, state)

    def tell(self, task, state):
        it = self.tasks[task]
        owner = it.parent
        if self.entry(owner, it.name) is None:
            return
        self.set(owner, it.name, state=state)
        parent = self.tasks[owner]
        if (
            it.kind == "release"
            and state == "dead"
            and parent.ending
            and not self.has("M19 the verdict stays")
        ):
            self.change(owner, ending="dead")
        if parent.place == "suspended" and not parent.awaited and not self.of(owner, "unfinished"):
            self.change(owner, place="ready")
        self.go_on(owner)

    def requeue(self, task):
        """A dead letter is ready again: if a release of it has run, what came after the first one is forgotten."""
        it = self.tasks[task]
        self.end_try(task)
        forgets = it.ran and (it.kind == "root" or self.has("13 letters forget too"))
        if forgets:
            for (owner, name), entry in self.entries.items():
                stays = (
                    (entry.kind == "value" and not self.has("M16 values go"))
                    or (entry.kind == "child" and not self.has("7 children go"))
                    or (entry.kind == "release" and not self.has("M17 releases go"))
                )
                if owner == task and entry.life == it.life and stays:
                    self.set(task, name, life=it.life + 1)
        self.change(
            task,
            place="ready",
            life=it.life + forgets,
            named=it.named and not forgets,
            ran=it.ran and not forgets,
        )

    # handlers

    def take(self, task):
        it = self.tasks[task]
        for name in [n for (owner, n) in self.entries if owner == task]:
            self.set(task, name, mine=False)
        second = it.deliveries and f"{it.program} again"
        text = self.programs.get(second) or self.programs[it.program]
        values = tuple(self.of(task, "done", ("value",)))
        self.handlers = (*self.handlers, Handler(task, tuple(text.split("; ")), values))
        self.change(task, place="leased", awaited="", deliveries=min(2, it.deliveries + 1))

    def lose(self, task):
        for handler in self.handlers:
            if handler.task == task and handler.force:
                self.settle(handler, "lost")
                self.handlers = (*self.handlers, handler._replace(force=False))

    def run(self, handler):
        """The handler does the next thing of its program."""
        word, *args = handler.program[handler.at].split()
        getattr(self, f"do_{word}")(handler, *args)

    def on(self, handler, **fields):
        rest = [h for h in self.handlers if h is not handler]
        self.handlers = (*rest, handler._replace(at=handler.at + 1, **fields))

    def is_refused(self, handler, rule="fence", stop=True):
        """Whether the engine refuses a write of this handler, which then ends."""
        if handler.force and stop and self.tasks[handler.task].stop:
            self.settle(handler, self.tasks[handler.task].stop)
            return True
        if handler.force or not self.has(rule):
            return False
        self.settle(handler, "lost")
        return True

    def do_at_end(self, handler, name, *flags):
        owner, it = handler.task, self.tasks[handler.task]
        stop = self.has("M18 a stopped task names nothing")
        if self.is_refused(handler, "M12 only the delivery in force names", stop):
            return
        if "other_shard" in flags:
            self.settle(handler, "dead")
            return
        entry = self.entry(owner, name)
        own = (owner, name) if "by_task" in flags else ("own", it.deliveries) if "own" in flags else None
        if entry is None:
            release = self.put("release", "release " + name, owner, name, own, "held")
            flag = {"unless_done": "unless_done" in flags, "together": "together" in flags}
            self.write(owner, name, "release", "held", release, **flag)
            self.change(owner, named=True)
            thing = self.tasks[release].thing
        else:
            thing = self.tasks[entry.task].thing if own is None else own
            if thing != self.tasks[entry.task].thing and self.has("M15 another payload is refused"):
                self.settle(handler, "dead")
                return
            self.set(owner, name, mine=True)
        gone = entry is not None and entry.state != "held"
        self.on(
            handler, things=(*handler.things, (name, thing)), seen=(*handler.seen, *["gone " + name][:gone])
        )

    def do_launch(self, handler, name):
        thing = dict(handler.things)[name]
        if "launch " + name not in handler.seen:
            refuses = self.has("2 the cloud refuses a destroyed name") and self.has(
                "1 a thing has its own name"
            )
            if refuses and self.things.get(thing) == "destroyed":
                if handler.force:
                    raise Broken("8: launches what is destroyed")
                self.settle(handler, "lost")
                return
            if self.things.get(thing) in (None, "destroyed"):
                self.things[thing] = "alive"
        self.on(handler)

    def do_record(self, handler, name):
        if "launch " + name in handler.seen:
            self.on(handler)
        elif not self.is_refused(handler):
            self.write(handler.task, "launch " + name, "value", "done")
            self.on(handler)

    def do_use(self, handler, name, state="alive"):
        what = self.things.get(dict(handler.things)[name], "never")
        if handler.force and "gone " + name not in handler.seen and what not in (state, "prepared", "handed"):
            raise Broken(f"8: works with what is {what}")
        self.on(handler)

    def do_child(self, handler, name, thing):
        if self.is_refused(handler):
            return
        if self.entry(handler.task, name) is None:
            things = dict(handler.things).get(thing, 0)
            child = self.put("child", "child", handler.task, name, things, "ready")
            self.write(handler.task, name, "child", "unfinished", child)
        self.on(handler)

    def do_wait(self, handler):
        waits = self.of(handler.task, "unfinished")
        self.settle(handler, "wait") if waits else self.on(handler)

    def do_wait_for(self, handler, name):
        if self.entry(handler.task, name):
            self.on(handler)
            return
        if handler.force:
            self.change(handler.task, awaited=name)
        self.settle(handler, "wait")

    def do_undo(self, handler, name):
        if self.is_refused(handler, "M13 only the delivery in force undoes", stop=False):
            return
        entry = self.entry(handler.task, name)
        state = "dead" if entry is None else entry.state
        children = self.of(handler.task, "unfinished", ("child",)) and self.has("8 children first")
        if state == "held" and not children:
            self.begin(handler.task, name, "undo")
        verdict = {"held": "wait", "unfinished": "wait", "dead": "dead"}.get(state)
        self.settle(handler, verdict) if verdict else self.on(handler)

    def do_keep(self, handler, name, *flags):
        if self.is_refused(handler, "M14 only the delivery in force keeps", stop=False):
            return
        if not handler.force:
            raise Broken("7: a ghost keeps")
        entry = self.entry(handler.task, name)
        if entry is not None and entry.state == "held":
            self.set(handler.task, name, state="kept")
            self.change(entry.task, place="kept")
            if not self.has("3 a mark is left"):
                del self.entries[handler.task, name]
        if "hands" in flags:
            self.do_hand(handler, name)
        else:
            self.on(handler)

    def do_hand(self, handler, name):
        thing = dict(handler.things)[name]
        if self.things.get(thing) in ("alive", "prepared"):
            self.things[thing] = "handed"
        self.on(handler)

    def do_prepare(self, handler):
        thing = self.tasks[handler.task].thing
        if self.things.get(thing) == "destroyed" and handler.force:
            raise Broken("4: destroyed while a child uses it")
        if self.things.get(thing) == "alive":
            self.things[thing] = "prepared"
        self.on(handler)

    def do_destroy(self, handler):
        thing = self.tasks[handler.task].thing
        for (owner, name), entry in self.entries.items():
            is_held = entry.kind == "release" and entry.state == "held" and self.entry(owner, name)
            if is_held and self.tasks[entry.task].thing == thing:
                raise Broken("2: destroyed under its owner")
        if self.things.get(thing) == "handed":
            raise Broken("9: destroyed after it was handed over")
        self.things[thing] = "destroyed"
        self.on(handler)

    def do_end(self, handler, verdict):
        if verdict == "complete" and handler.force and self.of(handler.task, "unfinished"):
            self.settle(handler, "retry")  # refused in the user's transaction
        else:
            self.settle(handler, "done" if verdict == "complete" else verdict)

    # what can happen

    def steps(self):
        """Each step: what it is, whether it is a fault, and what it does to a state."""
        has_worker = "no worker" not in self.options
        for task, it in self.tasks.items():
            if it.place == "ready" and (has_worker or it.kind != "release"):
                yield ("take", task), False, partial(World.take, task=task)
        for handler in self.handlers:
            stop = self.tasks[handler.task].stop
            yield ("run", handler.task, handler.force), False, partial(World.run, handler=handler)
            if handler.force and stop:
                yield ("stop", handler.task), False, partial(World.settle, handler=handler, verdict=stop)
        for message in dict.fromkeys(self.messages):
            yield message, False, partial(World.receive, message=message)
        if "signal" in self.options and not self.sent and self.tasks[0].place in UNFINISHED:
            yield ("signal",), False, World.signal
        for fault in [fault for fault, left in self.faults.items() if left]:
            for task, act in self.harms(fault):
                yield (fault, task), has_worker or fault != "cancel release", act

    def harms(self, fault):
        """The tasks that a fault can befall, with what it does."""
        kinds, places, act = HARMS[fault]
        for task, it in self.tasks.items():
            if it.kind in kinds and it.place in places:
                yield task, partial(act, task=task)

    def fail(self, task, verdict):
        for handler in self.handlers:
            if handler.task == task and handler.force:
                self.settle(handler, verdict)

    def interrupt(self, task, state):
        """A root is cancelled, or its deadline passes, which its children inherit."""
        self.cancel(task, state)
        kinds = ("child",) if self.has("M7 a release inherits no deadline") else ("child", "release")
        if state == "expired":
            for other, it in list(self.tasks.items()):
                if it.kind in kinds and it.place in UNFINISHED:
                    self.cancel(other, state, "the deadline")

    def replace(self, task):
        if self.has("11 what is held counts as leased") and self.of(task, "held"):
            self.cancel(task, "cancelled")
        else:
            self.entries = {key: entry for key, entry in self.entries.items() if key[0] != task}
            self.change(task, named=False, ran=False)

    def fail_over(self, task):
        """A replica takes over, which lacks the naming, and so what was recorded behind it."""
        owner, name = self.tasks[task].parent, self.tasks[task].name
        self.entries = {key: x for key, x in self.entries.items() if key[1] not in (name, "launch " + name)}
        self.change(task, place="forgotten")
        if self.tasks[owner].place == "leased":
            self.lose(owner)

    def signal(self):
        self.sent = True
        self.write(0, "signal", "signal", "done")
        if self.tasks[0].place == "suspended" and self.tasks[0].awaited == "signal":
            self.change(0, place="ready", awaited="")

    def receive(self, message):
        messages = list(self.messages)
        messages.remove(message)
        self.messages = tuple(messages)
        if message[0] == "begin":
            self.change(message[1], place="ready")
        else:
            self.tell(*message[1:])

    # the laws of states

    def check(self):
        for it in self.tasks.values():
            owner = self.tasks.get(it.parent)
            if owner is None or owner.place in UNFINISHED:
                continue
            if it.place in ("held", *UNFINISHED) and not it.told:
                raise Broken(f"5: {it.name} is {it.place} behind its owner's end")
            if it.kind == "release" and self.things.get(it.thing) in ("alive", "prepared"):
                known = [t for t in self.tasks.values() if t.kind == "release" and t.thing == it.thing]
                if not any(t.place in (*UNFINISHED, "dead") for t in known):
                    raise Broken(f"1: {it.name} is alive, and nobody knows it")
        owned = {thing for t in self.tasks.values() if t.kind == "release" for thing in (t.thing,)}
        if self.tasks[0].place not in UNFINISHED:
            for thing, state in self.things.items():
                if state in ("alive", "prepared") and thing not in owned:
                    raise Broken("1: nobody knows it")
            if (
                "whole" in self.options
                and "handed" in self.things.values()
                and len(set(self.things.values())) > 1
            ):
                raise Broken("9: a part was handed over")

    @property
    def is_over(self):
        return not self.messages and not any(t.place in (*UNFINISHED, "held") for t in self.tasks.values())


ANY, ROOT, RELEASE = ("root", "child", "release"), ("root",), ("release",)
LEASED, DEAD, READY = ("leased",), ("dead",), ("ready",)
HARMS = {
    "lose": (ANY, LEASED, World.lose),
    "retry": (ROOT, LEASED, partial(World.fail, verdict="retry")),
    "dead": (ROOT, LEASED, partial(World.fail, verdict="dead")),
    "fail": (RELEASE, LEASED, partial(World.fail, verdict="dead")),
    "cancel": (ROOT, UNFINISHED, partial(World.interrupt, state="cancelled")),
    "late": (ROOT, UNFINISHED, partial(World.interrupt, state="expired")),
    "cancel release": (RELEASE, UNFINISHED, partial(World.cancel, state="cancelled")),
    "release late": (RELEASE, UNFINISHED, partial(World.cancel, state="expired")),
    "purge": (("root", "child"), READY, lambda world, task: world.final(task, "purged")),
    "replace": (ROOT, READY, World.replace),
    "requeue": (ROOT, DEAD, World.requeue),
    "requeue release": (RELEASE, DEAD, World.requeue),
    "failover": (RELEASE, ("held",), World.fail_over),
}
"""Each fault: the kinds and places of the tasks that it can befall, and what it does."""


class Found(NamedTuple):
    states: int
    steps: int
    trouble: str = ""
    trace: tuple[Any, ...] = ()


def explored(first):
    """Follow all steps, the shortest paths first, until a law breaks; then look for an end behind each state."""
    numbers, paths, queue = {first.key(): 0}, [((), first)], deque([0])
    before, todo, steps = {}, [], 0

    def found(number=0, trouble="", *last):
        trace = [*last]
        while number:
            number, label = paths[number][0]
            trace.insert(0, label)
        return Found(len(paths), steps, trouble, tuple(trace))

    while queue:
        number = queue.popleft()
        came, world = paths[number]
        paths[number] = (came, None)
        if world.is_over:
            todo.append(number)
        for label, fault, act in world.steps():
            other = world.copy()
            if label[0] in other.faults:
                other.faults[label[0]] -= 1
            steps += 1
            try:
                act(other)
                other.check()
            except Broken as broken:
                return found(number, str(broken), label)
            there = numbers.setdefault(other.key(), len(paths))
            if there == len(paths):
                paths.append(((number, label), other))
                queue.append(there)
            if not fault:
                before.setdefault(there, []).append(number)
    ends = set(todo)
    while todo:
        new = {number for number in before.get(todo.pop(), ()) if number not in ends}
        ends |= new
        todo.extend(new)
    for number in range(len(paths)):
        if number not in ends:
            return found(number, "6: it never ends")
    return found()
