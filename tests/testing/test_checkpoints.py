import anyio
import pytest

from tenure.testing import assert_checkpoints, assert_no_checkpoints

pytestmark = pytest.mark.backends("asyncio", "trio", "uvloop")


async def nothing():
    pass


async def test_a_checkpoint_is_seen():
    with assert_checkpoints():
        await anyio.lowlevel.checkpoint()
    with assert_checkpoints():
        await anyio.sleep(0)


async def test_its_absence_is_seen():
    with pytest.raises(AssertionError):
        with assert_checkpoints():
            await nothing()


async def test_one_go_is_let_pass():
    with assert_no_checkpoints():
        await nothing()


async def test_a_checkpoint_that_must_not_be_is_seen():
    with pytest.raises(AssertionError):
        with assert_no_checkpoints():
            await anyio.lowlevel.checkpoint()


async def test_a_checkpoint_that_must_not_be_is_seen_beside_an_error():
    with pytest.raises(AssertionError) as caught:
        with assert_no_checkpoints():
            await anyio.lowlevel.checkpoint()
            raise KeyError
    assert isinstance(caught.value.__context__, KeyError)


@pytest.mark.parametrize("check", [assert_checkpoints, assert_no_checkpoints])
async def test_an_error_passes(check):
    with pytest.raises(KeyError):
        with check():
            raise KeyError


async def test_others_that_run_are_not_mistaken_for_it():
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(anyio.lowlevel.checkpoint)
        with assert_no_checkpoints():
            await nothing()
        with pytest.raises(AssertionError):
            with assert_checkpoints():
                await nothing()


async def test_inside_a_cancelled_scope():
    with anyio.CancelScope() as scope:
        scope.cancel()
        with assert_checkpoints():
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_a_lock_that_gives_way_in_a_shielded_scope_is_let_pass():
    lock = anyio.Lock()
    with assert_checkpoints():
        await lock.acquire()
    lock.release()


async def test_a_block_that_cannot_be_cancelled_is_seen_on_trio_alone(anyio_backend_name):
    seen = False
    try:
        with assert_checkpoints():
            await anyio.lowlevel.cancel_shielded_checkpoint()
    except AssertionError:
        seen = True
    assert seen == (anyio_backend_name == "trio")
