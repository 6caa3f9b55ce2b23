"""`tenure limiter`: rate limiters that make callers wait, their bookings, and the end of a hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.store import Store, handle_of, names
from tenure.web import described_limiter, read_limiters, release_limiter

from ._answer import answer, say
from ._commands import Commands, run_one
from ._one_queue import name_of
from ._table import spoken, table
from ._with_store import parser, with_store

HELP = """\
usage: tenure limiter COMMAND

  ls                      the limiters that are held off or make callers wait
  show NAME               the bookings of each limit, and for how long it is held off
  release NAME            end a hold of it: those that wait go on at the rate

The store lists no other limiters, knows no rates, and does not tell which callers wait."""


def limiter(words: Sequence[str]) -> int:
    return run_one("limiter", _COMMANDS, HELP, words)


async def _read(store: Store, name: str | None) -> list[dict[str, Any]]:
    handle = handle_of(store)
    keys = await names(handle, "limiters") if name is None else [handle.key("rate", name)]
    return [described_limiter(*limiter) for limiter in (await read_limiters(handle, keys)).items()]


def _ls(words: Sequence[str]) -> int:
    p = parser("limiter ls", "The limiters that are held off or make callers wait; times are the longest.")
    args = p.parse_args(words)
    found = with_store(args, lambda store: _read(store, None))
    if args.json:
        return answer({"limiters": found})
    rows = [
        (
            limiter["name"],
            *(spoken(limiter[time]) if limiter[time] else "-" for time in ("held_off", "waits")),
            ", ".join(f"{b['booked']:g} {b['unit']} per {spoken(b['per'])}" for b in limiter["limits"])
            or "-",
        )
        for limiter in found
    ]
    header = ("limiter", "held off for", "callers wait for", "booked")
    print(table(header, rows, nothing="no limiter makes a caller wait"))
    return 0


def _show(words: Sequence[str]) -> int:
    p = parser("limiter show", "The bookings of each limit of a limiter, and for how long it is held off.")
    p.add_argument("name", metavar="NAME", type=name_of, help="the limiter")
    args = p.parse_args(words)
    (shown,) = with_store(args, lambda store: _read(store, args.name))
    if args.json:
        return answer(shown)
    rows = [(f"{limit['booked']:g}", limit["unit"], spoken(limit["per"])) for limit in shown["limits"]]
    print(table(("booked", "unit", "per"), rows, nothing=f"nothing is booked of {args.name}"))
    for time, text in (("held_off", "held off"), ("waits", "callers wait")):
        if shown[time]:
            print(f"{text} for {spoken(shown[time])}")
    return 0


def _release(words: Sequence[str]) -> int:
    p = parser("limiter release", "End a hold of a limiter, in all processes. Bookings stay.")
    p.add_argument("name", metavar="NAME", type=name_of, help="the limiter")
    args = p.parse_args(words)
    left = with_store(args, lambda store: release_limiter(store, args.name))
    text = f"held off no longer: {spoken(left)} were left" if left else "nothing changed: it was not held off"
    return say(args, {"name": args.name, "held_off": left}, f"{args.name}: {text}")


_COMMANDS: Commands = {"ls": _ls, "show": _show, "release": _release}
