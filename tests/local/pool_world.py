"""Resources that know what was done to them, for the tests of pools."""

from __future__ import annotations

import anyio


class Thing:
    """A resource; `lent` is kept by whoever borrows it through `Works.use`."""

    def __init__(self, number, key=None):
        self.number = number
        self.key = key
        self.healthy = True
        self.lent = 0
        self.checks = self.resets = 0
        self.closed = False

    def __repr__(self):
        return f"<Thing {self.number}>"


class Works:
    """Makes, checks, resets and closes things, and counts them; each takes the time it is told to."""

    def __init__(self, *, create=0.0, check=0.0, close=0.0, reset=0.0):
        self.times = {"create": create, "check": check, "close": close, "reset": reset}
        self.things = []
        self.creating = self.most_creating = 0
        self.errors = []
        self.most_open = 0

    @property
    def open(self):
        return [thing for thing in self.things if not thing.closed]

    async def create(self, key=None):
        self.creating += 1
        self.most_creating = max(self.most_creating, self.creating)
        try:
            await anyio.sleep(self.times["create"])
        finally:
            self.creating -= 1
        if self.errors:
            raise self.errors.pop(0)
        self.things.append(Thing(len(self.things), key))
        self.most_open = max(self.most_open, len(self.open))
        return self.things[-1]

    async def check(self, thing):
        thing.checks += 1
        await anyio.sleep(self.times["check"])
        if not thing.healthy:
            raise ConnectionError(thing)

    async def reset(self, thing):
        thing.resets += 1
        await anyio.sleep(self.times["reset"])
        return thing.healthy

    async def close(self, thing):
        assert not thing.closed, "closed twice"
        assert not thing.lent, "closed while lent"
        thing.closed = True
        await anyio.sleep(self.times["close"])

    async def use(self, acquiring, seconds=0.0, *, share=False):
        async with acquiring as thing:
            assert not thing.closed, "lent a closed one"
            assert share or not thing.lent, "lent twice"
            thing.lent += 1
            try:
                await anyio.sleep(seconds)
            finally:
                thing.lent -= 1
            return thing


class Notes(list):
    """An observer that keeps what it is told."""

    def notice(self, event, /, **fields):
        self.append((event, fields))

    def named(self, event):
        return [fields for name, fields in self if name == event]
