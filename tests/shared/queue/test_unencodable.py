"""An operation that an engine cannot encode fails alone: neither its store nor its batch ends by it."""

from __future__ import annotations

import anyio
import pytest

from tenure import EngineError, Lock, StoreUnavailable, WorkQueue
from tenure.engine import Move, NewTask, Ping, Put, PutRequest, Release, Reply

# neither of these is taken by a pattern of `shared`, but an engine must not rely on that
POISON = (
    Release("tenure:lock:x", {"a": 1}),
    Release("tenure:lock:x", "\ud800"),
    Move("tenure:queue:jobs", ("abc",), "cancelled"),
    Move("tenure:queue:jobs", (2**80,), "cancelled"),
    Put("s/1", 1, "tenure:queue:jobs", (PutRequest("p", (NewTask(object()),)),)),
)


# memory encodes nothing
@pytest.mark.parametrize("engine", ["sqlite", "redis", "postgres"], indirect=True)
@pytest.mark.parametrize("poison", POISON, ids=lambda one: type(one).__name__)
async def test_it_fails_alone(store, engine, poison):
    with anyio.fail_after(20):
        async with Lock(store, "held") as lease:
            answer = None
            try:
                answer = await store._handle.call(poison)
            except EngineError as error:
                assert not isinstance(error, StoreUnavailable)  # noqa: PT017 some engines take some of these
            assert not isinstance(answer, Exception)
            answers = []
            for operation in (Ping(), poison, Ping()):
                store._handle.send(operation, answers.append)
            while len(answers) < 3:
                await store.ping()
            assert answers[0] is answers[2] is Reply.OK
            raw = await engine.execute([Ping(), poison, Ping()])
            assert raw[0] is raw[2] is Reply.OK
            lease.check()
            assert await WorkQueue(store, "jobs").put(1)
