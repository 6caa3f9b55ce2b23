"""Making a failing schedule short: choices are left out, replaced by the natural one, and lowered, as long as it fails.

The passes are those of hypothesis and other integrated shrinkers.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Real seconds that may go into it.
BUDGET = 10.0

Made = tuple[int, list[int]]
"""The switches between tasks in a run that failed, and the choices that were made in it."""


def shrunk(fails: Callable[[Sequence[int]], Made | None], made: Made) -> list[int]:
    """The choices that still fail with the fewest switches found, then the fewest and lowest choices.

    `fails(choices)` makes a run with these choices, and natural ones when there are no more; None: it did not fail.
    """
    if fails([]) is not None:
        return []
    until = time.monotonic() + BUDGET
    best = _trimmed(made[1])
    least = (made[0], len(best), sum(best))
    tried = {tuple(best)}
    improved = True
    while improved:
        improved = False
        # What a pass says next depends on the best so far, so that it goes on from there.
        for each in (_beginnings, _without_blocks, _natural_blocks, _lower):
            place = 0
            while (candidate := next(islice(each(best), place, None), None)) is not None:
                place += 1
                if time.monotonic() > until:
                    return best
                if tuple(candidate) in tried:
                    continue
                tried.add(tuple(candidate))
                if (made_now := fails(candidate)) is None:
                    continue
                choices = _trimmed(made_now[1])
                if (weight := (made_now[0], len(choices), sum(choices))) < least:
                    best, least, improved = choices, weight, True
    return best


def _beginnings(best: list[int]) -> Iterator[list[int]]:
    for power in range(len(best).bit_length()):
        yield best[: 2**power]


def _blocks(length: int) -> Iterator[slice]:
    size = max(length // 2, 1)
    while size:
        for end in range(length, 0, -size):
            yield slice(max(end - size, 0), end)
        size //= 2


def _without_blocks(best: list[int]) -> Iterator[list[int]]:
    for block in _blocks(len(best)):
        before, after = best[: block.start], best[block.stop :]
        yield before + after
        # The choice before may be the number of what was left out.
        if before and before[-1]:
            yield [*before[:-1], before[-1] - 1, *after]
            yield [*before[:-1], 0, *after]


def _natural_blocks(best: list[int]) -> Iterator[list[int]]:
    for block in _blocks(len(best)):
        if any(best[block]):
            yield best[: block.start] + [0] * (block.stop - block.start) + best[block.stop :]


def _lower(best: list[int]) -> Iterator[list[int]]:
    for place, choice in enumerate(best):
        for lower in sorted({choice // 2, choice - 1}) if choice > 1 else ():
            yield [*best[:place], lower, *best[place + 1 :]]


def _trimmed(choices: Sequence[int]) -> list[int]:
    length = len(choices)
    while length and not choices[length - 1]:
        length -= 1
    return list(choices[:length])
