"""Being inside of something: what it started is, until it is over, and nothing is remembered for ever."""

import anyio

from tenure.local import _reentrancy
from tenure.local._reentrancy import Reentrancy, is_reentrant


def depth():
    within, number = _reentrancy._innermost.get(), 0
    while within is not None:
        within, number = within.outer, number + 1
    return number


async def test_what_is_started_inside_is_inside_until_it_is_over():
    seen = {}

    async def inside():
        within = Reentrancy("outer")
        async with anyio.create_task_group() as group:
            group.start_soon(started)
            await anyio.lowlevel.checkpoint()
        within.over = True
        seen["after"] = is_reentrant("outer")

    async def started():
        Reentrancy("inner")
        seen["started"] = is_reentrant("outer"), is_reentrant("inner"), is_reentrant("other")

    async with anyio.create_task_group() as group:
        group.start_soon(inside)
    assert seen == {"started": (True, True, False), "after": False}
    assert not is_reentrant("outer")


async def test_one_after_the_other_they_do_not_pile_up():
    depths = []

    async def work():
        for _ in range(10):
            within = Reentrancy("subject")
            depths.append(depth())
            within.over = True

    async with anyio.create_task_group() as group:
        group.start_soon(work)
    assert set(depths) == {1}


async def test_the_same_is_not_what_is_only_equal():
    async def work():
        Reentrancy([1])
        assert not is_reentrant([1])

    async with anyio.create_task_group() as group:
        group.start_soon(work)
