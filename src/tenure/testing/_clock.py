"""Virtual time on asyncio and trio: the clock jumps to the next timer when nothing can run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import anyio

from tenure.arguments import Seconds, seconds_of

from ._asyncio_time import AsyncioTime
from ._trio_time import TrioTime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ._deadlock import DeadlockError

T = TypeVar("T")
Args = TypeVarTuple("Args")


class VirtualClock:
    """A clock for one test, on asyncio or trio, that stands still while anything runs.

    When every task waits, the time jumps to the next timer. Without a timer, the test fails with `DeadlockError` after
    `deadlock_timeout` real seconds, in which a thread could still have woken a task. While a task waits for a socket or
    pipe, the clock waits too.

    `backend` is "asyncio" or "trio" (uvloop's clock cannot be exchanged). `settle` is for how many real seconds nothing
    must happen before the time jumps. Give it a few hundredths for threads or sockets: every jump then takes that long.

    Pass `backend_options` to `anyio.run`, or return them from the `anyio_backend` fixture. One clock serves one run at
    a time, and keeps its time from one run to the next.

    Thread safety: for the thread of its event loop; `now()` may be read from any thread.
    """

    def __init__(
        self, backend: str = "asyncio", *, settle: Seconds = 0.0, deadlock_timeout: Seconds = 5.0
    ) -> None:
        settle, deadlock_timeout = seconds_of(settle), seconds_of(deadlock_timeout)
        if not 0 <= settle < math.inf:
            raise ValueError(f"settle: seconds, zero or more, not {settle!r}")
        if not deadlock_timeout > 0:
            raise ValueError(f"deadlock_timeout: seconds, more than zero, not {deadlock_timeout!r}")
        self._time: AsyncioTime | TrioTime
        if backend == "asyncio":
            self._time = AsyncioTime(settle, deadlock_timeout)
        elif backend == "trio":
            self._time = TrioTime(settle, deadlock_timeout)
        else:
            reason = ": uvloop keeps its own time" if backend == "uvloop" else ""
            raise ValueError(
                f"backend: virtual time runs on 'asyncio' and 'trio', not on {backend!r}{reason}"
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> VirtualClock | None:
        """The clock whose `backend_options` these are; None if they are no clock's."""
        for part in (options.get("loop_factory"), *options.get("instruments", ())):
            if isinstance(part, AsyncioTime | TrioTime):
                clock = cls.__new__(cls)
                clock._time = part
                return clock
        return None

    @property
    def backend(self) -> str:
        """The loop that it drives: "asyncio" or "trio"."""
        return self._time.backend

    @property
    def backend_options(self) -> dict[str, Any]:
        """The options for `anyio.run(..., backend_options=)` and the `anyio_backend` fixture."""
        return self._time.options()

    @property
    def deadlock(self) -> DeadlockError | None:
        """The deadlock that ended the run, if one did."""
        return self._time.deadlock

    def now(self) -> float:
        """The virtual time in seconds from 0; on the loop, the same as `anyio.current_time()`."""
        return self._time.now()

    async def advance(self, seconds: Seconds) -> None:
        """Let `seconds` pass, and everything happen that is then due.

        Cancellation: the time reached so far stays.
        """
        seconds = seconds_of(seconds)
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds: zero or more, not {seconds!r}")
        await anyio.sleep(seconds)
        await self.settle()

    async def settle(self) -> None:
        """Wait until every other task waits, without letting time pass.

        Use it in place of `anyio.wait_all_tasks_blocked()`, which sleeps on asyncio and so moves the clock.

        Cancellation: nothing is lost.
        """
        await self._time.settle()

    def __repr__(self) -> str:
        return f"<VirtualClock {self.backend} at {self.now():g} s>"


def virtual_backend_options(
    backend: str, *, settle: Seconds = 0.0, deadlock_timeout: Seconds = 5.0
) -> dict[str, Any]:
    """The options that make anyio run `backend` ("asyncio" or "trio") on a new virtual clock.

    For an `anyio_backend` fixture: `return name, virtual_backend_options(name)`. The `virtual_clock` fixture finds the
    clock again. The other arguments are those of `VirtualClock`.
    """
    return VirtualClock(backend, settle=settle, deadlock_timeout=deadlock_timeout).backend_options


def run(
    fn: Callable[[*Args], Awaitable[T]],
    *args: *Args,
    backend: str = "asyncio",
    clock: VirtualClock | None = None,
) -> T:
    """Run `fn(*args)` in virtual time, outside of pytest, and return what it returns.

    `backend` is "asyncio" or "trio". A `clock` of your own shows the time afterwards, or has options; its backend then
    counts. Raises what `fn` raises, and `DeadlockError` when it can never end.
    """
    clock = clock or VirtualClock(backend)
    try:
        return anyio.run(fn, *args, backend=clock.backend, backend_options=clock.backend_options)
    except BaseException as error:
        if clock.deadlock is not None and clock.deadlock is not error:
            raise clock.deadlock from error
        raise
