"""Scans: the arguments of `scan.lua`, and the pages that it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any

import tenure.engine as e

from ._codec import Argument, decoder, text
from ._health import health

PAGES = " ".join(e.INDEXES)


def scan(op: e.Scan[Any]) -> tuple[Argument, ...]:
    return op.index.name, op.key, op.after, op.limit, op.only, op.watch


def page(raw: list[Any]) -> e.Page[Any]:
    name, rows, last, *others = raw
    make, row, decoders = _codec(name.decode())
    decoded = [decode(value) for decode, value in zip(decoders, others, strict=True)]
    return make(tuple(map(row, rows)), text(last), *decoded)


@cache
def _codec(name: str) -> tuple[type[e.Page[Any]], Callable[[Any], Any], list[Callable[[Any], Any]]]:
    index = e.INDEXES[name]
    row = _ROWS.get(index.row) or decoder(index.row, index.page)
    return index.page, row, [decoder(hint, index.page) for hint in index.others.values()]


def _limiter(raw: list[Any]) -> e.LimiterStatus:
    status = decoder(e.LimiterStatus, e.Page)(raw)
    return replace(status, debts=tuple(sorted(status.debts, key=attrgetter("name"))))


_ROWS: dict[type[Any], Callable[[Any], Any]] = {e.Health: health, e.LimiterStatus: _limiter}
