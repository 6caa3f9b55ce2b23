"""The lines of the log of `tenure work`."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from tenure.cli.work._children import _death
from tenure.cli.work._log import JsonLines, TextLines, start_logging

UNSPEAKABLE = object()


def record(message, *args, level=logging.WARNING, error=None, **extra):
    info = (type(error), error, error.__traceback__) if error else None
    made = logging.getLogger("tenure").makeRecord(
        "tenure", level, __file__, 1, message, args, info, extra=extra
    )
    made.created, made.msecs, made.process = 1_700_000_000.25, 250.0, 4711
    return made


def raised():
    try:
        raise LookupError("no oil")
    except LookupError as error:
        return error


def test_a_line_has_time_level_process_and_logger():
    line = TextLines().format(record("link.lost url=%s", "redis://localhost"))
    assert line == "2023-11-14T22:13:20.250Z WARNING 4711 tenure: link.lost url=redis://localhost"


def test_a_message_stays_on_its_line_and_a_traceback_follows():
    first, *trace = TextLines().format(record("a\nb\x1b[31m", error=raised())).splitlines()
    assert first.endswith(r"tenure: a\nb\x1b[31m")
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "LookupError: no oil")


def test_a_document_has_the_fields_of_the_event_and_the_traceback():
    fields = {"tenure_queue": "mail", "tenure_id": 7, "odd": UNSPEAKABLE, "time": "noon"}
    line = JsonLines().format(record("task.dead\nqueue=%s", "mail", error=raised(), **fields))
    assert "\n" not in line
    document = json.loads(line)
    assert document.pop("exception").endswith("LookupError: no oil")
    assert document == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "process": 4711,
        "logger": "tenure",
        "message": "task.dead\nqueue=mail",
        "tenure_queue": "mail",
        "tenure_id": 7,
        "odd": repr(UNSPEAKABLE),
    }


def test_a_value_that_json_has_not_hides_no_other():
    loop, deep = [], []
    loop.append(loop)
    for _ in range(100_000):
        deep = [deep]
    fields = {"nan": float("nan"), "loop": loop, "deep": deep, "number": 7}
    document = json.loads(JsonLines().format(record("odd", **fields)), parse_constant=pytest.fail)
    assert (document["nan"], document["loop"], document["number"]) == ("nan", "[[[[[[[...]]]]]]]", 7)
    assert document["deep"].startswith("[[[[[[")


def test_a_document_has_the_stack_of_a_warning():
    blocked = record("the loop is blocked")
    blocked.stack_info = "  in task mail"
    assert json.loads(JsonLines().format(blocked))["stack"] == "  in task mail"


@pytest.fixture
def fresh_logging(monkeypatch):
    """Makes logging as it is when a program starts."""
    root, ours = logging.root, logging.getLogger("tenure")
    before = root.level, ours.level

    def make():  # in the test itself: pytest adds a handler before it
        monkeypatch.setattr(root, "handlers", [])
        ours.setLevel(logging.NOTSET)

    yield make
    logging.captureWarnings(False)
    root.setLevel(before[0])
    ours.setLevel(before[1])


def test_all_loggers_log_from_the_level_on(fresh_logging, capsys):
    fresh_logging()
    start_logging("info", "text")
    logging.getLogger("shop").info("hello")
    logging.getLogger("shop").debug("not this")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("shop: hello")


def test_logging_that_the_program_has_set_up_stays(fresh_logging, capsys):
    fresh_logging()
    logging.basicConfig(format="mine: %(message)s", stream=sys.stdout)
    start_logging("info", "json")
    logging.getLogger("tenure").info("link.back")
    logging.getLogger("shop").info("below the level of the program")
    assert capsys.readouterr() == ("mine: link.back\n", "")


def test_the_exit_code_of_a_shell_names_the_signal():
    assert _death(137) == "ended with exit code 137 (SIGKILL) (often: out of memory)"
    assert _death(-9) == "was killed by SIGKILL (often: out of memory)"
    assert [_death(code) for code in (1, 143, 255, -15, -40)] == [
        "ended with exit code 1",
        "ended with exit code 143 (SIGTERM)",
        "ended with exit code 255",
        "was killed by SIGTERM",
        "was killed by signal 40",
    ]
