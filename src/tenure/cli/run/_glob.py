"""Glob patterns, matched while walking: names come one by one and in order, from any name on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import translate

_MAGIC = re.compile(r"[*?\[]")
_ANY = "**"

States = frozenset[int]


class Glob:
    """A pattern as of `glob.glob(recursive=True)`; names come sorted, directory by directory, regular files only.

    `**` matches any directories, none included, but follows no links to directories. Wildcards match no name that
    begins with a dot. Only the directories on the way to the present name are in memory.

    Thread safety: any; the state is in the iterators.
    """

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        fixed = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts) - 1)
        self._root = ("/" if pattern.startswith("/") else "") + "/".join(parts[:fixed])
        if self._root not in ("", "/"):
            self._root += "/"
        self._parts = parts[max(0, fixed) :]
        self._matchers = [None if part == _ANY else _matcher(part) for part in self._parts]

    def names(
        self, after: str | None = None, on_error: Callable[[OSError], None] = lambda _: None
    ) -> Iterator[str]:
        start = None if after is None else after.removeprefix(self._root).split("/")
        return self._walk(self._root, self._closure({0}), start, on_error)

    def matches(self, name: str) -> bool:
        if not name.startswith(self._root):
            return False
        states = self._closure({0})
        for part in name.removeprefix(self._root).split("/"):
            states = self._next(states, part)
        return len(self._parts) in states

    def _walk(
        self, directory: str, states: States, after: list[str] | None, on_error: Callable[[OSError], None]
    ) -> Iterator[str]:
        try:
            entries, kinds = _listing(directory)
        except OSError as problem:
            on_error(problem)
            return
        for name in entries:
            if after is not None and name < after[0]:
                continue
            names = after[1:] if after is not None and name == after[0] else None
            reached = self._next(states, name, follow=kinds[name] != "link")
            if kinds[name] == "file":
                # the last name itself has been given already
                if len(self._parts) in reached and names is None:
                    yield directory + name
                continue
            if any(s < len(self._parts) for s in reached):
                yield from self._walk(f"{directory}{name}/", reached, names or None, on_error)

    def _next(self, states: States, name: str, *, follow: bool = True) -> States:
        """The positions in the pattern after one more part of a name; `**` takes only a part that
        another may follow.
        """
        reached: set[int] = set()
        for state in states:
            if state == len(self._parts):
                continue
            matches = self._matchers[state]
            if matches is None:
                if follow and not name.startswith("."):
                    reached.add(state)
            elif matches(name):
                reached.add(state + 1)
        return self._closure(reached)

    def _closure(self, states: set[int]) -> States:
        todo = list(states)
        while todo:
            state = todo.pop()
            if state < len(self._parts) and self._matchers[state] is None and state + 1 not in states:
                states.add(state + 1)
                todo.append(state + 1)
        return frozenset(states)


def _listing(directory: str) -> tuple[list[str], dict[str, str]]:
    kinds: dict[str, str] = {}
    with os.scandir(directory or ".") as entries:
        for entry in entries:
            with suppress(OSError):  # a link in a circle, for one
                if entry.is_dir():
                    kinds[entry.name] = "link" if entry.is_symlink() else "directory"
                elif entry.is_file():
                    kinds[entry.name] = "file"
    return sorted(kinds), kinds


def _matcher(part: str) -> Callable[[str], bool]:
    if not _MAGIC.search(part):
        return part.__eq__
    match = re.compile(translate(part)).match
    hidden = part.startswith(".")
    return lambda name: match(name) is not None and (hidden or not name.startswith("."))
