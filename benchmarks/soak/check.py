"""Judges a history of a soak, without tenure: `python -m benchmarks.soak.check FILE...`, or this file by itself.

A history is a file of JSON objects, one a line, in the order in which things happened. The fields:

type      "invoke": it is about to begin; "ok": it ended well; "fail": it was refused, and had no effect; "info": its
          outcome is unknown, or the line is a remark
op        the operation, see below
process   who did it: a process, or a task of it; each hold has a process of its own
key       the name of the lock, the file, the queue or the task
call      joins the lines of one hold, write, put or try
token     the fencing token of a hold or a write
value     the weight of a hold (1 if it is not there), the item of a queue, the parent of a task
state     how an item was found, or a task ended
time      seconds, for the reader: only the order of the lines counts

The operations, and what they mean:

limit     info: so much (`value`) of the key may be held at once, if it is not 1
excuse    info: this process was stopped for longer than its lease and cannot know that the lease is over, so nobody may
          rely on it: only the fence keeps it out
nemesis   info: what was done to a process; for the reader
acquire   ok: the key is held from here
hold      info: it is still held
release   invoke: it is held up to here; a hold without a release (the process was killed) lasts up to its last line
write     a write to the file that a fence guards; `fail` if the fence refused it
put       a put of an item into a queue
take      ok: the item was handed to a worker
complete  ok: the queue accepted the verdict of the worker
find      ok: so the item was found when all had ended
try       a worker works on a task of a tree, from invoke to ok, or to info if it failed
end       ok: the task was seen to have ended

Each of the laws below is one function, which yields the breaches. The first line of its docstring is the law.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

Line = dict[str, Any]

CALLS = {"write", "put", "try"}
OPERATIONS = {
    "invoke": CALLS | {"release"},
    "ok": CALLS | {"acquire", "take", "complete", "find", "end"},
    "fail": CALLS,
    "info": CALLS | {"hold", "limit", "excuse", "nemesis"},
}


def unreadable(history: list[Line]) -> Iterator[str]:
    """A line has a known operation and type, and each call begins once."""
    begun: set[str] = set()
    for number, line in enumerate(history, 1):
        op, kind, call = line.get("op"), line.get("type"), line.get("call")
        if op not in OPERATIONS.get(str(kind), ()):
            yield f"line {number}: no {op!r} of type {kind!r}"
        elif op in CALLS | {"acquire", "hold", "release"}:
            begins = op == "acquire" or (op in CALLS and kind == "invoke")
            if call is None or begins == (call in begun):
                yield f"line {number}: call {call!r} begins {'twice' if begins else 'nowhere'}"
            begun.add(str(call))


def exclusion(history: list[Line]) -> Iterator[str]:
    """No more of a key is held at once than its limit, but for holds that are excused."""
    limits = {line["key"]: line["value"] for line in history if line["op"] == "limit"}
    excused = {line["process"] for line in history if line["op"] == "excuse"}
    last = {line["call"]: number for number, line in enumerate(history) if "call" in line}
    held: defaultdict[str, dict[str, Line]] = defaultdict(dict)
    for number, line in enumerate(history):
        if line["op"] not in {"acquire", "hold", "release"} or line["process"] in excused:
            continue
        key, holds = line["key"], held[line["key"]]
        if line["op"] == "acquire":
            holds[line["call"]] = line
            if (used := sum(hold.get("value", 1) for hold in holds.values())) > limits.get(key, 1):
                yield f"line {number + 1}: {used} of {key!r} are held at once"
        if number == last[line["call"]]:
            holds.pop(line["call"], None)


def tokens(history: list[Line]) -> Iterator[str]:
    """No token of a key is given twice, and where one holds at a time, each token is higher than all before."""
    limits = {line["key"]: line["value"] for line in history if line["op"] == "limit"}
    excused = {line["process"] for line in history if line["op"] == "excuse"}
    given: defaultdict[str, set[int]] = defaultdict(set)
    highest: Counter[str] = Counter()
    for number, line in enumerate(history, 1):
        if line["op"] != "acquire" or (token := line.get("token")) is None:
            continue
        key = line["key"]
        if token in given[key]:
            yield f"line {number}: token {token} of {key!r} was given twice"
        elif key not in limits and line["process"] not in excused:
            if token < highest[key]:
                yield f"line {number}: token {token} of {key!r} came after {highest[key]}"
            highest[key] = max(highest[key], token)
        given[key].add(token)


def fences(history: list[Line]) -> Iterator[str]:
    """No write is accepted that began after a write with a higher token was accepted."""
    highest: Counter[str] = Counter()
    bar: dict[str, int] = {}
    for number, line in enumerate(history, 1):
        if line["op"] != "write":
            continue
        key, call = line["key"], line["call"]
        if line["type"] == "invoke":
            bar[call] = highest[key]  # whatever is accepted from here on may come after this write
        elif line["type"] == "ok":
            if line["token"] < bar[call]:
                yield f"line {number}: a stale write to {key!r}, token {line['token']} after {bar[call]}"
            highest[key] = max(highest[key], line["token"])


def items(history: list[Line]) -> Iterator[str]:
    """Each item that was put has one verdict or is still there, and none comes from nowhere."""
    asked: set[Any] = set()
    promised: set[Any] = set()
    completed: set[Any] = set()
    found: dict[Any, str] = {}
    puts = (line for line in history if line["op"] == "put")
    refused = {(line["key"], line["value"]) for line in puts if line["type"] == "fail"}
    for number, line in enumerate(history, 1):
        op = line["op"]
        if op not in {"put", "take", "complete", "find"}:
            continue
        item = line["key"], line["value"]
        where = f"line {number}: {item[1]!r} of {item[0]!r}"
        if op == "put":
            (promised if line["type"] == "ok" else asked).add(item)
        elif item not in asked or item in refused:
            yield f"{where} was never put"
        if op == "complete":
            if item in completed:
                yield f"{where} is completed twice"
            completed.add(item)
        if op == "find":
            if item in found or (item in completed and line["state"] != "done"):
                yield f"{where} is found as {line['state']} after {found.get(item, 'its completion')}"
            found[item] = line["state"]
    for key, value in sorted(promised - completed - found.keys(), key=str):
        yield f"{value!r} of {key!r} was put, and is lost"


def children(history: list[Line]) -> Iterator[str]:
    """A task ends once, after all that is below it; and a tree that was begun ends."""
    excused = {line["process"] for line in history if line["op"] == "excuse"}
    parents: dict[str, str | None] = {}
    ended: dict[str, str] = {}
    for number, line in enumerate(history, 1):
        task = line.get("key")
        if line["op"] == "end":
            if ended.setdefault(task, line["state"]) != line["state"]:
                yield f"line {number}: {task!r} ends as {line['state']} after {ended[task]}"
        elif line["op"] == "try" and line["process"] not in excused:
            parents.setdefault(task, line.get("value"))
            above = task
            while above is not None and above not in ended:
                above = parents.get(above)
            if above is not None:
                yield f"line {number}: {task!r} is worked on after {above!r} has ended"
    for task, parent in parents.items():
        if parent is None and task not in ended:
            yield f"{task!r} was begun, and has no end"


LAWS = (exclusion, tokens, fences, items, children)


def check(history: Iterable[Line]) -> list[str]:
    """The breaches of a history, in words; of one that cannot be read, only why."""
    lines = list(history)
    wrong = [f"unreadable: {text}" for text in unreadable(lines)]
    return wrong or [f"{law.__name__}: {text}" for law in LAWS for text in law(lines)]


def main(paths: list[str]) -> int:
    """Check files, of which those named `.gz` are compressed; 1 if one is against the law."""
    wrong = 0
    for path in paths:
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
            history = [json.loads(line) for line in file]
        breaches = check(history)
        counts = Counter(f"{line.get('op')} {line.get('type')}" for line in history)
        told = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
        print(f"{path}: {len(history)} lines, {len(breaches)} breaches", told, *breaches[:20], sep="\n  ")
        wrong += len(breaches)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
