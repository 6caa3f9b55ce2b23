# /// script
# dependencies = ["dbos==3.4.0", "psycopg[binary]==3.3.9"]
# ///
"""The program of `machines.py` for DBOS, whose `finally` destroys: how many machines are orphans in the end.

    pip install dbos==3.4.0 'psycopg[binary]'
    python benchmarks/soak/machines_dbos.py postgresql://... --machines 1000 --kills 20

A workflow that is cancelled takes no further step, so its `finally` destroys nothing. A worker that was killed is
started again under its own name, which has DBOS go on with its workflows.
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local

from dbos import DBOS, DBOSClient

DOES = ("done", "dead", "cancel", "signal", "stuck", "late", "keep", "hand over")
AT_ONCE = 24
mine = local()
places = []
"""The file of the cloud."""


def cloud():
    """A connection of this thread to the cloud in a file, as in `machines_client.py`."""
    if not hasattr(mine, "db"):
        mine.db = sqlite3.connect(places[0], isolation_level=None, timeout=60)
        mine.db.execute("PRAGMA journal_mode=WAL")
        mine.db.execute("CREATE TABLE IF NOT EXISTS machine (name TEXT PRIMARY KEY, alive INTEGER)")
    return mine.db


@DBOS.step()
def launch(name: str) -> None:
    cloud().execute("INSERT INTO machine VALUES (?, 1) ON CONFLICT DO NOTHING", (name,))
    if not cloud().execute("SELECT alive FROM machine WHERE name = ?", (name,)).fetchone()[0]:
        raise ValueError(f"{name} was destroyed")


@DBOS.step()
def destroy(name: str) -> None:
    cloud().execute("INSERT INTO machine VALUES (?, 0) ON CONFLICT DO UPDATE SET alive = 0", (name,))


@DBOS.workflow()
def own(does: str) -> list[str]:
    names = [f"{DBOS.workflow_id}-{name}" for name in ("first", "second")]
    handed = {"hand over": names, "keep": names[1:]}.get(does, [])
    ends = False
    try:
        for name in names:
            launch(name)
        time.sleep(random.uniform(0, 0.012))
        if does in ("signal", "stuck"):
            DBOS.recv("go", timeout_seconds=600)
        if does == "dead":
            raise ValueError(does)
        ends = True
        return handed
    finally:
        for name in reversed(names):
            if not (ends and name in handed):
                destroy(name)


def work(url: str, name: str) -> None:
    """One worker, until it is killed."""
    config = {"name": "machines", "system_database_url": url, "run_admin_server": False, "executor_id": name}
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue("owners", worker_concurrency=8, polling_interval_sec=0.05)
    while True:
        time.sleep(60)


def soak(url: str, options: argparse.Namespace) -> None:
    chance, began = random.Random(options.seed), time.monotonic()
    client = DBOSClient(system_database_url=url)
    ends, handed = Counter(), set()

    def start(name):
        return subprocess.Popen([sys.executable, __file__, url, "--work", name, "--cloud", places[0]])

    def one(does):
        late = {"workflow_timeout": chance.uniform(0, 0.1)} if does == "late" else {}
        handle = client.enqueue({"queue_name": "owners", "workflow_name": "own", **late}, does)
        if does == "signal":
            client.send(handle.workflow_id, "go", "go")
        if does in ("cancel", "stuck"):
            time.sleep(chance.uniform(0, 0.1 if does == "cancel" else 0.3))
            client.cancel_workflow(handle.workflow_id)
        while (status := handle.get_status().status) in ("ENQUEUED", "PENDING", "DELAYED"):
            time.sleep(0.05)
        ends[status] += 1
        if status == "SUCCESS":
            handed.update(handle.get_result())

    workers = {str(number): start(str(number)) for number in range(3)}
    time.sleep(5)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        owners = [pool.submit(one, chance.choice(DOES)) for _ in range(options.machines // 2)]
        for number in range(options.kills):
            time.sleep(chance.uniform(0.5, 3))  # a worker needs seconds to start
            name = chance.choice(sorted(workers))
            if number % 4 == 3:
                workers[name].send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0, 3))
                workers[name].send_signal(signal.SIGCONT)
            workers[name].kill()
            workers[name] = start(name)
        for owner in owners:
            owner.result()
    time.sleep(5)  # what still runs ends
    for worker in workers.values():
        worker.kill()
    alive = {name for (name,) in cloud().execute("SELECT name FROM machine WHERE alive")}
    print(
        f"{options.machines} machines in {time.monotonic() - began:.0f} s, {len(handed)} handed over, "
        f"{len(alive - handed)} orphans; owners {dict(ends)}, {options.kills} kills"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--cloud", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        places.append(options.cloud)
        work(options.url, options.work)
        return
    with tempfile.TemporaryDirectory() as folder:
        places.append(str(Path(folder) / "cloud"))
        soak(options.url, options)


if __name__ == "__main__":
    main()
