# /// script
# dependencies = ["dbos==3.4.0"]
#
# [tool.tenure-benchmarks]
# contests = ["children_postgresql"]
# loops = ["asyncio"]
# counts = { fan_out = 1000 }
# ///
"""DBOS: a workflow that starts child workflows in this process, without a queue, and gathers their results."""

from __future__ import annotations

import asyncio
import time

from dbos import DBOS

from benchmarks.queue_peers._children import finish, words


@DBOS.workflow()
async def no_op(number: int) -> int:
    return number


@DBOS.workflow()
async def gather(n: int) -> int:
    handles = [await DBOS.start_workflow_async(no_op, number) for number in range(n)]
    return sum([await handle.get_result() for handle in handles])


async def main() -> None:
    path, _, n = words()
    url = path.replace("postgresql://", "postgresql+psycopg://")
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False})
    DBOS.launch()
    await gather(2)
    began = time.perf_counter()
    gathered = await gather(n)
    finish("dbos", n, time.perf_counter() - began, gathered)


if __name__ == "__main__":
    asyncio.run(main())
