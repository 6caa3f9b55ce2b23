"""How much of what can go on for ever the tests do: all that is meant with --full, and without it a share."""

from __future__ import annotations

import os
from zlib import crc32

full = False
"""Whether --full was said: `conftest.py` sets it before it collects the tests."""

engine = None
"""The engine that `--engine` names, as module:factory."""


def share(number):
    """So many seeds or examples; without --full a fifth of them."""
    return number if full else max(1, number // 5)


def loops(name, names=("asyncio", "trio")):
    """Both loops, or all of these names; without --full one of them, always the same for the same name."""
    return names if full else (names[crc32(str(name).encode()) % len(names)],)


def most(names):
    """All of these names; without --full all but the last."""
    return names if full else names[:-1]


def paired(first, second):
    """All pairs; without --full as many as the longer of the two needs, in which the shorter one repeats itself."""
    first, second = list(first), list(second)
    if full:
        return [(one, other) for one in first for other in second]
    number = max(len(first), len(second))
    return [(first[n % len(first)], second[n % len(second)]) for n in range(number)]


def walks(number):
    """So many walks of each kind; with TENURE_MODEL_EXAMPLES that many where there are usually 10, and so on."""
    examples = os.environ.get("TENURE_MODEL_EXAMPLES")
    return share(number) if examples is None else max(1, int(examples) * number // 10)
