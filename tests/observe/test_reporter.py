from __future__ import annotations

import gc
import logging
import traceback

import pytest

from tenure.arguments import check_count
from tenure.observe import LoggingObserver, Reporter
from tenure.observe._frames import trimmed
from tenure.observe._rate import BURST

LOGGER = logging.getLogger("tenure")


class Trouble(Exception):
    pass


class Seen:
    def __init__(self):
        self.events = []

    def notice(self, event, /, **fields):
        self.events.append((event, fields))


def raised():
    try:
        raise Trouble("here")
    except Trouble as error:
        return error


def lines(caplog):
    # asyncio may log what another test has left to the garbage collector
    return [record.message for record in caplog.records if record.name == LOGGER.name]


def test_the_same_event_of_the_same_queue_is_logged_so_often_and_the_rest_is_counted(caplog):
    seen, time = Seen(), [0.0]
    reporter = Reporter(seen, clock=lambda: time[0])
    for n in range(BURST + 7):
        reporter.warn("task.dead", queue="a", id=n)
    reporter.warn("task.dead", queue="b", id=1)
    reporter.warn("lease.lost", key="a")
    assert len(seen.events) == BURST + 9
    assert lines(caplog)[BURST:] == ["task.dead queue=b id=1", "lease.lost key=a"]
    time[0] += 1
    reporter.warn("task.dead", queue="a", id=100)
    assert lines(caplog)[-2:] == ["task.dead queue=a left_out=7", "task.dead queue=a id=100"]
    record = caplog.records[-2]
    assert (record.levelno, record.tenure_queue, record.tenure_left_out) == (logging.WARNING, "a", 7)


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_a_fault_that_lasts_is_a_line_each_and_its_traceback_is_for_debugging(caplog, level):
    caplog.set_level(level, "tenure")
    time = [0.0]
    reporter = Reporter(clock=lambda: time[0])
    for _ in range(3600):
        time[0] += 1
        reporter.warn_briefly("pool.create_failed", error=raised())
    assert BURST < len(lines(caplog)) <= 60
    assert caplog.records[0].message == "pool.create_failed error=Trouble('here')"
    assert bool(caplog.records[0].exc_info) == (level == logging.DEBUG)


@pytest.mark.parametrize("observer", [Reporter().warn, LoggingObserver(logging.getLogger("mine")).notice])
def test_a_line_has_six_places_of_a_float_and_its_record_has_all(caplog, observer):
    with caplog.at_level(logging.DEBUG, "mine"):
        observer("link.back", seconds=9.154203881000285)
    (record,) = caplog.records
    assert (record.message, record.tenure_seconds) == ("link.back seconds=9.154204", 9.154203881000285)


def test_what_is_left_out_is_said_a_little_later(caplog):
    later = []
    reporter = Reporter(later=later.append, clock=lambda: 0.0)
    for _ in range(2):
        for _ in range(BURST + 3):
            reporter.warn("lease.lost")
        (settle,) = later
        later.clear()
        caplog.clear()
        settle()
        assert len(lines(caplog)) == 1
    assert lines(caplog) == [f"lease.lost left_out={BURST + 3}"]


def test_what_is_left_out_is_said_when_the_object_goes(caplog):
    reporter = Reporter(clock=lambda: 0.0)
    for _ in range(BURST + 3):
        reporter.warn("pool.leak")
    caplog.clear()
    del reporter
    gc.collect()
    assert lines(caplog) == ["pool.leak left_out=3"]


def test_what_is_not_logged_is_not_counted(caplog):
    reporter = Reporter(clock=lambda: 0.0)
    caplog.set_level(logging.WARNING, "tenure")
    for _ in range(2 * BURST):
        reporter.inform("operation.resent")
    caplog.set_level(logging.INFO, "tenure")
    reporter.inform("operation.resent")
    assert lines(caplog) == ["operation.resent"]


class Refusing(logging.Filter):
    def filter(self, record):
        raise Trouble("the filter")


class Failing(logging.Handler):
    def handle(self, record):
        raise Trouble("the handler")


@pytest.fixture(params=["filter", "handler"])
def spoilt(request):
    """The logger with a filter or a handler that raises."""
    one = Refusing() if request.param == "filter" else Failing()
    add, remove = (getattr(LOGGER, f"{verb}{request.param.capitalize()}") for verb in ("add", "remove"))
    add(one)
    yield request.param
    remove(one)


def test_a_filter_or_a_handler_that_raises_is_seen_and_stops_nothing(spoilt, capsys):
    seen = Seen()
    Reporter(seen).warn("task.dead", queue="a", error=raised())
    assert [event for event, _ in seen.events] == ["task.dead"]
    printed = capsys.readouterr().err
    assert "tenure could not log task.dead queue=a" in printed
    assert f"Trouble: the {spoilt}" in printed


def test_what_filters_raise_is_not_printed_where_logging_does_not_print(spoilt, capsys, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    Reporter().warn("task.dead")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_without_a_stderr_nothing_is_raised(spoilt, stderr, monkeypatch, tmp_path):
    if stderr:
        stderr = (tmp_path / "x").open("w")
        stderr.close()
    monkeypatch.setattr("sys.stderr", stderr)
    Reporter().warn("task.dead")


class Mute:
    def __str__(self):
        raise Trouble


def test_a_value_that_cannot_say_what_it_is_is_logged(caplog):
    Reporter().warn("pool.close_failed", resource=Mute())
    assert lines(caplog) == ["pool.close_failed resource=Mute"]


def test_a_traceback_begins_with_the_users_frames(caplog):
    class Spiteful:
        def __index__(self):
            raise Trouble("in the user's code")

    with pytest.raises(Trouble) as caught:
        check_count("n", Spiteful())
    error = caught.value.with_traceback(caught.tb.tb_next)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[0] == "check_count"
    assert names[-1] == "__index__"
    for report in (
        lambda: Reporter().warn("task.dead", error=error),
        lambda: LoggingObserver(logging.getLogger("mine")).notice("task.dead", error=error),
    ):
        caplog.clear()
        report()
        shown = traceback.extract_tb(caplog.records[0].exc_info[2])
        assert [frame.name for frame in shown] == ["__index__"]
        assert caplog.records[0].exc_info[1] is error
    # it is left as it was
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == names
    assert trimmed(None) is None


def test_a_traceback_without_any_of_theirs_is_left(caplog):
    with pytest.raises(ValueError, match="n must be") as caught:
        check_count("n", -1)
    error = caught.value.with_traceback(caught.tb.tb_next)
    Reporter().warn("task.dead", error=error)
    assert caplog.records[0].exc_info[2] is error.__traceback__
