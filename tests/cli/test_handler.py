"""From `module:function` to a handler, or to one line that says what is wrong."""

from __future__ import annotations

import pytest

from tenure.cli._errors import UsageError
from tenure.cli._handler import load_handler

SOURCE = """
from __future__ import annotations
from functools import partial
import tenure
from tenure import Task

def plain(payload): ...
async def co(payload): ...
def named(task): ...
def annotated(t: tenure.Task): ...
async def annotated_too(t: Task, extra=None): ...
def defaulted(payload, factor=2): ...
def anything(*args, **kwargs): ...
def none_at_all(): ...
def two(a, b): ...
def keyword(*, payload): ...
def _hidden(payload): ...
bound = partial(two, 1)
number = 42

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


LISTS = """
from __future__ import annotations
from collections.abc import Sequence
import tenure
from tenure import Task

def tasks(tasks): ...
async def annotated(batch: list[tenure.Task]): ...
def with_payload(batch: Sequence[Task[dict[str, int]]]): ...
def one(task: Task[list[int]]): ...
def payloads(payload: list[str]): ...
def of_tables(payload: dict[str, Task]): ...
def anything(*args): ...
"""


@pytest.mark.parametrize("source", [LISTS, LISTS.replace("from __future__ import annotations", "")])
def test_which_handlers_want_a_list_of_tasks(handlers, source):
    handlers("real_lists", source)
    names = ("tasks", "annotated", "with_payload", "one", "payloads", "of_tables", "anything")
    loaded = {name: load_handler(f"real_lists:{name}") for name in names}
    assert [name for name in names if loaded[name].wants_tasks] == ["tasks", "annotated", "with_payload"]
    assert [name for name in names if loaded[name].wants_task] == ["one"]


@pytest.mark.parametrize(
    ("name", "is_async", "wants_task"),
    [
        ("plain", False, False),
        ("co", True, False),
        ("named", False, True),
        ("annotated", False, True),
        ("annotated_too", True, True),
        ("defaulted", False, False),
        ("anything", False, False),
        ("bound", False, False),
        ("Shop.order", False, False),
        ("instance", True, False),
    ],
)
def test_how_a_handler_is_called(load, name, is_async, wants_task):
    handler = load(name)
    assert (handler.is_async, handler.wants_task) == (is_async, wants_task)


def test_annotations_that_are_no_strings(handlers):
    handlers("real_annotation", "import tenure\ndef f(x: tenure.Task): ...\ndef g(x: dict): ...")
    assert load_handler("real_annotation:f").wants_task
    assert not load_handler("real_annotation:g").wants_task


def test_builtins_can_be_handlers():
    assert not load_handler("builtins:len").wants_task


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


@pytest.mark.parametrize("name", ["none_at_all", "two", "keyword"])
def test_a_handler_takes_one_argument(load, name):
    with pytest.raises(UsageError, match="cannot be called with one argument"):
        load(name)


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
