"""`tenure top`: a store, live, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from shutil import get_terminal_size

import anyio

from tenure.errors import StoreUnavailable
from tenure.store import Store, handle_of
from tenure.upkeep import unwrapped_task_group
from tenure.web import Flow, Flows, View, document, read_view

from ._answer import answer
from ._arguments import seconds
from ._frame import frame
from ._keyboard import draw, other_screen, pressed
from ._stop import Stop
from ._table import spoken
from ._with_store import parser, with_store

_MOST = 500
"""The largest number of objects of each kind that is read."""

_TIMEOUT = 3.0
_BETWEEN = 0.5


def top(words: Sequence[str]) -> int:
    p = parser(
        "top",
        "Queues, processes, holders and waiters, live; without a terminal, once. q or Ctrl-C ends it.",
    )
    p.add_argument(
        "--every", metavar="S", type=seconds, default=1.0, help="seconds between frames (default: 1)"
    )
    args = p.parse_args(words)
    if args.json:
        return with_store(args, _answer)
    if not sys.stdout.isatty():
        with_store(args, _print)
    else:
        with_store(args, partial(_live, args.every))
    return 0


async def _look_twice(store: Store) -> tuple[View, dict[str, Flow]]:
    # rates need two looks
    flows = Flows()
    flows.add(await read_view(handle_of(store), _MOST))
    await anyio.sleep(_BETWEEN)
    view = await read_view(handle_of(store), _MOST)
    return view, flows.add(view)


async def _answer(store: Store) -> int:
    return answer(document(store.url, store.namespace, *await _look_twice(store)))


async def _print(store: Store) -> None:
    view, flows = await _look_twice(store)
    columns, lines = get_terminal_size((80, 24))
    print("\n".join(frame(store.url, view, flows, columns, lines - 1, colour=sys.stdout.isatty())))


async def _live(every: float, store: Store) -> None:
    with other_screen(sys.stdout):
        async with unwrapped_task_group() as group:
            stop = Stop(group.cancel_scope, lambda _: None)
            await group.start(stop.listen)
            with stop.ends():
                group.start_soon(_draw, every, store)
                await pressed("qQ\x03")
            group.cancel_scope.cancel()


async def _draw(every: float, store: Store) -> None:
    flows, seen = Flows(), anyio.current_time()
    view = await read_view(handle_of(store), _MOST)
    now = flows.add(view)
    while True:
        trouble = ""
        with suppress(StoreUnavailable), anyio.move_on_after(_TIMEOUT):
            view = await read_view(handle_of(store), _MOST)
            now, seen = flows.add(view), anyio.current_time()
        if (silence := anyio.current_time() - seen) >= _TIMEOUT:
            trouble = f"no answer for {spoken(silence)}; this is what was seen last"
        draw(sys.stdout, frame(store.url, view, now, *get_terminal_size(), trouble=trouble))
        await anyio.sleep(every)
