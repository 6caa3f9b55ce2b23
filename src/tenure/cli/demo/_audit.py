"""The audit at the end of `tenure demo`: a comparison of all records."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from tenure.shared import Audit

from ._books import Written

_SHOWN = 3


class Verdict(NamedTuple):
    """The result of the audit, in lines; `problems` are the lines that name a fault."""

    lines: list[str]
    problems: list[str]


def judge(audit: Audit, sent: int, written: Written, *, finished: bool) -> Verdict:
    """Compare the queue's record with what the workers wrote down.

    `sent` is the number of the last letter; if the demo was not `finished`, some may be on their way.
    """
    queue, letters, tokens = audit.statistics, written.letters, written.tokens
    problems = [f"queue.verify(): {problem}" for problem in audit.problems]
    if queue.put != sent:
        problems.append(f"the last letter has the number {sent}, but {queue.put} were put")
    if queue.done != len(letters):
        problems.append(f"{queue.done} tasks are done, but {len(letters)} letters were written down")
    twice = [letter for letter, times in Counter(letters).items() if times > 1]
    problems += [f"letter {letter} was delivered more than once" for letter in twice[:_SHOWN]]
    lost = sorted(set(range(1, sent + 1)) - set(letters)) if finished else []
    problems += [f"letter {letter} was not delivered" for letter in lost[:_SHOWN]]
    back = [(new, old) for old, new in pairwise(tokens) if new < old]
    problems += [f"the ledger has a stale write: token {new} after {old}" for new, old in back[:_SHOWN]]
    left = "" if finished else f", {queue.unfinished} left"
    again, refused = len(letters) - len(set(letters)), len(written.refused)
    lines = [
        f"queue.verify()  {'the counts agree' if audit else 'the counts do not agree'}",
        f"letters         {queue.put} put, {queue.done} done{left}; {len(letters)} delivered, {again} again",
        f"ledger          {len(tokens)} lines by {len(set(tokens))} holders, {len(back)} stale; {refused} refused",
    ]
    return Verdict(lines, problems)
