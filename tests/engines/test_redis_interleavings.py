"""All that three clients of the real scripts can do and suffer, in every order, in set time.

A script is atomic, so a run is a word of steps: the server applies what a client has sent, and the reply arrives or is
lost (then it is sent again), or the hints are lost; a client leaves, cancels, closes, or crashes (what it has sent may
still be applied, now or later); an undoing arrives a second time; time passes, and the session of one expires. Replies
and hints that arrive are taken in at once: to believe as early as possible is the worst that can happen. What is not in
the way of things is a fault, and a run has so many of them.

All words are tried, level by level, so that the one that is told is a shortest one. A world that was seen is not
visited again, and the scripts are asked once for what they make of a state.

    TENURE_INTERLEAVINGS=1 pytest --timeout=0 -o faulthandler_timeout=0 tests/engines/test_redis_interleavings.py

allows one fault more in each run, and takes some minutes.
"""

from __future__ import annotations

import os
import re
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from redis_pushes import RedisSocket

from tenure import engine as e
from tenure.engines.redis import CODECS
from tenure.engines.redis._codec import answered, hint
from tenure.engines.redis._scripts import all_scripts, script

MORE_FAULTS = int(os.environ.get("TENURE_INTERLEAVINGS", "0"))
PREFIX = "tenure:{0}:"
SWEEP = "sweep"
NAMES = "abc"


# ----------------------------------------------------------------------------------------- the scripts as a function

# Everything as one text, in which equal states are equal; without the answers to sessions that are over: nobody can ask
# for them again. Then what is looked at: the sessions, the last token, and the names of the keys.
KEEP = """
local P, state, names = KEYS[1], {}, redis.call('KEYS', KEYS[1] .. '*')
table.sort(names)
local function sorted(pairs_of)
    local fields, values = {}, {}
    for i = 1, #pairs_of, 2 do
        fields[#fields + 1], values[pairs_of[i]] = pairs_of[i], pairs_of[i + 1]
    end
    table.sort(fields)
    for i, field in ipairs(fields) do
        pairs_of[2 * i - 1], pairs_of[2 * i] = field, values[field]
    end
    return pairs_of
end
for _, name in ipairs(names) do
    local kind, session = redis.call('TYPE', name).ok, string.match(name, '^' .. P .. '(%S+) ')
    if kind == 'hash' then
        state[#state + 1] = {'HSET', name, sorted(redis.call('HGETALL', name))}
    elseif kind == 'zset' then
        local members = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
        for i = 1, #members, 2 do
            members[i], members[i + 1] = members[i + 1], members[i]
        end
        state[#state + 1] = {'ZADD', name, members}
    elseif kind == 'set' then
        local members = redis.call('SMEMBERS', name)
        table.sort(members)
        state[#state + 1] = {'SADD', name, members}
    elseif not session or redis.call('EXISTS', P .. session .. ':session') == 1 then
        state[#state + 1] = {'SET', name, {redis.call('GET', name)}}
    end
end
local sessions = redis.call('ZRANGE', P .. 'sessions', 0, -1, 'WITHSCORES')
return {cmsgpack.pack(state), sessions, redis.call('HGET', P .. 'state', 'token'), names}
"""
COME_BACK = """
redis.call('FLUSHDB')
for _, one in ipairs(cmsgpack.unpack(ARGV[1])) do
    redis.call(one[1], one[2], unpack(one[3]))
end
"""


class Seen(NamedTuple):
    """What is seen of a state: when the sessions end, the last token, and answers; None while something is due."""

    sessions: dict[str, int]
    token: int
    answers: tuple[Any, ...] | None


class Scripts:
    """What the scripts make of a state: asked once, and then judged. A state is known by its number."""

    def __init__(self, server, questions, *, cap=256, fault=("", "")):
        sources = {one.sha: one.source.decode() for one in all_scripts()}
        assert any(fault[0] in source for source in sources.values()), f"no longer there: {fault[0]}"
        self._questions, self._cap = questions, cap
        self._connection = RedisSocket(server.socket)
        self._shas = {
            sha: self._ask(("SCRIPT", "LOAD", source.replace(*fault)))[0][0]
            for sha, source in sources.items()
        }
        (self._keep, self._come_back), _ = self._ask(("SCRIPT", "LOAD", KEEP), ("SCRIPT", "LOAD", COME_BACK))
        for name in NAMES:
            self._connection.tell(("SUBSCRIBE", f"tenure:{name}"))
        self._states, self._numbers, self._applied, self._seen = [], {}, {}, {}
        (_, kept), _ = self._ask(("FLUSHDB",), self._keeping())
        self.empty = self._number(kept)

    def close(self):
        self._connection.close()

    def apply(self, state, time, operation, judge):
        """-> the state afterwards, the answer, and the hints"""
        key = state, time, operation
        if (known := self._applied.get(key)) is None:
            commands = self._restoring(state), self._command(time, operation), self._keeping()
            (_, raw, kept), hints = self._ask(*commands)
            answer = e.Reply(raw.decode()) if operation == SWEEP else answered(CODECS[type(operation)], raw)
            known = self._applied[key] = self._number(kept), answer, hints
            try:
                judge(_micro(time), operation, self.see(state), self.see(known[0]), hints)
            except AssertionError as error:
                raise AssertionError(f"{error}\nby {operation}") from error
        return known

    def see(self, state):
        if state not in self._seen:
            _, ends, token, _ = self._states[state]
            questions = (self._command(0, one) for one in self._questions)
            (_, *raw), _ = self._ask(self._restoring(state), *questions)
            answers = tuple(
                answered(CODECS[type(one)], it) for one, it in zip(self._questions, raw, strict=True)
            )
            sessions = {name.decode(): int(end) for name, end in zip(ends[::2], ends[1::2], strict=True)}
            hidden = e.Reply.MORE in answers
            self._seen[state] = Seen(sessions, int(token or 0), None if hidden else answers)
        return self._seen[state]

    def kinds(self, state):
        """The kinds of keys that there are, apart from the last numbers, and from answers."""
        names = {name.removeprefix(PREFIX.encode()) for name in self._states[state][3]} - {b"state"}
        kept = {name for name in names if not re.fullmatch(rb"\S+ \S+:(put|exchange|spend)", name)}
        return frozenset(re.sub(rb"(?<=:)(\d{8,}|\w\w)$", b"", name) for name in kept)

    def _keeping(self):
        return "EVALSHA", self._keep, 1, PREFIX

    def _restoring(self, state):
        return "EVALSHA", self._come_back, 0, self._states[state][0]

    def _command(self, time, operation):
        call = CODECS.get(type(operation))
        name, arguments = (call.script, call.arguments(operation)) if call else (SWEEP, ())
        return (
            "EVALSHA",
            self._shas[script(name).sha],
            1,
            PREFIX,
            f"{_micro(time):016}",
            self._cap,
            *arguments,
        )

    def _number(self, kept):
        if kept[0] not in self._numbers:
            self._numbers[kept[0]] = len(self._states)
            self._states.append(kept)
        return self._numbers[kept[0]]

    def _ask(self, *commands):
        replies, pushes = self._connection.ask(*commands)
        hints = [
            hint(channel.decode().removeprefix("tenure:"), said)
            for kind, channel, said in pushes
            if kind == b"message"
        ]
        return replies, hints


def _micro(time):
    return round((1000 + time) * 1_000_000)


# -------------------------------------------------------------------------------------------------------- the search


class Client(NamedTuple):
    """A store in small: `wire` is what it has sent and what was not answered, `mind` what it wants and believes."""

    name: str
    mind: Any
    wire: tuple[Any, ...] = ()
    sessions: int = 1
    undone: Any = None  # the last undoing
    alive: bool = True

    @property
    def session(self):
        return f"{self.name}/{self.sessions}"

    def send(self, *operations):
        return self._replace(wire=self.wire + operations)

    def think(self, **changes):
        return self._replace(mind=self.mind._replace(**changes))


class World(NamedTuple):
    """Everything: the server, the time, the clients, and how many faults may still happen to them.

    It is `calm` until a hint is lost, or somebody goes for whom one may be under way.
    """

    state: int
    tick: int
    clients: tuple[Client, ...]
    faults: int
    calm: bool = True

    def named(self, name):
        return next(client for client in self.clients if client.name == name)

    def put(self, client, faults=0):
        clients = tuple(client if one.name == client.name else one for one in self.clients)
        return self._replace(clients=clients).fault(faults)

    def fault(self, faults=1):
        return self._replace(faults=self.faults - faults)

    def alarm(self):
        return self.fault()._replace(calm=False)


class Broken(AssertionError):
    """A rule was broken; the message says which, and by which steps."""


class Search:
    """A search through all worlds. A subclass says what the clients do and what must hold.

    These give the client afterwards: `begin` (the session is open, nothing is under way), `answer` and `hear` (what an
    answer or a hint tells it), `look` (time has passed, and hints may have been lost), `drop` (the session is over:
    forget what was held); `choices` yields what it may do of its own, with 1 for what is not in the way of things.
    `judge_step` looks at what an operation did to the answers to the `questions`, `judge` at what the clients believe;
    `over` tells whether everybody alive has got what he wants.
    """

    setup = ()  # what is applied before they begin
    rest = frozenset()  # the kinds of what may be left when all have gone

    def __init__(self, server, minds, faults, ticks, names=NAMES, **options):
        self.scripts = Scripts(server, self.questions, **options)
        self.minds, self.faults, self.ticks = dict(zip(names, minds, strict=False)), faults, ticks
        self.came_from = {}

    def judge_step(self, now, operation, before, after, hints):
        for session, expires in after.sessions.items():
            if session not in before.sessions:
                assert session == getattr(operation, "session", operation.key), f"{session} came from nowhere"
            elif expires > before.sessions[session]:
                assert before.sessions[session] > now, f"{session} was revived"
        assert after.token >= before.token, "the last token was forgotten"

    def _first(self):
        world = World(self.scripts.empty, 0, (), self.faults)
        for operation in self.setup:
            world = self._at_once(world, 0, operation)
        for name, mind in self.minds.items():
            world = self._at_once(world, 0, e.OpenSession(f"{name}/1", name, 1))
            world = world._replace(clients=(*world.clients, self.begin(Client(name, mind))))
        self.firsts = world.clients
        return world

    def run(self):
        """Visit every world there is, and see that from each all come to an end. Raises `Broken`."""
        with closing(self.scripts):
            self._run([self._first()])

    def _run(self, level):
        self.came_from = {level[0]: None}
        drained = set()
        while level:
            following = []
            for world in level:
                with self._word(world):
                    moves = False
                    for step, after in self._steps(world):
                        moves = moves or (after.faults == world.faults and after.tick == world.tick)
                        if after not in self.came_from:
                            self.came_from[after] = world, step
                            following.append(after)
                    if not moves:
                        self._drain(world, drained)
            for world in following:
                with self._word(world):
                    self.judge(world, self.scripts.see(world.state))
            level = following

    @contextmanager
    def _word(self, world):
        try:
            yield
        except AssertionError as error:
            word = []
            while before := self.came_from[world]:
                world, step = before
                word.append(step)
            raise Broken(f"{error}\nafter: {', '.join(reversed(word))}") from error

    def _steps(self, world):
        fresh = set()
        movers = []
        for client, first in zip(world.clients, self.firsts, strict=True):
            # of those who are alike and have done nothing yet, the first goes first; what tells them apart is only
            # that sessions that end at the same time end in the order of their names
            alike = client.mind if client == first else client.name
            if alike not in fresh:
                movers.append(client)
            fresh.add(alike)
        for client in movers:
            name = client.name
            if client.wire:
                after, hints = self._apply(world, client)
                yield f"apply {name}", self._tell(after, hints)
                if world.faults:
                    yield f"apply {name}, lose its hints", after.alarm()
                    state, _, hints = self._ask(world, world.tick, client.wire[0])
                    after = self._tell(world._replace(state=state), hints)
                    yield f"apply {name}, lose the reply", after.fault()
            if client.alive:
                for label, after, faults in self.choices(client):
                    if faults <= world.faults:
                        yield f"{label} {name}", world.put(after, faults)
            if client.alive and world.faults:
                gone = client._replace(alive=False, mind=None)
                for step, last in ("crash", e.RenewSession), ("close", e.CloseSession):
                    after = world.put(gone.send(last(client.session)))
                    yield f"{step} {name}", after.fault() if client.mind.busy else after.alarm()
            if client.undone and world.faults:
                again = client._replace(undone=None, wire=(client.undone, *client.wire))
                yield f"duplicate {client.undone}", world.put(again, 1)
        if world.tick < self.ticks:
            yield "tick", self._tick(world)
            for client in movers:
                if client.alive and world.faults:
                    yield f"expire {client.name}", self._tick(world, client.name).alarm()

    def _ask(self, world, time, operation):
        return self.scripts.apply(world.state, time, operation, self.judge_step)

    def _at_once(self, world, time, operation):
        """Apply it, and what has to be cleared up before it."""
        for one in [operation, SWEEP] * 50:
            state, answer, hints = self._ask(world, time, one)
            world = self._tell(world._replace(state=state), hints)
            if one == operation and answer is not e.Reply.MORE:
                return world
        raise AssertionError(f"never done: {operation}")

    def _apply(self, world, client):
        operation, *rest = client.wire
        state, answer, hints = self._ask(world, world.tick, operation)
        client = client._replace(wire=tuple(rest))
        if operation == SWEEP:
            pass
        elif answer is e.Reply.MORE:
            client = client._replace(wire=(SWEEP, operation, *rest))
        else:
            if isinstance(operation, (e.Release, e.Leave, e.CloseSession)):
                client = client._replace(undone=operation)
            if client.alive:
                client = self._answer(client, operation, answer)
        return world._replace(state=state).put(client), hints

    def _answer(self, client, operation, answer):
        if operation == e.OpenSession(client.session, client.name, 1):
            return self.begin(client)
        if answer is e.Reply.GONE and getattr(operation, "session", operation.key) == client.session:
            return self._lose(self.answer(client, operation, answer))
        if operation == e.CloseSession(client.session):
            return client._replace(alive=False, mind=None)
        return self.answer(client, operation, answer)

    def _tell(self, world, hints):
        for news in hints:
            client = world.named(news.process)
            if client.alive:
                world = world.put(self.hear(client, news))
        return world

    def _lose(self, client):
        old = client.session
        # a late renewal revives nothing
        client = self.drop(client).send(e.RenewSession(old), e.CloseSession(old))
        client = client._replace(sessions=client.sessions + 1)
        return client.send(e.OpenSession(client.session, client.name, 1))

    def _tick(self, world, silent=""):
        """Time passes until the sessions end that were not renewed just before."""
        opened = [
            client.name
            for client in world.clients
            if client.alive and e.OpenSession(client.session, client.name, 1) not in client.wire
        ]
        soon = 0.999 * (world.tick + 1)  # which is less than 1 after the last of these times too
        for name in opened:
            if name != silent:
                session = world.named(name).session
                world = self._at_once(world, soon, e.RenewSession(session))
        for name in opened:
            client = world.named(name)
            if name == silent:
                world = world.put(self._lose(client))
            elif not client.wire:
                world = world.put(self.look(client))
        return world._replace(tick=world.tick + 1)

    def _drain(self, world, drained):
        """Without faults everybody gets what he wants, and nothing is left."""
        for _ in range(100):
            if world in drained:
                return
            drained.add(world)
            seen = self.scripts.see(world.state)
            self.judge(world, seen)
            alive = [client for client in world.clients if client.alive]
            if not alive and not seen.sessions:
                rest = self.scripts.kinds(world.state)
                # what nobody has done may be there: all have died
                assert rest <= self.rest or not self.over([], seen), f"left: {rest}"
                return
            world = self._go_on(world, seen, alive)
        raise AssertionError(f"they wait for ever: {world.clients}")

    def _go_on(self, world, seen, alive):
        for client in alive:
            if client.wire:
                return self._tell(*self._apply(world, client))
        for client in alive:
            for _, after, faults in self.choices(client):
                if not faults:
                    return world.put(after)
        if not alive:
            world = world._replace(tick=world.tick + 1)
            return self._at_once(world, world.tick, e.Ping())
        if self.over(alive, seen):
            for client in alive:
                world = world.put(client.send(e.CloseSession(client.session)))
            return world
        return self._tick(world)


# ------------------------------------------------------------------------------------------------------------ a line


class Holder(NamedTuple):
    """One who wants to hold so many times more; `name` is that of the hold under way."""

    times: int
    weight: int = 1
    name: str = ""
    held: bool = False

    @property
    def busy(self):
        return self.held


class Line(Search):
    """Those who want to hold, and wait in line."""

    questions = (e.Holders("k"),)

    def __init__(self, *args, capacity=1, **options):
        self.capacity = capacity
        super().__init__(*args, **options)

    def begin(self, client):
        times, weight, *_ = client.mind
        if not times:
            return client
        name = f"{client.session}.{times}"
        client = client.think(times=times - 1, name=name)
        return client.send(e.Acquire(client.session, "k", name, self.capacity, weight))

    def answer(self, client, operation, answer):
        match operation, answer:
            case e.Acquire(holder=name), e.Granted():
                return self._granted(client, name)
            case e.Ask(holders=(name,)), e.Asked(answers=(e.Granted(),)):
                return self._granted(client, name)
        return client

    def hear(self, client, news):
        return self._granted(client, news.name)

    def _granted(self, client, name):
        return client.think(held=True) if name == client.mind.name else client

    def look(self, client):
        waits = client.mind.name and not client.mind.held
        return client.send(e.Ask(client.session, "k", (client.mind.name,))) if waits else client

    def drop(self, client):
        times, _, name, held = client.mind
        client = client.think(times=times + bool(name and not held), name="", held=False)
        return client.send(e.Release("k", name)) if name else client

    def choices(self, client):
        if name := client.mind.name:
            held = client.mind.held
            after = client.think(name="", held=False).send(e.Release("k", name))
            yield "leave" if held else "cancel", self.begin(after), 0 if held else 1

    def over(self, alive, seen):
        return not any(client.mind.name for client in alive)

    def judge_step(self, now, operation, before, after, hints):
        super().judge_step(now, operation, before, after, hints)
        if after.answers is None:
            return
        (there,) = after.answers
        used = sum(one.weight for one in there.holders)
        assert there.used == used <= self.capacity, f"held together: {there}"
        waiting = [one.holder for one in there.waiting]
        held = {one.holder: one.token for one in there.holders}
        assert not waiting or there.used + there.waiting[0].weight > self.capacity, f"{waiting[0]} would fit"
        if before.answers is None:
            return
        (then,) = before.answers
        waited = [one.holder for one in then.waiting]
        stayed = [name for name in waited if name in waiting]
        assert waiting[: len(stayed)] == stayed, f"the line was changed: {waited}, {waiting}"
        granted = {name: held[name] for name in held.keys() - {one.holder for one in then.holders}}
        for name, token in granted.items():
            assert before.token < token <= after.token, "a token did not rise"
            ahead = waited[: waited.index(name)] if name in waited else waited
            assert not set(ahead) & set(waiting), f"{name} was served out of turn"
            alive = after.sessions.get(name.rpartition(".")[0], 0) > now
            # who clears up may come to it only later
            assert alive or isinstance(operation, (str, e.CloseSession)), f"{name} was served after its end"
        owed = {name: token for name, token in granted.items() if name in waited}
        told = {
            one.name: one.news.token for one in hints if one.name in held
        }  # others were at an end by then
        assert told == owed, f"told of {told}, not of {owed}"

    def judge(self, world, seen):
        believe = [client for client in world.clients if client.alive and client.mind.held]
        names = {client.mind.name for client in believe}
        assert sum(client.mind.weight for client in believe) <= self.capacity, f"believe to hold: {names}"
        if seen.answers is not None:
            lost = names - {one.holder for one in seen.answers[0].holders}
            assert not any(name.rpartition(".")[0] in seen.sessions for name in lost), f"{lost} hold nothing"


# ----------------------------------------------------------------------------------------------------------- a queue


class Taker(NamedTuple):
    """One who takes a task at a time; `done` are those that it was told are done, `told` that there are more."""

    n: int = 0
    task: tuple[int, int] | None = None
    told: bool = False
    done: tuple[int, ...] = ()

    @property
    def busy(self):
        return self.task is not None


class Queue(Search):
    """Those who take tasks and settle them."""

    questions = (
        *(e.Browse("q", state) for state in ("waiting", "delayed", "leased", "ended")),
        *(e.Count("q"), e.Count("q", recount=True)),
    )
    rest = frozenset((b"q:queue", b"queues:", b"q:", b"q:done", b"q:done:"))  # and what became of the tasks

    def __init__(self, *args, tasks, **options):
        put = e.PutRequest("m", (e.NewTask(b""),) * tasks)
        self.setup = e.OpenSession("m", "m", 1), e.Put("m", 1, "q", (put,), tasks), e.CloseSession("m")
        super().__init__(*args, **options)

    def begin(self, client, *verdict, delay=0.0):
        mind = client.mind
        settle = (e.Settle(*mind.task, *verdict, delay=delay),) if verdict else ()
        client = client.think(n=mind.n + 1, task=None, told=False)
        return client.send(e.Exchange(client.session, mind.n + 1, "q", settle, want=1))

    def answer(self, client, operation, answer):
        if isinstance(answer, e.Exchanged):
            for one in operation.settle:
                if one.verdict is e.Verdict.DONE and not answer.refused:
                    client = client.think(done=(*client.mind.done, one.id))
            if operation.session == client.session:
                assert not answer.refused, "a verdict was refused, although the session lives"
                for task in answer.tasks:
                    return client.think(task=(task.id, task.token))
                return self.begin(client) if client.mind.told else client
        return client

    def hear(self, client, news):
        client = client.think(told=True)
        return client if client.wire else self.look(client)

    def look(self, client):
        return client if client.mind.task else self.begin(client)

    def drop(self, client):
        return client.think(task=None, told=False)

    def choices(self, client):
        if client.mind.task:
            yield "done", self.begin(client, e.Verdict.DONE), 0
            yield "give back", self.begin(client, e.Verdict.GIVE_BACK), 1
            yield "retry", self.begin(client, e.Verdict.RETRY, delay=1.0), 1

    def over(self, alive, seen):
        return not any(page.records for page in seen.answers[:3])

    def judge_step(self, now, operation, before, after, hints):
        super().judge_step(now, operation, before, after, hints)
        if before.answers is None or after.answers is None:
            return
        old, over = _tasks(before)
        new, ended = _tasks(after)
        assert old.keys() | over.keys() <= new.keys() | ended.keys(), "a task was lost"
        assert over.items() <= ended.items() and not new.keys() & ended.keys(), "what is over did not stay so"
        counted, recounted = after.answers[-2:]
        assert counted == recounted, f"it was counted wrong: {counted}, {recounted}"
        taken = {task for task, one in new.items() if one.deliveries > old.get(task, one).deliveries}
        assert after.token >= before.token + len(taken), "a token did not rise"
        # those that were tried again have other places
        first_try = {task for task, one in new.items() if not one.attempts}
        passed = {task for task in first_try if old.get(task) == new[task] and new[task].state == "waiting"}
        assert not any(one < task for task in taken & first_try for one in passed), "out of turn"
        for task in ended.keys() - over.keys():
            assert old[task].state == "leased", "ended, and nobody had it"
            assert task in [one.id for one in operation.settle], "ended by nobody"

    def judge(self, world, seen):
        alive = [client for client in world.clients if client.alive]
        holding = [client.mind.task[0] for client in alive if client.mind.task]
        assert len(holding) == len(set(holding)), f"in two hands: {holding}"
        done = [task for client in alive for task in client.mind.done]
        assert len(done) == len(set(done)), f"done twice: {done}"
        if seen.answers is None:
            return
        tasks, ended = _tasks(seen)
        assert set(done) <= ended.keys(), f"done: {done}, on record: {ended}"
        for client in alive:
            if client.mind.task and client.session in seen.sessions:
                assert tasks[client.mind.task[0]].state == "leased", f"{client.name} has nothing"
        if world.calm and any(not (client.wire or client.mind.busy) for client in alive):
            coming = [client for client in alive if client.wire]
            waiting = [task for task, one in tasks.items() if one.state == "waiting"]
            assert len(waiting) <= len(coming), "a taker is idle, and nobody comes for a task"


def _tasks(seen):
    """Those that are not finished, and those that are."""
    tasks = [{one.id: one for one in page.records} for page in seen.answers[:4]]
    return tasks[0] | tasks[1] | tasks[2], tasks[3]


# ----------------------------------------------------------------------------------------------- what is looked at


lock = partial(Line, minds=[Holder(1)] * 3)
lock_twice = partial(Line, minds=[Holder(2)] * 2)
semaphore = partial(Line, capacity=3, minds=[Holder(1, weight) for weight in (2, 1, 2)])
in_short_steps = partial(semaphore, cap=1)
queue = partial(Queue, tasks=1, minds=[Taker()] * 3)
queue_for_two = partial(Queue, tasks=1, minds=[Taker()] * 2)
queue_of_two = partial(Queue, tasks=2, minds=[Taker()] * 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "faults", "ticks", "worlds"),
    [
        pytest.param(lock, 1, 1, 30_000, id="lock", marks=pytest.mark.full),
        pytest.param(partial(lock, cap=1, names="cba"), 0, 1, 300, id="lock in short steps"),
        pytest.param(lock_twice, 1, 0, 500, id="lock twice"),
        pytest.param(semaphore, 1, 0, 2_000, id="semaphore"),
        pytest.param(in_short_steps, 1, 0, 2_000, id="semaphore in short steps"),
        pytest.param(queue, 0, 1, 50, id="queue"),
        pytest.param(queue_for_two, 1, 1, 1_000, id="queue for two"),
        pytest.param(queue_of_two, 1, 0, 1_000, id="queue of two"),
    ],
)
def test_whatever_the_order_the_rules_hold(redis_server, search, faults, ticks, worlds):
    here = search(redis_server, faults=faults + MORE_FAULTS, ticks=ticks)
    here.run()
    assert len(here.came_from) > worlds  # else less was looked at than is meant


DUE = "shard[1] <= NOW"
FAULTS = {
    "a newcomer goes before those who wait": (
        semaphore,
        "free = free and used <= tonumber(capacity)",
        "free = used <= tonumber(capacity)",
        "out of turn",
    ),
    "a hand-over gives too much": (
        semaphore,
        "used + weight > capacity",
        "used > capacity",
        "held together",
    ),
    "who asks again has two places": (
        lock,
        "not free and call('ZRANK', WAITING, holder)",
        "nil",
        "the line was changed",
    ),
    "a release serves nobody": (lock, "while waiting > 0 and (", "while false and (", "would fit"),
    "nobody is told that it was granted": (lock, "{key, head, 'granted'", "{key, '', 'granted'", "told of"),
    "the token is the time": (
        lock,
        "token >= NOW and format('%016d', token + 1) or NOW",
        "NOW",
        "did not rise",
    ),
    "a session leaves its holds": (
        lock,
        "local item = call('ZRANGE', ITEMS, 0, 0)[1]",
        "do return call('ZREM', P .. 'sessions', session) end local item",
        "served after its end",
    ),
    "a renewal revives what has ended": (lock, DUE, f"{DUE} and ARGV[3] ~= 'renew_session'", "revived"),
    "the dead in the line are served": (lock, DUE, f"{DUE} and ARGV[3] ~= 'k'", "after its end"),
    "serving that was cut short stops": (
        in_short_steps,
        "call('SADD', P .. 'unserved', key)",
        "",
        "would fit",
    ),
    "a lost exchange is made anew": (
        queue,
        "packed = ttl and call('GET', P .. session .. ' ' .. object)",
        "packed = nil",
        "was refused",
    ),
    "nobody is told what there is to take": (
        queue,
        "call(PUBLISH, CHANNEL .. process, cjson.encode({queue.name, '', 'ready'}))",
        "",
        "nobody comes",
    ),
    "what a dead taker had stays with it": (
        queue,
        "drop_task(session, sub(item, 7))",
        "detach(session, item)",
        "wait for ever",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(redis_server, fault):
    search, old, new, found = FAULTS[fault]
    with pytest.raises(Broken, match=found):
        search(redis_server, faults=1, ticks=1, fault=(old, new)).run()
