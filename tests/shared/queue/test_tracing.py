"""Each call that puts and each try has one span, which ends once and says what became of it."""

from __future__ import annotations

import json
import logging
import types
from contextlib import suppress
from contextvars import copy_context

import anyio
import pytest
import workers
from opentelemetry import trace
from traced import spans as all_ended

from tenure import (
    Discard,
    DuplicateTask,
    LeaseLost,
    Lock,
    QueueFull,
    Retry,
    RetryLater,
    TaskCancelled,
    Worker,
    WorkQueue,
)
from tenure.engine import CloseSession
from tenure.observe import LoggingObserver, Observers, TracingObserver
from tenure.processor import Context, Processor
from tenure.shared.queue._runners import _traced
from tenure.shared.queue._task import Task


class Trouble(Exception):
    pass


@pytest.fixture
def spans():
    with all_ended() as made:
        yield made


@pytest.fixture
async def store(open_store_on, spans, virtual_clock):
    async with open_store_on(ttl=3.0, observer=spans.observer()) as opened:
        yield opened


async def work_off(queue, handler, **options):
    await workers.work_off(queue, Worker(queue, handler, **options))


def link_of(span):
    (link,) = span.links
    return link.context.trace_id, link.context.span_id


def ids_of(span):
    return span.context.trace_id, span.context.span_id


def traceparent_of(span):
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


# puts


async def test_a_put_has_a_span_whose_context_travels_with_the_task(store, spans):
    queue = WorkQueue(store, "mail")
    with spans.tracer.start_as_current_span("request") as request:
        task_id = await queue.put("x", meta={"tenant": "42"})
    (put,) = spans.puts
    assert (put.name, put.kind) == ("send mail", trace.SpanKind.PRODUCER)
    assert put.parent.span_id == request.context.span_id
    assert dict(put.attributes) == {
        "messaging.system": "tenure",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(task_id),
        "tenure.namespace": "tenure",
    }
    async with queue.take() as task:
        assert task.meta == {"tenant": "42", "traceparent": traceparent_of(put)}


async def test_a_batch_has_one_span_for_all_its_tasks(store, spans):
    queue = WorkQueue(store, "mail", max_size=100)
    await queue.put_many(range(5))
    await queue.put_many([])
    first, second = spans.puts
    assert first.attributes["messaging.batch.message_count"] == 5
    assert "messaging.message.id" not in first.attributes
    assert second.attributes["messaging.batch.message_count"] == 0
    await work_off(queue, lambda _: None, concurrency=1)
    assert [link_of(span) for span in spans.tries] == [ids_of(first)] * 5
    assert [span.parent for span in spans.tries] == [None] * 5


async def test_a_put_that_fails_says_why(store, spans):
    queue = WorkQueue(store, "mail", max_size=1)
    await queue.put("x", key="one")
    with pytest.raises(DuplicateTask):
        await queue.put("x", key="one")
    with pytest.raises(QueueFull):
        await queue.try_put("y")
    with pytest.raises(ValueError, match="priority"):
        await queue.put("z", priority=2**40)
    with anyio.move_on_after(1):
        await queue.put("waits in line")
    good, twice, full, wrong, cancelled = spans.puts
    for span, error in ((twice, DuplicateTask), (full, QueueFull), (wrong, ValueError)):
        assert span.status.status_code is trace.StatusCode.ERROR
        assert span.attributes["error.type"].endswith(error.__name__)
        assert [event.name for event in span.events] == ["exception"]
    for span in (good, cancelled):
        assert span.status.status_code is trace.StatusCode.UNSET


async def test_a_traceparent_of_the_user_is_kept(store, spans):
    queue = WorkQueue(store, "mail")
    mine = f"00-{7:032x}-{8:016x}-01"
    await queue.put("x", meta={"traceparent": mine})
    async with queue.take() as task:
        assert task.meta == {"traceparent": mine}
    assert link_of(spans.tries[0]) == (7, 8)


@pytest.mark.parametrize(
    ("room", "left"),
    [(200, {"traceparent", "tracestate"}), (100, {"traceparent"}), (20, set()), (0, set())],
)
async def test_the_context_takes_no_more_than_the_room_that_is_left(store, spans, room, left):
    empty = len(json.dumps({"mine": ""}, separators=(",", ":")))
    state = trace.TraceState([("vendor", "v" * 40)])
    around = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(around)):
        await WorkQueue(store, "mail").put("x", meta={"mine": "m" * (1024 - empty - room)})
    async with WorkQueue(store, "mail").take() as task:
        assert set(task.meta) == {"mine"} | left
        assert len(json.dumps(task.meta, separators=(",", ":"))) <= 1024
    assert len(spans.puts) == 1
    assert len(spans.tries[0].links) == ("traceparent" in left)


# tries


async def test_a_try_has_a_span_with_a_link_to_the_put(store, spans):
    queue, seen = WorkQueue(store, "mail"), []

    async def handler(task: Task):
        await anyio.sleep(1)
        seen.append(trace.get_current_span().get_span_context())

    task_id = await queue.put("x")
    await work_off(queue, handler)
    (span,) = spans.tries
    assert [context.span_id for context in seen] == [span.context.span_id]
    assert (span.name, span.kind, span.parent) == ("process mail", trace.SpanKind.CONSUMER, None)
    assert link_of(span) == ids_of(spans.puts[0])
    assert dict(span.attributes) == {
        "messaging.system": "tenure",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(task_id),
        "tenure.namespace": "tenure",
        "tenure.task.attempt": 1,
        "tenure.task.deliveries": 1,
        "tenure.task.verdict": "done",
    }
    assert span.status.status_code is trace.StatusCode.UNSET


async def test_a_put_can_be_the_parent(open_store_on, spans, virtual_clock):
    async with open_store_on(observer=spans.observer(parent="put")) as store:
        queue = WorkQueue(store, "mail")
        await queue.put("x")
        await queue.put("y", meta={"traceparent": "nonsense"})
        await work_off(queue, lambda _: None)
    put, try_ = spans.puts[0], next(s for s in spans.tries if s.parent is not None)
    assert (try_.parent.span_id, try_.context.trace_id) == ids_of(put)[::-1]
    assert all(span.links == () for span in spans.tries)
    with pytest.raises(ValueError, match="parent must be link or put, not 'child'"):
        spans.observer(parent="child")


@pytest.mark.parametrize("parent", ["link", "put"])
async def test_the_tries_of_children_belong_to_the_try_that_put_them(
    open_store_on, spans, virtual_clock, parent
):
    async with open_store_on(observer=spans.observer(parent=parent)) as store:
        sites, pages = WorkQueue(store, "sites"), WorkQueue(store, "pages")

        async def crawl(task: Task):
            async with task.children(pages) as children:
                await children.put("a")

        root = await sites.put("x")
        async with anyio.create_task_group() as group:
            group.start_soon(Worker(sites, crawl).run)
            group.start_soon(Worker(pages, lambda _: None).run)
            await sites.result(root)
            group.cancel_scope.cancel()
    first, second = (span for span in spans.tries if span.name == "process sites")
    (child,) = (span for span in spans.tries if span.name == "process pages")
    put = next(span for span in spans.puts if span.name == "send pages")
    assert (put.parent.span_id, put.context.trace_id) == ids_of(first)[::-1]
    assert [span.attributes["tenure.task.verdict"] for span in (first, child, second)] == [
        "suspended",
        "done",
        "done",
    ]
    if parent == "put":
        assert (child.parent.span_id, child.context.trace_id) == ids_of(put)[::-1]
        assert {span.context.trace_id for span in (*spans.puts, *spans.tries)} == {first.context.trace_id}
    else:
        assert (link_of(child), child.parent) == (ids_of(put), None)


async def test_the_span_is_current_in_a_thread(store, spans):
    queue, seen = WorkQueue(store, "mail"), []

    def handler(task: Task):
        seen.append(trace.get_current_span().get_span_context().span_id)

    await queue.put_many(range(3))
    await work_off(queue, handler, concurrency=2)
    assert sorted(seen) == sorted(span.context.span_id for span in spans.tries)
    assert not trace.get_current_span().get_span_context().is_valid


async def test_the_span_is_current_in_a_block_and_not_after_it(store, spans):
    queue = WorkQueue(store, "mail")
    await queue.put_many(range(2))
    with spans.tracer.start_as_current_span("around") as around:
        async with queue.take() as first:
            outer = trace.get_current_span()
            async with queue.take() as second:
                inner = trace.get_current_span()
                assert (first.id, second.id) == (1, 2)
            assert trace.get_current_span() is outer
        assert trace.get_current_span() is around
    assert [span.context.span_id for span in spans.tries] == [inner.context.span_id, outer.context.span_id]
    assert outer.parent.span_id == around.context.span_id


async def test_the_span_is_current_in_a_processor(open_store_on, spans, virtual_clock):
    seen = []

    async def handler(task: Task, context: Context):
        async with context.lock("one"):
            seen.append(trace.get_current_span().get_span_context().span_id)

    async with open_store_on(observer=spans.observer()) as store:
        async with Processor(store, "p", handler) as processor:
            await processor.submit("x")
            await processor.join()
    (span,) = spans.tries
    assert seen == [span.context.span_id]
    assert [event.name for event in span.events] == ["lease.acquired"]


# verdicts


async def test_each_try_has_a_span_with_its_verdict(store, spans):
    raised = [
        Trouble("once"),
        RetryLater(1, counts=False),
        Trouble("twice"),
        ExceptionGroup("dead", [Trouble()]),
    ]
    left = iter(raised)

    async def handler(task: Task):
        raise next(left)

    queue = WorkQueue(store, "mail", retry=Retry(attempts=3, backoff=1))
    await queue.put("x")
    await work_off(queue, handler)
    assert spans.verdicts == ["retry", "postponed", "retry", "dead"]
    assert [span.attributes["tenure.task.attempt"] for span in spans.tries] == [1, 2, 2, 3]
    for span, error in zip(spans.tries, raised, strict=True):
        assert link_of(span) == ids_of(spans.puts[0])
        failed = not isinstance(error, RetryLater)
        assert (span.status.status_code is trace.StatusCode.ERROR) == failed
        assert [event.name for event in span.events] == ["exception"] * failed
    assert spans.tries[0].status.description.endswith("Trouble: once")
    assert "in handler" in spans.tries[0].events[0].attributes["exception.stacktrace"]


async def test_a_discarded_and_a_cancelled_task_have_no_error(store, spans):
    queue = WorkQueue(store, "mail")
    await queue.put_many(range(2))
    async with queue.take():
        raise Discard("enough")
    with pytest.raises(TaskCancelled):
        async with queue.take() as task:
            await queue.cancel(task.id)
            await anyio.sleep(10)
    assert spans.verdicts == ["discarded", "cancelled"]
    assert [span.status.status_code for span in spans.tries] == [trace.StatusCode.UNSET] * 2


@pytest.mark.parametrize("how", ["block", "worker"])
async def test_a_lost_lease_ends_the_span(store, spans, how):
    queue = WorkQueue(store, "mail", max_deliveries=2)

    async def handler(task: Task):
        if task.deliveries == 1:
            task._session.lose("expired")
        await anyio.sleep(1)

    await queue.put("x")
    if how == "block":
        with pytest.raises(LeaseLost):
            async with queue.take() as task:
                await handler(task)
        async with queue.take() as task:
            await handler(task)
    else:
        await work_off(queue, handler)
    lost, done = spans.tries
    assert spans.verdicts == ["lost", "done"]
    assert lost.status.status_code is trace.StatusCode.ERROR
    assert lost.attributes["error.type"] == "tenure.LeaseLost"
    assert "expired" in lost.status.description
    assert done.attributes["tenure.task.deliveries"] == 2


async def test_a_verdict_that_comes_too_late_is_lost(store, open_store_on, spans):
    queue = WorkQueue(store, "mail")
    await queue.put("x")
    async with open_store_on() as elsewhere:
        with pytest.raises(LeaseLost):
            async with queue.take():  # and its session ends on the engine meanwhile
                await elsewhere._handle.call(CloseSession((await store._handle.session(3.0)).id))
        assert spans.verdicts == ["lost"]
        assert "gone" in spans.tries[0].status.description
        await work_off(WorkQueue(elsewhere, "mail"), lambda _: None)


async def test_a_store_that_closes_ends_the_spans(open_store_on, spans, virtual_clock):
    async def waits(queue):
        with suppress(LeaseLost):
            async with queue.take():
                await anyio.sleep(60)

    async def runs(worker):
        with suppress(Exception):
            await worker.run()

    async def handler(task: Task):
        await anyio.sleep(60)

    async with anyio.create_task_group() as group:
        async with open_store_on(observer=spans.observer(), close_timeout=1) as store:
            queue = WorkQueue(store, "mail")
            await queue.put_many(range(2))
            group.start_soon(waits, queue)
            group.start_soon(runs, Worker(queue, handler, concurrency=1))
            await anyio.sleep(1)
        group.cancel_scope.cancel()
    assert len(spans.tries) == 2
    assert set(spans.verdicts) <= {"lost", "given_back"}


async def test_a_fault_of_the_engine_ends_the_spans(faulty, spans, virtual_clock):
    import tenure

    with suppress(Exception):
        async with tenure.open_store(faulty, observer=spans.observer(), ttl=3.0) as store:
            queue = WorkQueue(store, "mail")
            await queue.put("x")
            async with queue.take():
                faulty.down = True
    assert spans.verdicts == ["lost"]


async def test_a_block_that_is_left_elsewhere_ends_its_span(store, spans):
    queue = WorkQueue(store, "mail")
    await queue.put("x")
    block, entered, left = queue.take(), anyio.Event(), anyio.Event()

    async def enter():
        await block.__aenter__()
        entered.set()
        await left.wait()
        await block.__aexit__(None, None, None)

    async with anyio.create_task_group() as group:
        group.start_soon(enter)
        await entered.wait()
        with pytest.raises(RuntimeError, match="left from another task"):
            await block.__aexit__(None, None, None)
        await queue._takers.until_idle()
        assert spans.verdicts == ["done"]
        left.set()


async def test_a_block_that_is_never_left_ends_its_span(store, spans, virtual_clock):
    queue = WorkQueue(store, "mail")
    await queue.put("x")
    with pytest.RaisesGroup(RuntimeError):  # the loops complain of the scope that was not left
        async with anyio.create_task_group() as group:
            group.start_soon(queue.take().__aenter__)
    await virtual_clock.settle()
    await queue._takers.until_idle()
    assert spans.verdicts == ["given_back"]


async def test_a_handler_that_is_closed_ends_its_span(store, spans):
    queue = WorkQueue(store, "mail")
    await queue.put("x")

    @types.coroutine
    def stands_still():
        yield

    session, taken = await queue._takers.take()
    with anyio.CancelScope() as scope:
        task = Task(queue, session, taken, scope)
        working = _traced(lambda task: stands_still(), task)
        copy_context().run(working.send, None)
        working.close()  # in another context, as when the garbage is collected
        assert spans.verdicts == ["lost"]
        task._settle(task._interrupted(), lambda *_: None)
    await queue._takers.until_idle()
    assert spans.verdicts == ["lost"]


# leases


async def test_waits_and_losses_of_leases_are_events_of_the_span(store, spans):
    lock = Lock(store, "report")

    async def holder():
        async with lock:
            await anyio.sleep(2)

    async with anyio.create_task_group() as group:
        group.start_soon(holder)
        await anyio.sleep(1)
        with spans.tracer.start_as_current_span("request"):
            async with lock as lease:
                pass
            with suppress(LeaseLost):
                async with lock as lost:
                    store._handle.sessions.current(store.ttl, "").lose("expired")
                    await anyio.sleep(1)
    request = spans.ended[-1]
    first, second, third = request.events
    assert (first.name, second.name, third.name) == ("lease.acquired", "lease.acquired", "lease.lost")
    assert dict(first.attributes) == {"key": "tenure:lock:report", "token": lease.token, "waited": 1}
    assert dict(third.attributes) == {"key": "tenure:lock:report", "token": lost.token, "reason": "expired"}
    assert store.observer._holders == {}


# observers


async def test_other_observers_are_notified_as_before(open_store_on, spans, virtual_clock, caplog):
    caplog.set_level(logging.DEBUG, "tenure")
    both = Observers(LoggingObserver(), spans.observer())
    async with open_store_on(observer=both) as store:
        queue = WorkQueue(store, "mail")
        await queue.put("x")
        await work_off(queue, lambda _: None)
    assert spans.verdicts == ["done"]
    assert [record for record in caplog.records if record.message.startswith("task.done")]


async def test_without_one_that_traces_there_is_no_tracing(open_store_on, spans):
    assert Observers(LoggingObserver()).tracing is None
    async with open_store_on(observer=Observers(LoggingObserver())) as store:
        assert store._handle.reporter.tracing is None
        queue = WorkQueue(store, "mail")
        await queue.put("x")
        async with queue.take() as task:
            assert task.meta == {}
    with pytest.raises(ValueError, match="one of them may trace, not 2"):
        Observers(spans.observer(), Observers(spans.observer()))


async def test_the_global_provider_is_used_by_default(open_store_on, virtual_clock):
    observer = TracingObserver()
    assert observer.tracing is observer
    async with open_store_on(observer=observer) as store:
        queue = WorkQueue(store, "mail")
        await queue.put("x")
        async with queue.take() as task:
            assert task.meta == {}


async def test_what_tracing_raises_is_logged_and_stops_nothing(open_store_on, virtual_clock, caplog):
    class Broken:
        meta = types.MappingProxyType({})

        @property
        def tracing(self):
            return self

        def notice(self, event, /, **fields):
            pass

        def putting(self, queue, batch):
            if batch:
                raise Trouble
            return self

        def trying(self, queue, task):
            if task.payload:
                raise Trouble
            return self

        def leave(self):
            raise Trouble

        def end(self, *what):
            raise Trouble

    async with open_store_on(observer=Broken()) as store:
        queue = WorkQueue(store, "mail")
        await queue.put_many([0, 1])
        await queue.put(0)
        await work_off(queue, lambda _: None)
        assert (await queue.statistics()).done == 3
    messages = [record.message.split() for record in caplog.records]
    assert {words[4] for words in messages} == {"putting", "trying", "leave", "end"}


async def test_an_exception_that_cannot_say_what_it_is_ends_the_span(store, spans, caplog):
    class Mute(Exception):
        def __str__(self):
            raise Trouble

    queue = WorkQueue(store, "mail", retry=Retry(attempts=1))
    await queue.put("x")
    with pytest.raises(Mute):
        async with queue.take():
            raise Mute
    assert spans.verdicts == ["dead"]
    assert spans.tries[0].status.status_code is trace.StatusCode.ERROR
