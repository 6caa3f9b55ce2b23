"""The options that a task brings to its worker, beside the meta, as a JSON array of both; else the meta alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple, cast

from tenure.arguments import check_timeout

from ._retry import Retry, check_retry

MOST_BYTES = 1024
"""No record may be larger, as JSON in UTF-8; that of a release also has two names."""

_TYPES = ("on", "never")


class OwnOptions(NamedTuple):
    """The options of one task, which take the place of its worker's; None: the worker's count.

    `release`: of a release, its name; `thing`: the name of its queue, with which the name of its thing begins.
    """

    timeout: float | None = None
    retry: Retry | None = None
    thing: str | None = None
    release: str | None = None


_NONE = OwnOptions()


def with_options(
    meta: bytes, timeout: object, retry: object, thing: str | None = None, release: str | None = None
) -> bytes:
    rule = check_retry(retry)
    record = {
        "timeout": check_timeout("timeout", timeout, least=None),
        "retry": None if rule is None else _described(rule),
        "thing": thing,
        "release": release,
    }
    given = {name: value for name, value in record.items() if value is not None}
    data = json.dumps(given, separators=(",", ":")).encode()
    if len(data) > (MOST_BYTES if release is None else 4 * MOST_BYTES):
        raise ValueError(
            f"retry must have at most {MOST_BYTES} bytes as JSON, not {len(data)}: name fewer exceptions"
        )
    return b"[%b,%b]" % (meta or b"{}", data)


def options_in(data: bytes) -> OwnOptions:
    return parted(json.loads(data))[1] if data[:1] == b"[" else _NONE


def parted(found: Any) -> tuple[dict[str, str], OwnOptions]:
    """The meta and the options in these bytes; neither if another program has put nonsense there."""
    if not isinstance(found, list):
        return found, _NONE
    with suppress(ValueError, TypeError, AttributeError):
        meta, record = cast("list[Any]", found)
        timeout, retry = record.get("timeout"), record.get("retry")
        timeout = check_timeout("timeout", timeout, least=None)
        rule = None if retry is None else _retry_of(retry)
        return meta, OwnOptions(timeout, rule, record.get("thing"), record.get("release"))
    return {}, _NONE


def thing_of(queue: str, task_id: int) -> str:
    return f"{queue}-{task_id}"


def _described(retry: Retry) -> dict[str, Any]:
    usual = {field.name: field.default for field in fields(Retry)}
    values = {name: getattr(retry, name) for name in usual}
    types = {name: values.pop(name) for name in _TYPES}
    named = {
        name: [_name_of(kind) for kind in kinds] for name, kinds in types.items() if kinds != usual[name]
    }
    return values | named


def _retry_of(record: Mapping[str, Any]) -> Retry:
    known = {field.name for field in fields(Retry)} & record.keys()
    types: dict[str, Any] = {name: tuple(map(_type_of, record[name])) for name in known.intersection(_TYPES)}
    return Retry(**{name: record[name] for name in known} | types)


def _name_of(kind: type[BaseException]) -> str:
    module, name = kind.__module__, kind.__qualname__
    if _found(module, name) is not kind:
        raise ValueError(
            f"retry must name exceptions that a worker can find: there is no {name} in the module {module}"
        )
    return f"{module}:{name}"


def _type_of(text: str) -> type[BaseException]:
    """The type of that name; a stand-in if its module was never imported, since nothing here raises such a type."""
    module, _, name = text.partition(":")
    kind = _found(module, name)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind
    return cast("type[BaseException]", type(name, (BaseException,), {"__module__": module}))


def _found(module: str, name: str) -> object:
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
