"""Takers: settling tasks and taking more, in one exchange for the whole process.

Group commit without a timer: what gathers while an exchange is on its way leaves with the next.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import anyio

import tenure.engine as e
from tenure.errors import StoreClosed
from tenure.store import Batcher, Held, Session, StoreHandle, Timer
from tenure.waiting import Line, Waiter, now

from ._demand import Demand
from ._pace import Pace
from ._settings import QueueRecord
from ._suspects import PATIENCE, Suspects, room

_MARKS = (e.Verdict.NOTE, e.Verdict.ALONE)

_LATER = 30.0

_GLANCE = 0.1

OnSettled = Callable[[str | None], object]
"""Called with the reason of `LeaseLost`, or None if the verdict was accepted."""


class Dismissed(Exception):
    """A group of takers takes no more."""


class Holder(Protocol):
    def _stop(self) -> None: ...


class Takers(Held):
    """The takers of a queue in this process."""

    def __init__(self, store: StoreHandle, key: str, listener: object, record: QueueRecord) -> None:
        self.user: Callable[[], object | None] = lambda: None
        self.store = store
        self._home = store.home
        self._key = key
        self._listener = listener
        self.record = record
        self._demand = Demand()
        self._pace = Pace()
        self._fixed = 0  # tasks that workers fetch ahead by their options
        self._by_pace = 0  # workers that fetch ahead by the pace
        self._line: Line[object, tuple[Session, e.Taken]] = Line(self._left, f"the queue {key}")
        self._probes: dict[Waiter[object, tuple[Session, e.Taken]], bool] = {}  # in line too; True: asked for
        self._prefetched: deque[tuple[Session, e.Taken]] = deque()  # no taker is in line
        self._batcher = Batcher(store, key, store.ttl, self)
        self._settling: deque[tuple[Session, e.Settle, OnSettled]] = deque()
        self._sent: list[tuple[Session, e.Settle, OnSettled]] = []
        self._unknown: list[tuple[Session, e.Settle]] = []
        self._holders: dict[int, Holder | None] = {}  # by token; None: on its way to its taker
        self._stopped: set[int] = set()  # tokens that no taker here has yet
        self._registered_in: Session | None = None
        self._alarm = Timer(store.call_at, self.reask)
        self.suspects: Suspects = Suspects(self)
        self._glance = Timer(store.call_at, self._look)
        self._late = Timer(store.call_at, self._give_back_late)
        self._idling: Line[None, None] = Line(owner=f"the queue {key}")
        self._closed = False
        self._seen: tuple[object, float] = (None, 0.0)
        self._seen_at = 0.0

    def __len__(self) -> int:
        return len(self._line)

    @property
    def stalled(self) -> str | None:
        """The reason why takers wait in vain although the engine can be reached, or None."""
        seen = (self._batcher.call, self._alarm.due)
        if seen != self._seen:
            self._seen, self._seen_at = seen, now()
        registered = self._demand.registered > 0 and not self._batcher.busy
        since = max(self._seen_at, self._alarm.due) if registered else self._seen_at
        if not len(self._line) or (seconds := now() - since) <= self.store.ttl or room.is_closed():
            return None
        return f"no exchange with the engine has come back for {seconds:.0f} s, while {len(self._line):,} takers wait"

    @property
    def in_hand(self) -> int:
        """The number of tasks that takers here have, or whose verdict is not on record; without kept suspects."""
        session = self.record.sent_in
        if self._closed or session is None or session.is_over():
            return 0
        return len(self._holders) - len(self.suspects.kept) + len(self._settling) + len(self._sent)

    async def take(self, group: object = None) -> tuple[Session, e.Taken]:
        """Take the next task. Raises `Dismissed` if the group is dismissed.

        Cancellation: what was taken is given back.
        """
        while True:
            self._check_open()
            if len(self._line) >= self._demand.registered:
                self._batcher.schedule()
            session, taken = await self._line.wait(self._join(group))
            # a runner looks at the clocks itself, as its handler begins; of a block, the body begins now
            if (session.check() if group is None else session.lost) is None and not self._closed:
                return session, taken
            self._give_back(session, taken)

    async def take_at_once(self) -> tuple[Session, e.Taken] | None:
        self._check_open()
        self._batcher.schedule()
        probe = self._join(None)
        self._probes[probe] = False
        try:
            session, taken = await self._line.wait(probe)
        except anyio.WouldBlock:
            return None
        finally:
            self._probes.pop(probe, None)
        if session.check() is None and not self._closed:
            return session, taken
        self._give_back(session, taken)
        return None

    async def take_many(self, group: object, most: int, linger: float) -> list[tuple[Session, e.Taken]]:
        """Take the next task, and up to `most` in all within `linger` seconds after it; otherwise as `take`."""
        line = self._line
        while True:
            self._check_open()
            if len(line) + most > self._demand.registered:
                self._batcher.schedule()
            waiters = [self._join(group) for _ in range(most)]
            try:
                await line.wait(waiters[0])
                if not waiters[-1].granted:
                    with suppress(Dismissed), anyio.move_on_after(linger):
                        await line.wait(waiters[-1])
            except BaseException:
                for waiter in waiters:
                    line.leave(waiter)
                raise
            if not waiters[-1].granted:
                self._leave_for_now(waiters)
            deliveries: list[tuple[Session, e.Taken]] = []
            for session, taken in (waiter.value for waiter in waiters if waiter.granted):
                if session.check() is None and not self._closed:
                    deliveries.append((session, taken))
                else:
                    self._give_back(session, taken)
            if deliveries:
                return deliveries

    def _leave_for_now(self, waiters: list[Waiter[object, tuple[Session, e.Taken]]]) -> None:
        for waiter in waiters:
            if not waiter.granted:
                self._line.leave(waiter)
        self._demand.left(len(self._line), busy=self._batcher.busy)
        if self._demand.reask:
            self._batcher.schedule()

    def hold(self, token: int, holder: Holder) -> None:
        self._holders[token] = holder
        if token in self._stopped:
            holder._stop()

    def settle(self, session: Session, settle: e.Settle, on_settled: OnSettled) -> None:
        """Let go of a task with a verdict, which nothing stops from here on."""
        self._home.check()
        if self._holders.pop(settle.token, None) is not None and self._by_pace:
            self._pace.ended += 1
            if not self._holders:
                self._pace.rest()
        if session.lost is not None:  # the engine takes the task back with the session
            on_settled(session.lost)
        else:
            self._settling.append((session, settle, on_settled))
            self._batcher.schedule()

    def prefetch(self, count: int | None, sign: int) -> None:
        """Allow for `count` prefetched tasks more, or fewer; None: by the pace."""
        if not self._closed:
            self._by_pace += sign * (count is None)
            self._fixed += sign * (count or 0)
            self._demand.prefetch = self._fixed
            self._give_back_prefetched(but=self._fixed)
            self._give_back_suspects()

    def dismiss(self, group: object) -> None:
        for waiter in self._line:
            if waiter.want is group:
                self._line.fail(waiter, Dismissed())

    async def until_idle(self) -> None:
        while self._batcher.busy or self._settling:
            await self._idling.wait(self._idling.join(None))

    # what the batcher asks

    def next_operation(self, session: Session, n: int) -> e.Operation[Any] | None:
        if self._unknown:
            self._give_back_unknown()
        while self._settling and len(self._sent) < e.CAP:
            entry = self._settling.popleft()
            if entry[0] is session:
                self._sent.append(entry)
            else:  # its session was lost before this could be said
                entry[2](entry[0].lost)
        demand, waiting = self._demand, len(self._line)
        if room.session is not None and room.is_closed():
            waiting = demand.prefetch_window = 0
            self._glance.set(_GLANCE)
        if not (self._sent or self._probes or demand.is_needed(waiting)):
            self._wake_idling()
            return None
        # takers that came for one try wait for this answer only
        self._probes = {probe: True for probe in self._probes if probe.waiting}
        want = demand.ask(waiting, probing=len(self._probes), prefetched=len(self._prefetched))
        record = self.record
        if record.sent_in is not session or record.pending or session.deadline > record.send_again_at:
            record.send(session)
        if self._by_pace:
            self._pace.leaves()
        return e.Exchange(
            session.id,
            n,
            self._key,
            tuple(entry[1] for entry in self._sent),
            want,
            demand.advertising,
        )

    def on_answer(self, session: Session, answer: e.Exchanged) -> bool:
        sent, self._sent = self._sent, []
        session.unreleased.pop(self, None)
        if answer.revision != self.record.revision:
            self.record.seen(answer.revision)
        for _, settle, on_settled in sent:
            on_settled("refused" if settle.token in answer.refused else None)
        tasks = answer.tasks
        apart = room.session is not None and room.is_closed()
        for taken in tasks:  # all are looked at before one begins
            if taken.deliveries - taken.attempts > self.suspects.first:
                apart = True
        if apart:
            tasks = self._keep_suspects(session, tasks)
        for taken in tasks:
            self._hand_over(session, taken)
        if self._by_pace:
            self._look_ahead()
        if answer.paused:
            self._give_back_prefetched()
            self._give_back_suspects()
        for token in answer.stop:
            self.stop(token)
        if self._stopped:
            self._stopped &= self._holders.keys()
        if apart:
            self._proceed()
        if self._probes and not any(settle.verdict in _MARKS for _, settle, _ in self._settling):
            for probe in [probe for probe, asked in self._probes.items() if asked]:
                self._line.fail(probe, anyio.WouldBlock())
        idle = self._demand.answered(len(answer.tasks), usable=session.lost is None and not self._closed)
        self._register(session)
        if idle or self._holders or len(self._line):
            self._alarm.set(answer.ask_again_in)
        self._go_on()
        # the engine works on the next exchange while these tasks begin, if the exchange can ask for as many again
        return bool(self._settling) and 0 < 2 * len(self._prefetched) <= self._demand.prefetch

    def on_session_lost(self, *, resent: bool) -> None:
        sent, self._sent = self._sent, []
        for _, _, on_settled in sent:
            on_settled("unacknowledged" if resent else "gone")
        self._demand.session_lost()
        self._proceed()
        self._go_on()

    def on_error(self, error: Exception, session: Session | None) -> None:
        self._settling.extendleft(reversed(self._sent))
        self._sent = []
        self._demand.failed()
        self._give_back_prefetched()
        if session is None:
            while self._settling:
                lost, _, on_settled = self._settling.popleft()
                on_settled(lost.lost or "unacknowledged")
        elif self._settling or self._unknown:
            # sent again at each heartbeat; without success for a ttl, the session ends
            session.unreleased.setdefault(self, now())
        self._line.fail_all(lambda: type(error)(*error.args))
        self._wake_idling()

    def wake(self) -> None:
        """Do nothing: a caller that waits for a verdict has its own deadline."""

    def send_again(self) -> None:
        self._batcher.schedule()

    # hints

    def on_ready(self) -> None:
        busy = self._batcher.busy
        self._demand.hinted(busy=busy)
        if not busy and (self._demand.promised or len(self._line)):
            self._batcher.schedule()

    def reask(self) -> None:
        """Ask again: hints may have been lost, and the engine sends none for a queue that it has forgotten."""
        demand = self._demand
        demand.registered = 0
        if len(self._line) or self._holders or (demand.advertised and self.user() is None):
            demand.reask = True
            self._batcher.schedule()
        elif demand.advertised:
            self._alarm.set(_LATER)

    def stop(self, token: int) -> None:
        holder = self._holders.get(token)
        for untaken in (self._prefetched, self.suspects.kept):
            for pair in [pair for pair in untaken if pair[1].token == token]:
                untaken.remove(pair)
                self._give_back(*pair)
                return
        if holder is None:
            self._stopped.add(token)  # it may still be on its way
        else:
            holder._stop()

    def on_found(self, session: Session, settle: e.Settle) -> None:
        """Give back a task that the engine says this process has, if no taker here has it."""
        self._unknown.append((session, settle))
        self._batcher.schedule()

    def on_found_idle(self) -> None:
        if not (self._demand.advertised or self._batcher.busy):
            self._demand.reask = True
            self._batcher.schedule()

    def close(self) -> None:
        self._closed = True
        self._demand.prefetch = self._fixed = self._by_pace = 0
        self._give_back_prefetched()
        self._give_back_suspects()
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    @property
    def _rests(self) -> bool:
        return not (self._holders or self._settling or self._sent or self._probes or self._batcher.busy)

    def _rest(self, seconds: float) -> None:
        self._alarm.stop()
        if not seconds:
            self.reask()

    def _lose(self, reason: str) -> None:
        del reason
        self._demand.session_lost()
        self._register(None)
        if len(self._line):
            self._batcher.schedule()

    # inside

    def _check_open(self) -> None:
        self._home.check()
        if self._closed:
            raise StoreClosed("the store is closed")

    def _join(self, group: object) -> Waiter[object, tuple[Session, e.Taken]]:
        waiter = self._line.join(group)
        if self.record.pending and self.record.sent_in is not None:  # else the next exchange sends them
            self.record.announce()
        while self._prefetched and not waiter.granted:
            session, taken = self._prefetched.popleft()
            if session.check() is None:
                self._line.grant(waiter, (session, taken))
            else:
                self._give_back(session, taken)
        if self.suspects.kept:
            self._proceed()
        return waiter

    def _hand_over(self, session: Session, taken: e.Taken) -> None:
        if taken.deadline is not None:
            taken = _in_loop_time(taken)
        taker = self._line.head()
        if session.lost is not None or (taker is None and len(self._prefetched) >= self._demand.prefetch):
            self._give_back(session, taken)
            return
        self._holders[taken.token] = None
        if taker is None:
            self._prefetched.append((session, taken))
        else:
            self._line.grant(taker, (session, taken))

    def _keep_suspects(self, session: Session, tasks: Sequence[e.Taken]) -> Sequence[e.Taken]:
        """Suspects have come, or others of this process have the room; no task may begin now."""
        suspects = self.suspects
        if not suspects.here:
            self._forget_suspects()
        back = suspects.keep(session, [_in_loop_time(taken) for taken in tasks])
        for _, taken in suspects.kept:
            self._holders.setdefault(taken.token, None)
        self._give_back_prefetched()
        for taken in back:
            self._give_back(session, taken)
        self._glance.set(_GLANCE)
        return ()

    def _proceed(self) -> None:
        suspects = self.suspects
        if not suspects.here:
            self._forget_suspects()
        elif suspects.have_ended(self._holders.keys()):
            suspects.leave()
        elif not suspects.kept or not suspects.are_alone():
            return
        elif marks := suspects.to_mark():
            self._settling.extend((session, settle, self._marked) for session, settle in marks)
            self._batcher.schedule()
        else:
            while suspects.kept and (taker := self._line.head()) is not None:
                session, taken = suspects.begin()
                self._line.grant(taker, (session, taken))

    def _marked(self, refused: str | None) -> None:
        if refused is not None:
            self._forget_suspects()

    def _forget_suspects(self) -> None:
        while self.suspects.kept:
            self._holders.pop(self.suspects.kept.pop()[1].token, None)

    def _look(self) -> None:
        suspects = self.suspects
        if suspects.kept and suspects.here:
            if suspects.impatient and suspects.put_off():
                self._give_back_suspects(e.Verdict.POSTPONE)
            elif not len(self._line) and len(self._holders) == len(suspects.kept):  # nobody takes here
                self._give_back_suspects()
        self._proceed()
        if room.is_closed():
            self._glance.set(_GLANCE)
        self._go_on()

    def _give_back_suspects(self, verdict: e.Verdict = e.Verdict.GIVE_BACK) -> None:
        kept = self.suspects.kept
        while kept:
            session, taken = kept.pop()
            settle = e.Settle(taken.id, taken.token, verdict, e.NOT_BEGUN, delay=PATIENCE)
            self.settle(session, settle, _nothing)

    def _give_back_prefetched(self, but: int = 0) -> None:
        while len(self._prefetched) > but:
            self._give_back(*self._prefetched.pop())

    def _look_ahead(self) -> None:
        self._demand.prefetch = self._fixed + self._pace.answered(working=bool(self._holders))
        self._give_back_prefetched(but=self._demand.prefetch)
        if len(self._prefetched) > self._fixed:
            self._late.set(4 * self._pace.trip)

    def _give_back_late(self) -> None:
        self._demand.prefetch = self._fixed
        self._give_back_prefetched(but=self._fixed)

    def _left(self, waiter: Waiter[object, tuple[Session, e.Taken]]) -> None:
        if waiter.granted:
            self._give_back(*waiter.value)

    def _give_back(self, session: Session, taken: e.Taken) -> None:
        self.settle(session, e.Settle(taken.id, taken.token, e.Verdict.GIVE_BACK), _nothing)

    def _give_back_unknown(self) -> None:
        # no answer is under way that could bring it
        tokens = {*self._holders, *(settle.token for _, settle, _ in self._settling)}
        unknown, self._unknown = self._unknown, []
        for session, settle in unknown:
            if settle.token not in tokens:
                self._settling.append((session, settle, _nothing))

    def _register(self, session: Session | None) -> None:
        before, self._registered_in = self._registered_in, session if self._demand.registered else None
        if before is not self._registered_in:
            if before is not None:
                before.drop(self)
            if self._registered_in is not None:
                self._registered_in.add(self)

    def _go_on(self) -> None:
        if self._settling or self._unknown or self._probes or self._demand.is_needed(len(self._line)):
            self._batcher.schedule()
        elif len(self._idling):
            self._wake_idling()

    def _wake_idling(self) -> None:
        for waiter in self._idling:
            self._idling.grant(waiter, None)


def _in_loop_time(taken: e.Taken) -> e.Taken:
    return taken if taken.deadline is None else replace(taken, deadline=now() + taken.deadline)


def _nothing(_: object) -> None:
    pass
