from __future__ import annotations

from contextvars import ContextVar


class Reentrancy:
    """A context that runs on behalf of `subject`, as does everything it starts, until it is `over`."""

    __slots__ = ("outer", "over", "subject")

    def __init__(self, subject: object) -> None:
        self.subject = subject
        self.over = False
        outer = _innermost.get()
        while outer is not None and outer.over:
            outer = outer.outer  # else a task that does one after the other would never forget them
        self.outer = outer
        _innermost.set(self)


_innermost: ContextVar[Reentrancy | None] = ContextVar("tenure.local.reentrancy", default=None)


def is_reentrant(subject: object) -> bool:
    within = _innermost.get()
    while within is not None:
        if within.subject is subject and not within.over:
            return True
        within = within.outer
    return False
