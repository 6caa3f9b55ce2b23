"""The version of the schema, and the steps from older versions."""

STEPS: dict[int, str] = {}
"""By version, the SQL that changes the tables, types and sequences of the version before.

Behind the last step all functions are made anew, in place of those with the same name and arguments. While an update
rolls on, processes of the release before still call the functions that they know: a function keeps its arguments and
its answers, or the new function gets another name.
"""

VERSION = max(STEPS, default=1)
"""Raised with each change that a release has to find in the database, or that the release before cannot read."""
