"""What type checkers see is what the classes are."""

from __future__ import annotations

import ast
import inspect

import pytest
import write_stubs

from tenure import blocking


def shape(text):
    """A stub file without the layout of the text."""
    tree = ast.parse(text)
    imported = set()
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            if doc := ast.get_docstring(node):
                node.body[0] = ast.Expr(ast.Constant(" ".join(doc.split())))
            elif isinstance(node, ast.FunctionDef):
                node.body = []
            node.body = [one for one in node.body if ast.unparse(one) not in ("...", "pass")]
        elif isinstance(node, ast.ImportFrom):
            imported |= {(node.module, one.name) for one in node.names}
    rest = [ast.dump(node) for node in tree.body if not isinstance(node, ast.ImportFrom)]
    return imported, rest


def test_the_stubs_are_those_that_the_script_writes():
    stored, written = shape(write_stubs.FILE.read_text("utf-8")), shape(write_stubs.written())
    assert stored == written, "run python tests/blocking/write_stubs.py"


def test_a_change_is_seen():
    text = write_stubs.written()
    assert shape(text) != shape(text.replace("delay: Seconds=0.0", "delay: Seconds=1.0"))
    assert shape(text) != shape(text.replace("Report how far", "Report where"))


@pytest.mark.parametrize("name", write_stubs.classes())
def test_no_public_method_returns_something_to_be_awaited(name):
    cls = write_stubs.classes()[name]
    assert "await " not in (cls.__doc__ or "")
    for method, function in inspect.getmembers(cls, inspect.isfunction):
        assert not inspect.iscoroutinefunction(function), method
        for wrong in ("await ", "async ", "Cancellation:", "this task holds"):
            assert wrong not in " ".join((function.__doc__ or "").split()), method


def test_signatures_are_those_of_the_asynchronous_classes():
    import tenure

    for name in ("Lock", "Semaphore", "RWLock", "RateLimiter", "Barrier", "WorkQueue", "Job"):
        ours, theirs = getattr(blocking, name), getattr(tenure, name)
        assert inspect.signature(ours) == inspect.signature(theirs)
    assert inspect.signature(blocking.WorkQueue.try_put) == inspect.signature(tenure.WorkQueue.try_put)
    # what waits takes a time limit
    for method, limit in (("put", "put_timeout"), ("result", "timeout")):
        ours = dict(inspect.signature(getattr(blocking.WorkQueue, method)).parameters)
        assert ours.pop(limit).default is None
        assert ours == dict(inspect.signature(getattr(tenure.WorkQueue, method)).parameters)
    assert (
        inspect.signature(blocking.open_store).parameters == inspect.signature(tenure.open_store).parameters
    )
