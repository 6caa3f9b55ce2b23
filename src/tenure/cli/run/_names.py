"""The names of files as a source; the last name that was read is its place."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from tenure.cli._errors import UsageError

from ._glob import Glob
from ._inputs import PORTION, Portion, Position

_TIMEOUT = 0.5
"""Seconds after which a portion is given although it is small: matching files may be far between."""

_MOST_SKIPPED = 10


class Names:
    """The names that glob patterns match, pattern by pattern, each in order, each name once.

    A position holds the number of the pattern and the last name. Files that appear later are found if their names come
    after it. `skipped` is called with directories that could not be read.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._globs = [Glob(pattern) for pattern in patterns]
        for pattern, glob in zip(patterns, self._globs, strict=True):
            if next(glob.names(), None) is None:
                raise UsageError(
                    f"--from {pattern!r} matches no file, so nothing was started; if it is right, quote it, so that the"
                    " shell leaves it alone"
                )
        self.skipped: list[str] = []
        self.may_wait = False
        self._open(0, None)

    def check(self, position: Position) -> None: ...

    def has_more(self, position: Position) -> bool:
        return not position["end"]

    def open(self, position: Position | None) -> None:
        if position is None:
            self._open(0, None)
        else:
            self._open(position["glob"], position["name"])

    def read(self) -> Portion:
        items: list[str] = []
        began = monotonic()
        while self._glob < len(self._globs) and len(items) < PORTION:
            name = next(self._names, None)
            if name is None:
                self._open(self._glob + 1, None)
                continue
            self._last = name
            if not any(glob.matches(name) for glob in self._globs[: self._glob]):
                items.append(_speakable(name))
            if items and monotonic() - began > _TIMEOUT:
                break
        end = self._glob == len(self._globs)
        return Portion(items, {"glob": self._glob, "name": self._last, "share": None, "end": end})

    def close(self) -> None: ...

    def _open(self, glob: int, after: str | None) -> None:
        self._glob = glob
        self._last = after
        self._names: Iterator[str] = iter(())
        if glob < len(self._globs):
            self._names = self._globs[glob].names(after, self._skip)

    def _skip(self, problem: OSError) -> None:
        if len(self.skipped) < _MOST_SKIPPED:
            self.skipped.append(f"{problem.filename}: skipped ({problem.strerror})")


def _speakable(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name!a} is not UTF-8: rename the file and repeat the command") from None
    return name
