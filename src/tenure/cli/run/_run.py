"""`tenure run`: the parts put together."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from tenure.cli._arguments import DEFAULT_STORE, Options, parse_run, run_on
from tenure.cli._errors import Interrupted, UsageError
from tenure.cli._handler import Handler, HandlerCodec, load_handler
from tenure.cli._stop import Stop
from tenure.engines import open_store
from tenure.errors import EngineError, StoreUnavailable
from tenure.limits import Limit
from tenure.shared import RateLimiter, WorkQueue
from tenure.store import Store, handle_of
from tenure.upkeep import unwrapped_task_group

from ._calling import Calling
from ._crew import Workers
from ._departed import departed, end_sessions
from ._leader import INPUT, RunLeader
from ._plan import InputSource, Plan, check_results, make_plan, name_of, open_source
from ._progress import Progress, Screen, prints_above
from ._record import Record, check_same
from ._report import Outcome, advice, dead_letters, table
from ._results import Results
from ._tally import PREFIX, SHOWN, Keeper, RunTotals, total

TTL = 10.0
"""Seconds after which other processes take over the inputs of a killed process."""

_SWITCH = 0.0002


def run(words: Sequence[str]) -> int:
    options = parse_run(words)
    screen = Screen(sys.stderr)
    # before the handler is imported: logging keeps the streams that it finds
    with prints_above(screen):
        handler = load_handler(options.handler)
        check_results(options)
        source = open_source(options)
        outcome = _carry_out(_Job(options, handler, make_plan(options), source, screen), options.backend)
    for line in (*source.skipped[:SHOWN], *dead_letters(outcome)):
        screen.say(line)
    _show(table(outcome), screen)
    for line in advice(outcome, _spoken(options.store)):
        screen.say(line)
    return 0 if outcome.all_done else 1


def _carry_out(job: _Job, backend: str) -> Outcome:
    with _nimble_threads():
        try:
            return run_on(backend, job.carry_out)
        except SystemExit as problem:
            # asyncio stops its loop for that, whatever awaits the task
            raise Interrupted(
                f"a task that the handler has started ended by SystemExit({problem.code!r}), which stops the event"
                " loop; the same command continues from here"
            ) from problem


def _show(text: str, screen: Screen) -> None:
    try:
        print(text, flush=True)
    except (
        OSError,
        ValueError,
    ) as problem:  # its reader has gone, the disk is full, or a handler has closed it
        screen.say(f"tenure: the table cannot be written to standard output ({problem})")
        with suppress(ValueError):  # what Python keeps of it would be tried once more at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _spoken(store: str) -> str:
    return "" if store == DEFAULT_STORE else f" --store {'URL' if '@' in store else store}"


@contextmanager
def _nimble_threads() -> Generator[None]:
    # Python lets a thread compute for 5 ms while others wait; the event loop and the thread of the store need far less
    # at a time, but often. Digests of small files go twice as fast with a shorter turn.
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class _Job:
    def __init__(
        self, options: Options, handler: Handler, plan: Plan, source: InputSource, screen: Screen
    ) -> None:
        self._options = options
        self._handler = handler
        self._function = handler.of_tasks()
        self._plan = plan
        self._source = source
        self._screen = screen
        self._name = options.run or name_of(plan)
        self._results = None if options.results is None else Results(Path(options.results))
        self._tally = RunTotals()
        self._finished = False

    async def carry_out(self) -> Outcome:
        """Work until the run is finished, or a stop is requested. Cancellation: unfinished inputs are given back."""
        async with AsyncExitStack() as stack:
            store = await self._open_store(stack)
            record = Record(store, self._name, self._options)
            generation = 0
            async with unwrapped_task_group() as group:
                stop = Stop(group.cancel_scope, self._say)
                await group.start(stop.listen)
                with stop.ends():
                    generation = await self._begin(record)
                if generation and not self._finished:
                    await self._work(store, record, generation, stop)
                group.cancel_scope.cancel()
            if not generation:
                raise Interrupted("stopped before it began; nothing was done")
            return await self._outcome(record.queue(generation))

    async def _open_store(self, stack: AsyncExitStack) -> Store:
        try:
            store = open_store(self._options.store, ttl=TTL, codec=HandlerCodec())
            handle_of(store).dispatchers.be_patient()  # a run waits for its server
            return await stack.enter_async_context(store)
        except (ValueError, ModuleNotFoundError, EngineError, StoreUnavailable) as problem:
            # not the URL itself, in which there may be a password
            raise UsageError(f"{self._options.store_option}: {problem}") from problem

    async def _begin(self, record: Record) -> int:
        fresh = self._options.fresh
        entry = await record.read()
        await self._bury_the_dead(record.queue(1 if entry is None else entry.generation))
        if not fresh:
            if entry is not None:
                check_same(self._name, entry.plan, self._plan)
            await self._check(record.queue(1 if entry is None else entry.generation))
        if entry is None or fresh:
            entry = await record.begin(self._plan, fresh=fresh, timeout=1.5 * TTL)
            if self._results is not None:
                await self._results.claim(record.queue(entry.generation))
        return entry.generation

    async def _bury_the_dead(self, queue: WorkQueue) -> None:
        cursors = await queue.cursors()
        for name in departed(cursors, PREFIX):
            process = name.removeprefix(PREFIX)
            # a command that was stopped, even by a second signal, has given back what it had
            if await end_sessions(handle_of(queue.store), process):
                self._say(f"{process} has died; its inputs run again")
            await queue.put_many([], cursor=(name, cursors[name] | {"who": None}))

    async def _check(self, queue: WorkQueue) -> None:
        if self._results is not None:
            await self._results.check(queue)
        position = (await queue.cursors()).get(INPUT)
        statistics = await queue.statistics()
        if position is not None:
            await anyio.to_thread.run_sync(self._source.check, position, abandon_on_cancel=True)
            if not statistics.unfinished and not self._source.has_more(position):
                self._say(f"run {self._name} is finished; --fresh would start it anew")
                self._finished = self._results is None or await self._results.is_complete(queue)
                return
        begun = statistics.put - statistics.unfinished
        self._say(f"run {self._name} {f'continues after {begun:,} inputs' if statistics.put else 'begins'}")

    async def _work(self, store: Store, record: Record, generation: int, stop: Stop) -> None:
        queue = record.queue(generation)
        workers = self._make_workers(store, queue, stop)
        keeper = Keeper(queue, self._tally, anyio.current_time())
        await keeper.store()
        leader = RunLeader(record, generation, self._source, self._results, workers, stop, self._say)
        progress = Progress(queue, self._tally, self._screen, lambda: leader.leads)
        async with unwrapped_task_group() as group:
            for job in (workers.run, keeper.keep, progress.show):
                group.start_soon(job)
            await leader.see_through()
            await workers.drain()
            await keeper.store(leaving=True)
            group.cancel_scope.cancel()
        self._finished = leader.finished

    def _make_workers(self, store: Store, queue: WorkQueue, stop: Stop) -> Workers:
        o = self._options

        def stop_for_closed_output() -> None:
            if not stop.asked:
                self._say(
                    "the handler prints to standard output, whose reader has gone; redirect it to a file"
                )
                stop.ask()
            workers.begin_draining()

        calling = Calling(
            self._function,
            self._tally,
            timeout=o.timeout,
            on_closed_output=stop_for_closed_output,
        )
        limiter = None
        if o.rate is not None:
            # a second's worth at once, not an hour's
            burst = max(1.0, o.rate.number / o.rate.per)
            limiter = RateLimiter(
                store, f"run:{self._name}", Limit(o.rate.number, per=o.rate.per, burst=burst)
            )
        threads = not self._handler.is_async
        workers = Workers(
            queue,
            calling.call,
            workers=o.workers,
            in_threads=threads,
            limiter=limiter,
            on_settled=self._tally.settled,
            name=o.handler,
        )
        return workers

    async def _outcome(self, queue: WorkQueue) -> Outcome:
        statistics = await queue.statistics()
        return Outcome(
            name=self._name,
            finished=self._finished,
            statistics=statistics,
            tally=total(await queue.cursors()),
            dead=tuple((await queue.tasks("dead").page(limit=SHOWN)).records) if statistics.dead else (),
            logged=frozenset(self._tally.died),
            results=self._options.results,
            queue=queue.name,
        )

    def _say(self, text: str) -> None:
        self._screen.say(f"tenure: {text}")
