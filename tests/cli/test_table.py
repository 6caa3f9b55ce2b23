"""Tables line up, durations are spoken, and nothing in them is obeyed by a terminal."""

from __future__ import annotations

import pytest

from tenure.cli._table import cut, padded, short, spoken, table, width


def test_columns_line_up_and_numbers_stand_to_the_right():
    text = table(("name", "count", ""), [("a", 5, ""), ("longer", 12_000, "paused")], nothing="none")
    assert text.splitlines() == [
        "name     count",
        "a            5",
        "longer  12,000  paused",
    ]


def test_the_longest_cells_are_cut_where_the_lines_would_be_too_long():
    rows = [("x" * 300 + "end", 5, "y" * 30), ("short", 12_000, "")]
    lines = table(("name", "count", "by"), rows, nothing="none", columns=60).splitlines()
    assert max(map(len, lines)) == 60
    assert lines[1].split()[0].endswith("end")
    assert "~" in lines[1]
    assert lines[2].split() == ["short", "12,000"]
    # to no narrower than 16, whatever the terminal
    assert max(map(len, table(("name",), [("x" * 99,)], nothing="", columns=5).splitlines())) == 16


@pytest.mark.parametrize("room", range(12))
@pytest.mark.parametrize("text", ["", "ab", "abcdefghijkl", "\u6f22\u5b57" * 4, "e\u0301" * 8])
def test_a_cut_text_takes_no_more_columns_than_there_are(text, room):
    assert width(cut(text, room)) <= room
    assert cut(text, max(room, width(text))) == text
    assert width(padded(cut(text, room), room)) == room


def test_without_rows_it_says_so():
    assert table(("name",), [], nothing="nothing is held") == "nothing is held"


def test_values_are_cut():
    assert short({"a": [1, "ü"]}) == '{"a": [1, "ü"]}'
    assert short("x" * 100, 10) == "xxxxxxx..."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.00123, "1.2 ms"),
        (0.099, "99 ms"),
        (0.0999, "0.0999 s"),
        (2.5, "2.5 s"),
        (99.9, "99.9 s"),
        (100, "2 min"),
        (3600, "60 min"),
        (7200, "2 h"),
        (864000, "10 d"),
    ],
)
def test_durations(seconds, text):
    assert spoken(seconds) == text
