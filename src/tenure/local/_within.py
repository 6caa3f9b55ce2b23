"""Who is running inside of whom: so that a call that would wait for itself is refused instead of hanging."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ("Within", "is_within")


class Within:
    """What runs on behalf of `subject`; everything that it starts is inside of it too, until it is `over`.

    Thread safety: none.
    """

    __slots__ = ("outer", "over", "subject")

    def __init__(self, subject: object) -> None:
        """Note, in the context that is to be inside, that it is."""
        self.subject = subject
        self.over = False
        outer = _innermost.get()
        while outer is not None and outer.over:
            outer = outer.outer  # else a task that does one after the other would never forget them
        self.outer = outer
        _innermost.set(self)


_innermost: ContextVar[Within | None] = ContextVar("tenure.local.within", default=None)


def is_within(subject: object) -> bool:
    """Tell whether the caller runs inside of something that runs on behalf of `subject`."""
    within = _innermost.get()
    while within is not None:
        if within.subject is subject and not within.over:
            return True
        within = within.outer
    return False
