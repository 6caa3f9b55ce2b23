"""Steps: parts of a handler that run once on record, so that a later delivery gets what an earlier one has stored."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from tenure.arguments import check_name
from tenure.engine import ENTRIES, Entry, Page, Reply, Scan, SetEntry, TooMany
from tenure.store import Codec, Store, decoded

R = TypeVar("R")

_PREFIX = "step/"


class Source(Protocol):
    """The attributes of a queue that the steps of its tasks need."""

    store: Store
    key: str
    max_payload: int


class Steps:
    """The steps of one delivery of a task; `entries` says whether there may be any of an earlier delivery."""

    __slots__ = ("_codec", "_id", "_key", "_limit", "_store", "_stored", "_token", "_used")

    def __init__(self, queue: Source, task_id: int, token: int, entries: int) -> None:
        self._store = queue.store
        self._codec: Codec[Any] = queue.store.codec
        self._key = queue.key
        self._limit = queue.max_payload
        self._id = task_id
        self._token = token
        self._stored: dict[str, bytes] | None = None if entries else {}
        self._used: set[str] = set()

    async def run(
        self,
        name: str,
        function: Callable[[], Awaitable[R]] | Callable[[], R],
        encode: Callable[[Any], bytes],
    ) -> R | Reply:
        """Return the stored value, or what the function returns once that is stored; the `Reply` of a refusal.

        Raises `RuntimeError` for a name that was used before, and for too many entries.
        Cancellation: the value may or may not be stored.
        """
        self._store.check_families()
        if check_name("name", name) in self._used:
            raise RuntimeError(
                f"name {name!r} was used for an earlier step of this delivery: use another one"
            )
        self._used.add(name)
        if self._stored is None:
            self._stored = await self._read()
        if (data := self._stored.get(name)) is None:
            made = function()
            data = encode(await made if inspect.isawaitable(made) else made)
            answer = await self._store.call(SetEntry(self._key, self._id, self._token, _PREFIX + name, data))
            if isinstance(answer, TooMany):
                raise RuntimeError(
                    f"{self._key} task {self._id} has {answer.most} entries, which is the most"
                )
            if isinstance(answer, Entry):
                data = answer.value  # an earlier sending of the same step arrived
            elif answer is not Reply.OK:
                return answer
        return decoded(self._codec, f"{self._key} task {self._id}: the step {name!r}", data)

    async def _read(self) -> dict[str, bytes]:
        """Read what earlier deliveries have stored."""
        stored: dict[str, bytes] = {}
        after = _PREFIX
        while True:
            page = await self._store.call(Scan(ENTRIES, self._key, after, only=str(self._id)))
            assert isinstance(page, Page)
            steps = [entry for entry in page.rows if entry.name.startswith(_PREFIX)]
            stored.update((entry.name.removeprefix(_PREFIX), entry.value) for entry in steps)
            after = page.next
            if not after or len(steps) < len(page.rows):
                return stored
