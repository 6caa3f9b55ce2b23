"""What a session has by the engine's word, compared with what this process knows of.

A server may come back as it was some time ago: a replica that takes over lacks the last of what its primary had
acknowledged. A release that it has forgotten would keep for as long as this process lives what nobody here holds, since
the session is renewed; a grant that it has forgotten would leave two holders for as long as the older one likes. So
whenever a connection is new, what nobody here knows is given back, and what the engine does not have is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tenure.engine import (
    Belonging,
    Exchange,
    GiveBack,
    Inspect,
    Inspected,
    Leave,
    Operation,
    Release,
    Reply,
    Settle,
    Verdict,
    Withdraw,
)

from ._sessions import Held, Session, numbers

OF_QUEUES = ("producers", "tasks", "takers")
"""Families of which those know who use the queue."""

_UNDO = {"holds": Release, "claims": GiveBack, "arrivals": Withdraw, "producers": Leave}


class Reconciler:
    """Compares sessions, each in one round at a time; `on_found` is told of each thing that the engine has of one.

    An engine that cannot tell is not asked again: then only the next operation on a thing shows what became of it.
    Thread safety: none.
    """

    def __init__(self, on_found: Callable[[Session, Belonging], object]) -> None:
        self._on_found = on_found
        self._again: dict[Session, bool] = {}

    def reconcile(self, session: Session) -> None:
        """Give back what nobody here knows, and have who holds what the engine does not have lose it."""
        if session in self._again:
            self._again[session] = True
            return
        self._again[session] = False
        theirs: set[tuple[str, int]] = set()
        self._ask(session, "", [held for held in session.held if held.granted_as], theirs)

    def _ask(self, session: Session, after: str, ours: list[Held], theirs: set[tuple[str, int]]) -> None:
        session.wire.send(Inspect(session.id, after), partial(self._on_answer, session, ours, theirs))

    def _on_answer(
        self, session: Session, ours: list[Held], theirs: set[tuple[str, int]], answer: object
    ) -> None:
        if isinstance(answer, Inspected):
            for one in answer.belongings:
                self._on_found(session, one)
                if one.held:
                    theirs.add((one.name, one.token))
            if answer.next:
                self._ask(session, answer.next, ours, theirs)
                return
            for held in ours:
                if held in session.held and (granted := held.granted_as) and granted not in theirs:
                    held.lose("gone")
        elif answer is Reply.UNKNOWN:
            session.lose("gone")
        if self._again.pop(session) and session.usable:
            self.reconcile(session)


def undoing(session: str, one: Belonging) -> Operation[Any]:
    """The operation that gives it back; a task or an idle taker only while nobody here uses the queue."""
    if (undo := _UNDO.get(one.family)) is not None:
        return undo(one.key, one.name)
    return Exchange(
        session, next(numbers), one.key, (given_back(one),) if one.family == "tasks" else (), wait=False
    )


def given_back(task: Belonging) -> Settle:
    """The verdict that gives back a task."""
    number, token = task.name.split()
    return Settle(int(number), int(token), Verdict.GIVE_BACK)
