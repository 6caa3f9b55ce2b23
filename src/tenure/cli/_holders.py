"""`tenure lock ls`, `tenure claims ls` and `tenure leader ls`: holders and waiters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tenure.engine import HOLDERS, Holder, Scan
from tenure.observe import printable
from tenure.shared import break_holder
from tenure.store import Store, names, read_pages
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
from ._commands import run_one
from ._errors import UsageError
from ._table import columns_of_terminal, spoken, table
from ._with_store import parser, with_store

_LOCKS = ("lock", "rwlock", "semaphore")
_HELP = """\
usage: tenure lock ls | break ...

  ls                      locks, read-write locks and semaphores that are held, their waiters, and deadlocks
  break NAME --token N    take one from a holder that is stuck: its block raises LeaseLost, and the next waiter gets it

See also `tenure lock COMMAND --help`."""
_BROKEN = (
    'broken; the block of its holder is cancelled and raises LeaseLost ("broken"), which ends its whole program unless'
    " the program catches it"
)
_token = partial(whole_number, least=1, most=2**63 - 1)


def lock(words: Sequence[str]) -> int:
    """Run `tenure lock`. Raises `UsageError`, `TenureError`."""
    return run_one("lock", {"ls": _ls, "break": _break}, _HELP, words)


def _ls(words: Sequence[str]) -> int:
    """Return 1 if a deadlock is certain."""
    p = parser(
        "lock ls", "All locks, read-write locks and semaphores that are held, with their holders and waiters."
    )
    args = p.parse_args(words)
    keys, deadlocks = with_store(args, _keys)
    locks = [key for key in keys if key.kind in _LOCKS]
    code = 1 if any(deadlock.certain for deadlock in deadlocks) else 0
    if args.json:
        document = {
            "locks": [_described(key) for key in locks],
            "deadlocks": [described(d) for d in deadlocks],
        }
        return answer(document, code)
    header = ("kind", "name", "", "process", "task", "for", "share", "token")
    rows = [row for key in locks for row in _rows(key)]
    print(table(header, rows, nothing="nothing is held", columns=columns_of_terminal()))
    for deadlock in deadlocks:
        print(f"\n{in_words(deadlock)}")
    return code


def _break(words: Sequence[str]) -> int:
    """Return 1 if the token held nothing."""
    p = parser(
        "lock break",
        "Take a lock, read-write lock or semaphore from a holder that is stuck. Its block raises LeaseLost, which ends"
        " its whole program unless the program catches it.",
    )
    p.add_argument("name", metavar="NAME", help="what it holds")
    p.add_argument("--kind", choices=_LOCKS, default="lock", help="what that is (default: %(default)s)")
    p.add_argument(
        "--token", metavar="N", required=True, type=_token, help="of the holder; tenure lock ls lists them"
    )
    args = p.parse_args(words)

    async def task(store: Store) -> bool:
        return await break_holder(store, store.key(args.kind, args.name), args.token)

    broken = with_store(args, task)
    document = {"name": args.name, "token": args.token, "broken": broken}
    text = f"{args.name}: {_BROKEN if broken else 'nothing changed: the token holds nothing'}"
    return say(args, document, text, not broken)


async def _keys(store: Store) -> tuple[tuple[SeenKey, ...], tuple[Deadlock, ...]]:
    keys = await read_keys(store, await names(store, "holds"))
    return keys, await find_deadlocks(store, keys)


def _rows(key: SeenKey) -> Iterator[tuple[str, ...]]:
    for does, holders in (("holds", key.holders), ("waits", key.waiting)):
        for holder in holders:
            share = "" if key.capacity == 1 else _share(key, holder)
            token = str(holder.token) if holder.token else ""
            yield key.kind, key.name, does, holder.process, task_of(holder), spoken(holder.age), share, token


def _share(key: SeenKey, holder: Holder) -> str:
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


def _holder(key: SeenKey, holder: Holder) -> dict[str, Any]:
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
    """A deadlock in words, a line for each waiter; processes are named by `name`."""
    lines = [f"{'deadlock' if deadlock.certain else 'possible deadlock'}, for {spoken(deadlock.seconds)}:"]
    for w in deadlock.waits:
        waiter = f"{name(w.process)} task {w.task}" if w.task and deadlock.certain else name(w.process)
        lines.append(printable(f"  {waiter} holds {', '.join(w.holds) or 'nothing'} and waits for {w.key}"))
    if deadlock.behind:
        lines.append(f"  {deadlock.behind:,} more wait behind these")
    return "\n".join(lines)


def claims(words: Sequence[str]) -> int:
    """Run `tenure claims ls`. Raises `UsageError`, `TenureError`."""
    p = parser(
        "claims ls",
        "The resources of all pools, or of one: which are claimed by which process, and how many tasks wait.",
    )
    p.add_argument("pool", metavar="POOL", nargs="?", help="only this pool")
    args = p.parse_intermixed_args(_ls_only("claims", words))
    pools = with_store(args, partial(_pools, args.pool))
    if args.json:
        return answer({"pools": [_pool(pool) for pool in pools]})
    rows = [
        (
            pool.name,
            r.resource,
            r.state,
            f"{r.claimed} of {r.slots}",
            r.process,
            str(r.preference),
            spoken(r.rest) if r.rest else "",
            r.reason,
        )
        for pool in pools
        for r in pool.page.rows
    ]
    header = ("pool", "resource", "state", "claimed", "process", "preference", "rests for", "reason")
    nothing = printable(f"pool {args.pool} has no resources") if args.pool else "there are no resources"
    print(table(header, rows, nothing=nothing, columns=columns_of_terminal()))
    for pool in pools:
        if pool.page.waiting:
            print(printable(f"{pool.page.waiting:,} wait for a resource of {pool.name}"))
    return 0


async def _pools(only: str | None, store: Store) -> tuple[SeenPool, ...]:
    return await read_pools(store, await names(store, "pools") if only is None else [store.key("pool", only)])


def _pool(pool: SeenPool) -> dict[str, Any]:
    # metadata may hold secrets, such as the keys that a pool lends
    shown = ("resource", "state", "process", "preference", "token", "rest", "reason", "slots", "claimed")
    return {
        "name": pool.name,
        "waiting": pool.page.waiting,
        "resources": [{name: getattr(r, name) for name in shown} for r in pool.page.rows],
    }


def leader(words: Sequence[str]) -> int:
    """Run `tenure leader [ls]`; return 1 if the named election has no leader. Raises `UsageError`, `TenureError`."""
    p = parser(
        "leader [ls]",
        "The leaders and the number of candidates, of all elections that have a leader, or of one.",
    )
    p.add_argument("name", metavar="NAME", nargs="?", help="only this election")
    args = p.parse_intermixed_args(words[1:] if words[:1] == ["ls"] else words)
    keys = with_store(args, partial(_elections, args.name))
    code = 1 if args.name is not None and not any(key.holders for key in keys) else 0
    if args.json:
        return answer({"leaders": [_leader(key) for key in keys]}, code)
    rows = [
        (
            key.name,
            node.decode("utf-8", "replace"),
            holder.process,
            spoken(holder.age),
            str(holder.token),
            len(key.waiting),
        )
        for key in keys
        for holder in key.holders
        for node in (holder.value,)
    ]
    header = ("election", "leader", "process", "for", "term", "candidates")
    nothing = "no election has a leader" if args.name is None else f"election {args.name} has no leader"
    print(table(header, rows, nothing=printable(nothing), columns=columns_of_terminal()))
    return code


async def _elections(only: str | None, store: Store) -> list[SeenKey]:
    if only is None:
        prefix = store.prefix("election")
        keys = [name for name in await names(store, "holds") if name.startswith(prefix)]
        return list(await read_keys(store, keys))
    answered = await read_pages(store, Scan(HOLDERS, store.key("election", only)))
    return [SeenKey("election", only, answered.capacity, answered.used, answered.holders, answered.waiting)]


def _leader(key: SeenKey) -> dict[str, Any]:
    leader = key.holders[0] if key.holders else None
    return {
        "election": key.name,
        "leader": leader.value.decode("utf-8", "replace") if leader else None,
        "process": leader.process if leader else None,
        "seconds": leader.age if leader else None,
        "term": leader.token if leader else None,
        "candidates": len(key.waiting),
    }


def _ls_only(command: str, words: Sequence[str]) -> Sequence[str]:
    match words:
        case ["ls", *arguments]:
            return arguments
        case ["--help" | "-h"]:
            return words
        case _:
            raise UsageError(f"write tenure {command} ls (see tenure {command} ls --help)")
