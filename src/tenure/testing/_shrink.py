"""Making a failing schedule short: hypothesis does it, from the choices that were made."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Real seconds that may go into it.
BUDGET = 10.0


class _Enough(BaseException):
    pass


def shrunk(fails: Callable[[Callable[[int], int]], tuple[bool, list[int]]], choices: list[int]) -> list[int]:
    """Return a simpler list of choices that still fails; without hypothesis 6.125 or later, the same.

    `fails(choose)` makes a run for which `choose(n)` chooses, and returns whether it failed and what was chosen.
    """
    try:
        from hypothesis import Phase, Verbosity, find, settings, strategies
        from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes
    except ImportError:
        return choices
    best = _beginning(fails, choices)
    until = time.monotonic() + BUDGET

    def condition(source: Any) -> bool:
        nonlocal best
        if time.monotonic() > until:
            raise _Enough
        stopped: list[BaseException] = []

        def choose(n: int) -> int:
            if not stopped:
                try:
                    return source.randrange(n)
                except BaseException as stop:  # noqa: BLE001
                    # Hypothesis has seen enough of this run; but a loop must not be torn by it.
                    stopped.append(stop)
            return 0

        failed, made = fails(choose)
        if stopped:
            raise stopped[0]
        if failed and _weight(made) < _weight(best):
            best = made
        return failed

    # The failing choices stand in for an example of an earlier session, which hypothesis repeats; and shrinks, since it
    # is not to the last choice what was saved.
    key = b"schedule"
    database = InMemoryExampleDatabase()
    database.save(key, choices_to_bytes([*best, 0]))
    # It stops when it has done enough, or at a scenario that depends on more than its choices: the best so far is good.
    with suppress(Exception, _Enough):
        find(
            strategies.randoms(use_true_random=False),
            condition,
            database_key=key,
            settings=settings(
                database=database,
                phases=(Phase.reuse, Phase.shrink),
                deadline=None,
                verbosity=Verbosity.quiet,
            ),
        )
    return best


def _beginning(
    fails: Callable[[Callable[[int], int]], tuple[bool, list[int]]], choices: list[int]
) -> list[int]:
    """The first few choices, if they are enough; hypothesis looks for few choices, and we for few unnatural ones."""
    for length in (0, *(2**power for power in range(len(choices).bit_length()))):
        beginning = iter(choices[:length])

        def choose(n: int, beginning: Iterator[int] = beginning) -> int:
            return min(next(beginning, 0), n - 1)

        failed, made = fails(choose)
        if failed:
            return made
    return choices


def _weight(choices: list[int]) -> tuple[int, int]:
    made = len(choices)
    while made and not choices[made - 1]:
        made -= 1
    return made, sum(choices)
