"""Step 10: a gateway to a language model: keys with limits of their own, costs that are known late, tenants in turn."""

import sys
from dataclasses import dataclass, field

import anyio

import tenure
from tenure.local import CircuitBreaker

KEYS = ("key-1", "key-2")
REQUESTS, TOKENS = 50, 2000  # a second, for each key
MOST = 100  # tokens of an answer


class TooManyRequests(Exception):
    """The provider refuses a call."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


@dataclass
class Provider:
    """Enforces its limits: for each key it has what is left of them, and since when."""

    violations: int = 0
    left: dict[str, tuple[float, float, float]] = field(default_factory=dict[str, tuple[float, float, float]])
    busy: set[str] = field(default_factory=lambda: {"key-2"})

    async def complete(self, key: str, prompt: str) -> tuple[str, int]:
        """Return the answer, and how many tokens it took."""
        if key in self.busy:  # somebody else uses the same account
            self.busy.remove(key)
            raise TooManyRequests(0.2)
        now, tokens = anyio.current_time(), 10 + len(prompt)
        requests_left, tokens_left, since = self.left.get(key, (REQUESTS, TOKENS, now))
        requests_left = min(REQUESTS, requests_left + (now - since) * REQUESTS) - 1
        tokens_left = min(TOKENS, tokens_left + (now - since) * TOKENS) - tokens
        self.violations += requests_left < 0 or tokens_left < 0
        self.left[key] = (requests_left, tokens_left, now)
        await anyio.sleep(0.005)
        return prompt.upper(), tokens


class Gateway:
    """Answers the prompts of tenants with a few keys."""

    def __init__(self, store: tenure.Store, provider: Provider) -> None:
        # a fifth less at once than the provider allows: calls may arrive together
        limits = [
            tenure.Limit(REQUESTS, burst=0.8 * REQUESTS),
            tenure.Limit(TOKENS, burst=0.8 * TOKENS, unit="tokens"),
        ]
        self.provider = provider
        self.queue = tenure.WorkQueue[str](
            store, "step10 prompts", groups=tenure.Groups(limit=4, weights={"gold": 3})
        )
        self.keys = tenure.ResourcePool(store, "step10 keys")
        self.limiters = {key: tenure.RateLimiter(store, f"step10 {key}", *limits) for key in KEYS}
        self.breakers = {key: CircuitBreaker(min_calls=5) for key in KEYS}

    async def begin(self) -> None:
        """Add the keys, each for four calls at a time."""
        for key in KEYS:
            for place in range(4):
                await self.keys.add(f"{key}/{place}", {"key": key})

    async def answer(self, task: tenure.Task[str]) -> None:
        """Answer one prompt, with a free key."""
        async with self.keys.claim(fair_for=task.group) as claim:
            key = claim.metadata["key"]
            limiter = self.limiters[key]
            async with limiter.spend({"tokens": MOST}) as spending:
                try:
                    text, tokens = await self.breakers[key].call(self.provider.complete, key, task.payload)
                except TooManyRequests as refusal:
                    await limiter.hold_off(refusal.retry_after)  # for all processes
                    await claim.cool_down(refusal.retry_after)
                    raise tenure.RetryLater(refusal.retry_after, counts=False) from refusal
                except tenure.CircuitOpen as refusal:
                    await claim.cool_down(refusal.retry_after)
                    raise tenure.RetryLater(0.01, counts=False) from refusal
                spending.correct({"tokens": tokens})
            task.set_result({"text": text, "tokens": tokens})


async def main(where: str = "memory:") -> None:
    """Answer the prompts of three tenants."""
    async with tenure.open_store(where) as store:
        provider = Provider()
        gateway = Gateway(store, provider)
        await gateway.begin()
        async with anyio.create_task_group() as group:
            group.start_soon(tenure.Worker(gateway.queue, gateway.answer, concurrency=8).run)
            prompts = [
                tenure.Item(f"{tenant} asks {n}", group=tenant)
                for tenant in ("gold", "ann", "bob")
                for n in range(20)
            ]
            ids = [one for one in await gateway.queue.put_many(prompts) if isinstance(one, int)]
            tokens = sum([(await gateway.queue.result(one))["tokens"] for one in ids])
            print(f"{len(ids)} answers, {tokens} tokens; calls above a limit: {provider.violations}")
            group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
