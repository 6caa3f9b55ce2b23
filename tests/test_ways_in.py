"""The ways in stay short: how many functions, in how many files, a lock enters on Redis and a task on PostgreSQL.

The shortest of five uses of a store is counted, with nobody else there: the first use prepares, and during any other a
timer of the store may fire. `pytest -s` prints the ways: 57 functions in 10 files for the lock, and 103 in 20 for the
task. docs/explanations/design.md says what the aim of 100 in 18 would cost.
"""

# ruff: noqa: T201 it prints the ways

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tenure
from tenure import Lock, WorkQueue, open_store

SOURCES = Path(tenure.__file__).parent


PARTS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
"""Comprehensions, which are parts of a function; since Python 3.12 they are no calls."""


class Way:
    """The functions of the package that are entered inside the block, in the order of their first calls."""

    def __init__(self):
        self.functions = {}

    def __enter__(self):
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _on_event(self, frame, event, _):
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and code.co_name not in PARTS and path.is_relative_to(SOURCES):
            self.functions[str(path.relative_to(SOURCES)), code.co_qualname] = None

    def __lt__(self, other):
        return len(self.functions) < len(other.functions)

    def is_at_most(self, functions, files):
        """Print the way, and check how long it is."""
        entered = {file for file, _ in self.functions}
        print(f"{len(self.functions)} functions in {len(entered)} files")
        for file, function in self.functions:
            print(f"  {file}: {function}")
        return len(self.functions) <= functions and len(entered) <= files


@pytest.mark.backends("asyncio")
async def test_a_lock_on_redis_enters_few_functions(redis_server):
    async with open_store(redis_server.url) as store:
        lock = Lock(store, "k")
        ways = [Way() for _ in range(5)]
        for way in ways:
            with way:
                async with lock:
                    pass
    assert min(ways).is_at_most(functions=60, files=10)


@pytest.mark.backends("asyncio")
async def test_a_task_on_postgres_enters_few_functions(postgres_server):
    async with open_store(postgres_server.url()) as store:
        queue = WorkQueue(store, "q")
        ways = [Way() for _ in range(20)]
        await queue.put_many([0 for _ in ways])
        for way in ways:
            with way:
                async with queue.take():
                    pass
    assert min(ways).is_at_most(functions=103, files=20)
