"""Clients that hold and wait in line, and the rules of the line."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.interleavings.search import Search
from tenure import engine as e


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

    questions = (e.Scan(e.HOLDERS, "k"),)

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
            case e.Ask(holders=(name,)), e.HoldStatuses(answers=(e.Granted(),)):
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
