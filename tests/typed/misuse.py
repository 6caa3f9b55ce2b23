"""What type checkers refuse, although it is refused at run time too. Not run; as in blocks.py.

mypy is strict here: a line without the error that it expects is an error.
"""

import tenure
from tenure import blocking, local


async def wrong_blocks(store: tenure.Store) -> None:
    with tenure.Lock(store, "a"):  # type: ignore[attr-defined]
        pass
    with local.Bulkhead(1).enter():  # type: ignore[attr-defined]
        pass
    with tenure.open_store("memory:"):  # type: ignore[attr-defined]
        pass
    await tenure.Lock(store, "a").hold()  # type: ignore[misc]
    await tenure.WorkQueue[int](store, "a").take()  # type: ignore[misc]


async def wrong_blocks_of_sync_code(store: blocking.Store) -> None:
    async with blocking.Lock(store, "a"):  # type: ignore[attr-defined]
        pass
    await blocking.Lock(store, "a").hold()  # type: ignore[misc]


def wrong_arguments(store: tenure.Store) -> None:
    tenure.Lock(store, "a", timeout=5)  # type: ignore[call-arg]
    tenure.RateLimiter(store, "a", 100)  # type: ignore[arg-type]
