# pyright: reportPrivateUsage=false
from __future__ import annotations

import builtins
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, Unpack, overload

import anyio

import tenure.engine as e
from tenure.arguments import LONGEST_NAME, check_text, shows_options
from tenure.errors import CursorConflict, OutcomeUnknown
from tenure.observe import log
from tenure.shared._listing import Listing, listing_of
from tenure.store import decoded, handle_of, outcome_of, read_counts

from ._payload import P
from ._portions import StoredCursor
from ._schedule import (
    CURSOR,
    LARGEST_PAYLOAD,
    NOTHING,
    Alarm,
    Schedule,
    ScheduledQueue,
    ScheduleOptions,
    ScheduleState,
    plain,
    schedules_in,
)

MOST = 256
"""The most schedules that are kept for a queue, since all cursors are read whenever it is counted."""

_PERIOD = 5.0
"""Seconds between two reads of the schedules that other processes may have set."""


class Schedules(Generic[P]):
    """The schedules of a queue, kept in the store: any process may set, list, pause, resume and remove them.

        await queue.schedules.set("ann", cron="0 9 * * MON", tz="Europe/Berlin", payload={"to": "ann"})
        await queue.schedules.run()  # in one process or more

    `run` puts the tasks of their ticks, each tick once on record, and notices within 5 seconds what other processes
    have set; so does `tenure work`. A `Schedule` in the code of a program is listed here too; `set` refuses its name.
    """

    def __init__(self, queue: ScheduledQueue[P]) -> None:
        self.queue: ScheduledQueue[P] = queue
        self._store = store = handle_of(queue.store)
        self._alarm = store.listen(store.key("schedules", queue.name), Alarm)
        self._scope: anyio.CancelScope | None = None
        self._drained = False
        self._unreadable: set[str] = set()

    def __repr__(self) -> str:
        state = "drained" if self._drained else "idle" if self._scope is None else "running"
        return f"<Schedules of {self.queue.name!r} {state}>"

    @property
    def unready(self) -> str | None:
        """The reason why the schedules cannot put tasks, as of their store, in words; None if they can."""
        return self.queue.store.unready

    @overload
    async def set(
        self, name: str, *, every: float, payload: P | None = None, **options: Unpack[ScheduleOptions]
    ) -> None: ...
    @overload
    async def set(
        self, name: str, *, cron: str, payload: P | None = None, **options: Unpack[ScheduleOptions]
    ) -> None: ...
    @shows_options(ScheduleOptions, priority=0, delay=0.0, tz="UTC", missed="one", jitter=0.0)
    async def set(self, name: str, *, payload: P | None = None, **options: Any) -> None:
        """Set a schedule, with the arguments of `Schedule`: a new one begins now, and another one of the name changes.

        The ticks of a changed schedule count from the last tick on; a paused schedule stays paused. A schedule is
        removed after its `end`. Raises `ValueError` and `TypeError` for a wrong argument, a payload of more than 4
        KiB, and an option that is no number, text or mapping of texts. Raises `ValueError` for the name of a schedule
        that code keeps, `RuntimeError` if the queue has 256 schedules, `StoreClosed`, `EngineError`. Cancellation: it
        may or may not be set.
        """
        made: Schedule[P] = Schedule(self.queue, name, payload=payload, **options)
        for option, value in made.options.items():
            if value is not None and plain(value) is None:
                raise TypeError(f"{option} cannot be kept with a schedule in the store: {value!r}")
        made.kept_in_store = True
        document = made._document(0.0, paused=False)
        if payload is not None and not {"payload", "payload_base64"} & document.keys():
            raise ValueError(
                f"payload must have at most {LARGEST_PAYLOAD:,} bytes in a schedule in the store"
            )

        def change(before: dict[str, Any] | None, now: float) -> dict[str, Any]:
            if before is None:
                return made._document(now, paused=False)
            if not before.get("kept"):
                raise ValueError(
                    f"name must be of no schedule that code keeps, and {name!r} is: change it there, or remove it first"
                )
            return made._document(before["tick"], paused=bool(before.get("paused")))

        await self._change(made.name, change)
        self._alarm.ring()

    def list(self) -> Listing[Schedule[P]]:
        """The schedules of the queue as they are on record, by name."""

        async def read() -> builtins.list[Schedule[P]]:
            return self._in(await read_counts(self._store, self.queue.key))

        return listing_of(read, attrgetter("name"))

    async def pause(self, name: str) -> bool:
        """Put nothing at the ticks of a schedule until `resume`. Returns False if there is no such schedule.

        No tick is put after the call has returned. Cancellation: it may or may not be applied.
        """
        return await self._set_paused(name, paused=True)

    async def resume(self, name: str) -> bool:
        """Put tasks at the ticks of a schedule again, from now on: ticks of the pause are not missed.

        Returns False if there is no such schedule. Cancellation: it may or may not be applied.
        """
        return await self._set_paused(name, paused=False)

    async def remove(self, name: str) -> bool:
        """Forget a schedule, and put no more ticks of it. Returns False if there is no such schedule.

        A schedule that code keeps begins anew where that code runs: pause it instead. Cancellation: it may or may not
        be applied.
        """
        return await self._change(name, lambda before, _: None if before is None else NOTHING)

    async def run_now(self, name: str) -> int:
        """Put a task of a schedule, as `Schedule.run_now`. Raises `LookupError` for an unknown name.

        Cancellation: as with `put`.
        """
        return await (await self._found(name)).run_now()

    async def next(self, name: str) -> datetime | None:
        """The time of the next tick of a schedule, as `Schedule.next`. Raises `LookupError` for an unknown name."""
        return next(iter((await self._found(name)).coming()), None)

    async def run(self) -> None:
        """Put a task at each tick of the schedules that are kept in the store, until cancelled or drained.

        A schedule that cannot be read here, for instance in an unknown time zone, is named in a warning of the logger
        `tenure`. Raises and cancellation as `Schedule.run`.
        """
        if self._scope is not None:
            raise RuntimeError(f"{self!r}: runs already")
        try:
            with anyio.CancelScope() as self._scope:
                while not self._drained:
                    await self._alarm.sleep(await self._step())
        finally:
            self._scope = None

    async def drain(self) -> None:
        """End `run` at once: it leaves nothing half done. Cancellation: it ends all the same."""
        if self._scope is not None:
            self._store.home.check()
        self._drained = True
        if self._scope is not None:
            self._scope.cancel("drained")

    # inside

    async def _step(self) -> float:
        soonest, counts = _PERIOD, await read_counts(self._store, self.queue.key, patient=True)
        stored = dict(counts.cursors)
        for schedule in self._in(counts):
            if not schedule.kept_in_store or schedule.paused:
                continue
            try:
                schedule._check()
            except (ValueError, TypeError, ModuleNotFoundError) as problem:
                if schedule.name not in self._unreadable:
                    self._unreadable.add(schedule.name)
                    what = f"schedule {schedule.name} of queue {self.queue.name} cannot run here"
                    log(logging.WARNING, f"{what}: {problem}")
                continue
            # another process was first, or perhaps this one: the cursor says so
            with suppress(CursorConflict, OutcomeUnknown):
                cursor = StoredCursor(stored[CURSOR + schedule.name])
                soonest = min(
                    soonest, await schedule._step(ScheduleState(cursor, schedule.tick, False, counts.now))
                )
                continue
            soonest = 0.0
        return soonest

    def _in(self, counts: e.QueueCounts) -> builtins.list[Schedule[P]]:
        return schedules_in(counts, self.queue.store.codec, self.queue.codec, self.queue)

    async def _found(self, name: str) -> Schedule[P]:
        name = _checked(name)
        async for schedule in self.list():
            if schedule.name == name:
                return schedule
        raise LookupError(f"queue {self.queue.name!r} has no schedule {name!r}")

    async def _set_paused(self, name: str, *, paused: bool) -> bool:
        def change(before: dict[str, Any] | None, now: float) -> dict[str, Any] | None:
            if before is None or bool(before.get("paused")) is paused:
                return before
            after = {key: value for key, value in before.items() if key != "paused"}
            return {**after, "paused": True} if paused else {**after, "tick": now}

        changed = await self._change(name, change)
        self._alarm.ring()
        return changed

    async def _change(self, name: str, change: Callable[[dict[str, Any] | None, float], Any]) -> bool:
        store, cursor, unsure = self._store, CURSOR + _checked(name), False
        while True:
            counts = await read_counts(store, self.queue.key)
            stored = dict(counts.cursors).get(cursor)
            before = None if stored is None else decoded(store.codec, f"{self.queue.key}: {cursor}", stored)
            after = change(before, counts.now)
            if after is None or after is before:
                return after is not None or unsure
            if before is None and sum(each.startswith(CURSOR) for each, _ in counts.cursors) >= MOST:
                raise RuntimeError(f"queue {self.queue.name!r} has {MOST} schedules, which is the most")
            expected = None if stored is None else StoredCursor(stored)
            try:
                with store.promptly(self.queue.key, f"the change of the schedule {outcome_of(sent=True)}"):
                    await self.queue.put_many([], cursor=(cursor, after), expected=expected)
            except CursorConflict:
                continue
            except OutcomeUnknown:
                unsure = True
            else:
                return True


def _checked(name: object) -> str:
    return check_text("name", name, most=LONGEST_NAME - len(CURSOR))
