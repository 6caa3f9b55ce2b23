"""`tenure limiter`: the bookings of a rate limiter, and the end of its hold."""

from __future__ import annotations

from collections.abc import Sequence

import tenure.engine as e
from tenure.limits import Limit
from tenure.shared import RateLimiter
from tenure.store import Store, handle_of, read_pages

from ._answer import answer, say
from ._commands import Commands, run_one
from ._one_queue import name_of
from ._table import spoken, table
from ._with_store import parser, with_store

HELP = """\
usage: tenure limiter COMMAND NAME

  show NAME               the bookings of each limit, and for how long it is held off
  release NAME            end a hold of it: those that wait go on at the rate

The store keeps no list of limiters, nor their rates: these are in the programs."""


def limiter(words: Sequence[str]) -> int:
    return run_one("limiter", _COMMANDS, HELP, words)


async def _status(store: Store, name: str) -> e.LimiterStatus:
    handle = handle_of(store)
    return (await read_pages(handle, e.Scan(e.LIMITER, handle.key("rate", name)))).rows[0]


def _show(words: Sequence[str]) -> int:
    p = parser("limiter show", "The bookings of each limit of a limiter, and for how long it is held off.")
    p.add_argument("name", metavar="NAME", type=name_of, help="the limiter")
    args = p.parse_args(words)
    status = with_store(args, lambda store: _status(store, args.name))
    # the name of a limit is its period and its unit
    booked = [(debt.amount, *debt.name.partition(" ")[::2]) for debt in status.debts]
    if args.json:
        limits = [{"unit": unit, "per": float(per), "booked": amount} for amount, per, unit in booked]
        return answer({"name": args.name, "held_off": status.held_off, "limits": limits})
    rows = [(f"{amount:g}", unit, spoken(float(per))) for amount, per, unit in booked]
    print(table(("booked", "unit", "per"), rows, nothing=f"nothing is booked of {args.name}"))
    if status.held_off:
        print(f"held off for {spoken(status.held_off)}")
    return 0


def _release(words: Sequence[str]) -> int:
    p = parser("limiter release", "End a hold of a limiter, in all processes. Bookings stay.")
    p.add_argument("name", metavar="NAME", type=name_of, help="the limiter")
    args = p.parse_args(words)

    async def task(store: Store) -> float:
        before = await _status(store, args.name)
        await RateLimiter(store, args.name, Limit(1)).hold_off(0)
        return before.held_off

    left = with_store(args, task)
    text = f"held off no longer: {spoken(left)} were left" if left else "nothing changed: it was not held off"
    return say(args, {"name": args.name, "held_off": left}, f"{args.name}: {text}")


_COMMANDS: Commands = {"show": _show, "release": _release}
