"""Selections of tasks: read in pages of an index, of which this process keeps the tasks that match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Literal, TypedDict, cast

from tenure.arguments import LONGEST_NAME, check_count, check_flag, check_seconds, check_text
from tenure.engine import CAP, TASKS, Move, MovedCount, Page, Record, Reply, Scan
from tenure.store import Store

from ._failures import read
from ._groups import check_group, shown_group
from ._meta import decode_meta, encode_meta

Matches = Callable[[Record], bool]

_ENDED = frozenset({"done", "discarded", "cancelled", "expired"})
"""The states whose tasks only the index of ended tasks has."""


class Selection(TypedDict, total=False):
    """The options by which tasks are selected, for methods that select: `**selection: Unpack[Selection]`."""

    older_than: float | None
    """The age in seconds that a task exceeds: since it became ready, was taken, or ended. None: any."""
    group: str | None
    """The group of the tasks; "": the tasks without a group. None: any."""
    key_prefix: str | None
    """The beginning of the keys of the tasks. None: any, and tasks without a key."""
    error: str | type[BaseException] | None
    """The type, or the name of the type, of the exception that ended the last try. None: any."""
    meta: Mapping[str, str] | None
    """Texts that the meta of each task has. None: any."""


def check_selection(selection: Mapping[str, Any]) -> Matches | None:
    """The test that the selected tasks pass; None if all do. Raises `TypeError`, `ValueError`."""
    tests: list[Matches] = []
    for name, value in selection.items():
        if name not in Selection.__annotations__:
            known = ", ".join(Selection.__annotations__)
            raise TypeError(f"unexpected keyword argument {name!r}; tasks are selected by {known}")
        if value is not None:
            tests.append(_TESTS[name](value))
    if not tests:
        return None
    return lambda record: all(test(record) for test in tests)


def _by_age(value: object) -> Matches:
    seconds = check_seconds("older_than", value)
    return lambda record: record.age > seconds


def _by_group(value: object) -> Matches:
    group = value if value == "" else check_group("group", value)
    return lambda record: shown_group(record.group) == group


def _by_key(value: object) -> Matches:
    prefix = check_text("key_prefix", value, most=LONGEST_NAME)
    return lambda record: record.key is not None and record.key.startswith(prefix)


def _by_error(value: object) -> Matches:
    if isinstance(value, type) and issubclass(value, BaseException):
        value = value.__name__
    elif not isinstance(value, str):
        raise TypeError(f"error must be a type of exceptions or its name, not {value!r}")
    name = check_text("error", value, most=LONGEST_NAME)

    def test(record: Record) -> bool:
        if record.state == "done":
            return False
        texts = (record.result.decode(errors="replace"), read(record.failure).error)
        return any(text == name or text.startswith((f"{name}:", f"{name}\n")) for text in texts)

    return test


def _by_meta(value: object) -> Matches:
    encode_meta(value)
    texts = dict(cast("Mapping[str, str]", value)).items()
    return lambda record: texts <= decode_meta(record.meta).items()


_TESTS: dict[str, Callable[[object], Matches]] = {
    "older_than": _by_age,
    "group": _by_group,
    "key_prefix": _by_key,
    "error": _by_error,
    "meta": _by_meta,
}


async def read_selected(
    store: Store, scan: Scan[Page[Record]], matches: Matches, most: int, portion: int = CAP
) -> Page[Record]:
    """The first rows that match, at most so many; `next` is the place behind the last row that was looked at.

    It costs a page of `portion` tasks for each that are looked at. Raises `EngineError`, `StoreClosed`.
    """
    rows: list[Record] = []
    limit = portion
    while True:
        page = await store.call(replace(scan, limit=limit))
        if isinstance(page, Reply):
            return Page(tuple(rows))
        found = [place for place, record in enumerate(page.rows, 1) if matches(record)]
        left = most - len(rows)
        if len(found) > left:
            limit = found[left - 1]  # the page is read again up to the last row that is wanted
            continue
        rows += [page.rows[place - 1] for place in found]
        if not page.next or len(rows) == most:
            return Page(tuple(rows), page.next)
        scan, limit = replace(scan, after=page.next), portion


def _in_states(states: AbstractSet[str], matches: Matches | None) -> Matches:
    return lambda record: record.state in states and (matches is None or matches(record))


async def move_selected(
    store: Store,
    key: str,
    states: Iterable[str],
    to: Literal["cancelled", "waiting", "purged"],
    matches: Matches | None,
    *,
    ttl: float | None = None,
    most: object = None,
    dry_run: object = False,
) -> int:
    """Move the tasks that match, in these states, at most so many; returns how many, or with `dry_run` would be.

    A task that has left its state since it was read stays. Raises `TypeError`, `ValueError`, `EngineError`,
    `StoreClosed`. Cancellation: some may have been moved.
    """
    left = 2**63 if most is None else check_count("limit", most)
    only_count = check_flag("dry_run", dry_run)
    total = 0
    chosen = frozenset(states)
    ended = chosen & _ENDED
    indexes = [*sorted(chosen - ended), *(["ended"] if ended else [])]
    for index in indexes:
        in_states = _in_states(ended if index == "ended" else {index}, matches)
        scan = Scan(TASKS[index], key)
        while left > 0:
            page = await read_selected(store, scan, in_states, min(left, CAP))
            count = len(page.rows)
            if not only_count:
                count = 0
                for state in {record.state for record in page.rows}:
                    ids = tuple(record.id for record in page.rows if record.state == state)
                    moved = await store.call(Move(key, ids, to, ttl=ttl, state=state))
                    assert isinstance(moved, MovedCount)
                    count += moved.count
            total, left = total + count, left - count
            if not page.next:
                break
            scan = replace(scan, after=page.next)
    return total
