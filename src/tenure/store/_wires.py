"""The wires of a store: one for each lane of its engine, so that what is away in one does not stop the others."""

from __future__ import annotations

from typing import Any

from tenure.engine import Engine, Operation, name_in
from tenure.errors import StoreUnavailable

from ._home import Home
from ._wire import Wire


class Wires:
    """The wires to an engine: one for each lane, and where there are several one more for what concerns all of them.

    Thread safety: none.
    """

    def __init__(self, engine: Engine, home: Home | None = None) -> None:
        self._engine: Any = engine
        lanes = getattr(engine, "lanes", 1)
        home = home or Home()
        self.all = tuple(Wire(engine, home) for _ in range(lanes + (lanes > 1)))
        self._only = self.all[0] if lanes == 1 else None

    @property
    def pending(self) -> int:
        """How many operations are not yet answered."""
        return sum(wire.pending for wire in self.all)

    @property
    def down(self) -> StoreUnavailable | None:
        """Why a part of the engine cannot be reached at the moment."""
        return next((wire.down for wire in self.all if wire.down is not None), None)

    def of(self, name: str) -> Wire:
        """The one for an object or a session of that name; without a name, for what concerns all."""
        return self._only or self.all[self._engine.lane(name) if name else -1]

    def carrier(self, operation: Operation[Any]) -> Wire:
        """The one for an operation."""
        return self._only or self.of(name_in(operation))

    async def settled(self) -> None:
        """Wait until nothing is pending. Cancellation: has no effect."""
        for wire in self.all:
            await wire.settled()

    def close(self, why: str) -> None:
        """Nothing is carried any more: whoever still waits for an answer gets `StoreClosed`."""
        for wire in self.all:
            wire.close(why)
