"""The history of a test, noted as it happens, in one process or in many that may be killed at any time."""

# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import TracebackType
from typing import Any, NamedTuple, Self

from tenure.errors import BarrierBroken

Fact = str | int | float | bool | None
Name = str | int
Errors = type[BaseException] | tuple[type[BaseException], ...]

BEGAN, STILL, ENDED, REFUSED, UNKNOWN = "began", "still", "ended", "refused", "unknown"
QUEUED = "queued"


class Event(NamedTuple):
    """An event: when, by whom, of what kind, and to what.

    `at` is in seconds and for the reader; the order of the history shows what was first. `phase` says what part of
    a call it is: "began", "queued", "still", "ended" (well), "refused" (without effect) or "unknown"; it is "" for what
    happened in one moment. Events of one `call` have the same.
    """

    at: float
    by: str
    kind: str
    subject: str
    phase: str = ""
    call: str = ""
    facts: Mapping[str, Fact] = {}

    def __str__(self) -> str:
        words = [f"{self.at:.6f}", self.by, self.kind, self.subject]
        words += [self.phase] if self.phase else []
        words += [f"{name}={value!r}" for name, value in self.facts.items()]
        return "  ".join(words)


class Call:
    """A block that is noted when it begins and when it ends: what the methods of `History` return. For one use.

    Thread safety: for the thread that entered it.
    """

    __slots__ = ("_by", "_facts", "_history", "_id", "_kind", "_refused", "_subject", "_told")

    def __init__(
        self,
        history: History,
        kind: str,
        subject: str,
        by: str | None,
        refused: Errors,
        facts: dict[str, Fact],
    ) -> None:
        self._history = history
        self._kind = kind
        self._subject = subject
        self._by = by
        self._refused = refused
        self._facts = facts
        self._told: dict[str, Fact] = {}
        self._id = ""

    def still(self) -> None:
        """Note that the call goes on: of a block that has no end, since its process was killed, this is the last
        sign.
        """
        self._note(STILL, {})

    def tell(self, **facts: Fact) -> None:
        """Add facts that are known only now to the note of the end."""
        self._told.update(facts)

    def __enter__(self) -> Self:
        if self._id:
            raise RuntimeError("a call is for one use")
        self._id = self._history._new_id()
        self._note(BEGAN, self._facts)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        phase = ENDED if error is None else REFUSED if isinstance(error, self._refused) else UNKNOWN
        self._note(phase, self._told)

    def _note(self, phase: str, facts: Mapping[str, Fact]) -> None:
        self._history._append(self._kind, self._subject, self._by, phase, self._id, facts)


class History:
    """A record of what happened, to which events are only added; referees judge it, or any other iterable of events.

    `History()` is a list in memory. `History(path)` adds each event to a file, by a single write: processes and threads
    of one machine that pass the same path write one history, even if some are killed. Iterate to read it from there.
    A killed process leaves at most one torn line; reading skips those and counts them in `torn`. The file is on a local
    disk. It is open only for the moment of a write, and nothing has to be closed.

    The order of the notes is the order of what happened, whatever the clocks say. So note what begins before it is
    asked for, what is held after it was obtained and while it is held, and what ended before giving it back.

    `by` is the default author of notes (by default the process id). `clock` is the time for those that read
    it: `anyio.current_time` for virtual time, by default CLOCK_MONOTONIC, which the processes of a machine share.

    Thread safety: any thread may note and read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        by: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.torn: int = 0
        self._by = by
        self._clock = clock
        self._ids = count(1)
        self._events: list[Event] = []
        self._path = None
        if path is not None:
            self._path = os.path.abspath(path)
            self._salt = os.urandom(4).hex()
            self._write(b"")

    def __getstate__(self) -> dict[str, Any]:
        # from Python 3.14 on a `count` cannot be pickled
        return self.__dict__ | {"_ids": next(self._ids)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._ids = count(state["_ids"])
        if self._path is not None:
            self._salt = os.urandom(4).hex()  # both write to one file, perhaps in one process

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events())

    def __repr__(self) -> str:
        return f"<History {self._path or f'of {len(self._events)} events'}>"

    def events(self) -> list[Event]:
        """The events that were noted so far, in order."""
        return list(self._events) if self._path is None else self._read(self._path)

    def about(self, *subjects: str) -> list[Event]:
        """The events of these subjects, in order."""
        return [event for event in self.events() if event.subject in subjects]

    def note(self, kind: str, subject: str, *, by: str | None = None, **facts: Fact) -> Event:
        """Note an event of one moment. The referees know the kinds that the other methods note."""
        return self._append(kind, subject, by, "", "", facts)

    def call(
        self, kind: str, subject: str, *, by: str | None = None, refused: Errors = (), **facts: Fact
    ) -> Call:
        """Note when a block begins and ends.

        By an error of the types `refused`, it ends without effect; by any other, its outcome is unknown; so it is if
        the block has no end, because the process was killed in it.
        """
        return Call(self, kind, subject, by, refused, facts)

    # what is held, and the line for it

    def asked(self, subject: str, *, priority: int = 0, by: str | None = None) -> Event:
        """Note that a task is about to ask for `subject`; hand the result to `queued` and `held`."""
        return self._append("wait", subject, by, BEGAN, self._new_id(), {"priority": priority})

    def queued(self, place: Event) -> Event:
        """Note that the asking task is certain to stand in the line by now; any task may note it. Returns the place."""
        self._append("wait", place.subject, place.by, QUEUED, place.call, {})
        return place

    def held(
        self,
        subject: str,
        *,
        token: int | None = None,
        weight: int = 1,
        place: Event | None = None,
        by: str | None = None,
    ) -> Call:
        """Note that `subject` is held for a block: `with history.held("report", token=lease.token):`.

        The block belongs inside of the one that holds. `place` is what `asked` gave.
        """
        if place is not None and place.subject != subject:
            raise ValueError(f"place: one in the line for {subject!r}, not {place}")
        where = None if place is None else place.call
        return self.call("hold", subject, by=by, token=token, weight=weight, place=where)

    def writing(self, subject: str, *, token: int, refused: Errors = (), by: str | None = None) -> Call:
        """Note a write to something that a fence guards; it is accepted if the block ends well."""
        return self.call("write", subject, by=by, refused=refused, token=token)

    # tasks: `item` is unique, and known before the put

    def putting(self, queue: str, item: Name, *, refused: Errors = (), by: str | None = None) -> Call:
        """Note that an item is put by a block; errors of the types `refused` say for sure that it was not."""
        return self.call("put", queue, by=by, refused=refused, item=_checked(item))

    def taken(self, queue: str, item: Name, *, by: str | None = None) -> None:
        """Note that an item was handed out."""
        self.note("taken", queue, by=by, item=_checked(item))

    def completed(self, queue: str, item: Name, *, by: str | None = None) -> None:
        """Note that the completion of an item was accepted."""
        self.note("completed", queue, by=by, item=_checked(item))

    def found(self, queue: str, item: Name, state: str, *, by: str | None = None) -> None:
        """Note what the books say of an item in the end: "done", "waiting", "dead" or any other state."""
        self.note("found", queue, by=by, item=_checked(item), state=state)

    # families: `task` is unique over all queues

    def trying(
        self, task: str, *, parent: str | None = None, undoes: bool = False, by: str | None = None
    ) -> Call:
        """Note that a handler works on a task, a child of `parent` if it has one, for a block.

        A release `undoes`, since its parent would end.
        """
        facts: dict[str, Fact] = {"parent": parent} | ({"undoes": True} if undoes else {})
        return Call(self, "trying", task, by, (), facts)

    def named(self, release: str, *, parent: str, by: str | None = None) -> None:
        """Note that a task has named a release; what it kept or handed over is noted with `ended`."""
        self.note("named", release, by=by, parent=parent)

    def ended(self, task: str, state: str, *, by: str | None = None) -> None:
        """Note that a task was seen to have ended, in this state."""
        self.note("ended", task, by=by, state=state)

    # barriers

    def arriving(
        self, barrier: str, *, turn: int, broken: Errors = BarrierBroken, by: str | None = None
    ) -> Call:
        """Note that a party arrives at a barrier: it passes if the block ends well, or notes `broken`.

        `turn` numbers the meetings as the parties see them. If the barrier has them, `tell` the call `place` and
        `generation`.
        """
        return self.call("arrive", barrier, by=by, refused=broken, turn=turn)

    def _new_id(self) -> str:
        number = next(self._ids)
        return str(number) if self._path is None else f"{os.getpid()}.{self._salt}.{number}"

    def _append(
        self, kind: str, subject: str, by: str | None, phase: str, call: str, facts: Mapping[str, Fact]
    ) -> Event:
        event = Event(self._clock(), by or self._by or str(os.getpid()), kind, subject, phase, call, facts)
        if self._path is None:
            self._events.append(event)
        else:
            # The line break comes first: what a killed process has torn off does not spoil the line of the next.
            self._write(b"\n" + json.dumps(event._asdict(), separators=(",", ":")).encode())
        return event

    def _write(self, line: bytes) -> None:
        assert self._path is not None
        with open(self._path, "ab", buffering=0) as file:
            if file.write(line) != len(line):
                raise OSError(f"{self._path}: an event was not written in one piece")

    def _read(self, path: str) -> list[Event]:
        events: list[Event] = []
        torn = 0
        with open(path, "rb") as file:
            for line in file:
                try:
                    events.append(Event(**json.loads(line)))
                except ValueError:
                    torn += line != b"\n"
        self.torn = torn
        return events


def _checked(item: object) -> Name:
    if not isinstance(item, str | int):
        raise TypeError(f"item: a str or an int, not {item!r}")
    return item
