"""aiokafka: the accumulator of messages, whose batches a sender takes."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.structs import TopicPartition

from tenure.testing import cancellable


async def every_message_is_delivered_once() -> None:
    """Each message that was taken is in one batch, and each waiter for room gets it."""
    accumulator = MessageAccumulator(Mock(leader_for_partition=lambda _: 0), 100, 0, 30)
    partition = TopicPartition("topic", 0)
    taken = delivered = 0
    sent = asyncio.Event()

    async def put() -> None:
        nonlocal taken
        future = await accumulator.add_message(partition, None, b"x" * 60, timeout=1000)
        taken += 1
        await future

    async def victim() -> None:
        with cancellable():
            await put()

    async def send() -> None:
        nonlocal delivered
        while not sent.is_set() or accumulator._batches:
            nodes, _ = accumulator.drain_by_nodes([])
            waiter = accumulator.waiter()
            for batch in nodes.get(0, {}).values():
                await asyncio.sleep(0.1)
                delivered += batch.record_count
                batch.done(0)
            if not nodes and not sent.is_set():
                await asyncio.wait(
                    [waiter, asyncio.ensure_future(sent.wait())], return_when="FIRST_COMPLETED"
                )

    async with asyncio.TaskGroup() as group:
        sender = group.create_task(send())
        try:
            async with asyncio.TaskGroup() as puts:
                for task in (victim, put, victim, put):
                    puts.create_task(task())
        finally:
            sent.set()
        await sender
    assert delivered >= taken
    await accumulator.close()
