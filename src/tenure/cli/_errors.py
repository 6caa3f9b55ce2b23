"""Errors that the user can correct."""

from __future__ import annotations


class UsageError(Exception):
    """Wrong options, handlers, inputs or places: reported in one line with the remedy; the exit code is 2."""


class Interrupted(Exception):
    """The run ends before it is finished, for a reason reported in one line; the exit code is 1."""
