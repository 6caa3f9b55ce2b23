"""Works on a private server for as long as it takes to do so many faults, and says whether all held.

    python -m benchmarks.soak redis --faults 10000 --seed 7

Four processes on three loops hand on locks, permits and claims, and work off a queue and two whose tasks have groups,
while they are killed and frozen, the server is frozen, restarted, paused and short of memory, connections are cut and
replies lost. After every hundred faults all comes to an end, what happened is judged by the referees of
`referees`, and nothing may be left on the server. In one trial of four the clock leaps; there, only fences are
judged. It stops at the first violation, and says where the history lies. Faults are drawn by the seed, but when they
hit is up to the machine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import anyio
from redis_servers import RedisServer

from benchmarks.soak import evidence, families, gateway, machines, names, processor_soak, resharding, sentinel
from benchmarks.soak.fleet import Fleet
from benchmarks.soak.judging import Verdict
from benchmarks.soak.trial import Trial

TRIAL = 100
AOF = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "1mb")


async def soak(folder: Path, faults: int, seed: int, histories: Path | None) -> Verdict:
    total = Verdict()
    (folder / "redis").mkdir()
    server = RedisServer(folder / "redis", *AOF)
    server.start()
    fleet = Fleet(folder)
    print(f"Redis {'.'.join(map(str, server.version))}, seed {seed}", flush=True)
    try:
        while (left := faults - total.suffered.total()) > 0 and not total.violations:
            number = total.suffered.total() // TRIAL
            chance = random.Random(f"{seed}:{number}")
            trial = Trial(server, fleet, folder, chance, clock=number % 4 == 3, histories=histories)
            began = time.monotonic()
            verdict = await trial.run(min(left, TRIAL))
            print(f"{trial.name} ({time.monotonic() - began:.1f} s): {verdict}", flush=True)
            total += verdict
            if not verdict.violations:
                for file in folder.glob(f"{trial.name}.*"):
                    file.unlink()
    finally:
        fleet.close()
        server.kill()
    return total


def main() -> int:
    others = {
        "families": families,
        "gateway": gateway,
        "machines": machines,
        "names": names,
        "processor": processor_soak,
        "resharding": resharding,
        "sentinel": sentinel,
    }
    if sys.argv[1:2] and sys.argv[1] in others:
        return others[sys.argv[1]].main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=["redis"])
    parser.add_argument("--faults", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--histories", type=Path, metavar="FOLDER", help="keep the histories, for benchmarks.soak.check"
    )
    parser.add_argument("--record", action="store_true", help="add the run to recorded.jsonl")
    arguments = parser.parse_args()
    # the path of a socket has to be short
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    began = time.monotonic()
    total = anyio.run(soak, folder, arguments.faults, arguments.seed, arguments.histories)
    print(f"in {time.monotonic() - began:.0f} s: {total}")
    print("faults:", ", ".join(f"{name} {n}" for name, n in sorted(total.suffered.items())))
    if arguments.record:
        kills, seen = total.suffered["kill_process"], total.seen
        evidence.put_on_record(
            seed=arguments.seed,
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


if __name__ == "__main__":
    sys.exit(main())
