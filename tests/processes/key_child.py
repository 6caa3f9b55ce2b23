"""A process for the tests beside it: `key_child.py LOOP URL put|once|work NAME`.

`put` puts with one key for ever, and says each payload before it is put and when it was; `once` puts a task again and
again until it is killed, and says the ids; `work` does what is put, and says that.
"""

from __future__ import annotations

import sys
from itertools import count

import anyio


def say(*words: object) -> None:
    """A line that is there even if the process is killed at once."""
    print(*words, flush=True)  # noqa: T201 - what the test reads


async def main(url: str, what: str, name: str) -> None:
    """Do it until killed."""
    import tenure

    async with tenure.open_store(url, ttl=2) as store:
        queue = tenure.WorkQueue(store, "jobs", max_deliveries=1000)
        if what == "work":
            while True:
                async with queue.take() as task:
                    await anyio.sleep(0.02)
                    say("done", task.token, task.payload)
        for n in count():
            if what == "once":
                say("id", await queue.put("x", key=tenure.Key("once", "keep", ttl=600)))
            else:
                say("putting", f"{name}.{n}")
                await queue.put(f"{name}.{n}", key=tenure.Key("k", "replace", within=0.2), delay=0.05)
                say("put", f"{name}.{n}")
            await anyio.sleep(0.01)


if __name__ == "__main__":
    loop, *where = sys.argv[1:]
    anyio.run(main, *where, backend=loop)
