from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Literal, TypedDict, get_args

import tenure.engine as e
from tenure.arguments import Seconds, check_count, check_flag, check_number, check_timeout
from tenure.errors import EngineError
from tenure.limits import REQUESTS, Limit
from tenure.store import Session, StoreHandle

from ._editing import UNCHANGED
from ._groups import check_group, group_of_children
from ._suspects import LEEWAY

OnRetry = Literal["hold", "pass"]

_MOST_WEIGHTS = 1000


class _Named:
    __slots__ = ()

    def __post_init__(self) -> None:
        for name, value in named_in(self).items():
            if isinstance(value, timedelta):
                object.__setattr__(self, name, value.total_seconds())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in named_in(self).items())})"


@dataclass(frozen=True, slots=True, repr=False)
class Keep(_Named):
    """The fields of a queue's settings about records, dead letters and keys. A field that is not given is not named.

    - `results`: seconds for which records of done, discarded and cancelled tasks are kept (None: for good); 3600.
    - `dead`: seconds for which a dead letter is kept (None: for good); 180 days.
    - `payloads`: the record of a task that is not dead has the payload too; False.
    - `tracebacks`: the record of a failed try has its traceback, without the values of variables; True.
    - `keys`: seconds from its put for which a task has its key at least, ended or not; None.
    """

    results: Seconds | None = UNCHANGED
    dead: Seconds | None = UNCHANGED
    payloads: bool = UNCHANGED
    tracebacks: bool = UNCHANGED
    keys: Seconds | None = UNCHANGED


@dataclass(frozen=True, slots=True, repr=False)
class Groups(_Named):
    """The fields of a queue's settings about groups: their limits and turns. A field that is not given is not named.

    - `limit`: the most tasks of a group that are leased at a time; None.
    - `weights`: the weights of groups in the turns, from 0.001 to 1,000, by name; else 1.
    - `max_size`: the most unfinished tasks of a group; None.
    - `on_retry`: with a `limit` of 1, "hold" lets a task that is tried again hold its group, "pass" does not; "hold".
    - `rate`: how many tasks of each group start, a `Limit`; None.
    """

    limit: int | None = UNCHANGED
    weights: Mapping[str, float] | None = UNCHANGED
    max_size: int | None = UNCHANGED
    on_retry: OnRetry = UNCHANGED
    rate: Limit | None = UNCHANGED


class QueueOptions(TypedDict, total=False):
    """The settings of a queue that a program names."""

    max_size: int
    aging: Seconds | None
    max_deliveries: int
    rate: Limit | None
    keep: Keep | None
    groups: Groups | None


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue that hold, in all processes.

    `set_at` and `set_by` say of each changed field when it was set and by which process, such as "web-1:4711:5f0c9a1b";
    fields of `keep` and `groups` are named "keep.results", "groups.limit". All others have the defaults.
    """

    max_size: int
    aging: float | None
    max_deliveries: int
    rate: Limit | None
    keep: Keep
    groups: Groups
    set_at: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    set_by: Mapping[str, str] = field(default_factory=dict[str, str])


NAMES: dict[str, str] = {
    "max_size": "max_size",
    "aging": "aging",
    "max_deliveries": "max_deliveries",
    "rate": "rate",
    "keep.results": "results",
    "keep.dead": "dead",
    "keep.payloads": "payloads",
    "keep.tracebacks": "tracebacks",
    "keep.keys": "keys",
    "groups.limit": "group_limit",
    "groups.weights": "weights",
    "groups.max_size": "group_size",
    "groups.on_retry": "hold",
    "groups.rate": "group_rate",
}
_PARTS = {"keep": Keep, "groups": Groups}
_SHOWN = {engine: shown for shown, engine in NAMES.items()}


def named_in(part: object) -> dict[str, Any]:
    values = {name: getattr(part, name) for name in getattr(part, "__dataclass_fields__", ())}
    return {name: value for name, value in values.items() if value is not UNCHANGED}


def changes_of(options: Mapping[str, Any]) -> dict[str, str]:
    changes: dict[str, str] = {}
    for name, value in options.items():
        if name not in QueueOptions.__annotations__:
            raise TypeError(
                f"a queue has no option {name!r}; settings are {', '.join(QueueOptions.__annotations__)}"
            )
        if (part := _PARTS.get(name)) is None:
            changes |= _checked(name, value)
        elif value is None:
            changes |= {NAMES[f]: e.DEFAULT_TEXTS[NAMES[f]] for f in NAMES if f.startswith(f"{name}.")}
        elif isinstance(value, part):
            for field_name, its in named_in(value).items():
                changes |= _checked(f"{name}.{field_name}", its)
        else:
            raise TypeError(f"{name} must be a {part.__name__}, not {type(value).__name__}")
    return changes


def _checked(name: str, value: Any) -> dict[str, str]:
    return {(engine := NAMES[name]): e.written(engine, _CHECKS[name](name, value))}


def _or_none(check: Callable[[str, Any], Any], none: Any) -> Callable[[str, Any], Any]:
    return lambda name, value: none if value is None else check(name, value)


def _seconds(name: str, value: Any) -> float | None:
    return check_timeout(name, value, least=None)


def _deliveries(name: str, value: Any) -> int:
    count = check_count(name, value)
    return count + (LEEWAY if count > 1 else 0)


def _hold(name: str, value: Any) -> bool:
    if value not in get_args(OnRetry):
        raise ValueError(f"{name} must be 'hold' or 'pass', not {value!r}")
    return value == "hold"


def _rate(name: str, limit: Any) -> e.Rate | None:
    if limit is None:
        return None
    if not isinstance(limit, Limit):
        raise TypeError(f"{name} must be a Limit, such as Limit(100, per=1), not {type(limit).__name__}")
    if limit.unit not in (None, REQUESTS):
        raise ValueError(f"{name} counts tasks, and has no unit: {limit.unit!r}")
    return e.Rate(1 / limit.per_second, limit.most)


def _weights(name: str, weights: Mapping[str, float] | None) -> tuple[tuple[str, float], ...]:
    if weights is None:
        return ()
    if not isinstance(weights, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a mapping of groups to numbers, not {type(weights).__name__}")
    if len(weights) > _MOST_WEIGHTS:
        raise ValueError(f"{name} must have at most {_MOST_WEIGHTS} groups, not {len(weights)}")
    checked = {
        "" if group == "" else check_group(f"{name}: the group", group): check_number(
            f"{name}[{group!r}]", weight, least=0.001, most=1000
        )
        for group, weight in weights.items()
    }
    of_children = {group_of_children(group): weight for group, weight in checked.items()}
    return tuple((checked | of_children).items())


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "max_size": check_count,
    "aging": _seconds,
    "max_deliveries": _deliveries,
    "rate": _rate,
    "keep.results": _seconds,
    "keep.dead": _seconds,
    "keep.payloads": check_flag,
    "keep.tracebacks": check_flag,
    "keep.keys": _seconds,
    "groups.limit": _or_none(check_count, 0),
    "groups.weights": _weights,
    "groups.max_size": _or_none(check_count, 0),
    "groups.on_retry": _hold,
    "groups.rate": _rate,
}


def deliveries_of(settings: e.Settings) -> int:
    """The `max_deliveries` that a program has named: the engine adds the deliveries of suspects beside others."""
    most = settings.max_deliveries
    return max(1, most - LEEWAY) if most > 1 else 1


def shown(answer: e.Configured) -> QueueSettings:
    settings = e.settings_of((stored.name, stored.value) for stored in answer.fields)
    time = datetime.now(UTC)
    return QueueSettings(
        settings.max_size,
        settings.aging,
        deliveries_of(settings),
        _limit(settings.rate),
        Keep(settings.results, settings.dead, settings.payloads, settings.tracebacks, settings.keys),
        Groups(
            settings.group_limit or None,
            {group: weight for group, weight in settings.weights if group == "" or group[0] != "\0"} or None,
            settings.group_size or None,
            "hold" if settings.hold else "pass",
            _limit(settings.group_rate),
        ),
        {_SHOWN[stored.name]: time - timedelta(seconds=stored.age) for stored in answer.fields},
        {_SHOWN[stored.name]: stored.by for stored in answer.fields},
    )


def shown_record(answer: e.Configured) -> dict[str, dict[str, Any]]:
    settings = shown(answer)
    return {
        name: {
            "value": {"rate": value.rate, "per": value.per} if isinstance(value, Limit) else value,
            "set_at": settings.set_at[name].isoformat(),
            "set_by": settings.set_by[name],
        }
        for name, value in values_of(settings).items()
        if name in settings.set_by
    }


def values_of(settings: QueueSettings) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in QueueOptions.__annotations__:
        value = getattr(settings, name)
        values |= (
            {f"{name}.{key}": its for key, its in named_in(value).items()}
            if name in _PARTS
            else {name: value}
        )
    return values


def _limit(rate: e.Rate | None) -> Limit | None:
    return None if rate is None else Limit(rate.burst, per=round(rate.every * rate.burst, 9))


class QueueRecord:
    """The record of a queue, as far as this process names its fields and knows them.

    Named fields are sent before the next operation, and again, when a session begins or half of `RECORD_TTL` passes, if
    the record lacks them. An answer with another revision makes the process read the record.
    """

    def __init__(self, store: StoreHandle, key: str) -> None:
        self.current: e.Settings = e.DEFAULTS
        self.on_change: Callable[[], object] = lambda: None
        self.sent_in: Session | None = None
        """The session whose operations come behind the settings; `send` has been called in it."""
        self.send_again_at: float = inf
        """The deadline of a session from which the record may have been forgotten soon."""
        self._store = store
        self._key = key
        self._named: dict[str, str] = {}
        self.pending: dict[str, str] = {}
        self._told: set[str] = set()
        self.revision: int = 0
        self.is_known: bool = False
        self._asks = False

    def name(self, changes: Mapping[str, str]) -> None:
        news = {name: text for name, text in changes.items() if self._named.get(name) != text}
        if news:
            self._named |= news
            self.pending |= news
            self._have(self.current, news)

    def send(self, session: Session) -> None:
        """Send the named fields, once in each session, before the engine may forget the record, and after a refusal."""
        if self.sent_in is not session or session.deadline > self.send_again_at:
            self.sent_in = session
            self.send_again_at = session.deadline + e.RECORD_TTL / 2
            if self.pending.keys() != self._named.keys() or not self._named:
                self._send(self._named, missing=True)
        self.announce()

    def announce(self) -> None:
        if self.pending:
            pending, self.pending = self.pending, {}
            self._send(pending, missing=False)

    async def read(self, *, patient: bool = False) -> e.Settings:
        await self.configure({}, patient=patient)
        return self.current

    async def configure(self, changes: Mapping[str, str], *, patient: bool = False) -> e.Configured:
        self.announce()
        before, self._named = self._named, {**self._named, **changes}
        try:
            answer = await self._store.call(self._operation(changes, missing=False), patient=patient)
        except EngineError:
            others = {name: text for name, text in self._named.items() if name not in changes}
            self._named = others | {name: before[name] for name in changes if name in before}
            raise
        self._learn(answer)
        return answer

    def seen(self, revision: int) -> None:
        if revision != self.revision and not self._asks:
            self._send({}, missing=True)

    # inside

    def _operation(self, changes: Mapping[str, str], *, missing: bool) -> e.Configure:
        return e.Configure(self._key, self._store.process, tuple(changes.items()), missing)

    def _send(self, changes: Mapping[str, str], *, missing: bool) -> None:
        def on_answer(answer: object) -> None:
            self._asks = False
            if isinstance(answer, e.Configured):
                self._learn(answer)
            elif isinstance(answer, Exception):
                self.pending = {**({} if missing else changes), **self.pending}
                self.sent_in = None
                if isinstance(answer, EngineError):
                    self._store.reporter.warn("queue.settings_refused", queue=self._shown_key, error=answer)

        self._asks = True
        self._store.send(self._operation(changes, missing=missing), on_answer)

    @property
    def _shown_key(self) -> str:
        return self._key.removeprefix(self._store.prefix("queue"))

    def _learn(self, answer: e.Configured) -> None:
        self.revision, self.is_known = answer.revision, True
        record = {stored.name: stored for stored in answer.fields}
        self._have(e.settings_of((stored.name, stored.value) for stored in answer.fields), self.pending)
        replaced: dict[str, list[str]] = {}
        for name, text in self._named.items():
            stored = record.get(name)
            value, by = (stored.value, stored.by) if stored else (e.DEFAULT_TEXTS[name], "nobody")
            if value != text and by != self._store.process and name not in {*self._told, *self.pending}:
                self._told.add(name)
                replaced.setdefault(by, []).append(_SHOWN[name])
        for by, names in replaced.items():
            self._store.reporter.warn(
                "queue.settings_replaced",
                queue=self._shown_key,
                fields=" ".join(names),
                by=by,
                process=self._store.process,
            )

    def _have(self, settings: e.Settings, named: Mapping[str, Any]) -> None:
        former, named = self.current, {name: e.read(name, text) for name, text in named.items()}
        self.current = replace(settings, **named) if named else settings
        if self.current != former:
            self.on_change()
