"""`tenure queue set`: the settings of a queue by hand; and how they are shown."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from tenure.cli._answer import answer
from tenure.cli._arguments import count, seconds
from tenure.cli._errors import UsageError
from tenure.cli._one_queue import of_one
from tenure.cli._table import spoken, table
from tenure.cli._with_store import with_store
from tenure.shared import Groups, Keep, Limit, QueueSettings, WorkQueue, values_of


def set_settings(words: Sequence[str]) -> int:
    """Run `tenure queue set`. Raises `UsageError`, `TenureError`."""
    p = of_one(
        "queue set",
        "Change settings of a queue, for all processes at once; a program that starts names its own.",
    )
    for option, metavar, kind, meaning in _OPTIONS:
        p.add_argument(option, metavar=metavar, type=kind, default=_LEFT, help=meaning)
    p.add_argument(
        "--group-weight",
        metavar="GROUP=W",
        action="append",
        type=_weight,
        default=[],
        help="the weight of a group in the turns, in place of all weights; none: no weights",
    )
    args = p.parse_args(words)
    named = {option: getattr(args, option[2:].replace("-", "_")) for option, *_ in _OPTIONS}
    named = {option: value for option, value in named.items() if value is not _LEFT}
    if args.group_weight:
        named["--group-weight"] = dict(weight for weight in args.group_weight if weight is not None) or None
    if not named:
        raise UsageError("name a setting, such as --max-size 5000")
    parts: dict[str, Any] = {}
    for field, part, prefix in (("keep", Keep, "--keep-"), ("groups", Groups, "--group-")):
        its = {
            _FIELDS.get(o, o[len(prefix) :].replace("-", "_")): named.pop(o)
            for o in [*named]
            if o.startswith(prefix)
        }
        if its:
            parts[field] = part(**its)
    parts |= {option[2:].replace("-", "_"): value for option, value in named.items()}
    settings = with_store(args, lambda store: WorkQueue(store, args.name).configure(**parts))
    if args.json:
        return answer({"name": args.name, "settings": document(settings)})
    print(shown(settings))
    return 0


def document(settings: QueueSettings) -> dict[str, Any]:
    """The settings as JSON: of each the value, when it was set, and by which process."""
    return {
        name: {
            "value": {"rate": value.rate, "per": value.per} if isinstance(value, Limit) else value,
            "set_at": settings.set_at[name].isoformat() if name in settings.set_at else None,
            "set_by": settings.set_by.get(name),
        }
        for name, value in values_of(settings).items()
    }


def shown(settings: QueueSettings) -> str:
    """The settings as a table: all of them, with who has set each and when."""
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


_LEFT: Any = object()
"""The value of an option that is not given."""


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


def _weight(text: str) -> tuple[str, float] | None:
    if text == "none":
        return None
    group, equals, weight = text.rpartition("=")
    try:
        if equals:
            return group, float(weight)
    except ValueError:
        pass
    raise ArgumentTypeError(f"{text!r} is no weight, such as gold=4, nor none")


def _on_retry(text: str) -> str:
    if text not in ("hold", "pass"):
        raise ArgumentTypeError(f"{text!r} is neither hold nor pass")
    return text


_OPTIONS: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
    ("--max-size", "N", count, "the most unfinished tasks"),
    (
        "--aging",
        "S",
        _or("none", seconds),
        "tasks that are ready for longer precede all others; none: by priority",
    ),
    ("--max-deliveries", "N", count, "deliveries without a verdict after which a task is dead"),
    ("--rate", "N/S", _or("none", _rate), "tasks that start in S seconds (without S: in one); none: no rate"),
    (
        "--keep-results",
        "S",
        _or("forever", seconds),
        "for how long records of tasks are kept; forever: for good",
    ),
    ("--keep-dead", "S", _or("forever", seconds), "the same of dead letters"),
    ("--keep-payloads", "yes|no", _flag, "whether records keep payloads"),
    ("--keep-tracebacks", "yes|no", _flag, "whether records of failures have tracebacks"),
    (
        "--keep-keys",
        "S",
        _or("none", seconds),
        "for how long a key is kept at least; none: until its task has ended",
    ),
    ("--group-limit", "N", _or("none", count), "tasks of a group that run at a time; none: no limit"),
    ("--group-max-size", "N", _or("none", count), "the most unfinished tasks of a group; none: no limit"),
    ("--group-on-retry", "hold|pass", _on_retry, "whether a task after a failure holds its group"),
    ("--group-rate", "N/S", _or("none", _rate), "tasks of each group that start; none: no rate"),
)
_FIELDS = {"--group-weight": "weights"}
