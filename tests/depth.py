"""How much of what can go on for ever the tests do: all that is meant with --full, and without it a share."""

from __future__ import annotations

import os

full = False
"""Whether --full was said: `conftest.py` sets it before it collects the tests."""

engine = None
"""The engine that `--engine` names, as module:factory."""


def share(number):
    """So many seeds or examples; without --full a fifth of them."""
    return number if full else max(1, number // 5)


def walks(number):
    """So many walks of each kind; with TENURE_MODEL_EXAMPLES that many where there are usually 10, and so on."""
    examples = os.environ.get("TENURE_MODEL_EXAMPLES")
    return share(number) if examples is None else max(1, int(examples) * number // 10)
