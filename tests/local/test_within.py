"""Being inside of something: what it started is, until it is over, and nothing is remembered for ever."""

import anyio

from tenure.local import _within
from tenure.local._within import Within, is_within


def depth():
    within, number = _within._innermost.get(), 0
    while within is not None:
        within, number = within.outer, number + 1
    return number


async def test_what_is_started_inside_is_inside_until_it_is_over():
    seen = {}

    async def inside():
        within = Within("outer")
        async with anyio.create_task_group() as group:
            group.start_soon(started)
            await anyio.lowlevel.checkpoint()
        within.over = True
        seen["after"] = is_within("outer")

    async def started():
        Within("inner")
        seen["started"] = is_within("outer"), is_within("inner"), is_within("other")

    async with anyio.create_task_group() as group:
        group.start_soon(inside)
    assert seen == {"started": (True, True, False), "after": False}
    assert not is_within("outer")


async def test_one_after_the_other_they_do_not_pile_up():
    depths = []

    async def work():
        for _ in range(10):
            within = Within("subject")
            depths.append(depth())
            within.over = True

    async with anyio.create_task_group() as group:
        group.start_soon(work)
    assert set(depths) == {1}


async def test_the_same_is_not_what_is_only_equal():
    async def work():
        Within([1])
        assert not is_within([1])

    async with anyio.create_task_group() as group:
        group.start_soon(work)
