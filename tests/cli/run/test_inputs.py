"""Sources can be read again from any position, tell when they have changed, and hold little."""

from __future__ import annotations

import glob
import json
import os
import tracemalloc
from pathlib import Path

import depth
import pytest

from tenure.cli._errors import UsageError
from tenure.cli.run._glob import Glob
from tenure.cli.run._inputs import PORTION
from tenure.cli.run._lines import Lines
from tenure.cli.run._names import Names


def read_all(source, position=None):
    """All items from a position on, and all positions on the way."""
    items, positions = [], []
    try:
        source.open(position)
        while not (positions and positions[-1]["end"]):
            portion = source.read()
            assert len(portion.items) <= PORTION
            items += portion.items
            positions.append(json.loads(json.dumps(portion.position)))
    finally:
        source.close()
    return items, positions


def lines_of(*paths):
    return Lines(tuple(map(str, paths)))


@pytest.fixture
def write(here):
    def written(name, data):
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return written


class TestLines:
    @pytest.mark.parametrize(
        ("data", "items"),
        [
            ("", []),
            ("a\nb\n", ["a", "b"]),
            ("a\nb", ["a", "b"]),
            ("a\r\nb\r\n", ["a", "b"]),
            ("\n\n", ["", ""]),
            (" a \n", [" a "]),
            ("grün\n", ["grün"]),
            ("a\rb\n", ["a\rb"]),
        ],
    )
    def test_of_text(self, write, data, items):
        assert read_all(lines_of(write("a.txt", data)))[0] == items

    def test_of_json(self, write):
        path = write("a.jsonl", '1\n\n{"a": [2]}\n  \nnull\n"x"')
        assert read_all(lines_of(path))[0] == [1, {"a": [2]}, None, "x"]

    def test_of_several_files(self, write):
        paths = [
            write("a.txt", "1\n2"),
            write("empty.txt", ""),
            write("b.jsonl", "3\n"),
            write("c.txt", "4\n"),
        ]
        items, positions = read_all(lines_of(*paths))
        assert items == ["1", "2", 3, "4"]
        assert positions[-1]["share"] == 1

    @pytest.mark.parametrize("trusted", [True, False])
    def test_from_any_position(self, write, trusted):
        paths = [write(f"{n}.txt", "".join(f"{n}-{i}\n" for i in range(700))) for n in range(3)]
        items, positions = read_all(lines_of(*paths))
        assert len(items) == 2100
        assert len(positions) == 9
        seen = 0
        for position in [None, *positions]:
            if not trusted and position is not None:
                position["stamp"] += 1  # as if the files had been copied
            rest, _ = read_all(lines_of(*paths), position) if not (position or {}).get("end") else ([], None)
            assert rest == items[seen:]
            if position is not None:
                lines_of(*paths).check(position)
            seen = min(seen + PORTION, len(items))

    def test_a_file_may_grow_while_it_is_read(self, write):
        path = write("a.txt", "".join(f"{i}\n" for i in range(300)))
        source = lines_of(path)
        source.open(None)
        position = source.read().position
        source.close()
        with path.open("a") as file:
            file.write("more\n")
        again = lines_of(path)
        again.check(position)
        assert read_all(again, position)[0] == [*map(str, range(256, 300)), "more"]

    @pytest.mark.parametrize(
        ("before", "after", "new"),
        [
            ("1\n2\n", "1\n2\n3\n4", ["3", "4"]),
            ("1\n2", "1\n2\n3\n", ["3"]),
            ("", "1\n", ["1"]),
            ("1\n", "1\n", []),
        ],
    )
    def test_the_last_file_may_grow_when_all_was_read(self, write, before, after, new):
        first, last = write("a.txt", "x\ny"), write("b.txt", before)
        items, positions = read_all(lines_of(first, last))
        write("b.txt", after)
        again = lines_of(first, last)
        again.check(positions[-1])
        assert again.has_more(positions[-1]) == (before != after)
        more, positions = read_all(again, positions[-1])
        assert more == new
        assert [*items, *more] == ["x", "y", *after.split()]
        assert not again.has_more(positions[-1])
        lines_of(first, last).check(positions[-1])

    def test_a_line_that_had_no_end_must_not_grow(self, write):
        path = write("a.txt", "1\n2")
        _, positions = read_all(lines_of(path))
        write("a.txt", "1\n23\n")
        with pytest.raises(UsageError, match="changed since it was read"):
            lines_of(path).check(positions[-1])

    def test_only_the_last_file_may_grow(self, write):
        paths = [write("a.txt", "1\n"), write("b.txt", "2\n")]
        _, positions = read_all(lines_of(*paths))
        write("a.txt", "1\n1\n")
        with pytest.raises(UsageError, match="changed since it was read"):
            lines_of(*paths).check(positions[-1])

    @pytest.mark.parametrize("how", ["cut", "edited", "replaced", "grown before"])
    def test_a_change_is_reported(self, write, how):
        path = write("a.txt", "".join(f"{i}\n" for i in range(1000)))
        _, positions = read_all(lines_of(path))
        position = positions[-1] if how == "grown before" else positions[1]
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(
            {
                "cut": data[:100],
                "edited": data.replace(b"\n7\n", b"\n8\n"),
                "replaced": data[::-1],
                "grown before": b"-1\n" + data,
            }[how]
        )
        for step in (Lines.check, Lines.open):
            with pytest.raises(UsageError, match="changed since it was read; use --fresh"):
                step(lines_of(path), position)

    def test_a_copy_is_no_change(self, write):
        path = write("a.txt", "1\n2\n")
        _, positions = read_all(lines_of(path))
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
        lines_of(path).check(positions[-1])

    @pytest.mark.parametrize(
        ("name", "data", "told"),
        [
            ("a.txt", b"fine\n\xff\xfe\n", "a.txt, line 2, is not UTF-8; correct it"),
            ("a.jsonl", b"1\n\n{\n", "a.jsonl, line 3, is not a JSON value"),
            ("a.jsonl", b"NaN\n", "line 1, is not a JSON value (NaN is none)"),
            ("a.jsonl", b"[" * 100_000 + b"\n", "line 1, is not a JSON value"),
            ("a.txt", b"x" * (2**20 + 2**17), "longer than 1048576 bytes"),
        ],
    )
    def test_wrong_lines_are_reported(self, write, name, data, told):
        with pytest.raises(UsageError) as caught:
            read_all(lines_of(write(name, data)))
        assert told in str(caught.value)

    def test_lines_are_numbered_across_portions(self, write):
        path = write("a.jsonl", "1\n" * 600 + "?\n")
        with pytest.raises(UsageError, match="line 601,"):
            read_all(lines_of(path))

    def test_wrong_files_are_reported(self, here, write):
        with pytest.raises(UsageError, match=r"nope\.txt: there is no such file"):
            lines_of("nope.txt")
        with pytest.raises(UsageError, match="is a directory"):
            lines_of(here)
        path = write("secret.txt", "")
        path.chmod(0)
        if not os.access(path, os.R_OK):
            with pytest.raises(UsageError, match="may not read"):
                lines_of(path)

    def test_of_a_pipe_as_it_comes(self, here):
        os.mkfifo("pipe")
        end = os.open("pipe", os.O_RDWR)
        try:
            source = lines_of("pipe")
            source.open(None)
            os.write(end, b"a\nb\nhal")
            portion = source.read()
            assert portion.items == ["a", "b"]
            assert portion.position["share"] is None
            os.write(end, b"f\n")
            assert source.read().items == ["half"]
            source.close()
        finally:
            os.close(end)

    def test_long_lines_make_small_portions(self, write):
        path = write("a.txt", ("x" * 500_000 + "\n") * 10)
        source = lines_of(path)
        source.open(None)
        assert len(source.read().items) <= 4
        source.close()

    def test_a_million_lines_are_not_held(self, write):
        number = depth.share(1_000_000)
        path = write("a.txt", b"".join(b"%d\n" % i for i in range(number)))
        source = lines_of(path)
        source.open(None)
        tracemalloc.start()
        count = 0
        while not (portion := source.read()).position["end"]:
            count += len(portion.items)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        source.close()
        assert count + len(portion.items) == number
        assert peak < 1_000_000


@pytest.fixture
def tree(write):
    for name in (
        "a.py",
        "b.txt",
        "src/a.py",
        "src/a-b/x.py",
        "src/a/x.py",
        "src/a/y.txt",
        "src/a/deep/er/z.py",
        "src/.hidden/x.py",
        "src/.x.py",
        "tests/test_[1].py",
    ):
        write(name, "")
    Path("src/link").symlink_to("a")
    Path("src/circle").symlink_to("circle")
    Path("src/link.py").symlink_to("a.py")
    Path("src/empty").mkdir()


PATTERNS = [
    "*.py",
    "**/*.py",
    "src/**",
    "src/**/*.py",
    "src/*/*.py",
    "src/a*/**/x.py",
    "**",
    "src/a.py",
    "**/**/x.py",
]
PATTERNS += [
    "src/.*",
    "src/.hidden/*",
    "nope/*",
    "*/a.py",
    "src/[ab]*/?.py",
    "tests/test_[[]1].py",
    "src/link/*.py",
]


@pytest.mark.usefixtures("tree")
class TestNames:
    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_as_glob_finds_them(self, here, pattern):
        for prefix in ("", f"{here}/"):
            wanted = {n for n in glob.glob(prefix + pattern, recursive=True) if Path(n).is_file()}
            if "**" in pattern:  # unlike glob, links to directories are not followed by **
                wanted = {n for n in wanted if "/link/" not in n}
            found = list(Glob(prefix + pattern).names())
            assert set(found) == wanted
            assert len(found) == len(wanted)

    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_from_any_name_on(self, pattern):
        found = list(Glob(pattern).names())
        assert found == sorted(found, key=lambda name: name.split("/"))
        for i, name in enumerate(found):
            assert list(Glob(pattern).names(after=name)) == found[i + 1 :]
            assert Glob(pattern).matches(name)

    def test_after_a_name_that_is_gone(self):
        found = list(Glob("src/**/*.py").names())
        Path("src/a/x.py").unlink()
        assert list(Glob("src/**/*.py").names(after="src/a/x.py")) == found[found.index("src/a/x.py") + 1 :]

    @pytest.mark.parametrize("name", ["src/b.txt", "x.py", "src/a", ""])
    def test_what_does_not_match(self, name):
        assert not Glob("src/**/*.py").matches(name)

    def test_a_name_is_given_once(self):
        items, positions = read_all(Names(("src/**/*.py", "src/a*", "**/x.py")))
        assert len(items) == len(set(items))
        assert set(items) == {n for p in ("src/**/*.py", "src/a*", "**/x.py") for n in Glob(p).names()}
        assert positions[-1]["end"]

    def test_from_any_position(self):
        for i in range(600):
            Path(f"src/empty/{i:03}.py").touch()
        patterns = ("src/empty/*.py", "src/**/*.py")
        items, positions = read_all(Names(patterns))
        assert len(positions) == 3
        assert read_all(Names(patterns), positions[0])[0] == items[PORTION:]
        assert read_all(Names(patterns), positions[1])[0] == items[2 * PORTION :]

    def test_nothing_is_reported(self):
        with pytest.raises(UsageError, match="matches no file"):
            Names(("src/*.nope",))

    def test_a_directory_that_cannot_be_read_is_reported(self, monkeypatch):
        scandir = os.scandir

        def refuse(path):
            if path == "src/a/":
                raise PermissionError(13, "Permission denied", path)
            return scandir(path)

        monkeypatch.setattr("tenure.cli.run._glob.os.scandir", refuse)
        names = Names(("src/**/*.py",))
        read_all(names)
        assert names.skipped == ["src/a/: skipped (Permission denied)"]

    def test_a_name_that_is_no_text_is_reported(self):
        try:
            Path(os.fsdecode(b"src/\xff.py")).touch()
        except OSError:
            pytest.skip("this file system has only names of text")
        with pytest.raises(UsageError, match="is not UTF-8"):
            read_all(Names(("src/*.py",)))
