"""The scripts as a function: what they make of a state, which one server computes and remembers."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from redis_pushes import RedisSocket

from tenure import engine as e
from tenure.engines.redis._codec import answered, hint
from tenure.engines.redis._operations import CODECS
from tenure.engines.redis._scripts import all_scripts, script

PREFIX = "tenure:{0}:"
SWEEP = "sweep"
NAMES = "abc"

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
        return frozenset(re.sub(rb"(?<=:)([0-9a-f]{8,}|\w\w)$", b"", name) for name in kept)

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
