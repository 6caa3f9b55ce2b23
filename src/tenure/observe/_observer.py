from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Receives events as they happen, on the event loop.

    - `lease.acquired` (key, token, waited; outage if there was one), `lease.released` (key, token, held), `lease.lost`
      (key, token, reason, error), `lease.overran` (key, token, seconds).
    - `session.opened` (session, ttl), `session.lost` (session, reason).
    - `link.lost` (url, error), `link.back` (url, seconds), `operation.resent` (operation, key, outage).
    - `task.done`, `task.retry`, `task.dead`, `task.discarded`, `task.cancelled`, `task.expired`, `task.postponed`,
      `task.suspended`, `task.given_back`, `task.lost` (queue: its name, id, attempt, seconds). `task.lost` has a
      reason. The `error` is the exception that ended the try.
    - `pool.check_failed` (key, resource, token, error).
    - `processor.` begins the names of a processor's events.

    More events and more fields may come. An observer that also makes spans has an attribute `tracing`: a `Tracing`. The
    store looks at it once.

    Thread safety: called from the thread of the event loop only.
    """

    def notice(self, event: str, /, **fields: object) -> None:
        """Take note. Must be quick and must not raise; times are in seconds."""
        ...


def check_observer(observer: Observer | None) -> Observer | None:
    if observer is not None and not callable(getattr(observer, "notice", None)):
        raise TypeError(f"observer must have a method notice(event, **fields), which {observer!r} has not")
    return observer
