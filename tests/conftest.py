"""Which loops a test runs on, virtual time where asked for, and nothing left behind after any test."""

from __future__ import annotations

import hypothesis
import pytest

from tenure.testing import assert_no_leaks, virtual_backend_options

hypothesis.settings.register_profile(
    "tenure",
    deadline=None,
    print_blob=True,
    # The fixtures of this file hold for all the examples of a test together.
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("tenure")


try:
    import uvloop
except ImportError:
    pass
else:
    # Its first loop opens a pipe that stays for the life of the process.
    uvloop.new_event_loop().close()


def pytest_generate_tests(metafunc):
    if "anyio_backend" not in metafunc.fixturenames:
        return
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if any("anyio_backend" in ([names] if isinstance(names, str) else names) for names in given):
        return
    mark = metafunc.definition.get_closest_marker("backends")
    metafunc.parametrize("anyio_backend", mark.args if mark else ("asyncio", "trio"), indirect=True)


@pytest.fixture
def anyio_backend(request):
    name = request.param
    if name == "uvloop":
        pytest.importorskip("uvloop")
        if "virtual_clock" in request.fixturenames:
            pytest.fail("uvloop has no virtual time")
        return "asyncio", {"use_uvloop": True}
    if "virtual_clock" in request.fixturenames:
        return name, virtual_backend_options(name)
    return name, {}


@pytest.fixture(autouse=True)
def nothing_left_of_the_process(request):
    """Threads, files and sockets, looked at when the event loop has been closed."""
    if request.node.get_closest_marker("leaves"):
        yield
        return
    with assert_no_leaks():
        yield


@pytest.fixture(autouse=True)
def nothing_left_of_the_loop(nothing_left_of_the_process, request):
    """Tasks, looked at before the event loop cancels them on closing."""
    # In this order the loop outlives the other fixtures of the test, and sync tests get none.
    if "anyio_backend" in request.fixturenames and not request.node.get_closest_marker("leaves"):
        request.getfixturevalue("no_task_left")


@pytest.fixture
async def no_task_left(anyio_backend, nothing_left_of_the_process):
    async with assert_no_leaks(threads=False, files=False):
        yield
