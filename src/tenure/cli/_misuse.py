"""What the user can mend."""

from __future__ import annotations


class Misuse(Exception):
    """Wrong options, handlers, inputs or places: told in one line that says how to mend it; the exit code is 2."""


class Interrupted(Exception):
    """The run ends before it is finished, for a reason told in one line; the exit code is 1."""
