"""`tenure holders`: the holders and waiters of keys; it breaks a stuck hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import tenure.engine as e
from tenure.observe import printable
from tenure.shared import break_holder
from tenure.store import Store, handle_of, names
from tenure.web import (
    READERS,
    Deadlock,
    SeenKey,
    SeenPool,
    described,
    find_deadlocks,
    read_keys,
    read_pools,
    task_of,
)

from ._answer import answer, say
from ._arguments import whole_number
from ._table import columns_of_terminal, many, spoken, table
from ._with_store import parser, with_store

_LOCKS = ("lock", "rwlock", "semaphore")
_KINDS = (*_LOCKS, "leader", "claim")
_BROKEN = (
    'broken; the block of its holder is cancelled and raises LeaseLost ("broken"), which ends its whole program unless'
    " the program catches it"
)
_token = partial(whole_number, least=1, most=2**63 - 1)


def holders(words: Sequence[str]) -> int:
    """Return 1 if a deadlock is certain, or the named election has no leader."""
    if words[:1] == ["break"]:
        return _break(words[1:])
    p = parser(
        "holders",
        "Who holds locks, read-write locks and semaphores, who waits for them, and deadlocks; the leaders of elections;"
        " the resources of pools. See also tenure holders break --help.",
    )
    p.add_argument("kind", metavar="KIND", nargs="?", choices=_KINDS, help=f"only {', '.join(_KINDS)}")
    p.add_argument("name", metavar="NAME", nargs="?", help="only this one")
    args = p.parse_intermixed_args(words)
    document, tables, code = with_store(args, partial(_seen, args.kind, args.name))
    if args.json:
        return answer(document, code)
    print(
        "\n\n".join(tables)
        or printable(f"nothing is held: no {args.kind or 'holder'} {args.name or ''}".rstrip())
    )
    return code


async def _seen(kind: str | None, name: str | None, store: Store) -> tuple[dict[str, Any], list[str], int]:
    handle = handle_of(store)
    document: dict[str, Any] = {}
    tables: list[str] = []
    code = 0
    keys = () if kind == "claim" else await read_keys(handle, await names(handle, "holds"))
    chosen = [key for key in keys if name in (None, key.name)]
    columns = columns_of_terminal()
    if kind is None or kind in _LOCKS:
        locks = [key for key in chosen if key.kind in _LOCKS and kind in (None, key.kind)]
        deadlocks = await find_deadlocks(handle, keys)
        code = 1 if any(deadlock.certain for deadlock in deadlocks) else 0
        document["locks"] = [_described(key) for key in locks]
        document["deadlocks"] = [described(d) for d in deadlocks]
        header = ("kind", "name", "", "process", "task", "for", "share", "token")
        if rows := [row for key in locks for row in _rows(key)]:
            tables.append(table(header, rows, nothing="", columns=columns))
        tables += [in_words(deadlock) for deadlock in deadlocks]
    if kind in (None, "leader"):
        led = [key for key in chosen if key.kind == "election" and key.holders]
        document["leaders"] = [_leader(key) for key in led]
        code = 1 if kind == "leader" and name is not None and not led else code
        if led:
            rows = [tuple(_leader(key).values()) for key in led]
            rows = [(*row[:3], spoken(row[3]), str(row[4]), row[5]) for row in rows]
            header = ("election", "leader", "process", "for", "term", "candidates")
            tables.append(table(header, rows, nothing="", columns=columns))
    if kind in (None, "claim"):
        pools = await read_pools(
            handle,
            await names(handle, "pools") if name is None or kind is None else [handle.key("pool", name)],
        )
        pools = tuple(pool for pool in pools if name in (None, pool.name))
        document["pools"] = [_pool(pool) for pool in pools]
        header = ("pool", "resource", "state", "claimed", "process", "preference", "rests for", "reason")
        lines = [
            printable(f"{many(pool.page.waiting, 'waits', 'wait')} for a resource of {pool.name}")
            for pool in pools
            if pool.page.waiting
        ]
        if rows := [row for pool in pools for row in _resources(pool)]:
            lines.insert(0, table(header, rows, nothing="", columns=columns))
        tables += ["\n".join(lines)] if lines else []
    return document, tables, code


def _break(words: Sequence[str]) -> int:
    """Return 1 if the token held nothing."""
    p = parser(
        "holders break",
        "Take a lock, read-write lock or semaphore from a holder that is stuck. Its block raises LeaseLost, which ends"
        " its whole program unless the program catches it.",
    )
    p.add_argument("kind", metavar="KIND", choices=_LOCKS, help=", ".join(_LOCKS))
    p.add_argument("name", metavar="NAME", help="the name of the lock")
    p.add_argument("--token", metavar="N", required=True, type=_token, help="of the holder, as listed")
    args = p.parse_args(words)

    async def task(store: Store) -> bool:
        handle = handle_of(store)
        return await break_holder(handle, handle.key(args.kind, args.name), args.token)

    broken = with_store(args, task)
    document = {"name": args.name, "token": args.token, "broken": broken}
    text = f"{args.name}: {_BROKEN if broken else 'nothing changed: the token holds nothing'}"
    return say(args, document, text, not broken)


def _rows(key: SeenKey) -> Iterator[tuple[str, ...]]:
    for does, holders in (("holds", key.holders), ("waits", key.waiting)):
        for holder in holders:
            share = "" if key.capacity == 1 else _share(key, holder)
            token = str(holder.token) if holder.token else ""
            yield key.kind, key.name, does, holder.process, task_of(holder), spoken(holder.age), share, token


def _share(key: SeenKey, holder: e.Holder) -> str:
    if key.capacity == READERS:
        return "write" if holder.weight == READERS else "read"
    return f"{holder.weight:,} of {key.capacity:,}"


def _described(key: SeenKey) -> dict[str, Any]:
    return {
        "kind": key.kind,
        "name": key.name,
        "capacity": key.capacity,
        "used": key.used,
        "holders": [_holder(key, holder) for holder in key.holders],
        "waiting": [_holder(key, holder) for holder in key.waiting],
    }


def _holder(key: SeenKey, holder: e.Holder) -> dict[str, Any]:
    shown = {
        "process": holder.process,
        "task": task_of(holder),
        "seconds": holder.age,
        "token": holder.token,
        "weight": holder.weight,
    }
    if key.capacity == READERS:
        shown["mode"] = _share(key, holder)
    return shown


def in_words(deadlock: Deadlock, name: Callable[[str], str] = str) -> str:
    lines = [f"{'deadlock' if deadlock.certain else 'possible deadlock'}, for {spoken(deadlock.seconds)}:"]
    for w in deadlock.waits:
        waiter = f"{name(w.process)} task {w.task}" if w.task and deadlock.certain else name(w.process)
        lines.append(printable(f"  {waiter} holds {', '.join(w.holds) or 'nothing'} and waits for {w.key}"))
    if deadlock.behind:
        lines.append(f"  {many(deadlock.behind, 'more waits', 'more wait')} behind these")
    return "\n".join(lines)


def _resources(pool: SeenPool) -> Iterator[tuple[str, ...]]:
    for r in pool.page.rows:
        rests = spoken(r.rest) if r.rest else ""
        claimed = f"{r.claimed} of {r.slots}"
        yield pool.name, r.resource, r.state, claimed, r.process, str(r.preference), rests, r.reason


def _pool(pool: SeenPool) -> dict[str, Any]:
    # metadata may hold secrets, such as the keys that a pool lends
    shown = ("resource", "state", "process", "preference", "token", "rest", "reason", "slots", "claimed")
    return {
        "name": pool.name,
        "waiting": pool.page.waiting,
        "resources": [{name: getattr(r, name) for name in shown} for r in pool.page.rows],
    }


def _leader(key: SeenKey) -> dict[str, Any]:
    (leader, *_) = key.holders
    return {
        "election": key.name,
        "leader": leader.value.decode("utf-8", "replace"),
        "process": leader.process,
        "seconds": leader.age,
        "term": leader.token,
        "candidates": len(key.waiting),
    }
