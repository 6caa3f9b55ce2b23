"""The changes that an operator may make from the page; each is logged with the user who asked for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, cast

from tenure.arguments import check_name, check_task_id
from tenure.engine import CAP, Move, MovedCount
from tenure.errors import DuplicateTask, TaskNotWaiting
from tenure.limits import Limit
from tenure.observe import log
from tenure.shared import RateLimiter, Schedules, Selection, WorkQueue, break_holder, queue_of
from tenure.store import Store, handle_of, read_counts, together

from ._view import read_limiters

_PURGEABLE = ("waiting", "delayed", "dead", "done", "discarded", "cancelled", "expired")
_BREAKABLE = ("lock", "rwlock", "semaphore", "election")
_MOST_IDS = 10_000

_UNFINISHED = ("waiting", "delayed", "leased", "suspended", "ending")
_SELECTED_BY = tuple(Selection.__dataclass_fields__)
_SELECTS = (*_SELECTED_BY, "limit", "dry_run")
"""The fields by which tasks are selected, in place of their ids or all of them."""

_SCHEDULE_ACTIONS = {
    "pause_schedule": Schedules.pause,
    "resume_schedule": Schedules.resume,
    "remove_schedule": Schedules.remove,
    "run_schedule": Schedules.run_now,
}

_FIELDS = {
    "requeue": {"queue", "ids", "all", *_SELECTS},
    "cancel": {"queue", "ids", "state", *_SELECTS},
    "edit": {"queue", "id", "priority", "delay", "group"},
    "purge": {"queue", "ids", "states", *_SELECTS},
    "pause": {"queue"},
    "resume": {"queue"},
    **{action: {"queue", "name"} for action in _SCHEDULE_ACTIONS},
    "break": {"kind", "name", "token"},
    "release": {"name"},
}


class Actions:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._handle = handle_of(store)

    async def act(self, asked: object, by: str) -> dict[str, Any]:
        """Do the requested action, and return {"changed": n}.

        Raises `ValueError` and `TypeError` for what cannot be done, `EngineError`. Cancellation: it may or may not be
        applied, and is logged as such.
        """
        if not isinstance(asked, dict):
            raise TypeError("the body must be a JSON object")
        body = cast("dict[str, Any]", asked)
        action = body.get("action")
        if not isinstance(action, str) or action not in _FIELDS:
            raise ValueError(f"action must be one of {', '.join(_FIELDS)}")
        if unknown := body.keys() - _FIELDS[action] - {"action"}:
            raise ValueError(f"{action} takes no {', '.join(sorted(unknown))}")
        match action:
            case "break":
                done = self._break(body)
            case "release":
                done = self._release(body)
            case _:
                done = self._change(action, body)
        try:
            changed = int(await done)
        except (ValueError, TypeError):
            raise  # refused before anything was sent
        except BaseException:
            _log(body, "outcome=unknown", by)
            raise
        _log(body, f"changed={changed}", by)
        return {"changed": changed}

    async def _release(self, body: dict[str, Any]) -> bool:
        return await release_limiter(self._store, check_name("name", body.get("name"))) > 0

    async def _change(self, action: str, body: dict[str, Any]) -> int:
        name = check_name("queue", body.get("queue"))
        counts = await read_counts(self._handle, self._handle.key("queue", name))
        if not counts.known:
            raise ValueError(f"there is no queue {name}")
        queue = queue_of(self._store, name)
        selects = not body.keys().isdisjoint(_SELECTS)
        match action:
            case "pause" | "resume":
                await (queue.pause() if action == "pause" else queue.resume())
                return int(
                    counts.paused is not (action == "pause") or (action == "resume" and counts.held_off > 0)
                )
            case _ if action in _SCHEDULE_ACTIONS:
                return await self._change_schedule(
                    queue.schedules, action, check_name("name", body.get("name"))
                )
            case "purge" if "ids" in body:
                if selects:
                    raise ValueError("purge takes ids or a selection, and states")
                return await self._purge(queue, _ids(body), _states(body))
            case "purge":
                return await queue.purge(*_states(body), **_selected(body))
            case "requeue" if selects:
                if not body.keys().isdisjoint(("ids", "all")):
                    raise ValueError("requeue takes ids, all or a selection")
                return await queue.requeue(**_selected(body))
            case "cancel" if "state" in body:
                if "ids" in body or body["state"] not in _UNFINISHED:
                    raise ValueError(f"cancel takes ids, or one of {', '.join(_UNFINISHED)} as the state")
                return await queue.cancel(state=body["state"], **_selected(body))
            case "edit":
                return await self._edit(queue, body)
            case "requeue" if "all" in body:
                if body["all"] is not True or "ids" in body:
                    raise ValueError("requeue takes ids or all, which must be true")
                return await queue.requeue()
            case "requeue":
                return await queue.requeue(_ids(body))
            case _ if selects:
                raise ValueError("cancel takes ids, or a state and what else selects tasks")
            case _:
                return sum(await together(*(partial(queue.cancel, task_id) for task_id in _ids(body))))

    async def _change_schedule(self, schedules: Schedules[Any], action: str, name: str) -> int:
        try:
            return int(bool(await _SCHEDULE_ACTIONS[action](schedules, name)))
        except (LookupError, DuplicateTask, ModuleNotFoundError) as refused:
            raise ValueError(str(refused)) from refused

    async def _purge(self, queue: WorkQueue, ids: list[int], states: Iterable[str]) -> int:
        portions = [tuple(ids[start : start + CAP]) for start in range(0, len(ids), CAP)]
        moves = [Move(queue.key, portion, "purged", state=state) for portion in portions for state in states]
        return sum([cast("MovedCount", await self._handle.call(move)).count for move in moves])

    async def _edit(self, queue: WorkQueue, body: dict[str, Any]) -> int:
        changes = {name: body[name] for name in ("priority", "delay", "group") if name in body}
        if not changes:
            raise ValueError("edit takes at least one of priority, delay and group")
        try:
            await queue.edit(check_task_id("id", body.get("id")), **changes)
        except TaskNotWaiting as refused:
            raise ValueError(f"{refused.named} is {refused.state}, and was not changed") from None
        return 1

    async def _break(self, body: dict[str, Any]) -> int:
        kind = body.get("kind")
        if not isinstance(kind, str) or kind not in _BREAKABLE:
            raise ValueError(f"kind must be one of {', '.join(_BREAKABLE)}")
        key = self._handle.key(kind, check_name("name", body.get("name")))
        return int(await break_holder(self._handle, key, body.get("token", 0)))


async def release_limiter(store: Store, name: str) -> float:
    """End a hold of a limiter. Returns the seconds that were left of it."""
    handle = handle_of(store)
    limiters = await read_limiters(handle, [handle.key("rate", name)])
    await RateLimiter(store, name, Limit(1)).hold_off(0)
    return limiters[name].held_off


def _selected(body: dict[str, Any]) -> dict[str, Any]:
    where = {name: body[name] for name in _SELECTED_BY if name in body}
    options = {name: body[name] for name in ("limit", "dry_run") if name in body}
    return {"where": Selection(**where), **options} if where else options


def _states(body: dict[str, Any]) -> frozenset[str]:
    states = body.get("states")
    named = cast("list[object]", states) if isinstance(states, list) else []
    chosen = frozenset(name for name in named if isinstance(name, str))
    if not chosen or len(chosen) < len(named) or not chosen.issubset(_PURGEABLE):
        raise ValueError(f"states must be a list of some of {', '.join(_PURGEABLE)}, each once")
    return chosen


def _ids(body: dict[str, Any]) -> list[int]:
    ids = body.get("ids")
    if not isinstance(ids, list) or not 0 < len(cast("list[object]", ids)) <= _MOST_IDS:
        raise ValueError(f"ids must be a list of 1 to {_MOST_IDS:,} ids of tasks")
    return [check_task_id("ids", task_id) for task_id in cast("list[object]", ids)]


def _log(body: dict[str, Any], outcome: str, by: str) -> None:
    # not by the store's reporter, which leaves lines out when there are many
    facts = [f"{name}={_short(value)}" for name, value in body.items() if name != "action"]
    log(logging.WARNING, " ".join([f"page.{body['action']}", *facts, outcome, f"by={by}"]))


def _short(value: object) -> str:
    # repr: what comes from elsewhere cannot begin a line of its own in the log
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
