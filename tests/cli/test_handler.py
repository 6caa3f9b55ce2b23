"""From `module:function` to a handler, or to one line that says what is wrong."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tenure.cli._errors import UsageError
from tenure.cli._handler import load_handler

SOURCE = """
from functools import partial
import tenure

def plain(payload): ...
async def co(payload): ...
def of_tasks(task: tenure.Task): ...
def of_lists(tasks: list[tenure.Task]): ...
def bare(task): ...
def none_at_all(): ...
def two(a, b): ...
def _hidden(payload): ...
bound = partial(two, 1)
number = 42

async def program(store): ...
async def program_too(opened: tenure.Store): ...
def of_records(store: dict): ...

class Shop:
    @staticmethod
    def order(payload): ...

class Callable:
    async def __call__(self, payload): ...

instance = Callable()
"""


@pytest.fixture
def load(handlers):
    handlers("shop_handlers", SOURCE)
    return lambda name: load_handler(f"shop_handlers:{name}")


@pytest.mark.parametrize(
    ("name", "is_async", "wants_store"),
    [
        ("plain", False, False),
        ("co", True, False),
        ("of_tasks", False, False),
        ("bound", False, False),
        ("Shop.order", False, False),
        ("instance", True, False),
        ("program", True, True),
        ("program_too", True, True),
        ("of_records", False, False),
        ("none_at_all", False, False),
    ],
)
def test_how_a_handler_is_called(load, name, is_async, wants_store):
    handler = load(name)
    assert (handler.is_async, handler.wants_store) == (is_async, wants_store)


def test_builtins_can_be_handlers():
    assert load_handler("builtins:len").of_tasks()(SimpleNamespace(payload="four", check=lambda: None)) == 4


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("shop", "names no handler: write module:function"),
        ("shop:", "names no handler"),
        (":f", "names no handler"),
        ("no_such_module_x:f", "there is no module 'no_such_module_x'"),
        ("tenure.no_such:f", "there is no module 'tenure.no_such'"),
        ("tenure.examples:nope", "has no 'nope'; its functions are digest, flaky, nap, words"),
        ("tenure.examples:__name__", "is not a function but a str"),
    ],
)
def test_what_is_wrong_is_reported(spec, told):
    with pytest.raises(UsageError) as caught:
        load_handler(spec)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("name", "batch", "told"),
    [
        ("none_at_all", False, "handler none_at_all must take the payload"),
        ("two", False, "handler two: nothing fills its parameter b"),
        ("bare", False, "annotate it: task: tenure.Task, or rename it"),
        (
            "of_lists",
            False,
            "its parameter tasks is for a list of tasks; annotate it tenure.Task, or use BatchWorker",
        ),
        ("of_tasks", True, "annotate it list[tenure.Task], or use Worker"),
    ],
)
def test_a_handler_of_tasks_has_the_parameters_of_a_handler(load, name, batch, told):
    with pytest.raises(UsageError) as caught:
        load(name).of_tasks(batch=batch)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import no_such_thing_x", "No module named 'no_such_thing_x'; install what it needs"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_does_not_import(handlers, source, told):
    handlers("broken_module", source)
    with pytest.raises(UsageError) as caught:
        load_handler("broken_module:f")
    assert told in str(caught.value)
    assert "broken_module cannot be imported" in str(caught.value)


def test_the_working_directory_comes_first(handlers):
    handlers("examples_of_mine", "def f(payload): return 'mine'")
    assert load_handler("examples_of_mine:f").function(1) == "mine"
