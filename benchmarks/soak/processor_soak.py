"""Kills processes of a processor so many times, and says whether all held.

    python -m benchmarks.soak processor --kills 200 --store redis      # or sqlite, postgres

Three processes on three loops run one processor, with claims, connections, a rate, a lock and circuit breakers, and put
tasks into it. They are killed, frozen and told to end; the server is restarted. After every twenty kills the queue is
worked off, what happened is judged by the referees beside this file, and nothing may be left on the engine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import anyio
from redis_servers import RedisServer

from benchmarks.soak import evidence
from benchmarks.soak.postgres import PostgresServer
from benchmarks.soak.processor_fleet import ProcessorFleet
from benchmarks.soak.processor_trial import ProcessorTrial, ProcessorVerdict

TRIAL = 20
# The child of a killed server that rewrites its file keeps the connections open, and nobody hears that it is dead.
AOF = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")


@contextmanager
def server(store: str, folder: Path):
    """A private server whose data outlive it; none for SQLite."""
    if store == "sqlite":
        yield None
        return
    private = PostgresServer(folder) if store == "postgres" else RedisServer(folder, *AOF)
    private.start()
    try:
        yield private
    finally:
        private.kill()


async def soak(folder: Path, kills: int, store: str, seed: int, histories: Path | None) -> ProcessorVerdict:
    total = ProcessorVerdict()
    fleet = ProcessorFleet(folder)
    try:
        while (left := kills - total.killed.total()) > 0 and not total.violations:
            place = folder / str(total.killed.total())
            place.mkdir()
            began = time.monotonic()
            with server(store, place) as of:
                chance = random.Random(f"{seed}:{place.name}")
                trial = ProcessorTrial(of, fleet, place, chance, histories=histories)
                verdict = await trial.run(min(left, TRIAL))
            print(f"{trial.name} ({time.monotonic() - began:.1f} s): {verdict}", flush=True)
            total += verdict
            if not verdict.violations:
                shutil.rmtree(place)
    finally:
        fleet.close()
    return total


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak processor", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--store", choices=["redis", "sqlite", "postgres"], default="redis")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--histories", type=Path, metavar="FOLDER", help="keep the histories, for benchmarks.soak.check"
    )
    parser.add_argument("--record", action="store_true", help="add the run to recorded.jsonl")
    chosen = parser.parse_args(arguments)
    # the path of a socket has to be short
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    print(f"{chosen.store}, seed {chosen.seed}", flush=True)
    began = time.monotonic()
    total = anyio.run(soak, folder, chosen.kills, chosen.store, chosen.seed, chosen.histories)
    print(f"in {time.monotonic() - began:.0f} s: {total}")
    for what, counts in (("kills", total.killed), ("all faults", total.suffered)):
        print(f"{what}:", ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    if chosen.record:
        kills, seen = total.killed.total(), total.seen
        evidence.put_on_record(
            seed=chosen.seed,
            kills=kills,
            writes=seen["writes"],
            tasks=seen["tasks"],
            violations=len(total.violations),
        )
    if total.violations:
        print(*total.violations[:20], sep="\n\n")
        print(f"the history is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0
