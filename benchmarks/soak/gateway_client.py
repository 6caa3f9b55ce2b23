"""A process that answers prompts with the gateway of the tutorial, until it is killed. Started as `client.py` is."""

from __future__ import annotations

import json
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))

import step10_gateway as step

import tenure
from benchmarks.soak import client


class Remote:
    """The provider, which is in another process: a line of JSON for each call."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._sending = anyio.Lock()
        self._numbers = count()
        self._answers: dict[int, Any] = {}
        self._come: dict[int, anyio.Event] = {}

    async def complete(self, key: str, prompt: str) -> tuple[str, int]:
        answer = await self._ask(call=key, prompt=prompt, began=time.monotonic())
        if "retry_after" in answer:
            raise step.TooManyRequests(answer["retry_after"])
        return prompt.upper(), answer["tokens"]

    async def held_off(self, key: str) -> None:
        """Say that nothing of this key may be called any more."""
        await self._ask(held=key, at=time.monotonic())

    async def _ask(self, **question: Any) -> Any:
        number = next(self._numbers)
        come = self._come[number] = anyio.Event()
        async with self._sending:
            await self._stream.send(json.dumps({"number": number, **question}).encode() + b"\n")
        await come.wait()
        return self._answers.pop(number)

    async def listen(self) -> None:
        rest = b""
        async for data in self._stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                self._answers[answer["number"]] = answer
                self._come.pop(answer["number"]).set()


class Gateway(step.Gateway):
    """As that of the tutorial; it says to the provider when a key is held off."""

    def __init__(self, store: tenure.Store, provider: Remote) -> None:
        super().__init__(store, provider)
        for key, limiter in self.limiters.items():
            self.limiters[key] = Reporting(limiter, provider, key)


class Reporting:
    def __init__(self, limiter: tenure.RateLimiter, provider: Remote, key: str) -> None:
        self._limiter, self._provider, self._key = limiter, provider, key
        self.spend = limiter.spend

    async def hold_off(self, seconds: float) -> None:
        await self._limiter.hold_off(seconds)
        await self._provider.held_off(self._key)


async def run(job: dict[str, Any]) -> None:
    for name, value in job["settings"].items():
        setattr(step, name, value)
    async with (
        await anyio.connect_unix(job["provider"]) as stream,
        tenure.open_store(job["url"], ttl=job["ttl"]) as store,
        anyio.create_task_group() as group,
    ):
        provider = Remote(stream)
        gateway = Gateway(store, provider)
        group.start_soon(provider.listen)
        group.start_soon(tenure.Worker(gateway.queue, gateway.answer, concurrency=16).run)


if __name__ == "__main__":
    client.work = client.on_its_loop(run)
    client.main()
