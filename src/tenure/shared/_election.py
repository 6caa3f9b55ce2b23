"""The election: a lock whose holder has a name, and a term that is its fence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar, cast

from tenure.arguments import check_name
from tenure.engine import Holders, Reply
from tenure.errors import LeaseLost, StoreClosed
from tenure.store import Store, check_ttl

from ._guard import Guarded
from ._leader_changes import LeaderChanges, leader_of
from ._lease import Hold, HoldWish, Lease

T = TypeVar("T")


class Term(Guarded):
    """One term of leadership, for as long as the block lasts.

    `number` is the fence: it is higher than that of every earlier term; hand it to whatever the leader writes to, and
    let that refuse lower ones. `node` is the name under which this one leads.
    Thread safety: none; it belongs to the event loop.
    """

    __slots__ = ("_lease", "node")

    def __init__(self, lease: Lease, node: str) -> None:
        self._lease = lease
        self.node = node

    def __repr__(self) -> str:
        return f"<Term of {self.node!r} {self._lease!r}>"

    @property
    def number(self) -> int:
        """Higher than that of every earlier term of this election; not the next number."""
        return self._lease.token

    @property
    def lost(self) -> str | None:
        """None, or why the term was lost."""
        return self._lease.lost

    def remaining(self) -> float:
        """For how many seconds the term would last if no further renewal came through; 0 once it is over."""
        return self._lease.remaining()

    def check(self) -> None:
        """Raise `LeaseLost` if the term is lost, its time has passed, or the block was left ("released").

        It costs nothing and sends nothing. Call it right before a side effect.
        """
        self._lease.check()

    def _fence(self) -> tuple[str, int]:
        return self._lease.key, self.number


class Candidacy:
    """An async context manager that waits to be the leader, and resigns. For one use.

    Thread safety: none.
    """

    __slots__ = ("_hold", "_node")

    def __init__(self, hold: Hold, node: str) -> None:
        self._hold = hold
        self._node = node

    async def __aenter__(self) -> Term:
        """Become the leader. Raises `AcquireTimeout`, `StoreClosed`, `EngineError`.

        Cancellation: one does not lead, and no place is kept.
        """
        return Term(await self._hold.__aenter__(), self._node)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Resign. Raises `LeaseLost` if the term was lost and the body did not raise something of its own.

        Cancellation: resigning goes on by itself; only the wait for its acknowledgement ends.
        """
        await self._hold.__aexit__(kind, error, trace)


class Election:
    """One leader at a time over all who use the store; candidates stand in line, first come, first served.

    `await election.lead(body)` campaigns and runs `body(term)`; leadership moves on only when the body has ended.
    `node` is the name that others see; by default it is the store's process: host, process id, and something random.
    `ttl` is for how many seconds nobody leads after a leader has died (the store's by default).

    A leader that was frozen may believe in its term for longer: hand `term.number` to what it writes to, or call
    `term.check()` right before side effects.

    Thread safety: none; a description without state of its own, to be shared between tasks.
    Source: a lock with a sequencer (Chubby, Burrows 2006) whose holder puts its name on it; terms are those of Raft.
    """

    __slots__ = ("_key", "_store", "_ttl", "_wish", "name", "node")

    def __init__(self, store: Store, name: str, *, node: str | None = None, ttl: float | None = None) -> None:
        self._store = store
        self._key = Store.key(store, "election", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self.name = name
        self.node = store.process if node is None else check_name("node", node)
        self._wish = HoldWish(self._key, 1, value=self.node.encode())

    def __repr__(self) -> str:
        return f"<Election {self.name!r} node={self.node!r}>"

    async def lead(self, body: Callable[[Term], Awaitable[T]]) -> T:
        """Become the leader, run `body(term)`, resign, and give back what it returned.

        When the term is lost, the body is cancelled and, when it has ended, this campaigns again, at the end of the
        line; so too if the body returns although its term is lost. What the body raises resigns and is raised. Raises
        `RuntimeError` if this task leads already, `StoreClosed`, `EngineError`.
        Cancellation: the body is cancelled, then this resigns; while campaigning, no place is kept.
        """
        if not callable(body):
            raise TypeError(f"body must be an async function that takes a term, not {body!r}")
        while True:
            term: Term | None = None
            try:
                async with self.term() as term:
                    return await body(term)
            except Exception as error:
                if term is None or not term.lost or not self._is_but_the_loss(error):
                    raise

    def term(self, timeout: float | None = None) -> Candidacy:
        """Lead for a block; gives a `Term`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try, given up after a second or so if the engine
        does not answer). Entering raises `AcquireTimeout`, `RuntimeError` if this task leads already, `StoreClosed`,
        `EngineError`; leaving raises `LeaseLost`.
        Cancellation: while waiting, no place is kept and one does not lead.
        """
        hold = Hold(self._store, self._wish, ttl=self._ttl, timeout=timeout, exclusive=True)
        return Candidacy(hold, self.node)

    async def leader(self) -> str | None:
        """The node that leads at present, or None. Raises `StoreClosed`, `EngineError`. Cancellation: has no effect."""
        answer = await self._store.call(Holders(self._key, 1))
        if isinstance(answer, Reply):
            raise StoreClosed("the store is closed")
        return leader_of(answer)

    def watch(self) -> LeaderChanges:
        """Watch who leads: `async with election.watch() as changes: async for leader in changes`.

        The first is the present leader, a node or None; then comes each change.
        Cancellation: has no effect; the change is told next time.
        """
        return LeaderChanges(self._store, self._key, self._ttl)

    def _is_but_the_loss(self, error: Exception) -> bool:
        """Whether it is what `term.check()` raises after a loss, be it in tasks of the body, and nothing else."""
        if isinstance(error, ExceptionGroup):
            return all(map(self._is_but_the_loss, cast("ExceptionGroup[Exception]", error).exceptions))
        return isinstance(error, LeaseLost) and error.key == self._key
