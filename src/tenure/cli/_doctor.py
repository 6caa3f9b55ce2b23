"""`tenure doctor URL`: checks a store, and reports each problem in a line with its remedy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import anyio

import tenure.engine as e
from tenure.engines import open_store
from tenure.errors import EngineError, StoreUnavailable
from tenure.observe import printable
from tenure.shared import QueueFigures, WorkQueue
from tenure.store import Store, handle_of, names, read_pages

from ._answer import answer
from ._arguments import store_option, store_url
from ._backup import last_backup
from ._errors import UsageError
from ._table import one_line, spoken
from ._with_store import check_place, file_of, parser

_PINGS = 20
_TIMEOUT = 10.0
_SLOW = 0.1
_CLOCKS_APART = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    url: str
    facts: dict[str, str]
    problems: tuple[str, ...]
    ping: float | None = None
    clock_skew: float | None = None


def doctor(words: Sequence[str]) -> int:
    p = parser(
        "doctor",
        "Connect to a store, examine it, and report problems. Exits with 1 if there are any.",
    )
    p.add_argument("url", metavar="URL", nargs="?", help="the store, as with --store")
    p.add_argument("--repair", action="store_true", help="delete entries of indexes that cannot be read")
    args = p.parse_intermixed_args(words)
    if args.url and args.store:
        raise UsageError("name the store once: as URL or with --store")
    named = args.url or args.store
    url = store_url(named)
    if url.partition(":")[0].lower() != "memory":
        check_place(url, store_option(named))
    with warnings.catch_warnings():
        # this finds the faults, too, of which opening a store warns
        warnings.simplefilter("ignore", RuntimeWarning)
        finding = anyio.run(_examine, url, args.namespace, args.repair)
    code = 1 if finding.problems else 0
    if args.json:
        return answer({"ok": not finding.problems, **asdict(finding)}, code)
    for name, value in finding.facts.items():
        print(printable(f"{name:<20} {value}"))
    for problem in finding.problems:
        print(printable(f"problem: {problem}"))
    if not finding.problems:
        print("nothing is wrong")
    return code


async def _examine(url: str, namespace: str, repair: bool) -> Finding:
    try:
        store = open_store(url, namespace=namespace)
    except ValueError as problem:
        raise UsageError(str(problem)) from problem
    except ModuleNotFoundError as problem:
        return Finding(url.partition(":")[0] + ":", {}, (str(problem),))
    try:
        async with store:
            with anyio.fail_after(_TIMEOUT):
                return await _look(store, file_of(url), repair=repair)
    except TimeoutError:
        problem = f"no answer within {_TIMEOUT:g} s: look at the server and the network"
    except (EngineError, StoreUnavailable) as error:
        problem = str(error)
    return Finding(store.url, {}, (problem,))


async def _not_undone(store: Store) -> list[str]:
    problems: list[str] = []
    for name, counts in (await QueueFigures(store).statistics()).items():
        if not counts.dead:
            continue
        page = await WorkQueue[Any](store, name).tasks("dead").page(limit=e.CAP)
        if letters := [record for record in page.records if record.release is not None]:
            first, are = letters[0], "are" if letters[1:] else "is"
            problems.append(
                f"{len(letters):,} of {name} {are} not undone, such as {first.release} of task {first.parent} of"
                f" {first.parent_queue} ({one_line(first.error or '')}): mend that, then `tenure queue requeue {name}`"
            )
    return problems


async def _look(store: Store, file: Path | None, *, repair: bool) -> Finding:
    handle = handle_of(store)
    pings = sorted([await store.ping() for _ in range(_PINGS)])
    parts = (await read_pages(handle, e.Scan(e.HEALTH))).rows
    examined = parts[0]
    if repair:
        await handle.call(e.Ping(repair=True))
    kinds = {kind: len(await names(handle, kind)) for kind in ("queues", "holds", "pools", "sessions")}
    problems = list(dict.fromkeys(problem for part in parts for problem in part.problems))
    problems += await _not_undone(store)
    if median(pings) > _SLOW:
        problems.append(
            f"a round trip takes {spoken(median(pings))}: run closer to the server, or look at its load and the network"
        )
    if abs(examined.clock_skew) > _CLOCKS_APART:
        word = "ahead of" if examined.clock_skew > 0 else "behind"
        problems.append(
            f"the engine's clock is {spoken(abs(examined.clock_skew))} {word} this machine's: leases are not affected,"
            " but tokens and logs have other times; synchronise the clocks (NTP)"
        )
    facts = {
        "store": store.url,
        **dict(examined.facts),
        "round trip": f"{spoken(median(pings))} (median of {_PINGS}), at most {spoken(pings[-1])}",
        "clock": f"{examined.clock_skew:+.3f} s against this machine's",
        "in namespace": f"{store.namespace}: queues {kinds['queues']:,}, keys held {kinds['holds']:,},"
        f" pools {kinds['pools']:,}; open sessions in all namespaces {kinds['sessions']:,}",
        **({} if file is None else {"last backup": last_backup(file)}),
    }
    return Finding(store.url, facts, tuple(problems), median(pings), examined.clock_skew)
