"""Write what type checkers see of the patterns for synchronous code: python tests/blocking/write_stubs.py

It is made from the source of the asynchronous classes, as the classes themselves are when the program runs.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import tenure.blocking._made as made
from tenure import shared
from tenure.blocking._pattern import Pattern, members

FILE = Path(made.__file__).with_suffix(".pyi")
HEAD = """\
# Written by tests/blocking/write_stubs.py from the asynchronous classes.

from typing import ParamSpec
from typing_extensions import TypeVar

{imports}

from ._pattern import Listing
from ._store import Store

P = TypeVar("P", default=Any)
P_co = TypeVar("P_co", covariant=True, default=Any)
Params = ParamSpec("Params")
R = TypeVar("R")
"""
OWN = {"P", "P_co", "Params", "R"}


def classes():
    return {name: one for name, one in vars(made).items() if hasattr(one, "_made_from")}


def source_of(function):
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    return node


class Sync(ast.NodeTransformer):
    """Annotations of asynchronous code as those of what is made from it."""

    def __init__(self, names):
        self.names = names  # where the annotations stand

    def visit_Subscript(self, node):
        if ast.unparse(node.value) == "AbstractAsyncContextManager":
            node.value = ast.Name("AbstractContextManager")
        if ast.unparse(node.value) == "Target":
            payload = ast.unparse(node.slice)
            return ast.parse(f"WorkQueue[{payload}] | Job[..., {payload}]", mode="eval").body
        return self.generic_visit(node)

    def visit_Name(self, node):
        value = self.names.get(node.id)
        if typing.get_origin(value) is typing.Literal:
            return ast.parse(repr(value).removeprefix("typing."), mode="eval").body
        return node


def beginning_of(doc):
    """The first paragraph, for the editor; `help` and the site have the rest."""
    return inspect.cleandoc(doc).partition("\n\n")[0]


def stub_of(function, doc, *, limit=None):
    """A function as it stands in a stub; `limit` is the name of its time limit."""
    node = source_of(function)
    if limit:
        node.args.kwonlyargs.append(ast.arg(limit, ast.parse("float | None", mode="eval").body))
        node.args.kw_defaults.append(ast.Constant(None))
    sync = Sync(inspect.unwrap(function).__globals__)
    decorators = [
        one for one in node.decorator_list if not ast.unparse(one).startswith(("hinted(", "shows_options("))
    ]
    node = ast.FunctionDef(node.name, node.args, [], decorators, node.returns)
    node.args.defaults = [
        one if isinstance(one, ast.Constant) else ast.Constant(...) for one in node.args.defaults
    ]
    node.args.kw_defaults = [
        one if one is None or isinstance(one, ast.Constant) else ast.Constant(...)
        for one in node.args.kw_defaults
    ]
    node = sync.visit(node)
    node.body = (
        [ast.Expr(ast.Constant(textwrap.indent(beginning_of(doc), "        ").strip()))] if doc else []
    )
    node.body.append(ast.Expr(ast.Constant(...)))
    return ast.fix_missing_locations(node)


def fields_of(cls, names):
    """The annotations of public attributes, as `__init__` says them."""
    found = {}
    init = source_of(cls.__init__)
    parameters = {one.arg: one.annotation for one in (*init.args.args, *init.args.kwonlyargs)}
    for node in ast.walk(init):
        match node:
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                found[name] = annotation
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=value)) if (
                value in parameters
            ):
                found[name] = parameters[value]
    return {name: found.get(name) or ast.Name("bool") for name in names}


def read_only(name, annotation):
    return ast.parse(f"@property\ndef {name}(self) -> {ast.unparse(annotation)}: ...").body[0]


def entering(cls, held):
    handed = "None" if held is None else held.__name__
    yield ast.parse(
        f'def __enter__(self) -> {handed}:\n    """{beginning_of(cls.__enter__.__doc__)}"""'
    ).body[0]
    yield ast.parse(
        "def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,"
        f' trace: TracebackType | None) -> None:\n    """{beginning_of(cls.__exit__.__doc__)}"""'
    ).body[0]


def class_stub(cls):
    original = cls._made_from
    parameters = ", ".join(one.__name__ for one in getattr(cls, "__parameters__", ()))
    node = ast.parse(f"class {cls.__name__}{f'(Generic[{parameters}])' if parameters else ''}: ...").body[0]
    node.body = [ast.Expr(ast.Constant(beginning_of(cls.__doc__)))]
    if issubclass(cls, Pattern):
        inits = typing.get_overloads(original.__init__) or [original.__init__]
        node.body += [stub_of(one, "") for one in inits]
        first = next(iter(inspect.signature(original).parameters))
        owner = next(one.annotation for one in source_of(inits[0]).args.args if one.arg == first)
        node.body.append(read_only(first, owner))
    for name, annotation in fields_of(original, cls._fields).items():
        node.body.append(
            read_only(name, Sync(vars(sys.modules[original.__init__.__module__])).visit(annotation))
        )
    if hasattr(cls, "__enter__"):
        node.body += entering(cls, cls._hands_over)
    for name, member in members(original, " ".join(cls._left_out)):
        function = member.fget if isinstance(member, property) else member
        shown = typing.get_overloads(function) or [function]
        for one in shown:
            doc = getattr(cls, name).__doc__ if one is shown[0] else ""
            node.body.append(stub_of(one, doc, limit=cls._waits.get(name)))
    return ast.fix_missing_locations(node)


def imports_for(body, known):
    """Import statements for the names that are used: from the public room, if it has them."""
    used = {node.id for one in body for node in ast.walk(one) if isinstance(node, ast.Name)}
    where = {
        "AbstractContextManager": "contextlib",
        "Generic": "typing",
        "Literal": "typing",
        "Any": "typing",
    }
    for file in Path(shared.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                where |= {name.name: node.module for name in node.names}
    where |= dict.fromkeys(shared.__all__, "tenure.shared")
    needed = sorted((used | {"Any"}) - known - OWN - {"Listing", "Store"} - set(dir(builtins)))
    return "\n".join(f"from {where[name]} import {name}" for name in needed)


def written():
    """The text of the stub file."""
    body = [class_stub(cls) for cls in classes().values()]
    text = "\n".join(ast.unparse(one) for one in body)
    return HEAD.format(imports=imports_for(body, set(classes()))) + "\n" + text + "\n"


def main():
    FILE.write_text(written(), "utf-8")
    for command in (["check", "--fix-only"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, "-q", str(FILE)], check=True)


if __name__ == "__main__":
    main()
