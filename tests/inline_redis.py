"""Redis in the time of a test: the scripts on a real server, asked by blocking calls."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from redis_pushes import RedisSocket

from tenure.engine import Engine, Reply
from tenure.engines.redis._codec import answered, hint
from tenure.engines.redis._operations import CODECS
from tenure.engines.redis._scripts import all_scripts, script
from tenure.testing._batch_link import BatchLink


class InlineRedis(Engine):
    """The scripts on a real server, each call blocking until it is answered: for tests in virtual time.

    All stores over it share a connection, so that hints come before the answer of the call that caused them.
    Without a clock the time is the server's.
    """

    url = ""
    families = True

    def __init__(self, server, clock, cap=256):
        self.url = server.url
        self._clock = clock
        self._cap = cap
        self._listeners = {}
        self._connection = RedisSocket(server.socket)
        self._ask(*(("SCRIPT", "LOAD", script.source) for script in all_scripts()))

    def close(self):
        self._connection.close()

    def _ask(self, *commands):
        replies, pushes = self._connection.ask(*commands)
        for kind, channel, message in pushes:
            deliver = self._listeners.get(channel.decode())
            if kind == b"message" and deliver is not None:
                deliver(hint(channel.decode().removeprefix("tenure:"), message))
        return replies

    def _say(self, *command):
        self._connection.tell(command)
        self._ask()

    def _evaluate(self, name, *arguments):
        now = "" if self._clock is None else f"{round(self._clock() * 1e6):016}"
        keys = ("1", "tenure:{0}:")
        return self._ask(("EVALSHA", script(name).sha, *keys, now, self._cap, *arguments))[0]

    def apply_now(self, operation):
        call = CODECS[type(operation)]
        answer = answered(call, self._evaluate(call.script, *call.arguments(operation)))
        if answer is Reply.MORE:
            self._evaluate("sweep")
        return answer

    def link(self):
        return BatchLink(self)

    async def execute(self, operations):
        answers = [self.apply_now(operation) for operation in operations]
        await anyio.lowlevel.checkpoint()
        return answers

    def listen(self, process, deliver):
        self._listeners[f"tenure:{process}"] = deliver
        self._say("SUBSCRIBE", f"tenure:{process}")

    async def serve(self, process, deliver, *, task_status=anyio.TASK_STATUS_IGNORED):
        self.listen(process, deliver)
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            del self._listeners[f"tenure:{process}"]
            self._say("UNSUBSCRIBE", f"tenure:{process}")


@pytest.fixture
def inline_redis(redis_server):
    """Makes engines in the test's time: `inline_redis(clock)`."""
    made = []

    def make(clock, cap=256):
        made.append(InlineRedis(redis_server, clock, cap))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
