from __future__ import annotations

import pytest

from tenure import AcquireTimeout, RWLock


async def test_readers_share(open_store_on):
    async with open_store_on() as a, open_store_on() as b:
        async with RWLock(a, "table").read() as one, RWLock(b, "table").read(timeout=0) as two:
            assert two.token > one.token
            assert [party.weight for party in (await RWLock(a, "table").holders().page()).records] == [1, 1]


async def test_a_writer_is_alone(open_store_on):
    async with open_store_on() as a, open_store_on() as b:
        ours, theirs = RWLock(a, "table"), RWLock(b, "table")
        async with ours.write():
            for attempt in (theirs.read(timeout=0), theirs.write(timeout=0)):
                with pytest.raises(AcquireTimeout):
                    async with attempt:
                        pytest.fail("not alone")
        async with ours.read():
            with pytest.raises(AcquireTimeout):
                async with theirs.write(timeout=0):
                    pytest.fail("not alone")


@pytest.mark.parametrize("first", ["read", "write"])
@pytest.mark.parametrize("second", ["read", "write"])
async def test_holding_it_again_in_the_same_task(store, first, second):
    lock = RWLock(store, "table")
    async with getattr(lock, first)():
        with pytest.raises(RuntimeError, match="would wait for itself"):
            async with getattr(RWLock(store, "table"), second)():
                pytest.fail("entered")
    async with getattr(lock, second)():
        pass
    assert not store._handle.entered


async def test_wrong_arguments(store):
    with pytest.raises(ValueError, match="timeout"):
        RWLock(store, "table").read(timeout=-1)
    with pytest.raises(ValueError, match="name"):
        RWLock(store, "")
    with pytest.raises(ValueError, match="ttl"):
        RWLock(store, "table", ttl=0)
