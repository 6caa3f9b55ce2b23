"""The core that the server of `tenure web` and the ASGI application share."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio

import tenure.engine as e
from tenure.arguments import check_name
from tenure.errors import EngineError, StoreUnavailable, TenureError
from tenure.observe import exposition
from tenure.pages import doc_page
from tenure.shared import QueueFigures
from tenure.store import Store, handle_of

from ._actions import Actions
from ._answers import Answer, Request, as_json, plain, problem
from ._failures import Failures
from ._history import EVERY
from ._page import page
from ._puts import Puts
from ._resources import resources
from ._tasks import Tasks
from ._watch import StoreWatch

_TIMEOUT = 20.0
_ABOUT = r"/(?:(?P<what>workers|counts)|tasks(?:/(?P<id>[1-9]\d{0,15}))?)"
_OF_QUEUE = re.compile(rf"/queues/(?P<queue>.+){_ABOUT}", re.DOTALL)
_QUEUE = re.compile(rf"/queues/(?!.+{_ABOUT}\Z)(?P<queue>.+)", re.DOTALL)
_RESOURCES = re.compile(r"/pools/(?P<pool>.+)/resources", re.DOTALL)
_HEADER = "x-tenure-action"
_NUMBER = re.compile(r"[0-9]{1,3}")
_LONGEST_FIND = 512
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
MOST_BODY = 256 * 1024
"""Bytes of a request's body."""


class Site:
    """Answers requests about a store; who may ask is for the server to decide.

    The options are as of `app`. `state` returns the document of the page.
    """

    def __init__(
        self,
        store: Store,
        *,
        actions: bool = False,
        puts: bool = False,
        payloads: bool = False,
        errors: bool = True,
        trust_proxy: bool = False,
        state: Callable[[], Awaitable[dict[str, Any]]] | None = None,
    ) -> None:
        self._store = handle = handle_of(store)
        self._errors = errors
        self._watch = StoreWatch(handle)
        self._state = state or self._watch.state
        self._tasks = Tasks(handle, payloads, errors)
        self._failures = Failures(handle, errors=errors)
        self._figures = QueueFigures(store)
        self._actions = Actions(store) if actions else None
        self._puts = Puts(store) if puts else None
        self.takes_bodies: bool = actions or puts
        self._trust_proxy = trust_proxy
        self._url = store.url
        self._body, self._policy = page(actions=actions)

    async def sample(self) -> None:
        """Look at the store every ten seconds, for the charts' past, until cancelled."""
        while True:
            # the page shows a failure when it asks; the chart has a gap
            with suppress(EngineError):
                await self._state()
            await anyio.sleep(EVERY)

    async def answer(self, request: Request) -> Answer:
        """The answer to a request. Cancellation: a change may or may not be applied."""
        if self._actions is not None and request.path == "/actions":
            if request.method != "POST":
                return plain(405, "actions are sent with POST", ("Allow", "POST"))
            late = "a part of it may have been done, but not all"
            return await self._changed(request, self._actions.act, late)
        if self._puts is not None and request.method == "POST" and (match := _QUEUE.fullmatch(request.path)):
            put = partial(self._puts.put, match["queue"])
            return await self._changed(request, put, "the task may have been put, but no answer came")
        if request.method not in ("GET", "HEAD"):
            return plain(405, "this can only be read", ("Allow", "GET, HEAD"))
        match request.path:
            case "/":
                policy = ("Content-Security-Policy", self._policy)
                return Answer(200, self._body, "text/html; charset=utf-8", (policy,))
            case "/state.json":
                return await self._reported(self._state)
            case "/history.json":
                return as_json(200, self._watch.history.document())
            case "/metrics":
                return await self._reported(self._metrics)
            case "/failures.json":
                return await self._reported(self._failures.read)
            case path if (match := _OF_QUEUE.fullmatch(path)) is not None:
                return await self._reported(lambda: self._about_queue(match, request.query))
            case path if (match := _RESOURCES.fullmatch(path)) is not None:
                return await self._reported(lambda: self._about_pool(match["pool"], request.query))
            case _:
                return plain(404, f"there is no such page; {doc_page('reference/web')} lists all pages")

    async def _reported(
        self, read: Callable[[], Awaitable[dict[str, Any] | Answer | None]], late: str = "no answer"
    ) -> Answer:
        try:
            with anyio.fail_after(_TIMEOUT):
                document = await read()
        except TimeoutError:
            return problem(503, f"{self._url}: {late} within {_TIMEOUT:g} s")
        except StoreUnavailable as error:
            return problem(503, error)
        except (ValueError, TypeError) as error:
            return problem(400, error)
        except TenureError as error:
            return problem(503, error)
        if isinstance(document, Answer):
            return document
        return (
            problem(404, "there is no such task, queue or pool, or not any more")
            if document is None
            else as_json(200, document)
        )

    async def _metrics(self) -> Answer:
        await self._figures.statistics()
        return Answer(200, exposition(self._figures.samples()).encode(), _EXPOSITION)

    async def _about_queue(self, match: re.Match[str], query: str) -> dict[str, Any] | Answer | None:
        queue = check_name("the name of the queue", match["queue"])
        if match["what"] == "workers":
            return await self._tasks.workers(queue)
        if match["what"] == "counts":
            (limit,) = _parameters(query, "limit")
            return await self._tasks.counts(queue, _limit(limit, 20, e.CAP))
        if match["id"] is not None:
            # null: a task that has gone is no fault, and 404 would be a line in the console of each page
            return as_json(200, await self._tasks.one(queue, int(match["id"])))
        state, after, limit, find = _parameters(query, "state", "after", "limit", "find")
        most = _limit(limit, 50, 500)
        if len(find.encode()) > _LONGEST_FIND:
            raise ValueError(f"find must have at most {_LONGEST_FIND} bytes")
        with _refused(after):
            return await self._tasks.listing(queue, state or "waiting", after, most, find)

    async def _about_pool(self, name: str, query: str) -> dict[str, Any] | None:
        (after,) = _parameters(query, "after")
        with _refused(after):
            return await resources(
                self._store, check_name("the name of the pool", name), after, reasons=self._errors
            )

    async def _changed(
        self, request: Request, change: Callable[[object, str], Awaitable[dict[str, Any] | Answer]], late: str
    ) -> Answer:
        if refusal := _cross_site(request):
            return problem(403, refusal)
        try:
            asked = json.loads(request.body)
        except (ValueError, RecursionError):
            return problem(400, "the body must be JSON")
        return await self._reported(lambda: change(asked, self._asker(request)), late)

    def _asker(self, request: Request) -> str:
        user = request.headers.get("x-forwarded-user", "") if self._trust_proxy else ""
        return f"{user!r} by {request.client}" if user else request.client


def _parameters(query: str, *names: str) -> list[str]:
    """The values of parameters, "" for those that are missing. Raises `ValueError` for others."""
    fields = parse_qs(query, keep_blank_values=True)
    if unknown := fields.keys() - {*names, "token"}:
        raise ValueError(f"there is no parameter {min(unknown)}; there is {', '.join(names)}")
    return [fields.get(name, [""])[0] for name in names]


def _limit(text: str, default: int, most: int) -> int:
    if text and not (_NUMBER.fullmatch(text) and 1 <= int(text) <= most):
        raise ValueError(f"limit must be a number from 1 to {most}")
    return int(text or default)


@contextmanager
def _refused(after: str) -> Generator[None]:
    try:
        yield
    except StoreUnavailable:
        raise
    except EngineError as error:
        if after:
            raise ValueError(f"after: {error}") from error
        raise


def _cross_site(request: Request) -> str:
    """The reason why a request may be another site's, sent by a user's browser; empty if it cannot be."""
    headers = request.headers
    if headers.get(_HEADER) != "1":
        return "the header X-Tenure-Action: 1 is missing, which no form can send"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return "the body must be sent as application/json"
    # browsers set both themselves; older ones, and those without TLS, only Origin
    if (site := headers.get("sec-fetch-site")) is not None:
        return "" if site == "same-origin" else "this was asked from another site"
    try:
        origin = urlsplit(headers.get("origin", "")).netloc
    except ValueError:
        origin = ""
    host = headers.get("host", "")
    return "" if origin and origin.lower() == host.lower() else "Origin does not name this site"
