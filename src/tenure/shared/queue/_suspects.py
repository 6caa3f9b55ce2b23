"""Suspects: tasks whose processes have died twice without a verdict on them. They run apart from all others.

When a process dies, each task that it had may have killed it. After the second death, a process runs at most half as
many suspects as it was given tasks, and nothing beside them; after a death of that half, a half of it, until each runs
alone. From then on `max_deliveries` counts only deaths in which the task ran alone. A verdict clears a suspect.

The room of a process, for its takers of all queues, in all threads:

| state   | takers ask | what happens                     | what follows                              | goes to |
|---------|------------|----------------------------------|-------------------------------------------|---------|
| open    | yes        | a suspect comes                  | a part is kept, all else goes back        | waiting |
| waiting | no         | anything comes                   | it goes back                              |         |
|         |            | nothing else is in hand here     | it is noted who runs alone; they begin    | running |
|         |            | nobody is left to take them      | they go back                              | open    |
|         |            | they have waited for `PATIENCE`  | they are postponed; twice as long the     | open    |
|         |            |                                  | second time; the third time they begin    | running |
| running | no         | anything comes                   | it goes back                              |         |
|         |            | they have ended, on record       |                                           | open    |
| any     |            | their session is lost            |                                           | open    |
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Sequence
from threading import RLock
from typing import Protocol
from weakref import WeakSet

import tenure.engine as e
from tenure.store import Session
from tenure.waiting import now

from ._failures import noted, read

PATIENCE = 60.0
"""Seconds for which suspects wait for the other tasks here, which may wait for a task that nobody takes."""

LEEWAY = 15
"""Deliveries beyond `max_deliveries` that end a task which never ran alone, as in takers that do not know suspects."""


class Beside(Protocol):
    """Takers of a queue."""

    @property
    def in_hand(self) -> int:
        """The number of tasks here that may kill the process, or whose end is not on record."""
        ...


class SuspectsRoom:
    """The room of this process, which all takers share. Thread safety: any."""

    def __init__(self) -> None:
        self.session: Session | None = None
        """The session of the suspects that have the room."""
        self.owner: Suspects | None = None
        self.forget()

    def forget(self) -> None:
        self.lock = RLock()
        self.members: WeakSet[Beside] = WeakSet()
        self.session = self.owner = None

    def is_closed(self) -> bool:
        """True while suspects wait or run in this process: nothing is taken."""
        session = self.session
        if session is not None and session.is_over():
            with self.lock:
                if self.session is session:
                    self.session = self.owner = None
        return self.session is not None


room = SuspectsRoom()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=room.forget)


class Suspects:
    def __init__(self, takers: Beside) -> None:
        self.limit(5)
        self.kept: deque[tuple[Session, e.Taken]] = deque()
        self._begun: set[int] = set()
        self._since = 0.0
        self._patience = PATIENCE
        self._unmarked = False
        self._takers = takers
        with room.lock:
            room.members.add(takers)

    def limit(self, max_deliveries: int) -> None:
        self.first: int = 1 if max_deliveries <= 2 else 2
        """A task is a suspect after so many deliveries without a verdict."""
        self._charges = max(1, max_deliveries - self.first)
        self._halves = max_deliveries > 3  # else the next death may have to be the last: each runs alone

    @property
    def here(self) -> bool:
        return room.is_closed() and room.owner is self

    @property
    def impatient(self) -> bool:
        return now() - self._since > self._patience

    def put_off(self) -> bool:
        """Wait twice as long the next time. False at the third time: the others may wait for the suspects."""
        self._patience *= 2
        return self._patience <= 4 * PATIENCE

    def keep(self, session: Session, tasks: Sequence[e.Taken]) -> Sequence[e.Taken]:
        with room.lock:
            if room.is_closed():
                return tasks
            room.session, room.owner = session, self
        self.kept.clear()
        self._begun.clear()
        self._since, self._unmarked = now(), True
        back: list[e.Taken] = []
        most = len(tasks)
        for taken in tasks:
            silent, alone = self._silent(taken), len(self._alone(taken))
            share = len(tasks) >> silent - 1 if self._halves and silent and not alone else 1
            most_now = min(most, max(1, share))
            if silent < self.first or len(self.kept) >= most_now:
                back.append(taken)
            else:
                self.kept.append((session, taken))
                most = most_now
        return back

    def have_ended(self, held: Collection[int]) -> bool:
        self._begun.intersection_update(held)
        return not (self.kept or self._begun)

    def are_alone(self) -> bool:
        if self._patience > 4 * PATIENCE:
            self._unmarked = False
            return True
        if self._takers.in_hand > len(self._begun):
            return False
        with room.lock:
            members = list(room.members)
        return not any(member.in_hand for member in members if member is not self._takers)

    def to_mark(self) -> list[tuple[Session, e.Settle]]:
        marks: list[tuple[Session, e.Settle]] = []
        is_alone = len(self.kept) == 1
        for session, taken in self.kept if self._unmarked else ():
            alone = self._alone(taken)
            if is_alone and len(alone) + 1 >= self._charges:
                marks.append((session, e.Settle(taken.id, taken.token, e.Verdict.ALONE)))
                continue
            alone += (self._silent(taken),) * is_alone
            if alone != read(taken.failure).alone:
                record = noted(taken.failure, alone)
                marks.append((session, e.Settle(taken.id, taken.token, e.Verdict.NOTE, failure=record)))
        self._unmarked = False
        return marks

    def begin(self) -> tuple[Session, e.Taken]:
        session, taken = self.kept.popleft()
        self._begun.add(taken.token)
        self._patience = PATIENCE
        return session, taken

    def leave(self) -> None:
        with room.lock:
            if room.owner is self:
                room.session = room.owner = None

    @staticmethod
    def _silent(taken: e.Taken) -> int:
        return taken.deliveries - taken.attempts - 1

    def _alone(self, taken: e.Taken) -> tuple[int, ...]:
        return tuple(n for n in read(taken.failure).alone if self.first <= n < self._silent(taken))
