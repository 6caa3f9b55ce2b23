"""The handlers that come along do what they say."""

from __future__ import annotations

import hashlib
import random
import time

import anyio
import pytest

import tenure
from tenure.examples import digest, flaky, nap, words


@pytest.mark.parametrize("seed", range(20))
def test_digest_counts_across_its_chunks(here, monkeypatch, seed):
    monkeypatch.setattr("tenure.examples._digest._CHUNK", 7)
    data = bytes(random.Random(seed).choices(b"ab \n\t", k=100 * (seed > 0)))
    (here / "file").write_bytes(data)
    assert digest(str(here / "file")) == {
        "sha256": hashlib.sha256(data).hexdigest(),
        "words": len(data.split()),
        "lines": data.count(b"\n"),
        "bytes": len(data),
    }


def test_digest_of_nothing():
    with pytest.raises(FileNotFoundError):
        digest("no such file")


def test_words():
    assert words(" one  two\t") == 2


async def test_nap():
    start = time.monotonic()
    assert await nap("0.05") == 0.05
    assert time.monotonic() - start >= 0.045
    with pytest.raises(ValueError, match="could not convert"):
        await nap("long")


async def test_flaky_fails_as_it_says():
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(store, "x", retry=tenure.Retry(2, backoff=0))
        await queue.put_many([*map(str, range(50)), "never"])
        worker = tenure.Worker(queue, flaky)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.join()
            await worker.drain()
    seen = worker.statistics()
    assert (seen.done, seen.dead) == (50, 1)
    assert 2 < seen.retried < 30
