"""What the README shows works: its example runs, and its two commands are where others look for them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(heading):
    """The text under a heading of the second level."""
    return re.split(r"^## ", TEXT, flags=re.MULTILINE)[
        [part.partition("\n")[0] for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)].index(heading)
    ]


def commands():
    return [code for language, code in BLOCK.findall(section("Start")) if language == "sh"]


def test_there_are_two_commands_of_one_line_each():
    assert len(BLOCK.findall(section("Start"))) == len(commands()) == 2
    assert [command.count("\n") for command in commands()] == [1, 1]
    assert not any(command.startswith((" ", "$", "#")) for command in commands())


def test_both_install_what_they_need_from_this_directory():
    for command in commands():
        install, then = command.split(" && ")
        assert re.fullmatch(r"pip install -e '\.\[\w+\]'", install)
        assert then.split()[0] in {"tenure", "python"}


def test_the_example_has_ten_lines_and_runs(tmp_path):
    (code,) = [code for language, code in BLOCK.findall(TEXT) if language == "python"]
    assert code.count("\n") == 10
    assert max(map(len, code.splitlines())) <= 110
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Dear Ann\n", "")


@pytest.mark.slow
def test_the_first_command_does_its_job(tmp_path):
    """With some of the standard library's files, and without the installation."""
    words = shlex.split(commands()[0].split(" && ")[1])
    library = subprocess.check_output(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"], text=True
    )
    words = [re.sub(r"\$\(.*\)/\*\*", f"{library.strip()}/json", word) for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "tenure.cli", *words[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "digests.jsonl").read_text().count("\n") == len(
        list(Path(library.strip(), "json").glob("*.py"))
    )
