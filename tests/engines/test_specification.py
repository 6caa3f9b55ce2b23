"""Each step of the memory engine is a step of the specification, as TLC finds; and TLC notices where it is not.

Random walks over a lock and a queue are written down state by state, and TLC looks for a run of `Tenure.tla` that
shows the same states. The other engines are compared with the memory engine by the walk of the contract.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import depth
import needed
import pytest
from contract import configured

import tenure.engine as e
from tenure.engine import Verdict
from tenure.engines.memory import MemoryEngine
from tenure.engines.rules import ENDING, LEASED, Families
from tenure.engines.rules._holds import Holds
from tenure.engines.rules._queues import SUSPENDED

SPECIFICATION = Path(__file__).with_name("specification")
JAR = os.environ.get("TENURE_TLC")
SESSIONS = ("a", "b")
KEY, QUEUE, TTL, LOSSES = "k", "q", 100.0, 2
TASKS, DEEPEST, STEPS = 5, 2, 50
NAMES = ("x", "y")
VERDICTS = {
    Verdict.DONE: "done",
    Verdict.DEAD: "dead",
    Verdict.RETRY: "retry",
    Verdict.CANCEL: "cancel",
    Verdict.GIVE_BACK: "give back",
    Verdict.WAIT: "wait",
}


class Walk:
    """A memory engine that takes random steps; `seen` has its states, in the words of the specification."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.now = 1000.0
        self.engine = MemoryEngine(clock=lambda: self.now)
        self.engine.apply(configured(QUEUE, max_size=1, max_deliveries=LOSSES, dead=None))
        self.number = 0
        self.alive, self.tokens, self.parents, self.handlers = set(), [], {}, {}
        self.seen = []
        self.look()

    def go(self):
        """Take the steps, until the engine notices a fault of its own; the states that were seen."""
        with suppress(Exception):
            for _ in range(STEPS):
                self.step()
        return self.seen

    def step(self):
        chance = self.chance
        alive = sorted(self.alive)
        unfinished = sorted(self.tasks)
        steps = [(self.open, SESSIONS)] * (1 if alive else 3)
        if alive:
            steps += [(self.close, alive), (self.expire, alive)]
            steps += [(self.acquire, alive), (self.release, SESSIONS)] * 2
            steps += [(self.take, alive)] * 4
            steps += [(self.put, alive)] * (2 if len(self.parents) < TASKS else 0)
        if self.handlers:
            steps += [(self.put_child, sorted(self.handlers))] * (5 if len(self.parents) < TASKS else 0)
            steps += [(self.settle, sorted(self.handlers))] * 4
        if unfinished:
            steps += [(self.cancel, unfinished)]
        step, whom = chance.choice(steps)
        step(chance.choice(whom))

    def do(self, operation, parent=0, name="none"):
        known = self.engine._state.last.task
        while (answer := self.engine.apply(operation)) is e.Reply.MORE:
            pass
        if self.engine._state.last.task > known:
            self.parents[known + 1] = (parent, name)
        self.look()
        return answer

    def next(self):
        self.number += 1
        return self.number

    def open(self, session):
        if session not in self.alive:
            self.do(e.OpenSession(session, "p", TTL))

    def close(self, session):
        self.do(e.CloseSession(session))

    def expire(self, session):
        """Let time pass until one session has expired, and no other."""
        for _ in range(2):
            for other in self.alive - {session}:
                self.do(e.RenewSession(other))
            self.now += 0.6 * TTL
        self.do(e.Ping())

    def acquire(self, session):
        self.do(e.Acquire(session, KEY, session, 1))

    def release(self, session):
        self.do(e.Release(KEY, session))

    def put(self, session):
        self.do(e.Put(session, self.next(), QUEUE, (e.PutRequest("m", (e.NewTask(b""),)),)))

    def exchange(self, session, *settles, want=0):
        number = self.next()
        return self.do(e.Exchange(session, number, QUEUE, settles, want, wait=False))

    def take(self, session):
        for taken in self.exchange(session, want=1).tasks:
            self.handlers[taken.id] = (session, taken.token)

    def put_child(self, task):
        # the delivery may have ended with its session: then nothing may come of it
        _, token = self.handlers[task]
        name = self.chance.choice(NAMES)
        if self.depth(task) < DEEPEST:
            put = e.PutChildren(QUEUE, task, token, QUEUE, (f"c/{name}",), (e.NewTask(b""),))
            self.do(put, task, name)

    def settle(self, task):
        session, token = self.handlers.pop(task)
        verdict = self.chance.choice([Verdict.DONE, Verdict.WAIT, *VERDICTS])
        if session in self.alive:
            result = b"c/" if verdict is Verdict.WAIT else b""
            self.exchange(session, e.Settle(task, token, verdict, result))

    def cancel(self, task):
        self.do(e.Move(QUEUE, (task,), "cancelled", ttl=None))

    def depth(self, task):
        parent, _ = self.parents[task]
        return 1 + self.depth(parent) if parent else 0

    # what is there

    @property
    def queue(self):
        return self.engine._queues.stored(QUEUE)

    @property
    def tasks(self):
        return self.queue.tasks if self.queue else {}

    def look(self):
        """Keep what the engine has now, as far as the specification says it."""
        rows = self.engine.apply(e.Scan(e.HOLDERS, KEY)).rows
        self.alive = set(self.engine.apply(e.Scan(e.NAMES["sessions"])).rows)
        held = {row.holder: row.token for row in rows if row.token}
        tasks = self.tasks
        leased = sorted(task.token for task in tasks.values() if task.place == LEASED)
        self.tokens += [token for token in (*held.values(), *leased) if token not in self.tokens]
        self.seen.append(
            {
                "new": not self.seen,
                "alive": self.alive,
                "held": {session: self.rank(held.get(session)) for session in SESSIONS},
                "line": [row.holder for row in rows if not row.token],
                "token": len(self.tokens),
                "task": [self.shown(number, tasks.get(number)) for number in sorted(self.parents)],
            }
        )

    def rank(self, token):
        """The number of a token among all that were given: 1 for the first."""
        return self.tokens.index(token) + 1 if token else 0

    def shown(self, number, task):
        """What the engine has of a task; of one that has ended, its end, and whether its parent has it on record."""
        parent, name = self.parents[number]
        tables = self.engine._state.tables
        shown = {"parent": parent, "name": name}
        if parent in self.tasks:
            family = tables["family"].rows[QUEUE, parent]
            entry = tables["entry"].rows.get((QUEUE, parent, f"c/{name}"))
            of_it = entry is not None and entry.child == number
            shown["listed"] = of_it and (not entry.failed or entry.tries == family.tries)
        if task is None:
            ended = {record.id: record.state for record in self.queue.records._ended.values()}
            return {**shown, "state": ended[number]}
        leased = task.place == LEASED
        state = {LEASED: "leased", SUSPENDED: "suspended", ENDING: "ending"}.get(task.place, "waiting")
        return {
            **shown,
            "state": state,
            "token": self.rank(task.token) if leased else 0,
            "stop": leased and task.stop is not None,
            "tries": task.attempts,
            "deliveries": task.deliveries,
            "verdict": tables["family"].rows[QUEUE, number].ending if state == "ending" else "none",
        }


def in_tla(value):
    """A value in the words of TLA+."""
    match value:
        case bool():
            return str(value).upper()
        case str():
            return f'"{value}"'
        case dict():
            return f"[{', '.join(f'{name} |-> {in_tla(one)}' for name, one in value.items())}]"
        case set():
            return f"{{{', '.join(map(in_tla, sorted(value)))}}}"
        case list():
            return f"<<{', '.join(map(in_tla, value))}>>"
        case _:
            return str(value)


def follows(seen, folder):
    """True if the specification has a run that shows these states, one behind the other."""
    for name in ("Tenure.tla", "Trace.tla", "Trace.cfg"):
        shutil.copy(SPECIFICATION / name, folder)
    states = ",\n".join(map(in_tla, seen))
    (folder / "Walks.tla").write_text(f"---- MODULE Walks ----\nSeen == <<\n{states}\n>>\n====\n", "utf-8")
    command = ["java", "-cp", JAR, "tlc2.TLC", "-deadlock", "-config", "Trace.cfg", "Trace.tla"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    followed = "Invariant NotAccepted is violated" in ran.stdout
    assert followed or "No error has been found" in ran.stdout, ran.stdout
    return followed


needs_tlc = pytest.mark.skipif(not JAR, reason=needed.NO_TLC)


@needs_tlc
def test_the_engine_takes_no_step_that_the_specification_has_not(tmp_path):
    seen = [state for seed in range(depth.share(100)) for state in Walk(seed).go()]
    assert len(seen) > 40 * depth.share(100)
    states = {task["state"] for state in seen for task in state["task"]}
    assert states == {"waiting", "leased", "suspended", "ending", "done", "dead", "cancelled"}
    assert follows(seen, tmp_path)


KEEP = Families.keep


def _retries_at_once(self, queue, task, follows):
    return isinstance(follows, e.Ends) and KEEP(self, queue, task, follows)


def _has_no_fence(self, name, task, _):
    return self._rows.task(self._queues.find(name), task) or e.Reply.REFUSED


FAULTS = {
    "children are put without a fence": (Families, "_leased", _has_no_fence),
    "failed children stay over a retry": (Families, "end_try", lambda *_: None),
    "a parent is tried again while its children run": (Families, "keep", _retries_at_once),
    "a waiter is not served": (Holds, "_serve", lambda self, line: self._lines.save(line)),
}


@needs_tlc
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_an_engine_is_no_step_of_the_specification(name, monkeypatch, tmp_path):
    owner, method, other = FAULTS[name]
    monkeypatch.setattr(owner, method, other)
    seen = [state for seed in range(30) for state in Walk(seed).go()]
    assert not follows(seen, tmp_path)


def test_the_specification_can_be_read():
    text = (SPECIFICATION / "Tenure.tla").read_text("utf-8")
    assert len(text.splitlines()) <= 300
    checked = " ".join(file.read_text("utf-8") for file in SPECIFICATION.glob("*.cfg"))
    laws = re.findall(r"^(\w+) ==", text[text.index("The laws of holds") :], re.MULTILINE)
    assert {law for law in laws if law not in checked} == {"Fairness"}
