"""What stores see of a server and of a cluster alike."""

from __future__ import annotations

from tenure.engine import Hint, Notice
from tenure.engine._remote import Remote

from ._calls import hint
from ._handshake import STRANGE
from ._replicas import to_be_asked


class RemoteRedis(Remote):
    """Redis over the network; with `replicas` a hint tells no more than to ask.

    Thread safety: none; one engine belongs to one event loop.
    """

    def __init__(self, place: object, replicas: int | None) -> None:
        super().__init__(place)
        self._replicas = replicas

    def _hear(self, process: str, message: bytes) -> None:
        try:
            told = hint(process, message)
        except STRANGE:
            # somebody else's message: no hint was in it, or one was lost
            told = Hint(process, "", "", Notice.MISSED)
        self._deliver(to_be_asked(told) if self._replicas else told)
