from __future__ import annotations

import tenure.engine as e
from tenure.errors import StoreUnavailable
from tenure.observe import Reporter
from tenure.waiting import now


class Availability:
    def __init__(self, engine: e.Engine, reporter: Reporter | None = None) -> None:
        self.reporter: Reporter = reporter or Reporter()
        self._engine = engine
        self._away: dict[object, StoreUnavailable] = {}
        self._since = self._until = 0.0

    @property
    def trouble(self) -> str | None:
        if self._away:
            return f"has been away for {now() - self._since:.0f} s"
        return None if self._engine.unreachable is None else "cannot be reached"

    @property
    def cause(self) -> str:
        return next((f" ({error})" for error in self._away.values()), "")

    def check(self) -> None:
        if (error := self._engine.unreachable) is None:
            self.back(self._engine)
        else:
            self.lost(self._engine, error)

    def lost(self, part: object, error: StoreUnavailable) -> None:
        if not self._away:
            self._since = now()
            self.reporter.warn("link.lost", url=self._engine.url, error=error)
        self._away[part] = error

    def back(self, part: object) -> None:
        if self._away.pop(part, None) is not None and not self._away:
            self._until = now()
            self.reporter.inform("link.back", url=self._engine.url, seconds=self._until - self._since)

    def outage(self, since: float = 0.0) -> dict[str, float]:
        seconds = (now() if self._away else self._until) - max(self._since, since)
        return {"outage": seconds} if seconds > 0 else {}
