"""The leased block: the `async with` of a hold, a claim, a term or a task.

A loss cancels the scope of the body. The block gives back synchronously and before the first await of leaving, so that
not even a native cancellation can stop it; then it waits for the acknowledgement in a shield.
"""

from __future__ import annotations

from collections.abc import Awaitable
from math import inf
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from anyio import CancelScope

from tenure.arguments import AsyncBlock, NotAwaited
from tenure.store import StoreHandle
from tenure.waiting import Parked, TaskEnd, new_scope, now, this_task, this_task_end


class Leased(Protocol):
    """The object that a block hands over."""

    @property
    def lost(self) -> str | None:
        """The reason of the loss, or None."""
        ...


L = TypeVar("L", bound=Leased)
G = TypeVar("G")
"""The type of the engine's grant."""
Swallows = TypeVar("Swallows", None, bool)


class LeasedBlock(AsyncBlock, NotAwaited, Generic[L, G, Swallows]):
    __slots__ = ("_held", "_key", "_scope", "_store", "_task", "_task_end")
    _instead = "tenure.blocking"

    def __init__(self, store: StoreHandle, key: str) -> None:
        self._store = store
        self._key = key
        self._held: L | None = None
        self._scope: CancelScope | None = None
        self._task: object = None
        self._task_end: TaskEnd | None = None

    @property
    def is_held(self) -> bool:
        return self._task_end is not None

    async def __aenter__(self) -> L:
        """Obtain the hold."""
        if self._task is not None:
            raise RuntimeError(f"{self._key}: this block was entered before; make a new one")
        end = this_task_end()
        self._task = end.task
        try:
            obtained = await self._obtain()
        except BaseException:
            self._forget()
            raise
        self._scope = scope = new_scope()
        scope.__enter__()
        self._held = held = self._hand_over(obtained, scope)
        self._task_end = end
        end.watch(self, self._on_task_end)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Swallows:
        """Give the hold back."""
        held = self._held
        if held is None:
            raise RuntimeError(f"{self._key}: this block was not entered")
        if (end := self._task_end) is not None:
            self._give_back(held, error)
            self._forget()
            self._task_end = None
            end.callbacks.pop(self, None)
        if this_task() is not self._task:
            raise RuntimeError(
                f"{self._name}: left from another task than it was entered in; it has been given back. Keep its "
                "`async with` in one task, such as one that waits in between for the end"
            )
        scope, self._scope = self._scope, None
        if scope is None:
            raise RuntimeError(f"{self._name}: this block was left before")
        acknowledgement = self._acknowledgement(held, error)
        ended_by_us = False
        if error is None and acknowledgement is not None and not scope.cancel_called:
            waiter, seconds = acknowledgement
            # the block has ended, so its scope is free to shield the wait
            scope.shield = True
            if seconds < inf:
                scope.deadline = now() + seconds
            try:
                await waiter
            except BaseException as late:
                if not scope.__exit__(type(late), late, late.__traceback__):
                    raise
            else:
                scope.__exit__(None, None, None)
        else:
            try:
                # trio's scopes also say so where there is no exception
                ended_by_us = bool(scope.__exit__(kind, error, trace)) and error is not None
            except BaseException as rest:
                # the scope took its own cancellations out of a group, and raises the rest of it
                await _wait_for(acknowledgement)
                if held.lost is not None:
                    self._note_loss(held, rest)
                raise
            if acknowledgement is not None:
                await _wait_for(acknowledgement)
        swallows = self._conclude(held, error, ended_by_us=ended_by_us)
        if held.lost is not None:
            self._note_loss(held, error)
        return swallows

    # what the classes built on it say

    @property
    def _name(self) -> str:
        return self._key

    def _obtain(self) -> Awaitable[G]:
        raise NotImplementedError

    def _hand_over(self, obtained: G, scope: CancelScope) -> L:
        raise NotImplementedError

    def _forget(self) -> None:
        """Forget the hold, which was given back or could not be obtained."""

    def _give_back(self, held: L, error: BaseException | None) -> None:
        """Give the hold back, synchronously, in the body's task; `error` is what left the body."""
        raise NotImplementedError

    def _abandon(self, held: L) -> None:
        self._give_back(held, None)

    def _acknowledgement(self, held: L, error: BaseException | None) -> tuple[Parked, float] | None:
        """The wait for the acknowledgement, if it is not there, and its limit in seconds: `inf` if it ends by itself.

        A surrounding body may hold something under the same session, and has to end with it.
        """
        raise NotImplementedError

    def _conclude(self, held: L, error: BaseException | None, *, ended_by_us: bool) -> Swallows:
        raise NotImplementedError

    # inside

    def _on_task_end(self) -> None:
        # called outside of any task, where a loop's clock may not be readable
        self._store.call_soon(self._on_abandoned, self._key)

    def _on_abandoned(self) -> None:
        if self._held is not None and (end := self._task_end) is not None:
            self._task_end = None
            end.callbacks.pop(self, None)
            self._abandon(self._held)
            self._forget()

    def _note_loss(self, held: L, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            error.add_note(f"{self._name} was lost meanwhile ({held.lost})")


async def _wait_for(acknowledgement: tuple[Parked, float] | None) -> None:
    if acknowledgement is not None:
        waiter, seconds = acknowledgement
        with CancelScope(deadline=now() + seconds, shield=True):
            await waiter
