from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE, isawaitable
from math import inf
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeAlias, TypeVar, cast

from tenure.arguments import AsyncBlock, Seconds, check_count, seconds_of
from tenure.errors import CircuitOpen
from tenure.local._breaker_outcome import Outcomes
from tenure.local._breaker_settings import Settings
from tenure.local._breaker_states import State, States
from tenure.observe import Reporter
from tenure.waiting import NOTHING, checkpoint, steady, steady_clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import CoroutineType, TracebackType

    from tenure.local._breaker_outcome import Matcher

T = TypeVar("T")
P = ParamSpec("P")

Entered: TypeAlias = "tuple[CircuitBreaker, int, float, Callable[[], float] | None, Entered | None]"

_FUNCTIONS = frozenset({FunctionType, MethodType})
# the blocks that this context is inside of, the innermost first: breaker, permit, since when, its clock, and the next
_inside: ContextVar[Entered | None] = ContextVar("tenure.local.breaker", default=None)


@dataclass(frozen=True, slots=True)
class CircuitBreakerStatistics:
    """The state of a `CircuitBreaker` as its last call left it."""

    state: State
    """As `CircuitBreaker.state`."""
    calls: int
    """The number of calls in the window.

    While half open, the number of probes; while open, the number that made it open.
    """
    failures: int
    """The number of `calls` that failed."""
    slow_calls: int
    """The number of `calls` that were slow; a call may be both."""
    failure_rate: float | None
    """Failures per call; None while there are too few calls to judge. While open, of the calls that opened it."""
    slow_call_rate: float | None
    """Slow calls per call; None while there are too few calls to judge. While open, of the calls that opened it."""
    probes: int
    """The number of probes under way."""
    refused: int
    """The number of calls that were refused so far."""
    dropped: int
    """The number of failures and successes that came too late: after a change of state, or after a probe's time."""
    opened: int
    """The number of times that the breaker has opened so far; being forced open does not count."""


class CircuitBreaker(AsyncBlock):
    """Lets calls through while they go well, and refuses them with `CircuitOpen` while they do not.

        breaker = CircuitBreaker(failure_rate=0.5, window=20, min_calls=10)
        async with breaker:  # or breaker.call(fetch), or @breaker
            await fetch()

    - `failure_rate`, `slow_call_rate`: the shares of calls that failed, or took more than `slow_call_seconds`, at
      which the breaker opens.
    - `window`: calls that are counted, or `window_seconds`; `min_calls` at least.
    - `open_seconds`: refuses all calls, each time `open_factor` times longer, up to `max_open_seconds`.
    - `probes`: calls while half open, which decide; each may take `probe_seconds`.
    - `record`, `ignore`: exceptions that are failures, or do not count: classes, or a function. `record_result`:
      results that are failures.
    - `name`: for messages.

    Raises `TypeError` and `ValueError` for settings that make no sense.

    Cancellation: a cancelled call has no effect on the breaker; a probe's place is free again.

    Source: Nygard, "Release It!"; windows, rates and states as in resilience4j; generations as in sony/gobreaker.
    """

    __slots__ = ("_listeners", "_name", "_outcomes", "_record_result", "_reporter", "_states")

    def __init__(
        self,
        *,
        failure_rate: float = 0.5,
        slow_call_rate: float = 1.0,
        slow_call_seconds: Seconds = 60.0,
        window: int = 100,
        window_seconds: Seconds | None = None,
        min_calls: int = 100,
        open_seconds: Seconds = 60.0,
        open_factor: float = 1.0,
        max_open_seconds: Seconds | None = None,
        probes: int = 10,
        probe_seconds: Seconds = 60.0,
        record: Matcher = Exception,
        ignore: Matcher = (),
        record_result: Callable[[Any], bool] | None = None,
        name: str = "",
    ) -> None:
        settings = Settings(
            failure_rate=failure_rate,
            slow_call_rate=slow_call_rate,
            slow_call_seconds=seconds_of(slow_call_seconds),
            window=window,
            window_seconds=seconds_of(window_seconds),
            min_calls=min_calls,
            open_seconds=seconds_of(open_seconds),
            open_factor=open_factor,
            max_open_seconds=seconds_of(max_open_seconds),
            probes=probes,
            probe_seconds=seconds_of(probe_seconds),
        )
        self._outcomes = Outcomes(record, ignore)
        if not (record_result is None or callable(record_result)):
            raise TypeError(f"record_result must be a function or None, not {record_result!r}")
        self._record_result = record_result
        self._name = name
        self._reporter = Reporter()
        self._listeners: list[Callable[[State, State], object]] = []
        self._states = States(settings, self._changed)

    @classmethod
    def consecutive(
        cls,
        failures: int,
        *,
        open_seconds: Seconds = 60.0,
        open_factor: float = 1.0,
        max_open_seconds: Seconds | None = None,
        probe_seconds: Seconds = 60.0,
        record: Matcher = Exception,
        ignore: Matcher = (),
        record_result: Callable[[Any], bool] | None = None,
        name: str = "",
    ) -> Self:
        """Make a breaker that opens after so many `failures` in a row, and closes after one successful probe.

        A success begins the count anew. Slow calls do not count as such. The other options are as in `CircuitBreaker`.
        """
        failures = check_count("failures", failures)
        return cls(
            failure_rate=1.0,
            slow_call_seconds=inf,
            window=failures,
            min_calls=failures,
            open_seconds=open_seconds,
            open_factor=open_factor,
            max_open_seconds=max_open_seconds,
            probes=1,
            probe_seconds=probe_seconds,
            record=record,
            ignore=ignore,
            record_result=record_result,
            name=name,
        )

    async def call(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call and await ``fn(*args, **kwargs)``, and return its result. Raises `CircuitOpen` for a refused call.

        Raises `TypeError` for anything but an async function; a lambda may return an awaitable. Only a refusal is a
        checkpoint.
        """
        if type(fn) in _FUNCTIONS:
            code = getattr(fn, "__code__", None)
            if code is not None and not code.co_flags & CO_COROUTINE and code.co_name != "<lambda>":
                _check_async(fn)
        states = self._states
        time = steady_clock() if states.timed else None
        since = time() if time else 0.0
        permit = states.passing or states.admit(since) or await self._refuse(since)
        awaitable: Any = None
        try:
            awaitable = fn(*args, **kwargs)
            result = await awaitable
        except BaseException as error:
            failed = self._verdict(error)
            states.settle(
                permit,
                since,
                time() if time else steady() if failed or states.window.failures else 0.0,
                failed,
            )
            if isinstance(error, TypeError) and not (awaitable is None or isawaitable(awaitable)):
                raise TypeError(f"fn must be an async function, but {fn!r} returned {awaitable!r}") from None
            raise
        failed = self._record_result is not None and self._is_failure(result)
        states.settle(
            permit, since, time() if time else steady() if failed or states.window.failures else 0.0, failed
        )
        return result

    def __aenter__(self) -> CoroutineType[Any, Any, None]:
        """Begin a call, or raise `CircuitOpen`."""
        states = self._states
        time = steady_clock() if states.timed else None
        since = time() if time else 0.0
        permit = states.passing or states.admit(since)
        if not permit:
            return self._refuse(since)
        _inside.set((self, permit, since, time, _inside.get()))
        return NOTHING

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> CoroutineType[Any, Any, None]:
        """End the call that this task has begun last. No checkpoint."""
        inside = _inside.get()
        if inside is None or inside[0] is not self:
            inside = _brought_to_front(self, inside)
        _, permit, since, time, outer = inside
        _inside.set(outer)
        failed = error is not None and self._outcome(error)
        states = self._states
        states.settle(
            permit, since, time() if time else steady() if failed or states.window.failures else 0.0, failed
        )
        return NOTHING

    def __call__(self, fn: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Guard each call of the async function `fn`: a decorator. Raises `TypeError` for any other function."""
        if not callable(fn):
            raise TypeError(f"fn must be an async function, not {fn!r}")
        _check_async(fn)

        @wraps(fn)
        async def guarded(*args: P.args, **options: P.kwargs) -> T:
            return await self.call(fn, *args, **options)

        return guarded

    @property
    def state(self) -> State:
        """The state as the last call left it: only a call makes an "open" breaker "half_open"."""
        return self._states.state

    def force_open(self) -> None:
        """Refuse all calls until `reset` or another of these methods; ``retry_after`` is infinite."""
        self._states.change("forced_open")

    def disable(self) -> None:
        """Let all calls through, and remember nothing of them."""
        self._states.change("disabled")

    def metrics_only(self) -> None:
        """Let all calls through, but remember them: `statistics` shows whether it would open."""
        self._states.change("metrics_only")

    def reset(self) -> None:
        """Close, with nothing remembered."""
        self._states.change("closed")

    def on_change(self, callback: Callable[[State, State], object]) -> Callable[[], None]:
        """Have ``callback(old, new)`` called after each change of state; the returned function unregisters it.

        The call is part of the change, so it must be quick. An `Exception` of the callback is logged.
        """
        if not callable(callback):
            raise TypeError(f"callback must be a function, not {callback!r}")
        # in a list of its own identity: one function may be registered twice
        listener = partial(callback)
        self._listeners.append(listener)

        def unregister() -> None:
            self._listeners = [each for each in self._listeners if each is not listener]

        return unregister

    def retry_after(self) -> float:
        """Seconds until a call may be admitted: 0 if a call may be now, `inf` if no time is known."""
        states = self._states
        if states.state == "half_open" and len(states.probes) + states.window.calls < states.settings.probes:
            return 0.0
        return states.retry_after(steady()) if states.state in ("open", "half_open", "forced_open") else 0.0

    def statistics(self) -> CircuitBreakerStatistics:
        """The state as the last call left it."""
        states, window = self._states, self._states.window
        judged = window.calls >= states.enough_calls
        return CircuitBreakerStatistics(
            state=states.state,
            calls=window.calls,
            failures=window.failures,
            slow_calls=window.slow,
            failure_rate=window.failures / window.calls if judged else None,
            slow_call_rate=window.slow / window.calls if judged else None,
            probes=len(states.probes),
            refused=states.refused,
            dropped=states.dropped,
            opened=states.opened,
        )

    def __repr__(self) -> str:
        window = self._states.window
        name = f" {self._name!r}" if self._name else ""
        return f"<CircuitBreaker{name} {self.state}, {window.failures} failed and {window.slow} slow of {window.calls}>"

    async def _refuse(self, now: float) -> NoReturn:
        name = f"{self._name}: " if self._name else ""
        message, after = f"{name}the circuit breaker is {self.state}", self._states.retry_after(now)
        # so that a loop that tries again and again does not lock up the others
        await checkpoint()
        raise CircuitOpen(message, retry_after=after)

    def _changed(self, old: State, new: State) -> None:
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception as error:  # noqa: BLE001 - it is logged; the call in whose middle this is goes on
                self._reporter.warn("breaker.listener_failed", name=self._name, old=old, new=new, error=error)

    def _is_failure(self, result: object) -> bool | None:
        assert self._record_result is not None
        try:
            return bool(self._record_result(result))
        except Exception as mistake:  # noqa: BLE001 - it is logged; the caller gets the result that it is about
            self._reporter.warn("breaker.matcher_failed", name=self._name, error=mistake)
            return None

    def _verdict(self, error: BaseException) -> bool | None:
        # raised by the call itself, in our own frame: the wrong arguments, or nothing that can be awaited
        if isinstance(error, TypeError) and error.__traceback__ and error.__traceback__.tb_next is None:
            return None
        return self._outcome(error)

    def _outcome(self, error: BaseException) -> bool | None:
        try:
            return self._outcomes.failed(error)
        except Exception as mistake:  # noqa: BLE001 - it is logged; the caller gets the error that it is about
            self._reporter.warn("breaker.matcher_failed", name=self._name, error=mistake)
            return None


def _check_async(fn: Any) -> None:
    inner = fn
    while True:
        if isinstance(inner, FunctionType):
            flags = inner.__code__.co_flags
            if flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE):
                return
            if flags & CO_ASYNC_GENERATOR:
                kind = "an async generator function: guard what it calls"
            elif flags & CO_GENERATOR:
                kind = "a generator function"
            elif (inner := inner.__dict__.get("__wrapped__")) is not None:
                continue  # a decorator that is no async function may still return what that returns
            else:
                kind = "a plain function: if it blocks, guard Threads.run"
            raise TypeError(f"fn must be an async function, not {fn!r}, {kind}")
        if isinstance(inner, MethodType):
            inner = inner.__func__
        elif isinstance(inner, partial):
            inner = cast("partial[Any]", inner).func
        elif isinstance(inner, type) or not isinstance(inner := type(inner).__call__, FunctionType):
            return


def _brought_to_front(breaker: CircuitBreaker, inside: Entered | None) -> Entered:
    # blocks of two async generators in one task may end in another order than they began
    if inside is None:
        raise RuntimeError(f"{breaker!r}: left in another task than it was entered in")
    if inside[0] is breaker:
        return inside
    _, permit, since, time, outer = _brought_to_front(breaker, inside[4])
    return (breaker, permit, since, time, (*inside[:4], outer))
