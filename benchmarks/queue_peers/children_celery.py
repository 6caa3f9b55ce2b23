# /// script
# dependencies = ["celery==5.7.0", "packaging==25.0", "redis==8.1.0"]
#
# [tool.tenure-benchmarks]
# contests = ["children_redis"]
# loops = ["8 threads"]
# counts = { fan_out = 1000 }
# ///
"""Celery: a chord. The worker is a process of its own, with a pool of threads; this one puts the chord and waits."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from celery import Celery, chord

from benchmarks.queue_peers._children import finish, words

app = Celery("bench", broker=os.environ.get("CHILDREN"), backend=os.environ.get("CHILDREN"))


@app.task(name="no_op")
def no_op(number: int) -> int:
    return number


@app.task(name="gather")
def gather(numbers: list[int]) -> int:
    return sum(numbers)


def fan_out(n: int) -> int:
    return chord([no_op.s(number) for number in range(n)])(gather.s()).get()


def main() -> None:
    path, loop, n = words()
    url = f"redis+socket://{path}"
    app.conf.update(broker_url=url, result_backend=url)
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "benchmarks.queue_peers.children_celery",
        "worker",
        "-P",
        "threads",
    ]
    worker = subprocess.Popen(
        [*command, "-c", loop.split()[0]],
        env={**os.environ, "CHILDREN": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        fan_out(2)  # the worker is awake
        began = time.perf_counter()
        gathered = fan_out(n)
        seconds = time.perf_counter() - began
    finally:
        worker.kill()
    finish("celery", n, seconds, gathered)


if __name__ == "__main__":
    main()
