"""Errors that the user can correct."""

from __future__ import annotations

import re

from tenure.observe import printable

_PASSWORD = re.compile(r"://[^\s/@]*:(?!PASSWORD@HOST)\S*@")


class UsageError(Exception):
    """Wrong options, handlers, inputs or places: reported in one line with the remedy; the exit code is 2."""


class Interrupted(Exception):
    """The run ends before it is finished, for a reason reported in one line; the exit code is 1."""


def one_line(problem: BaseException, before: str = "") -> str:
    text = printable(before + " ".join((str(problem) or type(problem).__name__).split()))
    # a URL that was typed in the wrong place is quoted, and may have a password
    return _PASSWORD.sub("://...@", text)
