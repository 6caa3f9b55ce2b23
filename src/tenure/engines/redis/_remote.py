"""What stores see of a server and of a cluster alike."""

from __future__ import annotations

from tenure.engine._remote import Remote

from ._calls import hint
from ._replicas import to_be_asked


class RemoteRedis(Remote):
    """Redis over the network; with `replicas` a hint tells no more than to ask.

    Thread safety: none; one engine belongs to one event loop.
    """

    def __init__(self, place: object, replicas: int | None) -> None:
        super().__init__(place)
        self._replicas = replicas

    def _hear(self, process: str, message: bytes) -> None:
        told = hint(process, message)
        self._deliver(to_be_asked(told) if self._replicas else told)
