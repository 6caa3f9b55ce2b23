from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from anyio import CancelScope

import tenure.engine as e
from tenure.store import Codec, Store, StoreHandle, handle_of
from tenure.waiting import checkpoint, this_task

T = TypeVar("T")

STEP, CHILD, SIGNAL, RELEASE = "step/", "child/", "signal/", "release/"
UNKEPT = "step!"
"""The prefix of steps that have run, and whose values could not be kept: their values say why."""
BEGUN = "step?"
"""The prefix of steps that were begun with a `find`, before their first call."""


class FamilySource(Protocol):
    store: Store
    key: str


class HandlerScope:
    __slots__ = ("cancel", "host", "scope")

    def __init__(self, scope: CancelScope) -> None:
        self.scope: CancelScope = scope
        self.cancel: Callable[[str], None] = scope.cancel
        self.host: object = this_task()


class Family:
    """The entries of a task as one delivery of it reads and writes them.

    `wait` is the verdict that suspends the delivery. `left` is true if a block of children was left before they had
    ended, `progressed` if the delivery has stored a value.
    """

    __slots__ = (
        "_entries",
        "_stored",
        "codec",
        "id",
        "key",
        "left",
        "progressed",
        "put",
        "store",
        "token",
        "used",
        "wait",
    )

    def __init__(self, queue: FamilySource, task_id: int, token: int, entries: int) -> None:
        self.store: StoreHandle = handle_of(queue.store)
        self.store.check_families()
        self.codec: Codec[Any] = queue.store.codec
        self.key: str = queue.key
        self.id: int = task_id
        self.token: int = token
        self.used: set[str] = set()
        self.wait: e.Settle | None = None
        self.left: bool = False
        self.progressed: bool = False
        self.put: int = 0
        self._stored: dict[str, dict[str, e.Entry]] = {}
        self._entries = entries

    def __str__(self) -> str:
        return f"{self.key} task {self.id}"

    def use(self, name: str, what: str) -> None:
        if name in self.used:
            raise RuntimeError(f"{what} was used before in this delivery of {self}: use another name")
        self.used.add(name)

    async def found(self, prefix: str, name: str) -> e.Entry | None:
        """The entry of that name, as it was at the first call for the `prefix`. To find one is a checkpoint."""
        if (entry := (await self.stored(prefix)).get(name)) is not None:
            await checkpoint()
        return entry

    async def stored(self, prefix: str) -> dict[str, e.Entry]:
        """The entries whose names begin with `prefix`, as at the first call; the keys lack the prefix."""
        if (known := self._stored.get(prefix)) is None:
            known = self._stored[prefix] = await self.read(prefix)
        return known

    async def read(self, prefix: str) -> dict[str, e.Entry]:
        found: dict[str, e.Entry] = {}
        after = prefix if self._entries else ""
        while after:
            page = await self.store.call(e.Scan(e.ENTRIES, self.key, after, only=str(self.id)), patient=True)
            assert isinstance(page, e.Page)
            entries = [entry for entry in page.rows if entry.name.startswith(prefix)]
            found.update((entry.name.removeprefix(prefix), entry) for entry in entries)
            after = page.next if len(entries) == len(page.rows) else ""
        return found

    async def children(self) -> dict[str, e.Entry]:
        if (known := self._stored.get(CHILD)) is None:
            known = await self.read(CHILD)
            last = max((entry.ended for entry in known.values()), default=0)
            if sum(entry.ended > 0 for entry in known.values()) < last:
                # a child may have ended when its page was read, and another one before the next page was
                again = await self.read(CHILD)
                known.update((name, entry) for name, entry in again.items() if entry.ended <= last)
            self._stored[CHILD] = known
        return known

    def unfinished(self) -> int:
        return self.put + sum(entry.state == "unfinished" for entry in self._stored[CHILD].values())

    def check_room(self, answer: T | e.TooMany) -> T:
        if isinstance(answer, e.TooMany):
            raise RuntimeError(f"{self} has {answer.most} entries, which is the most")  # noqa: TRY004 no argument
        return answer

    async def write(self, name: str, value: bytes) -> bytes | e.Reply:
        """Store a value, unless an earlier sending of it arrived. Returns the value on record, or the refusal."""
        operation = e.SetEntry(self.key, self.id, self.token, name, value)
        answer = self.check_room(await self.store.call(operation, patient=True))
        self.progressed |= answer is e.Reply.OK or isinstance(answer, e.Entry)
        if isinstance(answer, e.Entry):
            return answer.value
        return value if answer is e.Reply.OK else answer
