"""The results file: written from the store, in the order in which the inputs ended.

The store alone determines the contents: the line of the n-th ending is always the same, at the same place. So (offset,
rank) is recorded after every portion; the process that continues cuts the file back to the offset and writes the lines
after the rank. A frozen writer that writes late writes the same bytes. A store that has lost its last endings gives
their ranks again: the task of the last line then has another rank, and the file is written anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from tenure.cli._answer import as_json
from tenure.cli._errors import Interrupted, UsageError
from tenure.shared import Lease, TaskRecord, WorkQueue

_PAGE = 256
_MOST_BYTES = 4 * 2**20
_PAUSE = 0.5


class Results:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._cursor = f"results:{os.path.realpath(path)}"
        self._offset = 0
        self._rank = self._task = 0
        self._page = _PAGE

    async def check(self, queue: WorkQueue) -> None:
        if await self._recorded(queue) is None and self._size():
            raise UsageError(
                f"--results {self.path} exists and is not of this run; move it away, name another file, or use --fresh"
            )

    async def claim(self, queue: WorkQueue) -> None:
        """Note that the file belongs to a run that begins. Cancellation: it may or may not be noted."""
        if await self._recorded(queue) is None:
            # should another process just have noted more, everything is written again, to the same effect
            await self._note(queue)

    async def is_complete(self, queue: WorkQueue) -> bool:
        offset, self._rank, self._task = await self._recorded(queue) or (-1, 0, 0)
        return offset == self._size() and (await self._ended(queue, 1))[0] == []

    async def follow(self, queue: WorkQueue, lease: Lease, over: anyio.Event) -> None:
        """Write the results of ended inputs, and of inputs as they end, until the run is `over` and all are written.

        Raises `LeaseLost`, `Interrupted` if the file cannot be written.
        Cancellation: results that were not recorded are written again the next time.
        """
        try:
            await self._follow(queue, lease, over)
        except OSError as problem:
            reason = problem.strerror or problem
            raise Interrupted(
                f"--results {self.path}: cannot be written ({reason}); nothing is lost: set that right, and the same"
                " command continues from here"
            ) from problem

    async def _follow(self, queue: WorkQueue, lease: Lease, over: anyio.Event) -> None:
        self._offset, self._rank, self._task = await self._recorded(queue) or (0, 0, 0)
        lease.check()
        if self._cut() < self._offset:  # it was cut or removed: the store still knows all
            self._offset = self._rank = 0
            self._cut()
        await self._note(queue)
        with self.path.open("r+b", buffering=0) as file:
            while True:
                last_round = over.is_set()
                records, more = await self._ended(queue, self._page)
                if records is None:
                    lease.check()
                    self._offset = self._rank = 0
                    self._cut()
                    continue
                if records:
                    await self._append(queue, file, records, lease)
                if more or (records and last_round):
                    continue
                if last_round:
                    return
                with anyio.move_on_after(_PAUSE):
                    await over.wait()

    async def _ended(self, queue: WorkQueue, limit: int) -> tuple[list[TaskRecord] | None, bool]:
        """The endings behind the last line, and True if there are more; None if its ending is gone."""
        page = await queue.tasks("ended").page(str(max(0, self._rank - 1)), limit + 1)
        behind = [record for record in page.records if record.rank > self._rank]
        first = [(record.rank, record.id) for record in page.records[:1]]
        if self._rank and first != [(self._rank, self._task)]:
            return None, False
        return behind[:limit], bool(page.next or behind[limit:])

    async def _recorded(self, queue: WorkQueue) -> tuple[int, int, int] | None:
        return (await queue.cursors()).get(self._cursor)

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _cut(self) -> int:
        with self.path.open("ab") as file:
            size = file.tell()
            if size > self._offset:
                file.truncate(self._offset)
        return size

    async def _append(self, queue: WorkQueue, file: Any, records: list[TaskRecord], lease: Lease) -> None:
        data = b"".join(map(line_of, records))
        # pages of large records shall not be large
        self._page = max(1, min(_PAGE, _MOST_BYTES * len(records) // len(data)))
        lease.check()
        await anyio.to_thread.run_sync(_write, file, self._offset, data)
        self._offset += len(data)
        self._rank, self._task = records[-1].rank, records[-1].id
        await self._note(queue)

    async def _note(self, queue: WorkQueue) -> None:
        await queue.put_many([], cursor=(self._cursor, [self._offset, self._rank, self._task]))


def line_of(record: TaskRecord) -> bytes:
    done = record.state in ("done", "discarded")
    fields = {
        "input": _value(record, "payload"),
        "status": record.state,
        "result": _value(record, "result"),
        "error": record.error,
        "attempts": record.attempts + done,
    }
    return f"{as_json(fields)}\n".encode()


def _value(record: TaskRecord, field: str) -> Any:
    undecoded = record.undecoded.get(field)
    return getattr(record, field) if undecoded is None else undecoded.decode("utf-8", "backslashreplace")


def _write(file: Any, offset: int, data: bytes) -> None:
    file.seek(offset)
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
