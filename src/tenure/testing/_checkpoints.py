"""Checks that a block yields to other tasks, which is when it can be cancelled."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tenure.waiting import this_task

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def assert_checkpoints() -> Generator[None]:
    """A `with` block, inside an async function, that must yield to other tasks at least once.

    Raises `AssertionError` if it ran through in one go. A block that raises is not checked. On trio, the block must
    also have been cancellable, as trio's own check demands; asyncio does not show that.
    """
    if not isinstance(this_task(), asyncio.Task):
        from trio import testing

        with testing.assert_checkpoints():
            yield
        return
    with _gave_way() as others_ran:
        yield
    if not others_ran:
        raise AssertionError("the block executed no checkpoint")


@contextmanager
def assert_no_checkpoints() -> Generator[None]:
    """A `with` block, inside an async function, that must run through in one go.

    Raises `AssertionError` if it gave way to other tasks, even if it raised an error of its own.
    """
    if not isinstance(this_task(), asyncio.Task):
        from trio import testing

        with testing.assert_no_checkpoints():
            yield
        return
    with _gave_way() as others_ran:
        try:
            yield
        finally:
            if others_ran:
                raise AssertionError("the block executed a checkpoint")


@contextmanager
def _gave_way() -> Generator[list[bool]]:
    """A list that is filled as soon as anything else runs: asyncio runs what was scheduled first, first."""
    others_ran: list[bool] = []
    handle = asyncio.get_running_loop().call_soon(others_ran.append, True)
    try:
        yield others_ran
    finally:
        handle.cancel()
