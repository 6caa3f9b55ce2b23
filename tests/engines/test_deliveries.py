"""Deliveries that ended without a verdict are what makes a task poison, not tries that failed."""

from __future__ import annotations

import pytest

from tenure.engine import (
    TASKS,
    CloseSession,
    Configure,
    Exchange,
    NewTask,
    OpenSession,
    Put,
    PutRequest,
    Scan,
    Settle,
    Verdict,
)
from tenure.engines.memory import MemoryEngine


@pytest.mark.parametrize(
    ("failures", "crashes", "state"), [(5, 1, "waiting"), (5, 2, "dead"), (0, 2, "dead")]
)
def test_only_deliveries_without_a_verdict_count(failures, crashes, state):
    engine = MemoryEngine(clock=lambda: 1.0)
    engine.apply(OpenSession("p/0", "p", 30.0))
    engine.apply(Configure("jobs", "p", (("max_deliveries", "2"),)))
    engine.apply(Put("p/0", 1, "jobs", (PutRequest("a", (NewTask(b"x"),)),)))
    for n in range(failures):
        (task,) = engine.apply(Exchange("p/0", 2 * n, "jobs", want=1)).tasks
        engine.apply(Exchange("p/0", 2 * n + 1, "jobs", settle=(Settle(task.id, task.token, Verdict.RETRY),)))
    for n in range(1, crashes + 1):
        engine.apply(OpenSession(f"p/{n}", "p", 30.0))
        engine.apply(Exchange(f"p/{n}", 1, "jobs", want=1))
        engine.apply(CloseSession(f"p/{n}"))
    assert len(engine.apply(Scan(TASKS[state], "jobs")).rows) == 1
