"""What is no store is named as what it is, by every pattern."""

from __future__ import annotations

from functools import partial

import pytest

import tenure
from tenure import (
    Barrier,
    Election,
    Limit,
    Lock,
    RateLimiter,
    ResourcePool,
    RWLock,
    Semaphore,
    WorkQueue,
    blocking,
)
from tenure.processor import Context, Processor


async def handler(task: tenure.Task, context: Context):
    pass


PATTERNS = [
    partial(Barrier, parties=2),
    Election,
    Lock,
    partial(Processor, handler=handler),
    lambda store, name: RateLimiter(store, name, Limit(1)),  # its limits come last
    ResourcePool,
    RWLock,
    partial(Semaphore, permits=1),
    WorkQueue,
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda each: getattr(each, "func", each).__name__)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("redis://localhost", "str"),
        (None, "NoneType"),
        (tenure, "module"),
        (blocking.open_store("memory:"), "tenure.blocking.Store"),
    ],
)
def test_a_wrong_store_is_named(pattern, wrong, said):
    with pytest.raises(TypeError) as caught:
        pattern(wrong, "x")
    assert str(caught.value) == f"store must be an open store, from open_store(...), not {said}"
