"""Rests: an engine with connections lets idle sessions be silent, and nothing is late by that."""

from __future__ import annotations

from tenure import engine as e

from ._clerk import OpenClient, QueueSessionBase
from ._contract import Advance, Do, Hints

_LONGEST = 600.0
_TTL = 2.0


async def _rest(do: Do, session: str) -> float:
    """The seconds for which the session may rest."""
    answer = await do(e.RenewSession(session, _LONGEST))
    assert isinstance(answer, e.Resting)
    return answer.seconds


class RestContract(QueueSessionBase):
    """The contract's tests of rests, for an engine that knows them."""

    async def test_idle_sessions_rest_for_long(
        self, client: OpenClient, do: Do, advance: Advance, hints: Hints
    ) -> None:
        a, b = await client("a", ttl=_TTL), await client("b", ttl=_TTL)
        await a.idle()
        await b.idle()
        assert 0 < await _rest(do, a.session) <= _TTL
        assert await _rest(do, b.session) == _LONGEST
        await advance(1.5)
        assert await _rest(do, a.session) == _LONGEST
        await advance(_LONGEST)
        assert await _rest(do, a.session) == _LONGEST
        await advance(_TTL + 0.1)
        assert await do(e.RenewSession(b.session)) is e.Reply.GONE
        assert await do(e.RenewSession(a.session)) is e.Reply.OK

    async def test_a_session_without_anything_rests(self, do: Do, advance: Advance) -> None:
        session = await do.open(ttl=_TTL)
        assert await _rest(do, session) == _LONGEST
        await advance(_LONGEST + 1)
        assert await do(e.RenewSession(session)) is e.Reply.OK
        await advance(_TTL + 0.1)
        assert await do(e.RenewSession(session)) is e.Reply.GONE

    async def test_a_session_with_something_does_not_rest(self, client: OpenClient, do: Do) -> None:
        for attempt in range(4):
            a = await client(f"a{attempt}", queue=f"q{attempt}")
            if attempt == 0:
                await do.hold(a.session, "k", "holder")
            elif attempt == 1:
                await do.queue(a.session, "k", "waiter")
            elif attempt == 2:
                await do(e.AddResource("pool", "r", ()))
                assert isinstance(await do(e.Claim(a.session, "pool", "claimer")), e.Claimed)
            else:
                await a.put(e.NewTask(b"x"))
                await a.take_one()
            assert await do(e.RenewSession(a.session, _LONGEST)) is e.Reply.OK

    async def test_others_come_back_when_a_session_may_have_ended(
        self, client: OpenClient, do: Do, advance: Advance, hints: Hints
    ) -> None:
        idle, dead = await client("idle", ttl=_TTL), await client("dead", ttl=_TTL)
        inbox = await hints("idle")
        await idle.idle()
        assert await _rest(do, dead.session) <= _TTL
        assert await _rest(do, idle.session) == _LONGEST
        assert await do(e.RenewSession(dead.session)) is e.Reply.OK
        await dead.put(e.NewTask(b"x"))
        assert (await dead.take_one()).payload == b"x"
        assert {e.Notice.WAKE, e.Notice.READY} <= {hint.news for hint in await inbox.new()}
        await idle.idle()
        assert await _rest(do, idle.session) == self.about(_TTL)
        await advance(_TTL + 0.1)
        await _rest(do, idle.session)
        assert e.Notice.READY in [hint.news for hint in await inbox.new()]
        assert (await idle.take_one()).payload == b"x"

    async def test_a_hint_that_nobody_reads_is_seen(self, client: OpenClient, do: Do, hints: Hints) -> None:
        watcher, dead, producer = [await client(name) for name in ("watcher", "dead", "producer")]
        inboxes = [await hints("watcher"), await hints("dead")]
        await dead.idle()
        await watcher.idle()
        for session in (producer, dead, watcher):
            await _rest(do, session.session)
        await producer.put(e.NewTask(b"x"))
        assert e.Notice.WAKE in [hint.news for hint in await inboxes[0].new()]
        assert e.Notice.READY in [hint.news for hint in await inboxes[1].new()]
        assert await _rest(do, watcher.session) == 0

    async def test_a_task_that_is_due_later_ends_the_rest(
        self, client: OpenClient, do: Do, hints: Hints
    ) -> None:
        a, b = await client("a", ttl=_TTL), await client("b", ttl=_TTL)
        await a.put(e.NewTask(b"x", delay=100.0))
        await a.idle()
        assert await _rest(do, b.session) < _LONGEST  # a is awake
        assert await _rest(do, a.session) == self.about(100.0)
        await do(e.SetPaused("jobs", True))
        assert await _rest(do, a.session) == _LONGEST
