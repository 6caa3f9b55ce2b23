"""The table of heavy tests names tests that exist; its rules for variants hold."""

from __future__ import annotations

import depth
import levels
import pytest

pytest_plugins = ["pytester"]

SUITE = """
    import pytest

    @pytest.mark.parametrize("a", ["x", "y", "z"])
    @pytest.mark.parametrize(("b", "c"), [(1, 1), (1, 2)])
    def test_product(a, b, c): pass

    def test_heavy(): pass

    @pytest.mark.full
    def test_full(): pass
"""
CONFTEST = """
    import depth, levels

    def pytest_addoption(parser):
        parser.addoption("--full", action="store_true")
        parser.addoption("--measure", action="store_true")

    def pytest_configure(config):
        config.addinivalue_line("markers", "full")
        config.addinivalue_line("markers", "heavy")
        config.pluginmanager.register(levels)
"""


def test_each_line_of_the_table_names_a_test():
    folder = levels.TABLE.parent
    contract = "".join(path.read_text() for path in (folder / "contract").glob("*.py"))
    for name in levels.known():
        path, *_, function = name.partition("[")[0].split("::")
        assert f"def {function}(" in (folder / path).read_text() + contract, name


@pytest.mark.parametrize(
    ("words", "passed"), [((), 3), (("test_suite.py",), 4), (("-m", "heavy"), 1), (("-m", "not heavy"), 3)]
)
def test_a_run_of_everything_leaves_heavy_tests_out(pytester, monkeypatch, tmp_path, words, passed):
    monkeypatch.setattr(depth, "full", False)
    monkeypatch.setattr(levels, "TABLE", tmp_path / "heavy.txt")
    levels.TABLE.write_text(
        "# seconds\n1.00 test_suite.py::test_heavy\n2.00 test_suite.py::test_product  # why\n"
    )
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_suite=SUITE)
    pytester.runpytest_inprocess(*words).assert_outcomes(passed=passed, deselected=8 - passed)
