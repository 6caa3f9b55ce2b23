"""What a session has by the engine's word, compared with what this process knows of.

A server may come back as it was some time ago: a replica that takes over lacks the last of what its primary had
acknowledged. A release that it has forgotten would keep for as long as this process lives what nobody here holds, since
the session is renewed; a grant that it has forgotten would leave two holders for as long as the older one likes. So
whenever hints may have been lost, what nobody here knows is given back, and what the engine does not know is lost.
"""

from __future__ import annotations

from collections.abc import Callable
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

from ._sessions import Session, numbers

OF_QUEUES = ("producers", "tasks", "takers")
"""Families of which those know who use the queue."""

_UNDO = {"holds": Release, "claims": GiveBack, "arrivals": Withdraw, "producers": Leave}


def reconcile(session: Session, on_found: Callable[[Session, Belonging], object]) -> None:
    """Ask what the session has: `on_found` is told of each thing, and whoever holds what the engine does not, loses it.

    An engine that cannot tell is not asked again: then only the next operation on a thing shows what became of it.
    """
    ours = {held: held.granted_as for held in session.held if held.granted_as}
    theirs: set[str] = set()

    def ask(after: str) -> None:
        session.wire.send(Inspect(session.id, after), on_answer)

    def on_answer(answer: object) -> None:
        if answer is Reply.UNKNOWN:
            session.lose("gone")
        if not isinstance(answer, Inspected):
            return
        for one in answer.belongings:
            on_found(session, one)
            if one.held:
                theirs.add(one.name)
        if answer.next:
            ask(answer.next)
            return
        for held, name in ours.items():
            if name not in theirs and held in session.held:
                held.lose("gone")

    ask("")


def undoing(session: str, one: Belonging) -> Operation[Any]:
    """What gives it back; a queue's: while nobody uses the queue."""
    if (undo := _UNDO.get(one.family)) is not None:
        return undo(one.key, one.name)
    return Exchange(
        session, next(numbers), one.key, (given_back(one),) if one.family == "tasks" else (), wait=False
    )


def given_back(task: Belonging) -> Settle:
    """The verdict that gives back a task."""
    number, token = task.name.split()
    return Settle(int(number), int(token), Verdict.GIVE_BACK)
