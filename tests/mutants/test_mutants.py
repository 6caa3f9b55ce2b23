"""The mutants fit the sources, and the runner tells the caught from the survivors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from contract import EngineContract
from mutants.patches import SOURCES, mutants

HERE = Path(__file__).parent
AREAS = {"line", "slots", "threads", "patterns", "store", "shared", "sqlite", "watchdog", "contract"}


def test_there_are_enough_mutants_in_every_area():
    count = {area: sum(mutant.area == area for mutant in mutants()) for area in AREAS}
    assert sum(count.values()) == len(mutants())
    assert min(count.values()) >= 5, count


def test_those_for_the_contract_name_what_finds_them():
    by = {mutant.by.partition("[")[0] for mutant in mutants() if mutant.area == "contract"}
    assert all(name.startswith("test_") and hasattr(EngineContract, name) for name in by)
    assert not any(mutant.by for mutant in mutants() if mutant.area != "contract")


def test_the_mutants_fit_the_sources():
    for mutant in mutants():
        file, text = mutant.applied()
        assert text != (SOURCES / file).read_text(encoding="utf-8"), mutant.name
        assert mutant.why, mutant.name
        if file.endswith(".py"):
            compile(text, mutant.name, "exec")


def test_a_place_that_is_not_there_or_not_the_only_one_is_named():
    (mutant,) = (mutant for mutant in mutants() if mutant.name == "line-leaver-stays-linked")
    for wrong in (
        {"place": "waiting:Line.none"},
        {"old": "none such"},
        {"place": "waiting:*", "old": "self"},
    ):
        with pytest.raises(LookupError, match=r"^line-leaver-stays-linked: `old` stands in 0 places"):
            replace(mutant, **wrong).applied()


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
