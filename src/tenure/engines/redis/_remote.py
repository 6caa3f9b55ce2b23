"""What stores see of a server and of a cluster alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.engine import CAP, Hint, Notice, Operation, within
from tenure.engine._remote import Remote
from tenure.errors import EngineError

from ._calls import hint
from ._handshake import STRANGE
from ._operations import CALLS
from ._replicas import to_be_asked
from ._resp import pack_one
from ._scripts import script


class RemoteRedis(Remote):
    """Redis over the network; with `replicas` a hint says no more than to ask.

    Thread safety: none; one engine belongs to one event loop.
    """

    def __init__(self, place: object, replicas: int | None, clock: Callable[[], float] | None) -> None:
        super().__init__(place)
        self._replicas = replicas
        self._clock = clock

    def _packed(self, prefix: str, operation: Operation[Any]) -> bytes:
        """An operation on the shard whose keys begin with `prefix`. Raises `EngineError` if it cannot be encoded."""
        call = CALLS[type(operation)]
        try:
            return self._command(prefix, call.script, *call.arguments(within(operation)))
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(
                f"{self.url}: {type(operation).__name__} cannot be encoded: {error!r}"
            ) from error

    def _command(self, prefix: str, name: str, *arguments: Any) -> bytes:
        now = "" if self._clock is None else f"{round(self._clock() * 1e6):016}"
        return pack_one(("EVALSHA", script(name).sha, *self._keys(prefix), now, CAP, *arguments))

    def _keys(self, prefix: str) -> tuple[str, ...]:
        """How many keys a script declares, and which."""
        return "1", prefix

    def _hear(self, process: str, message: bytes) -> None:
        try:
            heard = hint(process, message)
        except STRANGE:
            # somebody else's message: no hint was in it, or one was lost
            heard = Hint(process, "", "", Notice.MISSED)
        self._deliver(to_be_asked(heard) if self._replicas else heard)
