"""The one who leads a run: it is finished when all is on record, the results too."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.from_thread

import tenure
from tenure import LeaseLost
from tenure.cli._arguments import Options
from tenure.cli._stop import Stop
from tenure.cli.run._leader import INPUT, RunLeader
from tenure.cli.run._lines import Lines
from tenure.cli.run._record import Record
from tenure.cli.run._results import Results


class LostAtTheEnd(Results):
    """Loses the lead when nothing is left but to write the results, the first time."""

    lost = False

    async def follow(self, queue, lease, over):
        if not self.lost:
            await over.wait()
            self.lost = True
            raise LeaseLost("run", "expired")
        await super().follow(queue, lease, over)


async def test_a_lead_that_is_lost_while_the_results_are_written_is_taken_again(here):
    (here / "in.txt").write_text("a\nb\nc\n")

    async def shout(task: tenure.Task):
        return task.payload.upper()

    async with tenure.open_store("memory:") as store:
        record = Record(store, "x", Options("m:f"))
        await record.begin({}, fresh=False, timeout=1)
        results = LostAtTheEnd(Path("r.jsonl"))
        queue = record.queue(1)
        worker = tenure.Worker(queue, shout)
        stop = Stop(anyio.CancelScope(), print)
        leader = RunLeader(record, 1, Lines(("in.txt",)), results, worker, stop, print)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            with anyio.fail_after(50):
                await leader.see_through()
        assert leader.finished
        assert await results.is_complete(queue)
    assert len((here / "r.jsonl").read_text().splitlines()) == 3


class Overtaken(Lines):
    """While it reads for the first time, another process leads and puts the same, as after a lock that was lost."""

    elsewhere = None

    def read(self):
        portion = super().read()
        if self.elsewhere is not None:
            elsewhere, self.elsewhere = self.elsewhere, None
            anyio.from_thread.run(elsewhere, portion)
        return portion


async def test_a_leader_that_was_followed_without_noticing_puts_nothing_twice(here):
    (here / "in.txt").write_text("a\nb\nc\n")

    async def shout(task: tenure.Task):
        return task.payload.upper()

    async with tenure.open_store("memory:") as store:
        record = Record(store, "x", Options("m:f"))
        await record.begin({}, fresh=False, timeout=1)
        queue, worker = record.queue(1), tenure.Worker(record.queue(1), shout)

        async def lead(portion):
            await queue.put_many(portion.items, cursor=(INPUT, portion.position), expected=None)

        source = Overtaken(("in.txt",))
        source.elsewhere = lead
        stop = Stop(anyio.CancelScope(), print)
        leader = RunLeader(record, 1, source, Results(Path("r.jsonl")), worker, stop, print)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            with anyio.fail_after(50):
                await leader.see_through()
        assert leader.finished
        assert (await queue.statistics()).put == 3
    assert len((here / "r.jsonl").read_text().splitlines()) == 3
