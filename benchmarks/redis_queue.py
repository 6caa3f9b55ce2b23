"""The work queue on Redis beside others' queues, each in a process and an environment of its own.

Ours leases, fences and stores a result for each task; so do streaq, SAQ, arq and taskiq, but for the fence. dramatiq
acknowledges and keeps no results, huey pops its tasks. All on a private server over a unix socket, logging off; a
worker's tasks are put before its time begins, and it ends when the last handler was called. Peers that have no trio
are compared with ours on trio by their figure on asyncio. streaq needs a server of version 7. No-op tasks are worked
off once as they are taken by default, and once with tasks leased ahead, as dramatiq does by default.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._measure import LOOPS, ROUNDS
from benchmarks.queue_peers._environments import PEERS, python_with
from benchmarks.redis_locks import server

ROOT = Path(__file__).parents[1]
OURS, AHEAD = "ours", "ours_ahead"
Result = dict[str, Any]
Contestant = tuple[str, str]
"""A module of `queue_peers`, and the loop or the threads in which it runs."""

WORKS: dict[str, dict[str, int]] = {
    # how many tasks, by module: about a second each
    "drain": {
        OURS: 20_000, AHEAD: 20_000, "streaq": 2_000, "saq": 2_500, "arq": 640, "taskiq": 2_500, "dramatiq": 5_000,
        "huey": 8_000,
    },
    "put": {
        OURS: 10_000, "streaq": 2_000, "saq": 4_000, "arq": 4_000, "taskiq": 3_000, "dramatiq": 6_000, "huey": 15_000,
    },
    "put_many": {OURS: 30_000, "streaq": 5_000},
    "wake": {OURS: 200, "taskiq": 200},
    "idle": {OURS: 50} | dict.fromkeys(PEERS, 30),  # tenths of a second
}  # fmt: skip


def measured(path: str, work: str, contestant: Contestant, n: int) -> Result:
    """What a contestant gives; "missing" says why there is nothing."""
    module, loop = contestant
    python = sys.executable if module in (OURS, AHEAD) else python_with(module)
    if python is None:
        return {"name": module, "missing": "cannot be installed"}
    command = [python, "-m", f"benchmarks.queue_peers.{module}", path, loop, work, str(n)]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return {"name": module, "missing": "did not end"}
    if ran.returncode:
        reasons = [line.strip(" |") for line in ran.stderr.splitlines() if ": " in line]
        return {"name": module, "missing": reasons[-1] if reasons else f"ended with {ran.returncode}"}
    return json.loads(ran.stdout)


def rounds(work: str, *, smoke: bool) -> dict[Contestant, Result]:
    """The contestants take turns, each on an empty server; the median of each figure."""
    own = [module for module in (OURS, AHEAD) if module in WORKS[work]]
    contestants: list[Contestant] = [(module, "asyncio") for module in own]
    if not smoke:
        contestants = [(module, loop) for module in own for loop in LOOPS]
        contestants += [(peer, loop) for peer in PEERS if peer in WORKS[work] for loop in PEERS[peer][1]]
    seen: dict[Contestant, list[Result]] = {contestant: [] for contestant in contestants}
    for _ in range(1 if smoke or work == "idle" else ROUNDS):
        for contestant, results in seen.items():
            if not any("missing" in result for result in results):
                n = 1 if smoke else WORKS[work][contestant[0]]
                with server() as path:
                    results.append(measured(path, work, contestant, n))
    return {contestant: medians(results) for contestant, results in seen.items()}


def medians(results: list[Result]) -> Result:
    last = results[-1]
    if "missing" in last:
        return last
    return {
        key: value if isinstance(value, str) else median(result[key] for result in results)
        for key, value in last.items()
    }


def compared(
    work: str,
    results: dict[Contestant, Result],
    key: str,
    unit: str,
    goals: dict[str, str],
    scale: float = 1,
    store: str = "Redis",
    who: str = OURS,
) -> Iterator[dict[str, Any]]:
    """Ours on each loop beside each peer; `goals` by module, "" for all."""
    for loop in (loop for loop in LOOPS if (who, loop) in results):
        ours = scale * results[who, loop][key]
        for place in _opponents(loop, results):
            peer = results.get(place, {"name": "no peer", "missing": "a smoke run"})
            value = scale * peer.get(key, nan)
            name = f"{peer['name']} {place[1]}" if "threads" in place[1] else peer["name"]
            yield {
                "work": f"{store}: {work}",
                "loop": loop,
                "ours": ours,
                "peer": value,
                "peer_name": f"{name} ({peer['missing']})" if "missing" in peer else name,
                "ratio": ours / value if unit == "1/s" else value / ours if ours else inf,
                "unit": unit,
                "goal": goals.get(place[0], goals.get("", "")),
            }


def _opponents(loop: str, results: dict[Contestant, Result]) -> list[Contestant]:
    """Those on the same loop, in threads, or on asyncio if they have no such loop."""
    places = [(peer, place) for peer, place in results if peer not in (OURS, AHEAD)]
    found = [
        (peer, place)
        for peer, place in places
        if place == loop or "threads" in place or (place == "asyncio" and (peer, loop) not in places)
    ]
    return found or [("", "")]


def run(smoke: bool) -> list[dict[str, Any]]:
    """Measure everything."""
    drain = rounds("drain", smoke=smoke)
    put, put_many = rounds("put", smoke=smoke), rounds("put_many", smoke=smoke)
    wake, idle = rounds("wake", smoke=smoke), rounds("idle", smoke=smoke)
    fast = {"dramatiq": ">= 8x on uvloop", "streaq": ">= 15x"}
    no_worse = {"taskiq": "no worse"}
    return [
        *compared("no-op tasks", drain, "tasks", "1/s", fast),
        *compared("no-op tasks, fetched ahead", drain, "tasks", "1/s", fast, who=AHEAD),
        *compared("client CPU for a task", drain, "cpu", "us", {}, 1e6),
        *compared("server CPU for a task", drain, "server_cpu", "us", {}, 1e6),
        *compared("round trips for a task", drain, "reads", "", {"": "<= 0.05"}),
        *compared("commands for a task, in scripts too", drain, "commands", "", {}),
        *compared("put by 32 callers", put, "tasks", "1/s", {"": ">= 10,000/s"}),
        *compared("put in batches of 100", put_many, "tasks", "1/s", {"": ">= 60,000/s"}),
        *compared("idle wake-up, p50", wake, "p50", "ms", no_worse),
        *compared("idle wake-up, p99", wake, "p99", "ms", no_worse),
        *compared("commands a second when idle", idle, "commands", "", {"": "<= 1"}),
        *compared("connections, worker and producer", idle, "connections", "", {"": "2 (1 each)"}),
    ]
