"""A line of waiters: the one waiting primitive, on which everything that waits inside a process is built.

A *waiter* wants something (`Waiter.want`) and stands in the line in one of three states::

    waiting --grant--> granted --(wait returns)--> the task owns what it was granted
       |                  |
       +---leave/fail-----+----(wait raises)-----> gone

Whoever gives something back moves it to the next waiter in the same synchronous step (`Line.grant`), so that
nobody can barge in between the hand-over and the moment when the waiter runs. The line knows nothing of what
is granted: its owner decides, in a *grant loop* of its own (look at `Line.head`, grant or stop), who may go.

The rule that makes it lossless: **a wait that raises had no effect**. Its waiter is taken out and the owner
is told through ``on_leave(waiter)``, once. If ``waiter.granted``, the owner takes the thing back; and in
either case it runs its grant loop, since the leaving of one (a writer, a heavy weight) may let others in.

Cancellation can meet a waiter in four windows:

- W1, cancelled while it is parked and nobody wants to grant it anything: the plain case;
- W2, cancelled, and in the same turn of the loop, before its task has run, about to be granted something: the
  line sees that (`Parked.cancelled`), unlinks it and offers the thing to the next; the task raises when it
  runs;
- W2N, the same, with a newcomer in that turn: it finds an empty line and need not queue behind the dead;
- W3, granted something and then cancelled in the same turn: cancel scopes, on both loops, no longer reach a
  task that has been woken, so it owns the thing and meets the cancellation at its next checkpoint; asyncio's
  native ``task.cancel()`` does reach it, so the wait raises although it was granted, and the owner takes the
  thing back.

One that is granted before it parks makes a checkpoint instead of parking; cancelled there, it is as in W3.

The states and the windows are those of the many locks that got one of them wrong (python/cpython#90155 and
#112202, anyio #947, #1145 and #1170). Leaving costs O(1) wherever in the line one stands.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from tenure.local._park import checkpoint, park, wake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tenure.local._park import Parked

__all__ = ("Line", "Waiter")

T = TypeVar("T")
V = TypeVar("V")


class Waiter(Generic[T, V]):
    """One place in a `Line`: made by `Line.join`, read by the owner of the line.

    Cancellation: nothing here awaits.

    Thread safety: none; all on the thread of one loop.
    """

    __slots__ = ("error", "gone", "granted", "parked", "value", "want")

    want: T
    """What it waits for, as the owner of the line put it."""
    value: V
    """What it was granted; not set before."""
    granted: bool
    """It was granted something; stays True if it leaves after that."""
    gone: bool
    """It left, or was failed, and will get nothing any more."""
    error: BaseException | None
    """What `Line.fail` failed it with."""
    parked: Parked | None
    """Where its task sleeps, for the line alone."""

    def __init__(self, want: T) -> None:
        """Make a waiter; only `Line.join` puts it in a line."""
        self.want = want
        self.granted = False
        self.gone = False
        self.error = None
        self.parked = None

    @property
    def waiting(self) -> bool:
        """It can still be granted something: not granted, not gone, and not cancelled (W2)."""
        return not (self.granted or self.gone or (self.parked is not None and self.parked.cancelled()))

    def __repr__(self) -> str:
        state = "gone" if self.gone else "granted" if self.granted else "waiting"
        return f"<Waiter {state} want={self.want!r}>"


class Line(Generic[T, V]):
    """Tasks that wait, first come first served unless the owner grants in another order.

    `on_leave` is called, synchronously and once, for each waiter that leaves: its `wait` raised, or `leave`
    was called. It is not called for one that the owner failed itself.

    The owner's grant loop, run by whoever gives something back and by `on_leave`::

        while (waiter := line.head()) is not None and self.may_have(waiter.want):
            self.take_out(waiter.want)
            line.grant(waiter, value)

    Cancellation: see the methods, and the theory at the head of the module.

    Thread safety: none; all on the thread of one loop.
    """

    __slots__ = ("_on_leave", "_waiters")

    def __init__(self, on_leave: Callable[[Waiter[T, V]], None]) -> None:
        """Make an empty line; outside a running loop too."""
        self._on_leave = on_leave
        self._waiters: OrderedDict[Waiter[T, V], None] = OrderedDict()

    def __len__(self) -> int:
        """Count the waiters in O(1); those cancelled in this turn of the loop may still count."""
        return len(self._waiters)

    def __bool__(self) -> bool:
        """Tell whether anyone waits, exactly: the cancelled do not count."""
        return self.head() is not None

    def __iter__(self) -> Iterator[Waiter[T, V]]:
        """Go through the waiters in order, as they stood at the start, but for those that left meanwhile.

        Granting, failing and joining on the way are allowed.
        """
        return (waiter for waiter in list(self._waiters) if waiter.waiting)

    def join(self, want: T) -> Waiter[T, V]:
        """Stand at the end of the line; follow with `wait`, or give up with `leave`.

        Cancellation: not a checkpoint.
        """
        waiter: Waiter[T, V] = Waiter(want)
        self._waiters[waiter] = None
        return waiter

    def head(self) -> Waiter[T, V] | None:
        """Give the first waiter that can still be granted something; unlink the cancelled before it (W2).

        Cancellation: not a checkpoint.
        """
        waiters = self._waiters
        while waiters:
            waiter = next(iter(waiters))
            parked = waiter.parked
            if parked is None or not parked.cancelled():
                return waiter
            del waiters[waiter]
        return None

    def grant(self, waiter: Waiter[T, V], value: V) -> bool:
        """Hand `value` to a waiter, wherever it stands, and wake it.

        False when it has left, was granted already, or was cancelled: then the grantor keeps the thing.

        Cancellation: not a checkpoint.
        """
        parked = waiter.parked
        if waiter.granted or waiter.gone or (parked is not None and not wake(parked)):
            return False
        del self._waiters[waiter]
        waiter.granted = True
        waiter.value = value
        return True

    def fail(self, waiter: Waiter[T, V], error: BaseException) -> bool:
        """Take a waiter out of the line and let its `wait` raise `error`; `on_leave` is not called for it.

        False when it has left, was granted already, or was cancelled.

        Cancellation: not a checkpoint.
        """
        parked = waiter.parked
        if waiter.granted or waiter.gone or (parked is not None and not wake(parked)):
            return False
        del self._waiters[waiter]
        waiter.gone = True
        waiter.error = error
        return True

    def fail_all(self, make_error: Callable[[], BaseException]) -> None:
        """Fail everybody in the line, each with an exception of its own (one shared would mix up tracebacks).

        Cancellation: not a checkpoint.
        """
        for waiter in self:
            self.fail(waiter, make_error())

    async def wait(self, waiter: Waiter[T, V]) -> V:
        """Park until the waiter, which this task has just made with `join`, is granted something; return
        that.

        Always a checkpoint. Raises what the waiter was failed with.

        Cancellation: the waiter leaves the line; whatever it was granted meanwhile goes back through
        `on_leave`.
        """
        try:
            if waiter.granted or waiter.gone:
                await checkpoint()
            else:
                waiter.parked = park()
                await waiter.parked
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
        """Give up the place, or what was granted; calls `on_leave`. Only before `wait` has returned.

        Does nothing for one that has gone already.

        Cancellation: not a checkpoint.
        """
        if waiter.gone:
            return
        waiter.gone = True
        self._waiters.pop(waiter, None)
        self._on_leave(waiter)
