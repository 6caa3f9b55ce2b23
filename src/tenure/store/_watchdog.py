"""The watchdog: a thread that keeps the sessions of a store alive while the event loop is blocked.

The thread renews by another engine, on an event loop of its own. It looks up no name: it connects to the address to
which the store's own connection was made.

| state    | event                                       | what follows                                | then     |
|----------|---------------------------------------------|---------------------------------------------|----------|
| asleep   | half a ttl has passed since a heartbeat     | the loop is asked for a sign of life        | asking   |
| asking   | the sign comes: the engine is away, or slow |                                             | asleep   |
|          | none comes for a twentieth of the ttl       | a warning names the line; sessions are kept | blocked  |
| blocked  | a third of the ttl has passed               | sessions are renewed                        | blocked  |
|          | the loop gives its sign                     | the other engine is closed                  | asleep   |
|          | `max_block` since the heartbeat was due     | sessions are lost, the blocking try fails   | given up |
| given up | the loop gives its sign                     | the lost holds are notified                 | asleep   |

C code that keeps the GIL stops the watchdog with the loop. In virtual time there is no watchdog.
"""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from inspect import CO_COROUTINE
from math import inf
from types import FrameType
from typing import cast

import anyio
from anyio import CancelScope

import tenure.engine as e
from tenure.errors import EngineError
from tenure.observe import is_ours, log
from tenure.upkeep import unwrapped_task_group
from tenure.waiting import loop_caller, runs_in_real_time

from ._sessions import Held, Session, boot_time

_NOT_THEIRS = ("<", *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OVERDUE, _PERIOD, _ASKING = 1 / 2, 1 / 3, 1 / 20
_PAUSE = 0.1
"""Seconds between two tries to reach an engine that is away."""
_MOST_REPEATS = 1000

_INSTEAD = 'use a thread, executor="process" or a longer max_block'


def overdue_in(now: float, heartbeats: Iterable[tuple[float, float]]) -> float:
    return min((beat + _OVERDUE * ttl - now for beat, ttl in heartbeats), default=inf)


def gives_up_at(heartbeats: Iterable[tuple[float, float]], max_block: float) -> float:
    return min((beat + _PERIOD * ttl for beat, ttl in heartbeats), default=inf) + max_block


class Watchdog:
    """The thread that watches over the loop of a store, and its sessions.

    `another` makes the engine that the thread uses. If it returns None, or `max_block` is 0, the watchdog only warns.
    Thread safety: `watch` and `stop` are for the loop, the rest is for the thread.
    """

    def __init__(
        self, url: str, sessions: Iterable[Session], another: Callable[[], e.Engine | None], max_block: float
    ) -> None:
        self.blocks: int = 0
        self.renewals: int = 0
        self._url = url
        self._sessions = sessions
        self._another = another
        self._max_block = max_block
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._giving_up = False
        self._wake = threading.Event()
        self._alive = threading.Event()
        self._interrupt: Callable[[], object] | None = None
        self._on_loop: Callable[[Callable[[], None]], None]
        self._loop_thread = 0

    def watch(self) -> None:
        if self._thread is not None:
            self._wake.set()
        elif not self._stopped and runs_in_real_time():
            self._on_loop, self._loop_thread = loop_caller(), threading.get_ident()
            thread = threading.Thread(target=self._run, name=f"tenure watchdog of {self._url}", daemon=True)
            try:
                thread.start()
                self._thread = thread
            except RuntimeError as problem:  # the loop renews all the same
                if threading.main_thread().is_alive():  # else as Python 3.12, which starts none in `atexit`
                    self._log(f"nothing watches the event loop: {problem}", error=problem)

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        self._give_sign()

    async def ended(self, seconds: float) -> None:
        pause = 0.0005
        with anyio.move_on_after(seconds, shield=True):
            while self._thread is not None and self._thread.is_alive():
                await anyio.sleep(pause)
                pause = min(2 * pause, _PAUSE)

    # the thread

    def _run(self) -> None:
        e.only_known.set(True)
        asked = -inf
        while not self._stopped:
            now = boot_time()
            # a sign of life counts as a heartbeat: the engine may be away while the loop lives
            beats = [(max(session.beat, asked), session.ttl) for session in self._usable()]
            if (seconds := overdue_in(now, beats)) > 0:
                self._wake.wait(min(seconds, threading.TIMEOUT_MAX))
                self._wake.clear()
                continue
            asked = now
            self._alive.clear()
            if self._stopped:
                return
            try:
                self._on_loop(self._give_sign)
            except RuntimeError:  # the loop has ended
                return
            if not self._alive.wait(_ASKING * min(ttl for _, ttl in beats)):
                try:
                    self._on_block()
                except Exception as problem:  # noqa: BLE001 the thread goes on
                    self._log(f"the watchdog cannot renew: {problem!r}", error=problem)
                self._alive.wait()

    def _usable(self) -> list[Session]:
        return [
            session
            for session in self._sessions
            if session.beat > -inf and not (session.resting or session.is_over())
        ]

    def _give_sign(self) -> None:
        # On the loop. A session that is closed before the verdict arrives would give the task back without a try. The
        # thread sets `_giving_up` before it ends a session, so it is read after the sessions.
        ended = [session for session in self._sessions if session.lost]
        if not self._giving_up:
            for session in ended:
                session.notify_of_block()
        self._alive.set()
        if (interrupt := self._interrupt) is not None:
            with suppress(RuntimeError):  # the other loop has just ended
                interrupt()

    def _on_block(self) -> None:
        self.blocks += 1
        sessions = self._usable()
        engine = self._another() if self._max_block else None
        place = _describe(_place(self._frame()))
        ttl = min((session.ttl for session in sessions), default=0.0)
        if engine is None:
            meaning = "when that lasts, leases are lost"
        elif engine.alone:
            meaning = "in memory no lease is lost by that"
        else:
            meaning = f"leases are kept for {self._max_block:g} s"
        self._log(f"the event loop is blocked; {meaning} (ttl {ttl:g} s). It is at {place}")
        if engine is not None:
            until = gives_up_at([(session.beat, session.ttl) for session in sessions], self._max_block)
            anyio.run(self._keep, engine, inf if engine.alone else until)

    async def _keep(self, engine: e.Engine, until: float) -> None:
        reported = False
        with CancelScope() as scope:
            self._interrupt = partial(loop_caller(), partial(self._end_keeping, scope))
            try:
                while not self._alive.is_set() and self._usable():
                    try:
                        async with unwrapped_task_group() as group:
                            await group.start(partial(engine.serve, f"{self._url} watchdog", _ignore))
                            await self._renew(engine, until)
                            group.cancel_scope.cancel("the watchdog has given up")
                    except (EngineError, ExceptionGroup) as problem:  # the engine is away
                        if not reported:
                            reported = True
                            self._log(
                                f"the event loop is blocked, and its sessions cannot be renewed: {problem}"
                            )
                        await anyio.sleep(_PAUSE)
            finally:
                self._interrupt = None

    def _end_keeping(self, scope: CancelScope) -> None:
        # the verdict would be lost with the engine, and `_renew` ends by itself after it
        if not self._giving_up:
            scope.cancel()

    async def _renew(self, engine: e.Engine, until: float) -> None:
        while (sessions := self._usable()) and not self._alive.is_set():
            if (sent := boot_time()) >= until:
                self._giving_up = True
                try:
                    # the loop may run again at once, and notifies no holder before the verdict is sent
                    with anyio.move_on_after(min(session.ttl for session in sessions), shield=True):
                        await self._give_up(engine, sessions)
                finally:
                    self._giving_up = False
                    with suppress(RuntimeError):  # the loop has ended
                        self._on_loop(self._give_sign)
                return
            for session in sessions:
                if await _apply(engine, e.RenewSession(session.id)) is e.Reply.OK:
                    session.extend_from_outside(sent)
                    self.renewals += 1
            period = _PERIOD * min(session.ttl for session in sessions)
            await anyio.sleep(max(0.0, min(sent + period, until) - boot_time()))

    async def _give_up(self, engine: e.Engine, sessions: list[Session]) -> None:
        frame = self._frame()
        frames = list(_walk(frame))
        file, line = _place(frame)[:2]
        problem = TimeoutError(
            f"the handler blocked the event loop for {self._max_block:g} s at {file}:{line}; {_INSTEAD}"
        )
        held = [hold for session in sessions for hold in list(session.held)]
        verdicts = {
            hold: verdict
            for hold in held
            if (verdict := hold._fail_from_outside(problem)) is not None  # pyright: ignore[reportPrivateUsage]
        }
        failed = [verdicts[hold] for hold in _on_stack(frames, held) if hold in verdicts]
        if not failed and len(verdicts) == 1:
            failed = [*verdicts.values()]
        # before the engine may grant these holds to others
        for session in sessions:
            session.abandon()
        self._log(f"{problem}. The sessions of this process have ended")
        for verdict in failed:
            await _apply(engine, verdict)
        for session in sessions:
            await _apply(engine, e.CloseSession(session.id))

    def _log(self, text: str, **fields: object) -> None:
        log(logging.WARNING, f"{self._url}: {text}", fields)

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]


def _ignore(_: e.Hint) -> None:
    pass


async def _apply(engine: e.Engine, operation: e.Operation[e.A]) -> e.A | EngineError | e.Reply:
    answer: e.A | EngineError | e.Reply = e.Reply.MORE
    for _ in range(_MOST_REPEATS):
        if answer is not e.Reply.MORE:
            break
        (answer,) = await engine.execute([operation])
    return answer


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    frames = [] if frame is None else [frame for frame, _ in traceback.walk_stack(frame)]
    while frames and not frames[-1].f_code.co_flags & CO_COROUTINE:
        frames.pop()
    return iter(frames)


def _place(frame: FrameType | None) -> tuple[str, int, str, str]:
    frames = ((frame, frame.f_lineno) for frame in _walk(frame))
    stack = traceback.StackSummary.extract(frames)
    theirs = [
        frame for frame in stack if not (frame.filename.startswith(_NOT_THEIRS) or is_ours(frame.filename))
    ]
    for summary in theirs or stack:
        return summary.filename, summary.lineno or 0, summary.name, summary.line or ""
    return "an unknown place", 0, "", ""


def _describe(place: tuple[str, int, str, str]) -> str:
    file, line, function, code = place
    return f"{file}:{line}, in {function}: {code}" if line else file


def _on_stack(frames: Iterable[FrameType], held: list[Held]) -> list[Held]:
    seen: set[int] = set()
    for frame in frames:
        for value in frame.f_locals.values():
            seen.add(id(value))
            if type(value) is list:
                seen.update(map(id, cast("list[object]", value)))
    return [hold for hold in held if id(hold) in seen]
