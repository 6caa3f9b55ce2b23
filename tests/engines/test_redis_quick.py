"""The quick parts of scripts, which stand before the others for speed, do just what these would do."""

from __future__ import annotations

import random
import socket

import hiredis
import pytest

from tenure import engine as e
from tenure.engines.redis import CALLS
from tenure.engines.redis._resp import pack
from tenure.engines.redis._scripts import script, source_of

KEYS = ("tenure:{0}:rows", "tenure:{0}:order")
PARTS = {
    "acquire": ("start", "state", "holds", "operate"),
    "release": ("start", "state", "holds", "operate"),
    "put": ("start", "state", "tasks", "producers", "operate"),
    "exchange": ("start", "state", "tasks", "takers", "operate"),
}
SLOW = {quick: source_of(*parts) for quick, parts in PARTS.items()}
# rows as text, since the same table may be packed in another order
LOOK = """
local seen = {}
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
    local value = rows[i + 1]
    if not string.find(rows[i], '^[#YKr]') then
        local fields = {}
        for name, field in pairs(cmsgpack.unpack(value)) do
            field = type(field) == 'number' and string.format('%.17g', field) or cjson.encode(field)
            fields[#fields + 1] = name .. '=' .. field
        end
        table.sort(fields)
        value = table.concat(fields, ' ')
    end
    seen[#seen + 1] = rows[i] .. ' ' .. value
end
table.sort(seen)
return {seen, redis.call('ZRANGE', KEYS[2], 0, -1)}
"""

CAPACITIES = {"k": 1, "l\0\xff": 3}


def on_holds(chance):
    key = chance.choice(sorted(CAPACITIES))
    holder = chance.choice(("a", "b\0", "c", "d", "e"))
    capacity = CAPACITIES[key] if chance.random() < 0.95 else 2
    session = chance.choice(("p/1", "p/1", "q/1", "q/gone"))
    wanted = e.Acquire(
        session, key, holder, capacity, chance.randint(1, capacity), b"\0", chance.random() < 0.8
    )
    rare = e.Resize(key, chance.randint(1, 3)) if chance.random() < 0.3 else e.RenewSession("p/1")
    watch = e.Holders(key, 9, chance.choice(("", "", "p/1")))
    renew = e.RenewSession(chance.choice(("p/1", "q/1")))
    # something that becomes due, before or after the sessions end
    task = e.NewTask(b"", expires=chance.choice((1.0, 90.0)))
    put = e.Put("p/1", 1, "q", (e.PutRequest("a", (task,)),), 9)
    return chance.choice((*[wanted] * 12, *[e.Release(key, holder)] * 6, rare, watch, renew, put))


class OnTasks:
    """Mostly plain tasks that are put and taken one by one."""

    def __init__(self):
        self._n, self._held, self._last = 0, [], None

    def __call__(self, chance):
        self._n += 1
        session = chance.choice(("p/1", "p/1", "p/1", "q/1", "q/gone"))
        queue = chance.choice(("k", "l\0\xff"))
        if self._last is not None and chance.random() < 0.1:
            return self._last
        operation = chance.choice((*[self._put] * 6, *[self._exchange] * 6, self._other))
        self._last = operation(chance, session, queue)
        return self._last

    def _put(self, chance, session, queue):
        tasks = [e.NewTask(chance.choice((b"", b"\0x", b"y" * 512)))]
        if chance.random() < 0.2:
            key = chance.choice((None, "twin"))
            odd = (
                e.NewTask(b"z" * 513),
                e.NewTask(
                    b"", chance.choice((-1, 1)), chance.choice((0.0, 0.5)), key, chance.choice((None, 9.0))
                ),
            )
            tasks = [chance.choice(odd), *tasks[: chance.randint(0, 1)]]
        cursor = ("at", b"1") if chance.random() < 0.05 else None
        request = e.PutRequest(chance.choice("ab"), tuple(tasks), chance.random() < 0.5, cursor)
        return e.Put(
            session, self._n, queue, (request,) * chance.choice((1, 1, 1, 2)), chance.choice((9, 9, 9, 2))
        )

    def _exchange(self, chance, session, queue):
        settle = ()
        if self._held and chance.random() < 0.6:
            queue, number, token = self._held.pop(chance.randrange(len(self._held)))
            ttl = chance.choice((0.1, 5.0, None))
            settle = (e.Settle(number, token, chance.choice(list(e.Verdict)), b"r", 0.5, ttl),)
        aging = chance.choice((None, None, None, 1.0))
        wait, keep = chance.random() < 0.7, chance.random() < 0.5
        return e.Exchange(session, self._n, queue, settle, chance.randint(0, 3), wait, aging, 2, keep)

    def _other(self, chance, session, queue):
        return chance.choice(
            (
                e.SetPaused(queue, chance.random() < 0.3),
                e.CancelTask(queue, chance.randint(1, 9)),
                e.GetResult(queue, chance.randint(1, 9), "q/1"),
                e.Leave(queue, chance.choice("ab")),
                e.RenewSession("p/1"),
            )
        )

    def taken(self, operation, answer):
        if isinstance(operation, e.Exchange) and isinstance(answer, list):
            self._held += [(operation.queue, *answer[1][i : i + 2]) for i in range(0, len(answer[1]), 8)]


class Side:
    """A database of the server, in which the scripts run with or without their quick parts."""

    def __init__(self, server, database, *, quick):
        self._reader = hiredis.Reader()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(server.socket)
        self._quick = quick
        self.ask(("HELLO", "3"), ("SELECT", database), ("SUBSCRIBE", "tenure:p"), ("SUBSCRIBE", "tenure:q"))

    def ask(self, *commands):
        self.socket.sendall(pack([*commands, ("PING",)]))
        replies, hints = [], []
        while replies[-1:] != ["PONG"]:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self.socket.recv(1 << 18))
            elif not isinstance(reply, hiredis.PushNotification):
                assert not isinstance(reply, Exception), reply
                replies.append(reply.decode() if reply == b"PONG" else reply)
            elif reply[0] == b"message":
                hints.append((reply[1], reply[2]))
        return replies[:-1], hints

    def start(self):
        self.ask(("DEL", *KEYS))
        for name in "pq":
            self.apply(e.OpenSession(f"{name}/1", name, 50.0), 0.0)

    def apply(self, operation, time):
        call = CALLS[type(operation)]
        arguments = tuple(call.arguments(operation))
        source = script(call.script).source
        if not self._quick:
            source = SLOW.get(call.script, source)
        return self._evaluate(source, time, *arguments)

    def sweep(self, time):
        self._evaluate(script("sweep").source, time, "sweep")

    def _evaluate(self, source, time, *arguments):
        return self.ask(("EVAL", source, 2, *KEYS, 1_000_000 + round(time * 1e6), 256, *arguments))

    def look(self):
        return self.ask(("EVAL", LOOK, 2, *KEYS))[0]


@pytest.fixture
def sides(redis_server):
    quick, slow = Side(redis_server, 0, quick=True), Side(redis_server, 1, quick=False)
    yield quick, slow
    quick.socket.close()
    slow.socket.close()


def agree(sides, operation, time):
    (answer, hints), (other, all_hints) = (side.apply(operation, time) for side in sides)
    assert answer == other, operation
    # what is published is heard in all databases
    assert all_hints == 2 * hints, operation
    assert sides[0].ask()[1] == hints
    assert sides[0].look() == sides[1].look(), operation
    if answer == [b"more"]:
        for side in sides:
            side.sweep(time)
        sides[0].ask()
    return answer[0]


def walk(sides, chance, operate):
    for side in sides:
        side.start()
    time = 0.0
    for _ in range(40):
        time += chance.choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 20.0))
        operation = operate(chance)
        yield operation, agree(sides, operation, time)


@pytest.mark.parametrize("seed", range(8))
def test_holds_with_and_without_the_quick_parts_are_the_same(sides, seed):
    chance = random.Random(seed)
    for _ in range(25):
        for _ in walk(sides, chance, on_holds):
            pass


@pytest.mark.parametrize("seed", range(8))
def test_tasks_with_and_without_the_quick_parts_are_the_same(sides, seed):
    chance = random.Random(seed)
    for _ in range(25):
        on_tasks = OnTasks()
        for operation, answer in walk(sides, chance, on_tasks):
            on_tasks.taken(operation, answer)


def test_whoever_wants_more_than_there_is_since_the_line_shrank_is_told_by_both(sides):
    for side in sides:
        side.start()
    for holder, weight in (("a", 3), ("b", 2), ("c", 3)):
        agree(sides, e.Acquire("p/1", "k", holder, 3, weight, b"", True), 0.0)
    agree(sides, e.Resize("k", 2), 0.0)
    agree(sides, e.Release("k", "a"), 0.0)
