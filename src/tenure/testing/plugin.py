"""The `virtual_clock` fixture, for `-p tenure.testing.plugin` where plugins are not loaded by themselves."""

from _tenure_pytest import pytest_pyfunc_call, virtual_clock

__all__ = ("pytest_pyfunc_call", "virtual_clock")
