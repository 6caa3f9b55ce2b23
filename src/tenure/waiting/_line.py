"""A queue of waiters: the waiting primitive on which every wait inside a process is built.

A *waiter* wants something (`Waiter.want`) and stands in the line in one of three states::

    waiting --grant--> granted --(wait returns)--> the task owns what it was granted
       |                  |
       +---leave/fail-----+----(wait raises)-----> gone

An object that is given back moves to the next waiter in the same synchronous step (`Line.grant`), so that no other task
can barge in. **A wait that raises had no effect**: its waiter is taken out, and the line calls the owner's
``on_leave(waiter)``, once. If ``waiter.granted``, the owner takes the object back. In either case it runs its *grant
loop*, since the leaving of a waiter (a writer, a heavy weight) may let others in.

Cancellation can meet a waiter in four windows, W1, W2, W2N and W3 (docs/explanations/waiting.md): only a native
``task.cancel()`` of asyncio takes back a grant.
"""

from __future__ import annotations

from functools import partial
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ._deadlines import Deadlines
from ._park import checkpoint, loop_caller, park, runs, this_loop, this_run, time_limit, trio_sign, wake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import MethodType

    from ._park import Parked

T = TypeVar("T")
V = TypeVar("V")


class Expired(TimeoutError):
    """The error of a wait whose time limit has passed."""


class Waiter(Generic[T, V]):
    """A place in a `Line`: made by `Line.join`, read by the owner of the line."""

    __slots__ = ("error", "following", "gone", "granted", "linked", "parked", "preceding", "value", "want")

    want: T
    """The waiter's request, as the owner of the line put it."""
    value: V
    """The granted value; not set before the grant."""
    granted: bool
    """True once the waiter was granted a value; stays True if it leaves after that."""
    gone: bool
    """True once the waiter has left, or was failed: it will be granted nothing."""
    error: BaseException | None
    parked: Parked | None
    """The awaitable of its task; the line sets it, and the three attributes below."""
    linked: bool
    """True while the waiter stands in the line, between `preceding` and `following`."""
    preceding: Waiter[T, V] | None
    following: Waiter[T, V] | None

    def __init__(self, want: T) -> None:
        self.want = want
        self.granted = False
        self.gone = False
        self.error = None
        self.parked = None
        self.linked = False
        self.preceding = None
        self.following = None

    @property
    def waiting(self) -> bool:
        """True while the waiter can be granted a value: not granted, not gone, and not cancelled (W2)."""
        return not (self.granted or self.gone or (self.parked is not None and self.parked.cancelled()))

    def __repr__(self) -> str:
        state = "gone" if self.gone else "granted" if self.granted else "waiting"
        return f"<Waiter {state} want={self.want!r}>"


class Home:
    """The event loop of those who wait for an object, and its thread. Lines of one object share it.

    A loop in another thread may take over only when the loop before has ended: else the waiter is refused at once.
    """

    __slots__ = ("_call", "_owner", "run", "thread")

    def __init__(self, owner: object) -> None:
        self.run: object = self  # none yet; None is what `this_run` returns outside a loop
        self.thread: int = 0
        self._owner = owner
        self._call: Callable[[Callable[[], None]], None] | None = None

    def bind(self) -> None:
        """Bind the home to the running loop. Raises `RuntimeError` if its loop runs in another thread."""
        if this_run() is self.run:
            return
        if self._call is not None and self.thread != get_ident() and runs(self.run, self._call):
            owner = self._owner if isinstance(self._owner, str) else repr(self._owner)
            raise RuntimeError(
                f"{owner} belongs to another event loop, which runs in another thread: make one for each loop"
            )
        self.hold()

    def hold(self) -> None:
        """Bind the home to the running loop, whatever its loop was: nobody waits, and nobody holds anything."""
        run = this_run()
        if run is not self.run and run is not None:
            self.run, self.thread, self._call = run, get_ident(), loop_caller()

    def wake(self, parked: Parked) -> None:
        if self.thread == get_ident() or self._call is None:
            parked.set_result(None)
        else:
            self._call(partial(_wake, parked))


def _wake(parked: Parked) -> None:
    wake(parked)


def _nothing(_: object) -> None:
    pass


class Line(Generic[T, V]):
    """Tasks that wait, first come first served unless the owner grants in another order.

    `on_leave` is called, synchronously and once, for each waiter whose `wait` raised, or that called `leave`; not for a
    waiter that the owner failed. The owner's grant loop, whenever something is given back, and in `on_leave`::

        while (waiter := line.head()) is not None and self.may_have(waiter.want):
            self.take_out(waiter.want)
            line.grant(waiter, value)

    Joining, granting and leaving cost O(1), wherever in the line.
    """

    __slots__ = ("_count", "_deadlines", "_last", "_on_leave", "first", "home")

    first: Waiter[T, V] | None
    """The first waiter, which may have been cancelled in this turn: a quick look whether any waits. See `head`."""

    def __init__(self, on_leave: Callable[[Waiter[T, V]], None] = _nothing, owner: object = None) -> None:
        """`owner` is as of a `Home`, or the home itself; by default the object of which `on_leave` is a method."""
        self._on_leave = on_leave
        if owner is None:
            owner = cast("MethodType", on_leave).__self__  # of a function, nobody would know the owner
        self.home: Home = owner if isinstance(owner, Home) else Home(owner)
        self._count = 0
        self._deadlines: Deadlines[Waiter[T, V]] | None = None
        self.first = None
        self._last: Waiter[T, V] | None = None

    def __len__(self) -> int:
        """Count the waiters in O(1); those cancelled in this turn of the loop may still count."""
        return self._count

    def __bool__(self) -> bool:
        """True if anyone waits who was not cancelled."""
        return self.head() is not None

    def __iter__(self) -> Iterator[Waiter[T, V]]:
        """Go through the waiters in order, as they stood at the start, but for those that left meanwhile."""
        waiters: list[Waiter[T, V]] = []
        waiter = self.first
        while waiter is not None:
            waiters.append(waiter)
            waiter = waiter.following
        return (waiter for waiter in waiters if waiter.waiting)

    def join(self, want: T) -> Waiter[T, V]:
        """Stand at the end of the line; follow with `wait`, or give up with `leave`."""
        waiter: Waiter[T, V] = Waiter(want)
        waiter.linked = True
        last = self._last
        if last is None:
            self.first = waiter
        else:
            waiter.preceding = last
            last.following = waiter
        self._last = waiter
        self._count += 1
        return waiter

    def head(self) -> Waiter[T, V] | None:
        """The first waiter that can still be granted something; unlinks the cancelled before it (W2)."""
        while (waiter := self.first) is not None:
            parked = waiter.parked
            if parked is None or not parked.cancelled():
                return waiter
            self._unlink(waiter)
        return None

    def grant(self, waiter: Waiter[T, V], value: V) -> bool:
        """Hand `value` to a waiter, wherever it stands, and wake it. False if it cannot be granted anything."""
        if waiter.granted or waiter.gone:
            return False
        parked = waiter.parked
        if parked is not None and parked.done():
            return False
        self._unlink(waiter)
        waiter.granted = True
        waiter.value = value
        if parked is not None:
            # last, since it raises if the loop was closed: then the waiter gives the thing back when it is collected
            if self.home.thread == get_ident():
                parked.set_result(None)
            else:
                self.home.wake(parked)
        return True

    def fail(self, waiter: Waiter[T, V], error: BaseException) -> bool:
        """Take a waiter out of the line and let its `wait` raise `error`. False if it cannot be granted anything."""
        parked = waiter.parked
        if waiter.granted or waiter.gone or (parked is not None and parked.done()):
            return False
        self._unlink(waiter)
        waiter.gone = True
        waiter.error = error
        if parked is not None:
            self.home.wake(parked)
        return True

    def fail_all(self, make_error: Callable[[], BaseException]) -> None:
        """Fail everybody in the line, each with its own exception: a shared one mixes up tracebacks."""
        for waiter in self:
            self.fail(waiter, make_error())

    async def wait(self, waiter: Waiter[T, V], timeout: float = inf) -> V:
        """Park until the waiter, which this task has just made with `join`, is granted something; return the grant.

        Always a checkpoint. Raises the error of `fail`, `Expired` after `timeout` seconds, and `RuntimeError` while the
        line belongs to a loop in another thread.
        """
        try:
            if waiter.granted or waiter.gone:
                await checkpoint()
            else:
                if self.home.run is not (this_loop() or trio_sign()[0]):
                    self.home.bind()
                waiter.parked = parked = park()
                if timeout == inf:
                    await parked
                else:
                    limit = time_limit(timeout)
                    if limit is None:
                        if self._deadlines is None or self._deadlines.loop is not this_loop():
                            self._deadlines = Deadlines(self._expire)
                        self._deadlines.add(waiter, timeout)
                        await parked
                    else:
                        with limit:
                            await parked
                    if not waiter.granted and waiter.error is None:
                        raise Expired
        except BaseException:
            self.leave(waiter)
            raise
        if waiter.error is not None:
            try:
                raise waiter.error
            finally:
                # its traceback holds this frame: let go of it, or both wait for the garbage collector
                waiter.error = None
        return waiter.value

    def leave(self, waiter: Waiter[T, V]) -> None:
        """Give up the place, or the grant, before `wait` has returned; calls `on_leave` unless the waiter has gone."""
        if waiter.gone:
            return
        waiter.gone = True
        if waiter.linked:
            self._unlink(waiter)
        self._on_leave(waiter)

    def _expire(self, waiter: Waiter[T, V]) -> None:
        # at once, and not when its task runs: until then the waiter would be granted something
        if waiter.parked is not None and wake(waiter.parked):
            self.leave(waiter)

    def _unlink(self, waiter: Waiter[T, V]) -> None:
        before, after = waiter.preceding, waiter.following
        if before is None:
            self.first = after
        else:
            before.following = after
            waiter.preceding = None
        if after is None:
            self._last = before
        else:
            after.preceding = before
            waiter.following = None
        waiter.linked = False
        self._count -= 1
        if self._deadlines is not None and len(self._deadlines.heap) > 2 * self._count:
            self._deadlines.tidy()
