"""The base of commands on a store: its address, and its opening."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import anyio

from tenure.engines import open_store
from tenure.errors import EngineError, StoreUnavailable
from tenure.store import Store

from ._arguments import STORE_DEFAULT, STORE_VARIABLE, Parser, store_option, store_url
from ._errors import UsageError

T = TypeVar("T")

_DEEPEST = 200
"""Levels of a value that is printed as JSON; each takes a part of Python's stack."""

_TIMEOUT = 10.0
"""Seconds that a store may take to answer for the first time."""

_KEY = re.compile("(queue|lock|rwlock|semaphore|election|pool|rate):(.+)", re.DOTALL)


class ShownCodec:
    """Reads payloads of any codec: JSON as it is, anything else, or JSON too deep to be printed, as text."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        with suppress(ValueError, RecursionError):
            value = json.loads(data)
            if not _is_deep(value):
                return value
        return data.decode("utf-8", "backslashreplace")


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [part for parent in level for part in _parts(parent)]
    return bool(level)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def parser(prog: str, description: str, *, as_json: bool = True) -> Parser:
    made = Parser(prog, description)
    made.add_argument("--store", metavar="URL", help=STORE_DEFAULT)
    made.add_argument("--namespace", metavar="NAME", default="tenure", help="default: %(default)s")
    if as_json:
        made.add_argument("--json", action="store_true", help="one JSON document, for programs")
    return made


def with_store(
    args: argparse.Namespace, task: Callable[[Store], Awaitable[T]], *, may_make: bool = False
) -> T:
    """Carry out the task on the store that the options name. A missing file is refused, unless it `may_make` one."""
    check_names(args)
    url, option = store_url(args.store), store_option(args.store)
    (check_visible if may_make else check_place)(url, option)
    return anyio.run(_run_with_store, url, option, args.namespace, task)


def check_names(args: argparse.Namespace) -> None:
    for option in ("name", "queue", "pool"):
        text: str = getattr(args, option, None) or ""
        namespace, _, name = text.partition(":")
        if namespace == args.namespace and (key := _KEY.fullmatch(name)):
            kind = key[1].replace("rate", "rate limiter")
            raise UsageError(f"{text} is a key of the store: write {key[2]}, the name of the {kind}")


def check_place(url: str, option: str) -> None:
    """Refuse a place without a store: looking makes no files."""
    check_visible(url, option)
    if (path := file_of(url)) is not None and not path.exists():
        raise UsageError(
            f"{option}: there is no file {path}; name another store with --store URL or in the environment variable"
            f" {STORE_VARIABLE}"
        )


def file_of(url: str) -> Path | None:
    """The file of a SQLite store; None for another store."""
    scheme, _, rest = url.partition(":")
    # a URL of another form is refused when it is opened, without showing what may be a password
    named = scheme.lower() == "sqlite" and rest.startswith("///")
    return Path(path) if named and (path := unquote(urlsplit(url).path[1:])) else None


def check_visible(url: str, option: str) -> None:
    if url.partition(":")[0].lower() == "memory":
        raise UsageError(f"{option}: memory: is visible only to its own process; name a file or a server")


async def _run_with_store(url: str, option: str, namespace: str, task: Callable[[Store], Awaitable[T]]) -> T:
    async with AsyncExitStack() as stack:
        try:
            store = open_store(url, namespace=namespace, codec=ShownCodec())
            await stack.enter_async_context(store)
        except StoreUnavailable:
            raise
        except (ValueError, ModuleNotFoundError, EngineError) as problem:
            raise UsageError(f"{option}: {problem}") from problem
        with anyio.move_on_after(_TIMEOUT) as limit:
            await store.ping()
        if limit.cancelled_caught:
            raise StoreUnavailable(f"{store.url}: no answer within {_TIMEOUT:g} s")
        return await task(store)
