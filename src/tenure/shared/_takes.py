"""Takers: settling what was taken and taking more, in one exchange for all of this process.

Group commit without a timer: an exchange leaves when there is something to settle or somebody to serve and none is on
its way; what gathers meanwhile leaves with the next. A process without work has its want registered on the engine and
is hinted when there is some. The engine counts on whom it has hinted and tells nobody else, so a process that has fewer
takers by then takes the tasks all the same, and gives them back for others to be hinted.

Where takers wish it, tasks are also fetched ahead while there are more than were asked for: they are spare until a
taker comes, who need not wait for an exchange then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import anyio

from tenure.engine import CAP, Exchange, Exchanged, Operation, Settle, Taken, Verdict
from tenure.errors import StoreClosed
from tenure.local._line import Line, Waiter
from tenure.store import Alarm, Held, Session, Store, Turns

_LATER = 30.0
"""Seconds between two looks at whether anybody can still come back to take."""

OnSettled = Callable[[str | None], object]
"""Is told None if the verdict was accepted, else why not, in the words of `LeaseLost`."""


class Dismissed(Exception):
    """A group of takers shall take no more."""


class Holder(Protocol):
    """One who has a task."""

    def stop(self) -> None:
        """The cancellation of the task was requested."""
        ...


class Takers(Held):
    """All of this process's takers of one queue.

    `ear` is what hears the hints for them: it lasts as long as they do, so as long as the engine counts on them. `user`
    gives who may take next, or None if that is gone.

    Thread safety: none.
    """

    def __init__(self, store: Store, key: str, ear: object) -> None:
        self.aging: float | None = None
        self.max_deliveries = 20
        self.keep = False
        self.user: Callable[[], object | None] = _nobody
        self._store = store
        self._key = key
        self._ear = ear
        self._line: Line[object, tuple[Session, Taken]] = Line(self._left)
        self._probes: dict[Waiter[object, tuple[Session, Taken]], bool] = {}  # in line too; True: asked for
        self._turns = Turns(store, key, store.ttl, self)
        self._settling: deque[tuple[Session, Settle, OnSettled]] = deque()
        self._sent: list[tuple[Session, Settle, OnSettled]] = []
        self._holders: dict[int, Holder | None] = {}  # by token; None: on its way to its taker
        self._stopped: set[int] = set()  # tokens that nobody here has yet
        self._wanted = 0  # tasks, by the exchange on its way, which registers what it does not get
        self._waiting = False
        # takers that the engine counts on, before the exchange on its way, and those that surely will be hinted
        self._counted = self._registered = 0
        self._most_spare = 0
        self._spare: deque[tuple[Session, Taken]] = deque()  # taken, and nobody is in line
        self._eager = 0  # how many they may be by now: it grows while exchanges bring all they ask for
        self._registered_in: Session | None = None
        self._hinted = False  # while an exchange was on its way
        self._owed = 0  # tasks that the engine has offered to this process alone
        self._asking = False
        self._found: list[tuple[Session, Settle]] = []
        self._alarm = Alarm(store, self.look_again)
        self._quiet: Line[None, None] = Line(_nothing)
        self._closed = False

    def __len__(self) -> int:
        return len(self._line)

    async def take(self, group: object = None) -> tuple[Session, Taken]:
        """Take the next task. Raises `StoreClosed`, `EngineError`; `Dismissed` when the group is dismissed meanwhile.

        Cancellation: what was taken is given back.
        """
        while True:
            self._check_open()
            if len(self._line) >= self._registered:
                self._turns.kick()
            session, taken = await self._line.wait(self._join(group))
            if session.lost is None and not self._closed:
                return session, taken
            self._give_back(session, taken)

    async def take_at_once(self) -> tuple[Session, Taken] | None:
        """Take the next task if there is one now. Raises and cancellation as for `take`."""
        self._check_open()
        self._turns.kick()
        probe = self._join(None)
        self._probes[probe] = False
        try:
            session, taken = await self._line.wait(probe)
        except anyio.WouldBlock:
            return None
        finally:
            self._probes.pop(probe, None)
        if session.lost is None and not self._closed:
            return session, taken
        self._give_back(session, taken)
        return None

    def hold(self, token: int, holder: Holder) -> None:
        """Who took the task is there now."""
        self._holders[token] = holder
        if token in self._stopped:
            holder.stop()

    def settle(self, session: Session, settle: Settle, on_settled: OnSettled) -> None:
        """Let go of a task with a verdict. Synchronous; from here on nothing can stop it."""
        self._store.check_here()
        self._holders.pop(settle.token, None)
        if session.lost is not None:  # the engine takes the task back with the session
            on_settled(session.lost)
        else:
            self._settling.append((session, settle, on_settled))
            self._turns.kick()

    def fetch_ahead(self, change: int) -> None:
        """So many tasks more, or fewer, may be spare. Synchronous; what is too much is given back."""
        self._most_spare += change
        self._give_back_spare(but=self._most_spare)

    def dismiss(self, group: object) -> None:
        """End the wait of the takers of a group."""
        for waiter in self._line:
            if waiter.want is group:
                self._line.fail(waiter, Dismissed())

    async def quiet(self) -> None:
        """Wait until no exchange is on its way and every verdict is acknowledged. Cancellation: has no effect."""
        while self._turns.busy or self._settling:
            await self._quiet.wait(self._quiet.join(None))

    # what Turns asks

    def next_operation(self, session: Session, n: int) -> Operation[Any] | None:
        if self._found:
            self._give_back_found()
        while self._settling and len(self._sent) < CAP:
            entry = self._settling.popleft()
            if entry[0] is session:
                self._sent.append(entry)
            else:  # its session was lost before this could be said
                entry[2](entry[0].lost)
        want = min(CAP, max(len(self._line), self._owed))
        if not (self._sent or self._probes or self._asking or self._owed or want > self._registered):
            self._wake_quiet()
            return None
        # who came for one try waits for this answer only
        self._probes = {probe: True for probe in self._probes if probe.waiting}
        # with an exchange that leaves anyway: at once, it would take what idle processes are being hinted of
        ahead = self._ahead()
        want = min(CAP, want + ahead)
        # the engine shall count on takers, not on those who may become some: it is asked again by who still waits then
        self._waiting = len(self._line) > len(self._probes) and not ahead
        self._wanted, self._owed = want, 0
        self._hinted = self._asking = False
        return Exchange(
            session.id,
            n,
            self._key,
            tuple(entry[1] for entry in self._sent),
            want,
            self._waiting,
            self.aging,
            self.max_deliveries,
            self.keep,
        )

    def on_answer(self, session: Session, answer: Exchanged) -> None:
        sent, self._sent = self._sent, []
        session.unsettled.pop(self, None)
        for _, settle, on_settled in sent:
            on_settled("refused" if settle.token in answer.refused else None)
        for taken in answer.tasks:
            self._hand_over(session, taken)
        if self._wanted:
            all_came = len(answer.tasks) >= self._wanted
            self._eager = min(2 * self._eager + 1, self._most_spare) if all_came else 0
        if answer.paused:
            self._give_back_spare()
        for token in answer.stop:
            self.stop(token)
        if self._stopped:
            self._stopped &= self._holders.keys()
        for probe in [probe for probe, asked in self._probes.items() if asked]:
            self._line.fail(probe, anyio.WouldBlock())
        idle = self._wanted - len(answer.tasks) if self._waiting else 0
        if self._hinted:
            # by the registration of this exchange, or by the one before: that can no longer be told
            self._owed = max(idle, self._counted - self._wanted)
            idle = 0
        self._register(session, idle)
        if idle or self._holders or len(self._line):
            self._alarm.set(answer.ask_again_in)
        self._go_on()

    def on_gone(self, *, resent: bool) -> None:
        sent, self._sent = self._sent, []
        for _, _, on_settled in sent:
            on_settled("unacknowledged" if resent else "gone")
        self._counted = self._registered = self._owed = 0
        self._go_on()

    def on_error(self, error: Exception, session: Session | None) -> None:
        self._settling.extendleft(reversed(self._sent))
        self._sent = []
        self._registered = self._owed = 0
        self._asking = False
        self._give_back_spare()
        if session is None:
            while self._settling:
                lost, _, on_settled = self._settling.popleft()
                on_settled(lost.lost or "unacknowledged")
        elif self._settling or self._found:
            # sent again at each heartbeat; without success for a ttl, the session ends
            session.unsettled.setdefault(self, anyio.current_time())
        self._line.fail_all(lambda: type(error)(*error.args))
        self._wake_quiet()

    def send_again(self) -> None:
        """Try once more what the engine has refused. For the session alone."""
        self._turns.kick()

    # hints

    def on_ready(self) -> None:
        """There may be tasks, and the engine counts on all who are registered to take them."""
        if self._turns.busy:
            self._hinted = True
            return
        self._owed = max(self._owed, self._counted)
        self._counted = self._registered = 0
        if self._owed or len(self._line):
            self._turns.kick()

    def look_again(self) -> None:
        """Hints may have been lost; and of a queue that nobody knows any more the engine need not tell."""
        self._registered = 0
        if len(self._line) or self._holders or (self._counted and self.user() is None):
            self._asking = True
            self._turns.kick()
        elif self._counted:
            self._alarm.set(_LATER)

    def stop(self, token: int) -> None:
        """The cancellation of a task that was given to this process was requested."""
        holder = self._holders.get(token)
        spare = next((one for one in self._spare if one[1].token == token), None)
        if spare is not None:
            self._spare.remove(spare)
            self._give_back(*spare)
        elif holder is None:
            self._stopped.add(token)  # it may still be on its way
        else:
            holder.stop()

    def on_found(self, session: Session, settle: Settle) -> None:
        """By the engine's word this process has a task; one that nobody here has is given back."""
        self._found.append((session, settle))
        self._turns.kick()

    def on_found_idle(self) -> None:
        """The engine counts on takers of this process; if there are none, it is told so."""
        if not (self._counted or self._turns.busy):
            self._asking = True
            self._turns.kick()

    def close(self) -> None:
        """The store closes; verdicts still go out."""
        self._closed = True
        self._give_back_spare()
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    def lose(self, reason: str) -> None:
        """The session under which takers are registered is lost, or the store closes. For the session alone."""
        del reason
        self._counted = 0
        if self._registered_in is not None:
            session, self._registered_in = self._registered_in, None
            session.drop(self)
        self._registered = self._owed = 0
        if len(self._line):
            self._turns.kick()

    # inside

    def _check_open(self) -> None:
        self._store.check_here()
        if self._closed:
            raise StoreClosed("the store is closed")

    def _ahead(self) -> int:
        """How many tasks to ask for beyond those for who waits."""
        return 0 if self._closed else max(0, min(self._eager, self._most_spare) - len(self._spare))

    def _join(self, group: object) -> Waiter[object, tuple[Session, Taken]]:
        waiter = self._line.join(group)
        while self._spare and not waiter.granted:
            session, taken = self._spare.popleft()
            if session.look() is None:
                self._line.grant(waiter, (session, taken))
            else:
                self._give_back(session, taken)
        return waiter

    def _hand_over(self, session: Session, taken: Taken) -> None:
        taker = self._line.head()
        if session.lost is not None or (taker is None and len(self._spare) >= self._most_spare):
            self._give_back(session, taken)
            return
        self._holders[taken.token] = None
        if taker is None:
            self._spare.append((session, taken))
        else:
            self._line.grant(taker, (session, taken))

    def _give_back_spare(self, but: int = 0) -> None:
        while len(self._spare) > but:
            self._give_back(*self._spare.pop())

    def _left(self, waiter: Waiter[object, tuple[Session, Taken]]) -> None:
        if waiter.granted:
            self._give_back(*waiter.value)

    def _give_back(self, session: Session, taken: Taken) -> None:
        self.settle(session, Settle(taken.id, taken.token, Verdict.GIVE_BACK), _nothing)

    def _give_back_found(self) -> None:
        # no answer is under way that could bring it
        known = {*self._holders, *(settle.token for _, settle, _ in self._settling)}
        found, self._found = self._found, []
        for session, settle in found:
            if settle.token not in known:
                self._settling.append((session, settle, _nothing))

    def _register(self, session: Session, idle: int) -> None:
        self._counted = self._registered = idle if session.lost is None and not self._closed else 0
        before, self._registered_in = self._registered_in, session if self._registered else None
        if before is not self._registered_in:
            if before is not None:
                before.drop(self)
            if self._registered_in is not None:
                session.add(self)

    def _go_on(self) -> None:
        want = len(self._line) > self._registered
        if self._settling or self._found or self._probes or self._asking or self._owed or want:
            self._turns.kick()
        else:
            self._wake_quiet()

    def _wake_quiet(self) -> None:
        if len(self._quiet):
            for waiter in self._quiet:
                self._quiet.grant(waiter, None)


def _nothing(_: object) -> None:
    pass


def _nobody() -> None:
    pass
