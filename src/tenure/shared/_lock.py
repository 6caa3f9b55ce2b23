"""The lock: a hold with a capacity of one."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from tenure.engine import Holders, Reply
from tenure.errors import StoreClosed
from tenure.local._park import this_task
from tenure.store import Store, check_ttl

from ._lease import Hold, HoldWish, Lease


@dataclass(frozen=True, slots=True)
class Party:
    """One who holds something or waits for it: its process, since how many seconds, with what token and weight."""

    process: str
    seconds: float
    token: int
    weight: int


@dataclass(frozen=True, slots=True)
class Who:
    """Who holds and who waits, each in the order in which they came."""

    holders: tuple[Party, ...]
    waiting: tuple[Party, ...]


async def who(store: Store, key: str) -> Who:
    """Ask the engine who holds a key and who waits for it. Cancellation: has no effect."""
    answer = await store.call(Holders(key))
    if isinstance(answer, Reply):
        raise StoreClosed("the store is closed")
    held = tuple(Party(h.process, h.age, h.token, h.weight) for h in answer.holders)
    return Who(held, tuple(Party(h.process, h.age, 0, h.weight) for h in answer.waiting))


class Lock:
    """Mutual exclusion over all who use the store: one holder at a time, first come, first served.

    `async with Lock(store, "report") as lease` holds it for the block; `hold(timeout=5)` limits the wait. The hold is
    renewed while the block runs; if it is lost all the same, the block is cancelled and `LeaseLost` raised. `ttl` is
    for how many seconds the lock outlives a holder that died (the store's by default). Locks with equal names are one
    lock.

    A lease can outlive its holder's belief in it (a frozen process); hand `lease.token` to what you write to, or call
    `lease.check()` right before side effects.

    Thread safety: none; a description without state of its own, to be shared between tasks.
    Source: the fair lock with direct hand-over is the queue of MCS locks put on a server; fencing tokens are those of
    Chubby (Burrows 2006, "sequencers").
    """

    __slots__ = ("_key", "_store", "_ttl", "_wish", "name")

    def __init__(self, store: Store, name: str, *, ttl: float | None = None) -> None:
        self._store = store
        self._key = Store.key(store, "lock", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self._wish = HoldWish(self._key, 1)
        self.name = name

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"

    def hold(self, timeout: float | None = None) -> Hold:
        """Hold the lock for a block; gives a `Lease`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try, given up after a second or so if the engine
        does not answer). Entering raises `AcquireTimeout`, `RuntimeError` if this task holds the lock already,
        `StoreClosed`, `EngineError`; leaving raises `LeaseLost`.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        return Hold(self._store, self._wish, ttl=self._ttl, timeout=timeout, exclusive=True)

    async def __aenter__(self) -> Lease:
        """Hold the lock, however long it takes. Cancellation: nothing is held."""
        return await self.hold().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back. Cancellation: see `Hold`."""
        hold = self._store.entered.get((self._key, this_task())) or self._held_by_another_task()
        if isinstance(hold, Hold):
            await hold.__aexit__(kind, error, trace)
            return
        raise RuntimeError(f"{self._key}: not held by this task")

    def _held_by_another_task(self) -> object:
        # whoever leaves a block that this task did not enter leaves it for the one who did, and there is but one
        for (key, _), hold in self._store.entered.items():
            if key == self._key and isinstance(hold, Hold) and hold.holds:
                return hold
        return None

    async def holders(self) -> Who:
        """Who holds the lock and who waits for it, since when. Cancellation: has no effect."""
        return await who(self._store, self._key)
