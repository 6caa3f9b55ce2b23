"""Clients that take tasks and settle them, and the rules of the queue."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.interleavings.search import Search
from tenure import engine as e


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
        *(e.Scan(e.TASKS[state], "q") for state in ("waiting", "delayed", "leased", "ended")),
        *(e.Count("q"), e.Count("q", recount=True)),
    )
    rest = frozenset((b"q:queue", b"queues:", b"q:", b"q:done", b"q:done:"))  # and what became of the tasks

    def __init__(self, *args, tasks, **options):
        put = e.PutRequest("m", (e.NewTask(b""),) * tasks)
        self.setup = e.OpenSession("m", "m", 1), e.Put("m", 1, "q", (put,)), e.CloseSession("m")
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
        return not any(page.rows for page in seen.answers[:3])

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
    tasks = [{one.id: one for one in page.rows} for page in seen.answers[:4]]
    return tasks[0] | tasks[1] | tasks[2], tasks[3]
