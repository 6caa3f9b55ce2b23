"""What the tests of the user's own transactions look at, on a file and on a server."""

from __future__ import annotations

import signal
import subprocess
import sys

_STATES = ("waiting", "delayed", "leased", "done", "dead", "cancelled", "expired", "discarded", "purged")


async def state_of(queue):
    """How many tasks are in each state that any is in."""
    statistics = await queue.statistics()
    assert await queue.verify()
    return {name: number for name in _STATES if (number := getattr(statistics, name))}


async def work_off_with_kills(queue, child, *arguments, kill_at):
    """Run a program that says each task it has done: killed after so many, again, and at last to the end."""
    script = [sys.executable, "-c", child, *arguments]
    for enough in (*kill_at, None):
        with subprocess.Popen(script, stdout=subprocess.PIPE) as process:
            try:
                for n, _ in enumerate(process.stdout):
                    if n == enough or (await queue.statistics()).unfinished == 0:
                        break
            finally:
                process.send_signal(signal.SIGKILL)
