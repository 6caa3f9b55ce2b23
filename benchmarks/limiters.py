"""Rate limiters on Redis beside others', each in a process and an environment of its own.

Ours books ahead, first come first served, and waits in the process; pyrate-limiter waits itself, for `limits` the
caller does, and the way of openlimit asks again and again. "share" is how much of the rate 50 waiting tasks get after
the first second, "overshoot" the most permits within any second, to the rate; a limiter with a burst may admit that
much again after a pause, of which there is none here. What the unluckiest task got is a share of the average.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._measure import LOOPS, ROUNDS
from benchmarks.queue_peers._environments import LIMITER_PEERS, python_with
from benchmarks.redis_locks import server

ROOT = Path(__file__).parents[1]
OURS = "ours"
Result = dict[str, Any]
WORKS = {"admit": {OURS: 30_000}, "wait": {}, "keep": {}}
USUALLY = {"admit": 4_000, "wait": 50, "keep": 5_000}
"""How many calls, tenths of a second, names."""


def measured(path: str, module: str, loop: str, work: str, n: int) -> Result:
    """The figures of a contestant; "missing" says why there are none."""
    python = sys.executable if module == OURS else python_with(module)
    if python is None:
        return {"name": module, "missing": "cannot be installed"}
    command = [python, "-m", f"benchmarks.limiter_peers.{module}", path, loop, work, str(n)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode:
        lines = ran.stderr.splitlines()
        return {"name": module, "missing": lines[-1] if lines else f"ended with {ran.returncode}"}
    return json.loads(ran.stdout)


def rounds(work: str, *, smoke: bool) -> dict[tuple[str, str], Result]:
    """The contestants take turns, each on an empty server; the median of each figure."""
    contestants = [(OURS, loop) for loop in (["asyncio"] if smoke else LOOPS)]
    if not smoke:
        contestants += [(peer, loop) for peer, (_, loops) in LIMITER_PEERS.items() for loop in loops]
    seen: dict[tuple[str, str], list[Result]] = {contestant: [] for contestant in contestants}
    for _ in range(1 if smoke else ROUNDS):
        for (module, loop), results in seen.items():
            if not any("missing" in result for result in results):
                n = 2 if smoke else WORKS[work].get(module, USUALLY[work])
                with server() as path:
                    results.append(measured(path, module, loop, work, n))
    return {contestant: _medians(results) for contestant, results in seen.items()}


def _medians(results: list[Result]) -> Result:
    last = results[-1]
    if "missing" in last:
        return last
    return {
        key: value if isinstance(value, str) else median(result[key] for result in results)
        for key, value in last.items()
    }


def compared(
    work: str,
    results: dict[tuple[str, str], Result],
    key: str,
    unit: str,
    scale: float = 1,
    *,
    more_is_better: bool = False,
    goal: str = "",
) -> Iterator[dict[str, Any]]:
    """Ours on each loop beside each peer on the same, or on asyncio if it has no such loop."""
    for loop in (loop for loop in LOOPS if (OURS, loop) in results):
        mine = results[OURS, loop]
        if "missing" in mine:
            raise RuntimeError(mine["missing"])
        ours = scale * mine[key]
        peers = [
            results.get((peer, loop), results.get((peer, "asyncio")))
            for peer in LIMITER_PEERS
            if (peer, "asyncio") in results
        ]
        for peer in peers or [{"name": "no peer", "missing": "a smoke run"}]:
            assert peer is not None
            value = scale * peer.get(key, float("nan"))
            yield {
                "work": f"limiters on Redis: {work}",
                "loop": loop,
                "ours": ours,
                "peer": value,
                "peer_name": f"{peer['name']} ({peer['missing']})" if "missing" in peer else peer["name"],
                "ratio": ours / value if more_is_better else value / ours,
                "unit": unit,
                "goal": goal,
            }


def run(smoke: bool) -> list[dict[str, Any]]:
    """Measure everything."""
    admit, wait, keep = (rounds(work, smoke=smoke) for work in WORKS)
    more: dict[str, Any] = {"more_is_better": True}
    return [
        *compared("admitted at once, 32 callers", admit, "calls", "1/s", **more),
        *compared("client CPU for a call", admit, "cpu", "us", 1e6),
        *compared("server CPU for a call", admit, "server_cpu", "us", 1e6),
        *compared("round trips for a call", admit, "reads", ""),
        *compared("share of the rate", wait, "share", "", **more, goal="0.99 to 1.01"),
        *compared("most in any second", wait, "overshoot", ""),
        *compared("what the unluckiest task got", wait, "fair", "", **more),
        *compared("commands for a permit", wait, "commands", ""),
        *compared("memory for a name", keep, "bytes", "B"),
    ]
