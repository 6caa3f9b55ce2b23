"""Contests whose contestants each run in a process of their own, and peers in an environment of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from benchmarks._measure import LOOPS, NOBODY, Result, Row, Size, figure_of, in_turn, row
from benchmarks._peers import CONTESTS, measured, peers_of

Contestant = tuple[str, str]
"""A module, and the loop or the threads in which it runs."""
Results = dict[Contestant, list[Result]]
"""By contestant, its figures in each round."""


def contest(
    name: str,
    work: str,
    ours: Mapping[str, int],
    place: Callable[[], AbstractContextManager[str]],
    size: Size,
    *,
    redis: int = 0,
    once: bool = False,
    one_loop: bool = False,
    timeout: float = 30,
) -> Results:
    """Let ours and the peers of the contest `name` do a work in turn, each on a fresh server or database.

    `ours` are modules of ours, and how much each does; `redis` is the version of the server that `place` has. A
    contestant has `timeout` seconds for each round. There are two, or one: with `once` and in quick runs, which leave
    out the peers with `once`. With `one_loop`, nothing runs on more than one. Raises BadHeader.
    """
    package, _ = CONTESTS[name]
    peers = {peer: entry for peer, entry in peers_of(name).items() if work in entry.counts}
    if size.smoke or not size.peers or (once and size.name == "quick"):
        peers = {}
    # of a peer, the first, or all
    loops = 1 if one_loop or size.name != "full" else None
    contestants = [(module, loop) for module in ours for loop in size.loops[:loops]]
    contestants += [(peer, loop) for peer, entry in peers.items() for loop in entry.loops[:loops]]

    def measure(module: str, loop: str) -> Result:
        peer = peers.get(module)
        if peer and redis < peer.redis:
            return {"name": module, "missing": f"needs Redis {peer.redis}"}
        n = peer.counts[work] if peer else ours[module]
        with place() as path:
            words = path, loop, work, str(size.of(1, max(1, n // 4), n))
            return measured(f"{package}.{module}", peer, *words, timeout=timeout)

    return in_turn(contestants, measure, size.of(1, 1, 1 if once else 2))


def compared(
    work: str,
    results: Results,
    key: str,
    unit: str = "1/s",
    goals: Mapping[str, str] | None = None,
    *,
    scale: float = 1,
    who: str = "ours",
    more_is_better: bool | None = None,
    difference: bool = False,
) -> Iterator[Row]:
    """Ours on each loop beside each peer; `goals` by module, "" for all."""
    goals = goals or {}
    for loop in (loop for loop in LOOPS if (who, loop) in results):
        mine = results[who, loop]
        if "missing" in mine[-1]:
            raise RuntimeError(f"{who} on {loop}: {mine[-1]['missing']}")
        for place in _opponents(loop, [place for place in results if not place[0].startswith("ours")]):
            theirs = results.get(place, [{"name": NOBODY, "missing": "left out"}])
            shown = f"{theirs[-1]['name']} {place[1]}" if "threads" in place[1] else theirs[-1]["name"]
            yield row(
                work,
                loop,
                {"ours": figure_of(mine, key, scale), "peer": figure_of(theirs, key, scale)},
                "peer",
                shown=shown,
                unit=unit,
                less_is_better=unit != "1/s" if more_is_better is None else not more_is_better,
                goal=goals.get(place[0], goals.get("", "")),
                missing=theirs[-1].get("missing", ""),
                difference=difference,
            )


def _opponents(loop: str, places: list[Contestant]) -> list[Contestant]:
    """Those on the same loop, in threads, or on asyncio if they have no such loop."""
    found = [
        (peer, place)
        for peer, place in places
        if place == loop or "threads" in place or (place == "asyncio" and (peer, loop) not in places)
    ]
    return found or [("", "")]
