"""What engines for tests have in common on whose links batches travel."""

from __future__ import annotations

import anyio

from tenure.engine import Engine
from tenure.store._dispatch import Home
from tenure.testing._batch_link import BatchLink


def at_home():
    """A home that is here."""
    home = Home()
    home.settle()
    return home


class Wire(Engine):
    """A subclass says in `execute` what it answers; it gives no hints."""

    url = "wire:"

    def link(self):
        return BatchLink(self)

    async def serve(self, process, deliver, *, task_status):
        task_status.started()
        await anyio.sleep_forever()
