"""Spans of the real SDK of OpenTelemetry, and that each of them has ended once."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tenure.observe import TracingObserver

VERDICTS = {"done", "retry", "dead", "discarded", "cancelled", "postponed", "suspended", "given_back", "lost"}


class Spans(SpanProcessor):
    """What was started, and what was exported, by the name of the operation."""

    def __init__(self):
        self.started = []
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def observer(self, **options):
        return TracingObserver(self.tracer, **options)

    def on_start(self, span, parent_context=None):
        self.started.append(span)

    @property
    def ended(self):
        return self._exporter.get_finished_spans()

    @property
    def puts(self):
        return [span for span in self.ended if span.name.startswith("send ")]

    @property
    def tries(self):
        return [span for span in self.ended if span.name.startswith("process ")]

    @property
    def verdicts(self):
        return [span.attributes["tenure.task.verdict"] for span in self.tries]

    def check(self):
        """Each span has ended once, and no task more than once by a verdict."""
        ended = Counter(span.context.span_id for span in self.ended)
        assert ended == Counter(span.context.span_id for span in self.started)
        assert ended.total() == len(ended)
        assert set(self.verdicts) <= VERDICTS
        final = Counter(
            span.attributes["messaging.message.id"]
            for span in self.tries
            if span.attributes["tenure.task.verdict"] in ("done", "dead", "discarded")
        )
        assert [one for one, count in final.items() if count > 1] == []


class _Complaints(logging.Handler):
    """What OpenTelemetry logs, such as a span that ends twice or a context that is left elsewhere."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.all = []

    def emit(self, record):
        self.all.append(record.getMessage())


@contextmanager
def spans():
    """Spans that have all ended at the end."""
    made, complaints = Spans(), _Complaints()
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(complaints)
    try:
        yield made
        made.check()
        assert complaints.all == []
    finally:
        logger.removeHandler(complaints)
        made.provider.shutdown()
