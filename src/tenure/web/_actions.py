"""The changes that an operator may make from the page; each is logged with the user who asked for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, cast

from tenure.arguments import LARGEST, check_count, check_name, check_seconds, check_task_id
from tenure.engine import CAP, TASK, Move, MovedCount, Scan, SetPaused
from tenure.errors import DuplicateTask, TaskNotWaiting
from tenure.observe import log
from tenure.shared import (
    Schedules,
    Selection,
    break_holder,
    check_group,
    check_selection,
    edit_task,
    move_selected,
    queue_of,
)
from tenure.store import Store, read_counts

_PURGEABLE = ("waiting", "delayed", "dead", "done", "discarded", "cancelled", "expired")
_BREAKABLE = ("lock", "rwlock", "semaphore", "election")
_MOST_IDS = 10_000
_CANCELLED_TTL = 3600.0
"""Seconds for which the record of a task that was cancelled here is kept: the default of `WorkQueue`."""

_UNFINISHED = ("waiting", "delayed", "leased", "suspended", "ending")
_SELECTS = (*Selection.__annotations__, "limit", "dry_run")
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
    "purge": {"queue", "states", *_SELECTS},
    "pause": {"queue"},
    "resume": {"queue"},
    **{action: {"queue", "name"} for action in _SCHEDULE_ACTIONS},
    "break": {"kind", "name", "token"},
}


class Actions:
    """Carries out actions, sent as JSON objects."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def act(self, asked: object, by: str) -> dict[str, Any]:
        """Do the requested action and return how much was changed, as {"changed": n}.

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
        done = self._break(body) if action == "break" else self._change(action, body)
        try:
            changed = await done
        except (ValueError, TypeError):
            raise  # refused before anything was sent
        except BaseException:
            _log(body, "outcome=unknown", by)
            raise
        _log(body, f"changed={changed}", by)
        return {"changed": changed}

    async def _change(self, action: str, body: dict[str, Any]) -> int:
        name = check_name("queue", body.get("queue"))
        key = self._store.key("queue", name)
        counts = await read_counts(self._store, key)
        if not counts.known:
            raise ValueError(f"there is no queue {name}")
        match action:
            case "pause" | "resume":
                await self._store.call(SetPaused(key, paused=action == "pause"))
                return int(
                    counts.paused is not (action == "pause") or (action == "resume" and counts.held_off > 0)
                )
            case _ if action in _SCHEDULE_ACTIONS:
                schedules = Schedules(queue_of(self._store, name))
                return await self._change_schedule(schedules, action, check_name("name", body.get("name")))
            case "purge":
                return await self._purge(key, body)
            case "requeue" if not body.keys().isdisjoint(_SELECTS):
                if not body.keys().isdisjoint(("ids", "all")):
                    raise ValueError("requeue takes ids, all or a selection")
                return await self._move_selected(key, {"dead"}, "waiting", body)
            case "cancel" if "state" in body:
                if "ids" in body or body["state"] not in _UNFINISHED:
                    raise ValueError(f"cancel takes ids, or one of {', '.join(_UNFINISHED)} as the state")
                return await self._move_selected(key, {body["state"]}, "cancelled", body)
            case "edit":
                return await self._edit(key, body)
            case "requeue" if "all" in body:
                if body["all"] is not True or "ids" in body:
                    raise ValueError("requeue takes ids or all, which must be true")
                return await self._move_all(Move(key, frozenset({"dead"}), "waiting"))
            case "requeue":
                return await self._move_each(key, body.get("ids"), "waiting")
            case _ if not body.keys().isdisjoint(_SELECTS):
                raise ValueError("cancel takes ids, or a state and what else selects tasks")
            case _:
                return await self._move_each(key, body.get("ids"), "cancelled")

    async def _change_schedule(self, schedules: Schedules[Any], action: str, name: str) -> int:
        try:
            return int(bool(await _SCHEDULE_ACTIONS[action](schedules, name)))
        except (LookupError, DuplicateTask, ModuleNotFoundError) as refused:
            raise ValueError(str(refused)) from refused

    async def _move_selected(self, key: str, states: Iterable[str], to: Any, body: dict[str, Any]) -> int:
        selection = {name: body[name] for name in Selection.__annotations__ if name in body}
        return await move_selected(
            *(self._store, key, states, to, check_selection(selection)),
            ttl=_CANCELLED_TTL,
            most=body.get("limit"),
            dry_run=body.get("dry_run", False),
        )

    async def _purge(self, key: str, body: dict[str, Any]) -> int:
        states = body.get("states")
        named = cast("list[object]", states) if isinstance(states, list) else []
        chosen = frozenset(name for name in named if isinstance(name, str))
        if not chosen or len(chosen) < len(named) or not chosen.issubset(_PURGEABLE):
            raise ValueError(f"states must be a list of some of {', '.join(_PURGEABLE)}, each once")
        if not body.keys().isdisjoint(_SELECTS):
            return await self._move_selected(key, chosen, "purged", body)
        return await self._move_all(Move(key, chosen, "purged"))

    async def _edit(self, key: str, body: dict[str, Any]) -> int:
        if not body.keys() & {"priority", "delay", "group"}:
            raise ValueError("edit takes at least one of priority, delay and group")
        found = Scan(TASK, key, only=str(check_task_id("id", body.get("id"))))
        priority, delay, group = body.get("priority"), body.get("delay"), body.get("group")
        move = Move(
            *(key, (), "delayed"),
            delay=None if delay is None else check_seconds("delay", delay),
            priority=None if priority is None else check_count("priority", priority, least=-LARGEST),
            group=None if "group" not in body else "" if group is None else check_group("group", group),
        )
        try:
            await edit_task(self._store, found, move)
        except TaskNotWaiting as refused:
            raise ValueError(f"{refused.named} is {refused.state}, and was not changed") from None
        return 1

    async def _move_all(self, move: Move) -> int:
        total, moved = 0, MovedCount(0, more=True)
        while moved.more:
            moved = await self._move(Move(move.key, move.which, move.to, moved.after))
            total += moved.count
        return total

    async def _move_each(self, key: str, ids: object, to: Any) -> int:
        if not isinstance(ids, list) or not 0 < len(cast("list[object]", ids)) <= _MOST_IDS:
            raise ValueError(f"ids must be a list of 1 to {_MOST_IDS:,} ids of tasks")
        checked = tuple(check_task_id("ids", task_id) for task_id in cast("list[object]", ids))
        total = 0
        for start in range(0, len(checked), CAP):
            move = Move(key, checked[start : start + CAP], to, ttl=_CANCELLED_TTL)
            total += (await self._move(move)).count
        return total

    async def _move(self, move: Move) -> MovedCount:
        moved = await self._store.call(move)
        assert isinstance(moved, MovedCount)
        return moved

    async def _break(self, body: dict[str, Any]) -> int:
        kind = body.get("kind")
        if not isinstance(kind, str) or kind not in _BREAKABLE:
            raise ValueError(f"kind must be one of {', '.join(_BREAKABLE)}")
        key = self._store.key(kind, check_name("name", body.get("name")))
        token = check_count("token", body.get("token"), most=2**63 - 1)
        return int(await break_holder(self._store, key, token))


def _log(body: dict[str, Any], outcome: str, by: str) -> None:
    # not by the store's reporter, which leaves lines out when there are many
    facts = [f"{name}={_short(value)}" for name, value in body.items() if name != "action"]
    log(logging.WARNING, " ".join([f"page.{body['action']}", *facts, outcome, f"by={by}"]))


def _short(value: object) -> str:
    # repr: what comes from elsewhere cannot begin a line of its own in the log
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
