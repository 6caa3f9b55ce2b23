"""The election: a lock whose holder has a name, and a term that is its fence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar, cast

from anyio import CancelScope

import tenure.engine as e
from tenure.arguments import NotABlock, Seconds, check_name, hinted
from tenure.errors import LeaseLost
from tenure.handlers import check_signature
from tenure.shared._lease import Hold, HoldRequest, Lease, LeaseRequest
from tenure.store import Grant, Store, check_ttl, handle_of, read_pages

from ._leader_changes import LeaderChanges, leader_of

T = TypeVar("T")


class Term(Lease):
    """A term of leadership, for as long as the block lasts: a `Lease` with the `key` of the election.

    `number` is the fence: it is higher than the number of every earlier term. Send it with each write of the leader,
    and let the receiver refuse lower ones. `node` is the name under which this one leads.
    """

    __slots__ = ("node",)

    def __init__(self, node: str, request: LeaseRequest, grant: Grant, scope: CancelScope) -> None:
        super().__init__(request, grant, scope)
        self.node: str = node

    @property
    def number(self) -> int:
        """The fence, the lease's `token`: higher than in every earlier term of this election, but not by 1."""
        return self.token

    @property
    def _subject(self) -> str:
        return f"{self.node!r} of {self.key}"


class Election(NotABlock):
    """An election of one leader at a time over all processes that use the store; candidates wait first come, first
    served.

    `await election.lead(body)` campaigns and runs `body(term)`; leadership moves on only when the body has ended.
    `node` is the name that others see; by default it is the store's process: host, process id, and something random.
    `ttl` is for how many seconds there is no leader after a leader has died (the store's by default).

    A leader that was frozen may believe in its term for longer: hand `term.number` to what it writes to, or call
    `term.check()` right before side effects.

    Source: a lock with a sequencer (Chubby, Burrows 2006) whose holder puts its name on it; terms come from Raft.
    """

    __slots__ = ("_key", "_request", "_store", "_ttl", "name", "node")
    _blocks = "election.term()"

    @hinted(timeout="write election.term(timeout=5)")
    def __init__(
        self, store: Store, name: str, *, node: str | None = None, ttl: Seconds | None = None
    ) -> None:
        self._store = handle_of(store)
        self._key = self._store.key("election", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self.name: str = name
        self.node: str = store.process if node is None else check_name("node", node)
        self._request = HoldRequest(self._key, 1, value=self.node.encode())

    def __repr__(self) -> str:
        return f"<Election {self.name!r} node={self.node!r}>"

    async def lead(self, body: Callable[[Term], Awaitable[T]]) -> T:
        """Become the leader, run `body(term)`, resign, and return what it returned.

        When the term is lost, the body is cancelled, and this campaigns again, at the end of the line. What the body
        raises resigns and is raised. Raises `RuntimeError` if this task leads already, `TypeError` at once for a body
        that takes no term, `StoreClosed`, `EngineError`.
        Cancellation: the body is cancelled, then this resigns; while campaigning, no place is kept.
        """
        if not callable(body):
            raise TypeError(f"body must be an async function that takes a term, not {body!r}")
        check_signature("body", body, "a term")
        while True:
            term: Term | None = None
            try:
                async with self.term() as term:
                    return await body(term)
            except Exception as error:
                if term is None or not term.lost or not self._is_but_the_loss(error):
                    raise

    def term(self, timeout: Seconds | None = None) -> AbstractAsyncContextManager[Term, None]:
        """Lead for a block, `async with election.term() as term`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try, given up after a second or so if the engine
        does not answer). Entering raises `AcquireTimeout`, `RuntimeError` if this task leads already, `StoreClosed`,
        `EngineError`; leaving raises `LeaseLost`.
        Cancellation: while waiting, no place is kept and one does not lead.
        """
        kind = partial(Term, self.node)
        return Hold(kind, self._store, self._request, ttl=self._ttl, timeout=timeout, exclusive=True)

    async def leader(self) -> str | None:
        """The node that leads at present, or None. Raises `StoreClosed`, `EngineError`."""
        return leader_of(await read_pages(self._store, e.Scan(e.HOLDERS, self._key), 1))

    def watch(self) -> LeaderChanges:
        """Watch the leader: `async with election.watch() as changes: async for leader in changes`.

        The first is the present leader, a node or None; then comes each change.
        Cancellation: nothing is missed; the change comes next time.
        """
        return LeaderChanges(self._store, self._key, self._ttl)

    def _is_but_the_loss(self, error: Exception) -> bool:
        """True if the error is what `term.check()` raises after a loss, be it in tasks of the body, and nothing
        else.
        """
        if isinstance(error, ExceptionGroup):
            return all(map(self._is_but_the_loss, cast("ExceptionGroup[Exception]", error).exceptions))
        return isinstance(error, LeaseLost) and error.key == self._key
