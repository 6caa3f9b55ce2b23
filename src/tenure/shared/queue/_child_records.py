from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import tenure.engine as e
from tenure.shared._listing import Page
from tenure.store import Codec, StoreHandle, decoded, read_pages

from ._family import CHILD, RELEASE


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """A child of a task, or a release, as the record of its parent has it.

    `name` is the name of its block of children, "/" and its name there, `id` its id in the queue `queue`. `state` is
    "unfinished", or how the child has ended: "done", "dead", "discarded", "cancelled", "expired" or "purged". A release
    has the name of its naming, and may be "held" (it has not begun) or "kept".
    `value` has the bytes of its result or error, and `codec` decodes results.
    """

    name: str
    id: int
    queue: str
    state: str
    value: bytes = field(repr=False)
    codec: Codec[Any] = field(repr=False, compare=False)

    @property
    def result(self) -> Any:
        """The result of a done child, decoded at each reading; None of any other child.

        Raises `ValueError` for a result that the codec refuses.
        """
        if self.state != "done" or not self.value:
            return None
        return decoded(self.codec, f"{self.queue}: the result of task {self.id}", self.value)

    @property
    def error(self) -> str | None:
        """The reason why the child has ended in another way than "done", or None."""
        return None if self.state == "done" else self.value.decode() or None


class Kin(NamedTuple):
    """The first unfinished child of a task that waits, else its first unfinished release; and its releases by name.

    The first 256 releases are read.
    """

    child: ChildRecord | None = None
    releases: tuple[ChildRecord, ...] = ()


NO_KIN = Kin()


def queue_in(store: StoreHandle, key: str) -> str:
    return key.removeprefix(store.prefix("queue"))


def _child_of(entry: e.Entry, store: StoreHandle) -> ChildRecord:
    name = entry.name.removeprefix(RELEASE if entry.kind == "release" else CHILD)
    return ChildRecord(name, entry.id, queue_in(store, entry.queue), entry.state, entry.value, store.codec)


async def read_children(
    store: StoreHandle, key: str, task_id: int, after: str, limit: int
) -> Page[ChildRecord]:
    children: list[ChildRecord] = []
    scan = e.Scan(e.ENTRIES, key, CHILD + after, only=str(task_id))
    while True:
        page = await store.call(replace(scan, limit=min(e.CAP, limit - len(children))))
        assert not isinstance(page, e.Reply)
        children += [_child_of(entry, store) for entry in page.rows if entry.name.startswith(CHILD)]
        behind = page.next if page.next.startswith(CHILD) else ""
        if not behind or len(children) == limit:
            return Page(children, behind.removeprefix(CHILD) or None)
        scan = replace(scan, after=behind)


async def read_kin(store: StoreHandle, key: str, record: e.Record) -> Kin:
    """Read the first unfinished child of a task that waits, and the releases of a task."""
    scan, child = e.Scan(e.UNFINISHED_CHILDREN, key, only=str(record.id)), None
    waits = record.children > 0 and record.state in ("suspended", "ending")
    if waits:
        page = await read_pages(store, scan, 1, patient=True)
        child = next((_child_of(entry, store) for entry in page.rows), None)
    if not record.releases:
        return Kin(child)
    page = await read_pages(store, replace(scan, index=e.ENTRIES, after=RELEASE), e.CAP, patient=True)
    releases = tuple(_child_of(entry, store) for entry in page.rows if entry.kind == "release")
    if waits and child is None:
        child = next((release for release in releases if release.state == "unfinished"), None)
    return Kin(child, releases)
