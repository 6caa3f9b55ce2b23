"""The search through all worlds, level by level, and what a client and a world are."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from benchmarks.interleavings.scripts import NAMES, SWEEP, Scripts
from tenure import engine as e


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
            if news.news is e.Notice.MISSED:
                continue  # the server is new
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
