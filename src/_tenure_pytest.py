"""Tenure's fixtures and options for pytest, known to it by themselves once tenure is installed.

Pytest imports this before a coverage tool has started and in every project of the environment. So it stands outside
the package, and imports the package only when a fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from tenure.testing import VirtualClock

__all__ = (
    "explore_options",
    "explored_alone",
    "pytest_addoption",
    "pytest_configure",
    "pytest_pyfunc_call",
    "pytest_terminal_summary",
    "virtual_clock",
)

explore_options: dict[str, Any] = {}
"""What was said about explorations on the command line: seeds, seconds, seed, backend."""
explored_alone: list[str] = []
"""A line for each exploration that had to do without trio."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `tenure.testing.explored`."""
    group = parser.getgroup("tenure", "explorations (tenure.testing.explored)")
    group.addoption("--explore-seeds", type=int, metavar="N", help="how many seeds each exploration tries")
    group.addoption(
        "--explore-seconds", type=float, metavar="T", help="for how long each exploration tries seeds"
    )
    group.addoption("--explore-seed", metavar="SEED", help="repeat this seed or schedule alone")
    group.addoption("--explore-backend", choices=("asyncio", "trio"), help="explore on this loop alone")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what was said for `tenure.testing.explored`, which asks when a test runs."""
    for name in ("seeds", "seconds", "seed", "backend"):
        explore_options[name] = config.getoption(f"explore_{name}")
    explored_alone.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once if explorations had to do without trio."""
    if explored_alone:
        terminalreporter.write_line(f"{len(explored_alone)} explorations: {explored_alone[0]}")


@pytest.fixture
def virtual_clock(anyio_backend: Any) -> VirtualClock:
    """The virtual clock that this test runs on: see `tenure.testing.VirtualClock`.

    The `anyio_backend` fixture has to hand anyio the options of such a clock:

        @pytest.fixture(params=["asyncio", "trio"])
        def anyio_backend(request):
            if "virtual_clock" in request.fixturenames:
                return request.param, virtual_backend_options(request.param)
            return request.param
    """
    from tenure.testing import VirtualClock

    options: dict[str, Any] = {} if isinstance(anyio_backend, str) else anyio_backend[1]
    clock = VirtualClock.of(options)
    if clock is None:
        raise pytest.UsageError(
            "virtual_clock: the anyio_backend fixture must return (name, virtual_backend_options(name)) for this test"
        )
    return clock


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Raise the deadlock itself, where trio only says that its run was cancelled."""
    __tracebackhide__ = True
    clock = cast("VirtualClock | None", pyfuncitem.funcargs.get("virtual_clock"))
    try:
        return (yield)
    except BaseException as error:
        deadlock = clock and clock.deadlock
        if deadlock and deadlock is not error:
            raise deadlock from error
        raise
