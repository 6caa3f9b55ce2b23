"""trio: channels, limiters and conditions."""

from __future__ import annotations

import trio

from tenure.testing import Machine, at_rest, cancellable, invariant, rule


class _Channel(Machine):
    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[int](1)
        self.sent: set[int] = set()
        self.got: set[int] = set()
        self.next = 0

    @rule()
    async def put(self) -> None:
        self.next += 1
        item = self.next
        with trio.move_on_after(5):
            await self.send.send(item)
            self.sent.add(item)

    @rule()
    async def get(self) -> None:
        with trio.move_on_after(5):
            self.got.add(await self.receive.receive())

    @rule(cancel=False)
    async def drain(self) -> None:
        try:
            while True:
                self.got.add(self.receive.receive_nowait())
        except trio.WouldBlock:
            await trio.lowlevel.checkpoint()

    @at_rest
    async def all_that_was_sent_came_once(self) -> None:
        await self.drain()
        assert self.sent == self.got


class _Limiter(Machine):
    def __init__(self) -> None:
        self.limiter = trio.CapacityLimiter(2)
        self.inside = 0

    @rule(total=(1, 2))
    async def resize(self, total: int) -> None:
        self.limiter.total_tokens = total
        await trio.lowlevel.checkpoint()

    @rule(seconds=(0, 1))
    async def use(self, seconds: int) -> None:
        async with self.limiter:
            self.inside += 1
            try:
                await trio.sleep(seconds)
            finally:
                self.inside -= 1

    @invariant
    def no_more_than_two_are_inside(self) -> None:
        assert self.inside <= 2

    @at_rest
    def all_is_given_back(self) -> None:
        assert not self.limiter.borrowed_tokens
        assert not self.limiter.statistics().tasks_waiting


async def every_notice_is_used() -> None:
    """The item comes with one notification, and is consumed by somebody."""
    condition = trio.Condition()
    items: list[int] = []

    async def consume() -> None:
        async with condition:
            while not items:
                await condition.wait()
            items.pop()
            if items:
                condition.notify()

    async def victim() -> None:
        with cancellable() as scope:
            await consume()
        if scope.cancelled_caught:
            items.append(0)
            async with condition:
                condition.notify()

    async with trio.open_nursery() as nursery:
        for task in (victim, victim, consume):
            nursery.start_soon(task)
        for _ in range(3):
            await trio.sleep(1)
            async with condition:
                items.append(1)
                condition.notify()


channel_loses_nothing = _Channel.scenario
limiter_is_given_back = _Limiter.scenario
