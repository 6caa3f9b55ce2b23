"""No public coroutine is forgotten: each has a scenario, and each scenario calls what it says it covers."""

from __future__ import annotations

import inspect
import sys
from contextlib import asynccontextmanager, contextmanager

import pytest
from explored.catalogue import public_coroutines, scenarios, waited_for_in
from explored.world import world

from tenure.shared import Hold
from tenure.testing import run

COVERED = {name for scenario in scenarios() for name in scenario.covers}


@pytest.mark.parametrize("name", sorted(public_coroutines()))
def test_every_public_coroutine_has_a_scenario(name):
    assert name in COVERED, (
        f"tenure.{name} is there to be waited for, and no scenario covers it: "
        "write one as tests/explored/README.md says"
    )


def test_the_catalogue_names_no_coroutine_that_is_not_there():
    assert public_coroutines().keys() >= COVERED


def test_scenarios_have_names_of_their_own():
    names = [str(scenario) for scenario in scenarios()]
    assert len(set(names)) == len(names)


@pytest.mark.full
@pytest.mark.parametrize("scenario", scenarios(), ids=str)
def test_a_scenario_calls_what_it_says(scenario):
    found = public_coroutines()
    expected = {inspect.unwrap(found[name]).__code__: name for name in scenario.covers if name in found}
    called = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code in expected:
            called.add(expected[frame.f_code])

    async def main():
        if not scenario.engines:
            await scenario.run()
            return
        with world(scenario.engines[0]) as made:
            await scenario.run(made)

    sys.setprofile(note)
    try:
        run(main)
    finally:
        sys.setprofile(None)
    assert called == set(expected.values())


def test_what_is_waited_for_is_found():
    class Base:
        async def inherited(self):
            pass

    class Thing(Base):
        async def coroutine(self):
            pass

        async def iterates(self):
            yield

        async def __anext__(self):
            pass

        def hold(self) -> Hold:
            pass

        def later(self) -> Awaitable[int]:  # noqa: F821 as if it were imported for type checkers alone
            pass

        def plain(self) -> int:
            pass

        @classmethod
        async def opened(cls):
            pass

        @asynccontextmanager
        async def block(self):
            yield

        @contextmanager
        def plain_block(self):
            yield

        async def _private(self):
            pass

    for attribute in (*vars(Base).values(), *vars(Thing).values()):
        function = getattr(attribute, "__func__", attribute)
        if inspect.isfunction(function):
            function.__module__ = "tenure.local"
    names = ["__anext__", "block", "coroutine", "hold", "inherited", "iterates", "later", "opened"]
    assert list(waited_for_in("local.Thing", Thing)) == [f"local.Thing.{name}" for name in names]
