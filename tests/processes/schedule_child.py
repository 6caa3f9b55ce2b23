"""A process that runs a schedule for the tests beside it: `schedule_child.py LOOP URL SKEW`.

Its clock is wrong by SKEW seconds.
"""

from __future__ import annotations

import sys
import time

import anyio

real_time = time.time


async def main(url: str) -> None:
    """Run the schedule until it is killed."""
    import tenure

    async with tenure.open_store(url) as store:
        await tenure.Schedule(tenure.WorkQueue(store, "jobs"), "often", every=0.25, missed="all").run()


if __name__ == "__main__":
    loop, where, skew = sys.argv[1:]
    time.time = lambda: real_time() + float(skew)
    anyio.run(main, where, backend=loop)
