"""Texts of strangers command no terminal and forge no line of a log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tenure.observe import LoggingObserver, Reporter, printable, printable_lines

SOURCES = Path(__file__).parents[2] / "src" / "tenure"
OBEYED = [
    *map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x061C, *range(0x200E, 0x2010), *range(0x2028, 0x202F))),
    *map(chr, (*range(0x2066, 0x206A), 0xFEFF, *range(0xD800, 0xE000, 0x1FF), 0xE0001)),
]
"""What a terminal obeys or hides, what ends a line, and what no encoding takes."""

HOSTILE = "".join(OBEYED)
FORGED = "orders\nWARNING:tenure:page.purge queue='orders' changed=10 by=10.0.0.9"


def test_what_a_terminal_obeys_is_escaped():
    for character in OBEYED:
        shown = printable(f"a{character}b")
        assert shown == f"a{character.encode('unicode_escape').decode()}b"
        assert shown.isprintable()


@pytest.mark.parametrize("text", ["", "plain \\n", "Zürich", "東京", "🙂"])
def test_other_texts_stay_as_they_are(text):
    assert printable(text) == text


def test_lines_are_indented():
    assert printable_lines("a\n\x1bb\n\nc\n") == "  a\n  \\x1bb\n  \n  c"


@pytest.fixture(params=["default", "observer"])
def written(request, caplog):
    """Logs an event, and returns the record and the text that `logging` makes of it."""

    def write(event, **fields):
        if request.param == "default":
            Reporter().warn(event, **fields)
        else:
            LoggingObserver(logging.getLogger("mine")).notice(event, **fields)
        (record,) = caplog.records
        return record, logging.Formatter(logging.BASIC_FORMAT).format(record)

    return write


def raised(error):
    try:
        raise error
    except Exception as problem:
        return problem


@pytest.mark.parametrize("text", [HOSTILE, FORGED], ids=["hostile", "forged"])
def test_a_record_has_no_other_line_than_those_of_its_traceback(written, text):
    error = raised(ExceptionGroup(text, [ValueError(text), raised(KeyError(text))]))
    error.add_note(text)
    record, said = written("task.dead", queue=text, key=text, error=error, holders=[text])
    first, *rest = said.split("\n")
    assert all(line.isprintable() for line in (first, *rest))
    assert first.startswith("WARNING:")
    assert all(line.startswith("  ") for line in rest)
    assert "in raised" in said
    # what reports errors elsewhere gets the error itself, and fields as they are
    assert (record.exc_info[1], record.tenure_queue) == (error, text)
    assert (record.filename, record.funcName) == ("_reporter.py", "write_record")


def test_percent_signs_are_texts(written):
    record, said = written("task.dead", queue="100%s", error=ValueError("%d"))
    assert "100%s" in record.getMessage()
    assert "%d" in said


def test_what_cannot_be_logged_is_printed_safely(caplog, capsys, monkeypatch):
    def fails(record):
        raise ValueError(HOSTILE)

    monkeypatch.setattr(logging.getLogger("tenure"), "filters", [fails])
    Reporter().warn("task.dead", queue=HOSTILE)
    said = capsys.readouterr().err
    assert said.startswith("--- tenure could not log task.dead queue=")
    assert "ValueError: " in said
    assert all(line.isprintable() for line in said.split("\n"))


def test_a_formatter_of_the_users_own_has_the_error(caplog):
    """It may replace our text by its own, as the documentation of `logging` says."""

    class Formatter(logging.Formatter):
        def format(self, record):
            record.exc_text = None
            return super().format(record)

        def formatException(self, ei):  # noqa: N802 - its name in logging
            return f"{ei[1]!r}"

    Reporter().warn("task.dead", error=raised(ValueError("a")))
    assert (
        Formatter("%(message)s").format(caplog.records[0])
        == "task.dead error=ValueError('a')\nValueError('a')"
    )


def test_only_these_modules_know_a_logger():
    """What they write is escaped; the others call `log` or a `Reporter`."""
    known = {
        file.relative_to(SOURCES).as_posix()
        for file in SOURCES.rglob("*.py")
        if "getLogger" in file.read_text()
    }
    # the last sets up the log of a command
    assert known == {"observe/_logging.py", "observe/_reporter.py", "cli/work/_log.py"}
