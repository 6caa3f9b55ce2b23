from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import tenure.engine as e
from tenure.arguments import (
    LONGEST_NAME,
    Seconds,
    check_count,
    check_flag,
    check_seconds,
    check_text,
    seconds_of,
)
from tenure.shared._listing import read_matching
from tenure.store import StoreHandle

from ._failures import read
from ._groups import check_group, shown_group
from ._meta import decode_meta, encode_meta

Matches = Callable[[e.Record], bool]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The properties by which tasks are selected: a task has all that are given. Raises `TypeError`, `ValueError`."""

    older_than: Seconds | None = None
    """The age in seconds that a task exceeds: since it became ready, was taken, or ended. None: any."""
    group: str | None = None
    """The group of the tasks; "": the tasks without a group. None: any."""
    key_prefix: str | None = None
    """The beginning of the keys of the tasks. None: any, and tasks without a key."""
    error: str | type[BaseException] | None = None
    """The type, or the name of the type, of the exception that ended the last try. None: any."""
    meta: Mapping[str, str] | None = None
    """Texts that the meta of each task has. None: any."""

    def __post_init__(self) -> None:
        _tests_of(self)
        object.__setattr__(self, "older_than", seconds_of(self.older_than))


def check_where(where: object) -> Matches | None:
    if where is None:
        return None
    if not isinstance(where, Selection):
        raise TypeError(f"where must be a Selection, not {type(where).__name__}")
    tests = _tests_of(where)
    return (lambda record: all(test(record) for test in tests)) if tests else None


def _tests_of(where: Selection) -> list[Matches]:
    given = ((test, getattr(where, name)) for name, test in _TESTS.items())
    return [test(value) for test, value in given if value is not None]


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
    name = re.escape(check_text("error", value, most=LONGEST_NAME))
    # the error, or a part of a group: see `describe`
    named = re.compile(rf"{name}(?:[:\n]|$)|\w*ExceptionGroup:.*(?:\[|; ){name}[:;\]]", re.DOTALL)
    return lambda record: (
        record.state != "done"
        and any(map(named.match, (record.result.decode(errors="replace"), read(record.failure).error)))
    )


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


async def read_indexes(
    store: StoreHandle, key: str, indexes: Sequence[str], matches: Matches | None, after: str, most: int
) -> e.Page[e.Record]:
    left = list(indexes)
    if len(left) > 1 and after:
        index, _, after = after.partition(":")
        if index not in left:
            raise ValueError(f"after must be the next of a page of the same listing, not {index!r}")
        left = left[left.index(index) :]
    rows: list[e.Record] = []
    while left and len(rows) < most:
        scan = e.Scan(e.TASKS[left[0]], key, after)
        page = await read_matching(store, scan, matches, most - len(rows))
        rows += page.rows
        if not (after := page.next):
            del left[0]
    return e.Page(tuple(rows), f"{left[0]}:{after}" if left and len(indexes) > 1 else after)


async def move_selected(
    store: StoreHandle,
    key: str,
    states: Iterable[str],
    to: Literal["cancelled", "waiting", "purged"],
    where: Selection | None,
    *,
    ttl: float | None = None,
    most: object = None,
    dry_run: object = False,
) -> int:
    left = 2**63 if most is None else check_count("limit", most)
    only_count, matches, total = check_flag("dry_run", dry_run), check_where(where), 0
    for state in sorted(states):
        after = ""
        while left > 0:
            page = await read_matching(store, e.Scan(e.TASKS[state], key, after), matches, min(left, e.CAP))
            ids = tuple(record.id for record in page.rows)
            count = len(ids)
            if ids and not only_count:
                moved = await store.call(e.Move(key, ids, to, ttl, state=state))
                assert isinstance(moved, e.MovedCount)
                count = moved.count
            total, left = total + count, left - count
            if not (after := page.next):
                break
    return total
