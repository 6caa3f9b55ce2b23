"""The engine that `--engine=module:factory` names keeps the contract."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import depth
import pytest
from contract import ContractInSetTime, EngineContract

if depth.engine is not None:
    module, _, name = depth.engine.partition(":")
    factory = getattr(import_module(module), name)

    if "clock" in inspect.signature(factory).parameters:

        class TestNamedEngine(ContractInSetTime):
            @pytest.fixture
            def engine(self, time):
                return factory(clock=time)

    else:

        class TestNamedEngine(EngineContract):
            margin = 0.25

            @pytest.fixture
            def engine(self):
                return factory()


def test_an_engine_is_named_on_the_command_line():
    words = ["--engine=tenure.engines.memory:MemoryEngine", __file__, "-k", "TestNamedEngine and first_come"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout
