"""`tenure queue set`: the settings of a queue."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tenure.cli._answer import answer
from tenure.cli._arguments import count, seconds
from tenure.cli._errors import UsageError
from tenure.cli._one_queue import of_one
from tenure.cli._table import spoken, table
from tenure.cli._with_store import with_store
from tenure.shared import Groups, Keep, Limit, QueueSettings, WorkQueue, values_of
from tenure.store import Store

_LEFT: Any = object()
"""The value of an option that is not given."""


def set_settings(words: Sequence[str]) -> int:
    p = of_one(
        "queue set",
        "Change settings of a queue, for all processes at once; a program that starts names its own.",
    )
    add = partial(p.add_argument, default=_LEFT)
    add("--max-size", metavar="N", type=count, help="the most unfinished tasks")
    add(
        "--aging", metavar="S", type=_AGE, help="tasks ready for longer precede all others; none: by priority"
    )
    add("--max-deliveries", metavar="N", type=count, help="deliveries without a verdict until a task is dead")
    add("--rate", metavar="N/S", type=_RATE, help="tasks that start in S seconds (1 by default), or none")
    add("--group-limit", metavar="N", type=_LIMIT, help="tasks of a group that run at a time, or none")
    p.add_argument(
        "fields",
        metavar="FIELD=VALUE",
        nargs="*",
        type=_field,
        help="keep.results=SECONDS, keep.dead=SECONDS (of records and dead letters; or forever), keep.payloads=yes|no,"
        " keep.tracebacks=yes|no (whether records have them), keep.keys=SECONDS (at least; none: until their tasks have"
        " ended); groups.max_size=N unfinished tasks of a group,"
        " groups.rate=N/S tasks that start, groups.weights=GROUP=W (repeatable, in place of all weights), each or none;"
        " groups.on_retry=hold|pass: whether a task after a failure holds its group",
    )
    args = p.parse_intermixed_args(words)
    plain = ("max_size", "aging", "max_deliveries", "rate")
    named = {field: value for field in plain if (value := getattr(args, field)) is not _LEFT}
    parts: dict[str, dict[str, Any]] = {"keep": {}, "groups": {}}
    for (part, field), value in args.fields:
        before: dict[str, Any] = parts[part].get(field) or {}
        parts[part][field] = {**before, **value} or None if field == "weights" else value
    if args.group_limit is not _LEFT:
        parts["groups"]["limit"] = args.group_limit
    kinds = {"keep": Keep, "groups": Groups}
    named |= {part: kinds[part](**fields) for part, fields in parts.items() if fields}
    if not named:
        raise UsageError("name a setting, such as --max-size 5000")

    async def configure(store: Store) -> QueueSettings:
        try:
            return await WorkQueue(store, args.name).configure(**named)
        except ValueError as problem:
            raise UsageError(str(problem)) from problem

    settings = with_store(args, configure)
    if args.json:
        return answer({"name": args.name, "settings": document(settings)})
    print(shown(settings))
    return 0


def document(settings: QueueSettings) -> dict[str, Any]:
    return {
        name: {
            "value": {"rate": value.rate, "per": value.per} if isinstance(value, Limit) else value,
            "set_at": settings.set_at[name].isoformat() if name in settings.set_at else None,
            "set_by": settings.set_by.get(name),
        }
        for name, value in values_of(settings).items()
    }


def shown(settings: QueueSettings) -> str:
    time = datetime.now(UTC)
    rows = [
        (
            name,
            _in_words(name, value),
            settings.set_by.get(name, "default"),
            f"{spoken((time - settings.set_at[name]).total_seconds())} ago"
            if name in settings.set_at
            else "",
        )
        for name, value in values_of(settings).items()
    ]
    return table(("setting", " value", " set by", " set"), rows, nothing="")


def _in_words(name: str, value: Any) -> str:
    if value is None:
        return "for good" if name in ("keep.results", "keep.dead") else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Limit):
        return f"{value.rate:g} in {value.per:g} s"
    if isinstance(value, dict):
        return ", ".join(f"{group or '-'}: {weight:g}" for group, weight in value.items())  # pyright: ignore[reportUnknownVariableType]
    if name in ("keep.results", "keep.dead", "keep.keys", "aging"):
        return spoken(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _or(word: str, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        return None if text == word else kind(text)

    return parse


def _flag(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ArgumentTypeError(f"{text!r} is neither yes nor no")
    return text == "yes"


def _rate(text: str) -> Limit:
    rate, _, per = text.partition("/")
    try:
        return Limit(float(rate), per=float(per or 1))
    except ValueError as problem:
        raise ArgumentTypeError(f"{text!r} is no rate, such as 100 or 100/60: {problem}") from None


def _weight(text: str) -> dict[str, float]:
    if text == "none":
        return {}
    group, equals, weight = text.rpartition("=")
    try:
        return {group: float(equals and weight)}
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no weight, such as gold=4, nor none") from None


_AGE, _LIMIT, _RATE = _or("none", seconds), _or("none", count), _or("none", _rate)
_FIELDS: dict[str, Callable[[str], Any]] = {
    "keep.results": _or("forever", seconds),
    "keep.dead": _or("forever", seconds),
    "keep.payloads": _flag,
    "keep.tracebacks": _flag,
    "keep.keys": _AGE,
    "groups.weights": _weight,
    "groups.max_size": _LIMIT,
    "groups.on_retry": str,
    "groups.rate": _RATE,
}


def _field(text: str) -> tuple[list[str], Any]:
    field, equals, value = text.partition("=")
    if not equals or field not in _FIELDS:
        raise ArgumentTypeError(f"{text!r} is not one of {', '.join(_FIELDS)}, with =VALUE")
    try:
        return field.split("."), _FIELDS[field](value)
    except ArgumentTypeError as problem:
        raise ArgumentTypeError(f"{field}: {problem}") from None
