"""The mutants fit the sources, and the runner tells the caught from the survivors."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tenure.testing import EngineContract

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src" / "tenure"
MUTANTS = tomllib.loads((HERE / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
AREAS = {"line", "slots", "threads", "patterns", "store", "shared", "memory", "sqlite", "contract"}


def test_there_are_enough_mutants_in_every_area():
    count = {area: sum(mutant["area"] == area for mutant in MUTANTS) for area in AREAS}
    assert sum(count.values()) == len(MUTANTS) >= 40
    assert min(count.values()) >= 5, count


def test_those_for_the_contract_name_what_finds_them():
    by = {mutant.get("by", "").partition("[")[0] for mutant in MUTANTS if mutant["area"] == "contract"}
    assert all(name.startswith("test_") and hasattr(EngineContract, name) for name in by)
    assert not any("by" in mutant for mutant in MUTANTS if mutant["area"] != "contract")


def test_their_names_are_unique():
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("file", sorted({mutant["file"] for mutant in MUTANTS}))
def test_the_mutants_fit_the_sources(file):
    text = (SRC / file).read_text(encoding="utf-8")
    for mutant in MUTANTS:
        if mutant["file"] != file:
            continue
        assert text.count(mutant["old"]) == 1, (
            f"{mutant['name']}: `old` must stand once: write the mutant anew"
        )
        assert mutant["new"] != mutant["old"], mutant["name"]
        assert mutant["why"], mutant["name"]
        if file.endswith(".py"):
            compile(text.replace(mutant["old"], mutant["new"]), mutant["name"], "exec")


def run(*arguments):
    command = [sys.executable, HERE / "run.py", "--near", "--no-sanity-run", *arguments]
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)


@pytest.mark.full
def test_the_runner_catches_mutants(tmp_path):
    names = ["line-leaver-stays-linked", "slots-granted-and-cancelled-leaks"]
    finished = run(*names, "--table", tmp_path / "table.md")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "2 of 2 caught" in table
    assert all(f"| {name} | failed | test_" in table for name in names)


def test_the_runner_knows_its_mutants():
    finished = run("no-such-mutant")
    assert finished.returncode == 2
    assert "no-such-mutant" in finished.stderr
