"""Reconciling: what the engine has recorded for a session, compared with what this process has.

A replica that takes over may lack the last acknowledged writes: a release, so that something is held without a holder,
or a grant, so that there may be a second holder. So after each new connection, what only the engine has recorded is
released, and what it has not recorded is lost.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tenure.engine as e

from ._sessions import Held, Session, numbers

OF_QUEUES = ("producers", "tasks", "takers")
"""Families whose items are known to the queue's listener, not to the acquisitions."""

_UNDO = {"holds": e.Release, "claims": e.GiveBack, "producers": e.Leave}


class Reconciler:
    """Compares sessions; `on_found` is called for each item that the engine has of a session.

    An engine that answers with an error is not asked again: then the next operation on an item shows its state.
    """

    def __init__(self, on_found: Callable[[Session, e.SessionItem], object]) -> None:
        self._on_found = on_found
        self._again: dict[Session, bool] = {}

    def reconcile(self, session: Session) -> None:
        if session in self._again:
            self._again[session] = True
            return
        self._again[session] = False
        theirs: set[tuple[str, int]] = set()
        self._ask(session, "", [held for held in session.held if held._granted_as], theirs)

    def _ask(self, session: Session, after: str, ours: list[Held], theirs: set[tuple[str, int]]) -> None:
        session.dispatcher.send(
            e.Scan(e.SESSION, session.id, after), partial(self._on_answer, session, ours, theirs)
        )

    def _on_answer(
        self, session: Session, ours: list[Held], theirs: set[tuple[str, int]], answer: object
    ) -> None:
        if isinstance(answer, e.SessionPage):
            for item in answer.rows:
                self._on_found(session, item)
                if item.held:
                    theirs.add((item.name, item.token))
            if answer.next:
                self._ask(session, answer.next, ours, theirs)
                return
            for held in ours:
                if held in session.held and (granted := held._granted_as) and granted not in theirs:
                    held._lose("gone")
        elif answer is e.Reply.UNKNOWN:
            session.lose("gone")
        if self._again.pop(session) and session.usable:
            self.reconcile(session)


def release_for(session: str, item: e.SessionItem) -> e.Operation[Any]:
    if (undo := _UNDO.get(item.family)) is not None:
        return undo(item.key, item.name)
    return e.Exchange(
        session, next(numbers), item.key, (give_back_of(item),) if item.family == "tasks" else (), wait=False
    )


def give_back_of(task: e.SessionItem) -> e.Settle:
    number, token = task.name.split()
    return e.Settle(int(number), int(token), e.Verdict.GIVE_BACK)
