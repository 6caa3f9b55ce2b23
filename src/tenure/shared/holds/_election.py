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

    `node` is the name under which this process leads. `number` is the fence: higher than the number of every earlier
    term. Send it with each write of the leader, and let the receiver refuse lower numbers.
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
    """An election of one leader at a time over all processes that use the store. Candidates wait in line.

    `await election.lead(body)` campaigns and runs `body(term)`; leadership moves on only when the body has ended.
    `node` is the name that others see; the default is the store's process: host, process id, and a random part.
    `ttl` is for how many seconds there is no leader after a leader has died (the store's by default).

    A frozen leader may believe in its term for too long: hand `term.number` to what it writes to, or call
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
        """Become the leader, run `body(term)`, resign, and return the result of the body.

        If the term is lost, the body is cancelled, and the call campaigns again at the end of the line. An exception
        of the body resigns and is raised. Raises `RuntimeError` if this task leads already, `TypeError` for a body
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

        `timeout` and errors are as in `Lock.hold`; `RuntimeError` if this task leads already.
        Cancellation: while waiting, no place is kept and no term begins.
        """
        kind = partial(Term, self.node)
        return Hold(kind, self._store, self._request, ttl=self._ttl, timeout=timeout, exclusive=True)

    async def leader(self) -> str | None:
        """The node that leads at present, or None. Raises `StoreClosed`, `EngineError`."""
        return leader_of(await read_pages(self._store, e.Scan(e.HOLDERS, self._key), 1))

    def watch(self) -> LeaderChanges:
        """Watch the leader: `async with election.watch() as changes: async for leader in changes`.

        The first item is the present leader, a node or None; then comes each change.
        Cancellation: nothing is missed; the change comes next time.
        """
        return LeaderChanges(self._store, self._key, self._ttl)

    def _is_but_the_loss(self, error: Exception) -> bool:
        if isinstance(error, ExceptionGroup):
            return all(map(self._is_but_the_loss, cast("ExceptionGroup[Exception]", error).exceptions))
        return isinstance(error, LeaseLost) and error.key == self._key
