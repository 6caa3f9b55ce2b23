"""The contract finds each fault that tests/mutants/mutants.toml has for it, in the memory engine."""

from __future__ import annotations

import ast
import inspect
import sys

import anyio
import depth
import pytest
from contract import EngineContract
from contract._clerk import QueueSessionBase
from contract._walk import FAMILIES
from mutants.patches import SOURCES
from mutated import MUTANTS, mutated, with_fault

from tenure.engine import Resize
from tenure.engines.memory import MemoryEngine


class Quick(EngineContract):
    """For an engine whose hints are there at once; what is found needs no explanation."""

    walks = 80
    replays = 0
    hint_timeout = 0.05


class TestCheats(QueueSessionBase):
    hint_timeout = Quick.hint_timeout
    now = 1000.0

    @pytest.fixture
    def engine(self, mutant):
        return mutated(mutant)(clock=lambda: self.now)

    @pytest.fixture
    def advance(self):
        async def advance(seconds):
            self.now += seconds

        return advance

    @pytest.mark.backends("asyncio")
    @pytest.mark.parametrize(
        "mutant", MUTANTS if depth.full else MUTANTS[::2], ids=lambda mutant: mutant.name
    )
    async def test_a_cheat_is_caught(self, engine, links, do, client, hints, advance, mutant):
        name, _, argument = mutant.by.rstrip("]").partition("[")
        test = getattr(Quick(), name)
        given = {
            "engine": engine,
            "links": links,
            "do": do,
            "client": client,
            "hints": hints,
            "advance": advance,
        }
        wanted = inspect.signature(test).parameters
        arguments = {name: given.get(name, argument) for name in wanted}
        with pytest.raises(AssertionError):
            await test(**arguments)


ELSEWHERE = {
    *("Lifeline.submit", "MemoryEngine.another"),  # a walk calls `execute`, of one engine
    *("Producers.put_one", "Tasks.complete", "Tasks.complete_all"),  # for transactions, which memory has not
    *("Groups.are_kept", "Holds.serve_unserved"),  # for SQLite
    *("MemorySurvey.health", "Groups.unset", "Families.begin_anew"),  # examples of the contract
}
"""What no walk uses."""


def functions(folder):
    """The functions below a folder of the engines, but for those that only declare what another class has."""
    for path in sorted((SOURCES / "engines" / folder).glob("*.py")):
        for each in ast.parse(path.read_text(encoding="utf-8")).body:
            for function in getattr(each, "body", ()):
                named = isinstance(function, ast.FunctionDef) and not function.name.startswith("__")
                if named and not all(isinstance(line, ast.Expr) for line in function.body):
                    yield str(path), f"{each.name}.{function.name}"


@pytest.mark.full
async def test_three_walks_of_each_kind_use_all_of_the_memory_engine_and_its_rules():
    """What a walk does not reach, it compares with nothing."""

    class Short(Quick):
        walks = 3

    now, reached = 1000.0, set()

    async def advance(seconds):
        nonlocal now
        now += seconds

    def note(frame, event, argument):
        reached.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        for family in FAMILIES:
            async with anyio.create_task_group() as links:
                engine = MemoryEngine(clock=lambda: now)
                await Short().test_it_answers_as_the_memory_engine_does(engine, advance, links, family)
                links.cancel_scope.cancel()
    finally:
        sys.setprofile(None)
    wanted = {*functions("memory"), *functions("rules")}
    assert {name for _, name in wanted - reached} == ELSEWHERE


class Set(EngineContract):
    """Walks of one kind, beside an engine whose time is set."""

    walks = 40
    hint_timeout = 0.05

    async def report(self, engine, family="holds"):
        now = 1000.0

        async def advance(seconds):
            nonlocal now
            now += seconds

        engine._clock = lambda: now
        async with anyio.create_task_group() as links:
            with pytest.raises(AssertionError) as caught:
                await self.test_it_answers_as_the_memory_engine_does(engine, advance, links, family)
            links.cancel_scope.cancel()
        return str(caught.value)


def engine_with(name):
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == f"contract-{name}")
    return mutated(mutant)(clock=None)


async def test_what_a_walk_finds_is_cut_down_the_same_way_each_time():
    first, again = [await Set().report(engine_with("values-for-all")) for _ in range(2)]
    assert first == again
    *story, last = [
        line for line in first.splitlines() if not line.startswith(("  ", "and of", "the answer"))
    ]
    assert last.startswith("SetValue(")
    assert last.endswith("-> Reply.REFUSED")
    assert len(story) < 20


async def test_a_walk_needs_no_clock_that_can_be_set(tmp_path):
    class InRealTime(Quick):
        margin = 0.25

    for name in ("barging", "hints-to-all", "values-for-all"):
        async with anyio.create_task_group() as links:
            with pytest.raises(AssertionError, match="walk \\d+ of holds ended after"):
                await InRealTime().test_it_answers_as_the_memory_engine_does(
                    engine_with(name), anyio.sleep, links, "holds"
                )
            links.cancel_scope.cancel()


async def test_a_walk_that_the_engine_ends_by_an_error_is_reported():
    class Fails(MemoryEngine):
        async def execute(self, operations):
            if any(isinstance(operation, Resize) for operation in operations):
                raise RuntimeError("no resizing here")
            return await super().execute(operations)

    assert "no resizing here" in await Set().report(Fails(clock=None))


def test_an_engine_without_a_fault_is_the_memory_engine():
    """What is mutated here is loaded beside it; that one passes in test_contract.py."""
    file = "engines/memory/_state.py"
    text = (SOURCES / file).read_text(encoding="utf-8")
    engine = with_fault(file, text.replace("self._opened = 0", "self._opened = 7"))()
    assert engine._state._opened == 7
    assert type(engine).__module__ == "mutated_memory"
