"""The Redis scripts as luacheck sees them, and the files that they are made of: each says what it needs of the others.

    python tests/engines/test_redis_lua.py    # write the lines "Reads:" and "Writes:" of all files anew

Needs luacheck (Debian: lua-check); without it the tests are skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from needed import NO_LUACHECK

from tenure.engines.redis import _scripts

ROOT = Path(__file__).parents[2]
LUA = Path(_scripts.__file__).parent / "lua"
FILES = sorted(LUA.glob("*.lua"))
FINDING = re.compile(r".*?:(\d+):\d+: \(([WE]\d+)\) (.*)")
MADE = re.compile(r"^local (?:function )?([\w, ]+?)(?: =|\(|$| --)", re.MULTILINE)
HEADER = re.compile(r"^-- (Reads|Writes): (.*(?:\n--     .*)*)\n", re.MULTILINE)
LUACHECK = shutil.which("luacheck")

pytestmark = pytest.mark.skipif(LUACHECK is None, reason=NO_LUACHECK)


def made_by(text):
    """The names that a text makes for the texts behind it."""
    return {name for names in MADE.findall(text) for name in names.split(", ")}


PRELUDE = made_by((LUA / "prelude.lua").read_text("utf-8")) if FILES else set()
"""The names that each script has: no file says that it reads them."""


def luacheck(source, *options):
    """What luacheck finds: number of the line, code, and text."""
    fixed = ("-", "--config", ROOT / ".ci/luacheckrc", "--codes", "--formatter", "plain")
    said = subprocess.run(
        (LUACHECK, *fixed, *options), input=source, capture_output=True, text=True, check=False
    )
    assert said.returncode in (0, 1), said.stdout + said.stderr
    return [(int(line), code, text) for line, code, text in FINDING.findall(said.stdout)]


def needs_of(path):
    """The names that a file reads, and those that it changes, of the files before it."""
    if path.stem in ("prelude", "probe"):
        return {}
    needs = {"Reads": set(), "Writes": set()}
    for _, code, text in luacheck(_scripts.text_of(path.stem), "--only", "11[123]", "631"):
        assert code != "W631", text
        name = re.search("'(.*?)'", text)[1]
        needs["Reads" if code == "W113" else "Writes"].add(name)
    needs["Reads"] -= PRELUDE | needs["Writes"]
    return {kind: names for kind, names in needs.items() if names}


def header_of(path):
    """What a file says that it needs."""
    found = HEADER.findall(path.read_text("utf-8"))
    return {kind: {name.strip("- \n") for name in names.split(",")} for kind, names in found}


def write_header(path):
    """Bring the lines "Reads:" and "Writes:" up to date, which end the comment that the file begins with."""
    text = HEADER.sub("", path.read_text("utf-8"))
    lines = text.splitlines(keepends=True)
    end = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    needs = [
        textwrap.fill(f"-- {kind}: {', '.join(sorted(names))}", 115, subsequent_indent="--     ") + "\n"
        for kind, names in sorted(needs_of(path).items())
    ]
    path.write_text("".join([*lines[:end], *needs, *lines[end:]]), "utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_what_it_reads_and_writes_of_the_files_before_it(path):
    assert header_of(path) == needs_of(path), f"python {Path(__file__).relative_to(ROOT)} writes these lines"


def test_luacheck_finds_nothing_in_the_scripts():
    unused, has, found = Counter(), Counter(), []
    for name in _scripts._PARTS:
        source = _scripts.script(name).source.decode()
        has.update(made_by(source))
        lines = source.splitlines()
        for number, code, text in luacheck(source, "--no-max-line-length"):
            at_top = lines[number - 1].startswith("local ")
            if code in ("W211", "W231") and at_top:
                unused[re.search("'(.*?)'", text)[1]] += 1  # another script may use it
            else:
                found.append(f"{name}: {lines[number - 1].strip()}: {text}")
    found += [f"no script uses {name}" for name, count in unused.items() if count == has[name]]
    assert found == []


def test_a_planted_fault_is_found():
    source = _scripts.script("release").source.decode()
    assert luacheck(source) == []
    broken = source.replace("local KEY, HOLDER =", "local KEY =", 1)
    assert "W113" in {code for _, code, _ in luacheck(broken)}


if __name__ == "__main__":
    for file in FILES:
        write_header(file)
