from __future__ import annotations

import traceback
from importlib.metadata import version
from typing import Any, Literal

from tenure.lazy import extra

from ._tracing import TakenTask, Tracing

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
_FAILED = frozenset({"retry", "dead", "lost"})


class TracingObserver:
    """Traces puts and tries with the OpenTelemetry API, after its conventions for messaging.

    Each call that puts makes a PRODUCER span, "send <queue>", whose context travels in the task's `meta` as
    `traceparent` and `tracestate`. Each try makes a CONSUMER span, "process <queue>": the current span while the
    handler or the block runs, linked to the span that put the task, or with `parent="put"` its child. The span ends
    with the engine's answer; its attribute `tenure.task.verdict` is the outcome, its events `lease.acquired` and
    `lease.lost` are holds and their losses.

    `tracer` comes from the global provider by default. Pass the observer to `open_store`. Raises `ModuleNotFoundError`
    if the extra `otel` is not installed, `ValueError` for another parent. Thread safety: as `Tracing`.
    """

    def __init__(self, tracer: Any = None, *, parent: Literal["link", "put"] = "link") -> None:
        if parent not in ("link", "put"):
            raise ValueError(f"parent must be link or put, not {parent!r}")
        self._api = api = extra("opentelemetry.trace", "otel")
        self._context = extra("opentelemetry.context", "otel")
        propagation = extra("opentelemetry.trace.propagation.tracecontext", "otel")
        self._propagator: Any = propagation.TraceContextTextMapPropagator()
        self._tracer: Any = (
            api.get_tracer("tenure", version("tenure"), schema_url=_SCHEMA) if tracer is None else tracer
        )
        self._parent = parent
        self._holders: dict[tuple[object, object], Any] = {}  # spans in which a lease was acquired

    @property
    def tracing(self) -> Tracing:
        """This object, as the tracing that an observer offers."""
        return self

    def notice(self, event: str, /, **fields: object) -> None:
        """Record an acquired or lost lease as an event of the span."""
        if event == "lease.acquired":
            span = self._api.get_current_span()
            if span.is_recording():
                self._holders[fields["key"], fields["token"]] = span
                span.add_event(event, {name: fields[name] for name in ("key", "token", "waited")})
        elif event in ("lease.released", "lease.lost"):
            span = self._holders.pop((fields["key"], fields["token"]), None)
            if span is not None and event == "lease.lost" and span.is_recording():
                span.add_event(event, {name: fields[name] for name in ("key", "token", "reason")})

    def putting(self, queue: str, batch: int | None) -> _Put:
        """Start the span of a call that puts."""
        attributes = _about("send", queue)
        if batch is not None:
            attributes["messaging.batch.message_count"] = batch
        api = self._api
        span = self._tracer.start_span(_name(attributes), kind=api.SpanKind.PRODUCER, attributes=attributes)
        meta: dict[str, str] = {}
        self._propagator.inject(meta, api.set_span_in_context(span))
        return _Put(api, span, meta)

    def trying(self, queue: str, task: TakenTask) -> _Try:
        """Start the span of a try, and make it the current one."""
        attributes: dict[str, Any] = {
            **_about("process", queue),
            "messaging.message.id": str(task.id),
            "tenure.task.attempt": task.attempt,
            "tenure.task.deliveries": task.deliveries,
        }
        if task.release is not None:
            attributes["tenure.task.release"] = task.release
        api, sent, links = self._api, None, None
        if meta := task.meta:
            sent = self._propagator.extract(meta)
            origin = api.get_current_span(sent).get_span_context()
            if not origin.is_valid:
                sent = None
            elif self._parent == "link":
                sent, links = None, [api.Link(origin)]
        span = self._tracer.start_span(
            _name(attributes), context=sent, kind=api.SpanKind.CONSUMER, attributes=attributes, links=links
        )
        return _Try(api, span, self._context)


class _Put:
    __slots__ = ("_api", "_span", "meta")

    def __init__(self, api: Any, span: Any, meta: dict[str, str]) -> None:
        self._api = api
        self._span = span
        self.meta: dict[str, str] = meta

    def end(self, outcome: int | BaseException | None) -> None:
        span = self._span
        try:
            if isinstance(outcome, int):
                span.set_attribute("messaging.message.id", str(outcome))
            elif isinstance(outcome, Exception):
                _record(self._api, span, outcome)
        finally:
            span.end()


class _Try:
    __slots__ = ("_api", "_context", "_span", "_token")

    def __init__(self, api: Any, span: Any, context: Any) -> None:
        self._api = api
        self._context = context
        self._span = span
        self._token = context.attach(api.set_span_in_context(span))

    def leave(self) -> None:
        self._context.detach(self._token)

    def end(self, verdict: str, error: BaseException | None) -> None:
        span = self._span
        try:
            span.set_attribute("tenure.task.verdict", verdict)
            if error is not None and verdict in _FAILED:
                _record(self._api, span, error)
        finally:
            span.end()


def _about(operation: str, queue: str) -> dict[str, Any]:
    namespace, _, name = queue.split(":", 2)
    return {
        "messaging.system": "tenure",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": name,
        "tenure.namespace": namespace,
    }


def _name(attributes: dict[str, Any]) -> str:
    return f"{attributes['messaging.operation.name']} {attributes['messaging.destination.name']}"


def _record(api: Any, span: Any, error: BaseException) -> None:
    if not span.is_recording():
        return
    text = traceback.format_exception_only(error)[-1].strip()  # also of an exception that has no text
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.set_attribute("error.type", name)
    span.set_status(api.Status(api.StatusCode.ERROR, text))
    span.record_exception(error)
