"""Handlers to try `tenure run` with."""

from __future__ import annotations

from ._digest import digest
from ._flaky import flaky
from ._nap import nap
from ._words import words

__all__ = ("digest", "flaky", "nap", "words")

for _name in __all__:
    globals()[_name].__module__ = __name__
