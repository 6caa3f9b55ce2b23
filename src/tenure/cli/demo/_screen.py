"""The output of `tenure demo`: frames on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from shutil import get_terminal_size
from time import monotonic
from typing import NamedTuple

from tenure.cli._frame import BOLD, PLAIN, RED
from tenure.cli._keyboard import draw
from tenure.cli._table import cut, table
from tenure.observe import printable
from tenure.web import View

from ._eyes import counts_of, key_of, letters_of
from ._fleet import Fleet, Member
from ._worker import LEDGER, POSTMASTER

_GREEN = "\x1b[32m"
_STYLES = {"": "", "bad": RED, "good": _GREEN, "bold": BOLD}
_INDENT = 10
_WIDE = 80
"""Columns for a row with all there is: a name, the number of a process, and two tokens."""
_TOKEN = 16
_EVERY = 10.0
"""Seconds between lines about the letters."""


class Event(NamedTuple):
    """An event of the demo, `seconds` after the beginning."""

    seconds: float
    text: str
    style: str = ""


class Screen:
    """Takes events, and draws them if it is a terminal, or prints them.

    `seconds` is how long the demo is to last; `page` is the address of the page, if there is one.
    """

    def __init__(self, seconds: float, fleet: Fleet) -> None:
        self.is_terminal: bool = sys.stdout.isatty()
        self.page = ""
        self._seconds = seconds
        self._fleet = fleet
        self._began = monotonic()
        self._events: list[Event] = []
        self._said = 0.0

    def say(self, text: str, style: str = "") -> None:
        """Take an event: what has happened now."""
        event = Event(monotonic() - self._began, text, style)
        self._events.append(event)
        if not self.is_terminal:
            print("\n".join(lines_of(event, 80)), flush=True)

    def draw(self, view: View) -> None:
        """Draw a frame; elsewhere than on a terminal say now and then how many letters there are."""
        now = monotonic() - self._began
        if self.is_terminal:
            top = f"tenure demo: {len(self._fleet.members)} workers over one SQLite file", self.page
            clock = f"{now:.0f} s" if now > self._seconds else f"{now:.0f} s of {self._seconds:g} s"
            draw(sys.stdout, frame(top, clock, view, self._fleet, self._events, *get_terminal_size()))
        elif now - self._said >= _EVERY:
            self._said = now
            self.say(_letters(view))


def lines_of(event: Event, columns: int) -> list[str]:
    """An event as one line or more."""
    first = f"{event.seconds:6.1f} s  "
    return textwrap.wrap(
        printable(event.text),
        max(columns, _INDENT + 1),
        initial_indent=first,
        subsequent_indent=" " * len(first),
    )


def frame(
    top: tuple[str, str],
    clock: str,
    view: View,
    fleet: Fleet,
    events: Sequence[Event],
    columns: int,
    lines: int,
) -> list[str]:
    """At most `lines` lines of at most `columns` columns, not counting colours; of the events the last ones."""
    title, page = top
    head = cut(title, max(1, columns - len(clock) - 2))
    shown = [(f"{head:<{columns - len(clock)}}{clock}", "bold"), (page, ""), (_letters(view), ""), ("", "")]
    header = ("worker", "process", "state  ", "letters", f"{'ledger':22}", "postmaster")
    rows = [_row(member, view, fleet) for member in fleet.members.values()]
    if columns < _WIDE:
        header, rows = _narrow(header), [_narrow(row) for row in rows]
    styles = [
        "bold",
        *({"killed": "bad", "frozen": "bad"}.get(member.state, "") for member in fleet.members.values()),
    ]
    shown += zip(table(header, rows, nothing="").splitlines(), styles, strict=True)
    shown.append(("", ""))
    told = [(line, event.style) for event in events[-lines:] for line in lines_of(event, columns)]
    room = max(0, lines - len(shown) - 2)
    shown += told[len(told) - min(room, len(told)) :]
    shown += [("", "")] * (lines - 1 - len(shown))
    shown.append(("q or Ctrl-C ends it", ""))
    return [_styled(cut(text, columns), style) for text, style in shown[:lines]]


def _letters(view: View) -> str:
    counts = counts_of(view)
    if counts is None:
        return "letters: none yet"
    return f"letters: {counts.waiting:3} waiting, {counts.leased} with workers, {counts.done:4} done"


def _row(member: Member, view: View, fleet: Fleet) -> tuple[str, ...]:
    mine = [process for process in view.processes if fleet.name_of(process.process) == member.name]
    ledger, postmaster = (
        _part(member, view, fleet, kind, name, word)
        for kind, name, word in (("lock", LEDGER, "token"), ("election", POSTMASTER, "term"))
    )
    letters = sum(map(letters_of, mine))
    return member.name, str(member.pid or "-"), member.state, str(letters or "-"), ledger, postmaster


def _narrow(row: Sequence[str]) -> tuple[str, ...]:
    """A row for a narrow terminal, without the number of the process; tokens have no word before them."""
    name, _, state, letters, ledger, postmaster = row
    return name, state, letters, ledger.removeprefix("token ")[:_TOKEN], postmaster.removeprefix("term ")


def _part(member: Member, view: View, fleet: Fleet, kind: str, name: str, word: str) -> str:
    """The member's share in a lock or an election: its token, "waits", or a dash."""
    key = key_of(view, kind, name)
    if key is None:
        return "-"
    for holder in key.holders:
        if fleet.name_of(holder.process) == member.name:
            return f"{word} {holder.token}"
    return "waits" if any(fleet.runs(member.name, holder.process) for holder in key.waiting) else "-"


def _styled(text: str, style: str) -> str:
    text = text.rstrip()
    return f"{_STYLES[style]}{text}{PLAIN}" if _STYLES[style] and text else text


def styled(text: str, style: str) -> str:
    """A text for standard output: in colour if that is a terminal."""
    return _styled(text, style) if sys.stdout.isatty() else text
