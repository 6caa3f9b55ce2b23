"""The checker of the soaks accepts what they wrote, and refuses it with a fault in it."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from itertools import count
from pathlib import Path

import depth
import pytest

from benchmarks.soak import check, plain
from benchmarks.soak.referees import History

HISTORIES = sorted((Path(check.__file__).parent / "histories").glob("*.jsonl.gz"))
NUMBERS = count()


def read(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def hold(process, token, key="lock", call="", **more):
    """The first and the last line of a hold."""
    call = call or f"call {next(NUMBERS)}"
    line = {"process": process, "key": key, "call": call}
    return {**line, "type": "ok", "op": "acquire", "token": token, **more}, {
        **line,
        "type": "invoke",
        "op": "release",
    }


def write(token, *outcome, key="file"):
    """The lines of a write."""
    line = {"op": "write", "key": key, "token": token, "call": f"call {next(NUMBERS)}"}
    return [{**line, "type": kind} for kind in ("invoke", *outcome)]


def put(item, *outcome):
    line = {"op": "put", "key": "jobs", "value": item, "call": f"call {next(NUMBERS)}"}
    return [{**line, "type": kind} for kind in ("invoke", *outcome)]


def of(op, item, **more):
    return {"type": "ok", "op": op, "key": "jobs", "value": item, **more}


def attempt(task, parent=None, *, process="w", last="ok"):
    line = {"op": "try", "key": task, "process": process, "call": f"call {next(NUMBERS)}"}
    line |= {"value": parent} if parent else {}
    return [{**line, "type": "invoke"}, {**line, "type": last}]


def end(task, state="done"):
    return {"type": "ok", "op": "end", "key": task, "state": state}


LIMIT = {"type": "info", "op": "limit", "key": "lock", "value": 2}
EXCUSE = {"type": "info", "op": "excuse", "process": "a"}
(A, A_ENDS), (B, B_ENDS), (C, C_ENDS) = hold("a", 1), hold("b", 2), hold("c", 3)
(OLD_BEGINS, OLD_ENDS), (NEW_BEGINS, NEW_ENDS) = write(1, "ok"), write(2, "ok")
(T, T_ENDS), (U, U_ENDS) = attempt("t"), attempt("t/0", "t")


@pytest.mark.parametrize(
    "lines",
    [
        [A, A_ENDS, B, B_ENDS],
        # killed: the hold lasts up to its last line
        [A, B, B_ENDS],
        [LIMIT, A, B, A_ENDS, C, C_ENDS, B_ENDS],
        [EXCUSE, A, B, B_ENDS, A_ENDS],
        # at once: either may have come first
        [NEW_BEGINS, OLD_BEGINS, NEW_ENDS, OLD_ENDS],
        [*write(2, "ok"), *write(1, "fail"), *write(1, "info"), *write(2, "ok")],
        [*put(1, "ok"), of("take", 1), of("take", 1), of("complete", 1), of("find", 1, state="done")],
        # what nobody heard of may have happened or not
        [*put(1, "info"), *put(2), of("take", 1), of("complete", 1)],
        [*put(1, "ok"), of("find", 1, state="dead"), *put(2, "fail")],
        [T, *attempt("t/0", "t", last="info"), *attempt("t/0", "t"), T_ENDS, end("t"), end("t")],
        [{**EXCUSE, "process": "w"}, T, end("t"), *attempt("t/0", "t")],
    ],
)
def test_histories_without_a_fault_are_accepted(lines):
    assert check.check(lines) == []


@pytest.mark.parametrize(
    ("breach", "lines"),
    [
        ("exclusion: line 2: 2 of 'lock' are held", [A, B, A_ENDS, B_ENDS]),
        ("exclusion: line 4: 3 of 'lock' are held", [LIMIT, A, B, C, A_ENDS, B_ENDS, C_ENDS]),
        ("exclusion: line 3: 3 of 'lock' are held", [LIMIT, A, {**B, "value": 2}, A_ENDS, B_ENDS]),
        ("exclusion: line 3: 2 of 'lock'", [EXCUSE, B, C, B_ENDS, C_ENDS]),
        ("tokens: line 3: token 1 of 'lock' came after 2", [B, B_ENDS, A, A_ENDS]),
        ("tokens: line 3: token 2 of 'lock' was given twice", [B, B_ENDS, {**C, "token": 2}, C_ENDS]),
        ("tokens: line 4: token 2 of 'lock' was given", [LIMIT, B, B_ENDS, {**C, "token": 2}, C_ENDS]),
        ("tokens: line 4: token 2 of 'lock' was given", [EXCUSE, B, B_ENDS, {**A, "token": 2}, A_ENDS]),
        ("fences: line 4: a stale write to 'file', token 1 after 2", [*write(2, "ok"), *write(1, "ok")]),
        ("fences: line 5: a stale write", [NEW_BEGINS, NEW_ENDS, OLD_BEGINS, *write(1, "ok"), OLD_ENDS]),
        ("items: 1 of 'jobs' was put, and is lost", [*put(1, "ok"), of("take", 1)]),
        ("items: line 4: 1 of 'jobs' is completed twice", [*put(1, "ok"), *[of("complete", 1)] * 2]),
        ("items: line 1: 2 of 'jobs' was never put", [of("take", 2), *put(2, "ok"), of("complete", 2)]),
        ("items: line 3: 2 of 'jobs' was never put", [*put(2, "fail"), of("take", 2)]),
        (
            "items: line 4: 1 of 'jobs' is found as dead after its completion",
            [*put(1, "ok"), of("complete", 1), of("find", 1, state="dead")],
        ),
        (
            "items: line 4: 1 of 'jobs' is found as done after dead",
            [*put(1, "ok"), of("find", 1, state="dead"), of("find", 1, state="done")],
        ),
        ("children: line 3: 't' is worked on after 't' has ended", [T, end("t"), T_ENDS]),
        ("children: line 5: 't/0' is worked on after 't' has ended", [T, U, T_ENDS, end("t"), U_ENDS]),
        (
            "children: line 4: 't/0/0' is worked on after 't' has ended",
            [T, U, end("t"), *attempt("t/0/0", "t/0")],
        ),
        ("children: line 4: 't' ends as dead after done", [T, T_ENDS, end("t"), end("t", "dead")]),
        ("children: 't' was begun, and has no end", [T, T_ENDS]),
        ("unreadable: line 1: no 'grab' of type 'ok'", [{**A, "op": "grab"}]),
        ("unreadable: line 1: no 'acquire' of type None", [{**A, "type": None}]),
        ("unreadable: line 2: call 'x' begins twice", [{**A, "call": "x"}, {**B, "call": "x"}]),
        ("unreadable: line 1: call", [A_ENDS]),
    ],
)
def test_histories_with_a_fault_are_refused(breach, lines):
    assert any(told.startswith(breach) for told in check.check(lines)), check.check(lines)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_recorded_histories_are_accepted_by_the_file_alone(path):
    # without the package, and without what the tests import
    ran = subprocess.run(
        [sys.executable, "-I", check.__file__, path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 breaches" in ran.stdout


# Faults: each takes the lines and a chance, changes the lines, and returns the law that has to notice it.


def keep_a_hold_into_the_next_one(lines, chance):
    """The next holder of the key comes in before the end of a hold."""
    excused = {line["process"] for line in lines if line["op"] == "excuse"}
    limited = {line["key"] for line in lines if line["op"] == "limit"}
    holds = [
        line
        for line in lines
        if line["op"] == "acquire" and line["process"] not in excused and line["key"] not in limited
    ]
    first = chance.choice(
        [one for one in holds if any(two["key"] == one["key"] for two in after(holds, one))]
    )
    second = next(two for two in after(holds, first) if two["key"] == first["key"])
    mine = [line for line in lines if line.get("call") == first["call"] and line["op"] != "acquire"]
    assert mine
    lines.remove(mine[-1])
    lines.insert(position(lines, second) + 1, mine[-1])
    return "exclusion"


def give_a_token_twice(lines, chance):
    holds = [line for line in lines if line["op"] == "acquire"]
    first = chance.choice(
        [one for one in holds if any(two["key"] == one["key"] for two in after(holds, one))]
    )
    second = next(two for two in after(holds, first) if two["key"] == first["key"])
    second["token"] = first["token"]
    return "tokens"


def accept_a_stale_write(lines, chance):
    writes = [line for line in lines if line["op"] == "write" and line["type"] == "ok"]
    bar = writes[0]
    stale = chance.choice(
        [line for line in writes if line["key"] == bar["key"] and line["token"] > bar["token"]]
    )
    for line in lines:
        if line.get("call") == stale["call"]:
            line["token"] = bar["token"] - 1
    return "fences"


def lose_an_item(lines, chance):
    item = chance.choice([line["value"] for line in lines if line["op"] == "put" and line["type"] == "ok"])
    lines[:] = [line for line in lines if line["op"] not in {"complete", "find"} or line["value"] != item]
    return "items"


def complete_an_item_twice(lines, chance):
    done = chance.choice([line for line in lines if line["op"] == "complete"])
    lines.insert(chance.randrange(position(lines, done), len(lines)), done)
    return "items"


def take_an_item_before_it_is_put(lines, chance):
    taken = chance.choice([line for line in lines if line["op"] == "take"])
    lines.remove(taken)
    lines.insert(0, taken)
    return "items"


def begin_after_the_end_of_the_tree(lines, chance):
    ended = chance.choice([line for line in lines if line["op"] == "end"])
    below = [
        line
        for line in lines
        if line["op"] == "try" and line["type"] == "invoke" and line.get("value") == ended["key"]
    ]
    if not below:  # a leaf, or cancelled before anything below it began
        return begin_after_the_end_of_the_tree(lines, chance)
    late = {**chance.choice(below), "call": "late", "process": "late"}
    lines.insert(chance.randrange(position(lines, ended), len(lines)) + 1, late)
    return "children"


def end_a_tree_otherwise(lines, chance):
    ended = chance.choice([line for line in lines if line["op"] == "end"])
    lines.append({**ended, "state": "another"})
    return "children"


def never_end_a_tree(lines, chance):
    excused = {line["process"] for line in lines if line["op"] == "excuse"}
    tries = [line for line in lines if line["op"] == "try" and line["process"] not in excused]
    root = chance.choice([line["key"] for line in tries if "value" not in line])
    lines[:] = [line for line in lines if line["op"] != "end" or line["key"] != root]
    return "children"


def forget_how_a_call_began(lines, chance):
    begun = chance.choice(
        [line for line in lines if line["op"] == "acquire" or (line["op"], line["type"]) == ("try", "invoke")]
    )
    if sum(line.get("call") == begun["call"] for line in lines) == 1:  # it was killed at once
        return forget_how_a_call_began(lines, chance)
    lines.remove(begun)
    return "unreadable"


def after(several, one):
    return several[position(several, one) + 1 :]


def position(several, one):
    return next(number for number, line in enumerate(several) if line is one)


FAULTS = [
    ("redis", keep_a_hold_into_the_next_one),
    ("sentinel", keep_a_hold_into_the_next_one),
    ("redis", give_a_token_twice),
    ("sentinel", give_a_token_twice),
    ("redis", accept_a_stale_write),
    ("redis", lose_an_item),
    ("sentinel", lose_an_item),
    ("redis", complete_an_item_twice),
    ("sentinel", take_an_item_before_it_is_put),
    ("families", begin_after_the_end_of_the_tree),
    ("families", end_a_tree_otherwise),
    ("families", never_end_a_tree),
    ("redis", forget_how_a_call_began),
    ("families", forget_how_a_call_began),
]


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_recorded_histories_with_a_fault_are_refused(name, fault):
    text = json.dumps(read(check.__file__.replace("check.py", f"histories/{name}.jsonl.gz")))
    for seed in range(depth.share(10)):
        lines = json.loads(text)
        law = fault(lines, random.Random(seed))
        breaches = check.check(lines)
        assert any(told.startswith(f"{law}: ") for told in breaches), (seed, breaches)


def test_a_history_is_written_for_the_checker(tmp_path):
    """What a history notes has one line each; what the checker does not judge has none."""
    history = History(by="p", clock=lambda: 1.5)
    history.note("came", "p")
    history.note("killed", "q")
    with history.held("lock", token=7) as held:
        held.still()
        with pytest.raises(KeyError), history.writing("file", token=7, refused=KeyError):
            raise KeyError
    with history.putting("jobs", "one"):
        pass
    history.taken("jobs", "one")
    history.found("jobs", "one", "dead")
    with pytest.raises(ValueError, match="x"), history.trying("t/0", parent="t"):
        raise ValueError("x")
    history.ended("t", "dead")
    assert plain.judged(tmp_path, "a trial", history, {"permits": 3}, {"r"}) == []
    assert [
        {name: value for name, value in line.items() if name not in {"call", "process", "time"}}
        for line in read(tmp_path / "a-trial.jsonl.gz")
    ] == [
        {"type": "info", "op": "limit", "key": "permits", "value": 3},
        {"type": "info", "op": "excuse"},
        {"type": "info", "op": "nemesis", "key": "q", "value": "killed"},
        {"type": "ok", "op": "acquire", "key": "lock", "token": 7, "value": 1},
        {"type": "info", "op": "hold", "key": "lock", "token": 7, "value": 1},
        {"type": "invoke", "op": "write", "key": "file", "token": 7},
        {"type": "fail", "op": "write", "key": "file", "token": 7},
        {"type": "invoke", "op": "release", "key": "lock", "token": 7, "value": 1},
        {"type": "invoke", "op": "put", "key": "jobs", "value": "one"},
        {"type": "ok", "op": "put", "key": "jobs", "value": "one"},
        {"type": "ok", "op": "take", "key": "jobs", "value": "one"},
        {"type": "ok", "op": "find", "key": "jobs", "value": "one", "state": "dead"},
        {"type": "invoke", "op": "try", "key": "t/0", "value": "t"},
        {"type": "info", "op": "try", "key": "t/0", "value": "t"},
        {"type": "ok", "op": "end", "key": "t", "state": "dead"},
    ]
    history.found("jobs", "one", "done")
    (breach,) = plain.judged(None, "a trial", history)
    assert breach.startswith("a trial: items: line 14: 'one' of 'jobs' is found as done after dead")
