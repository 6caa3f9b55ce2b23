"""What the pages name exists: attributes, arguments and their defaults, settings, options of commands, tables."""

from __future__ import annotations

import ast
import dis
import importlib
import inspect
import re
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from tenure.cli import main
from tenure.engines.rules import LAYOUTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
# not the pages about other libraries, which use their names
PAGES = [
    page for page in (*sorted(DOCS.rglob("*.md")), ROOT / "README.md") if page.parent.name != "coming-from"
]
ROOMS = (
    "",
    ".types",
    ".errors",
    ".blocking",
    ".dbapi",
    ".engines",
    ".local",
    ".observe",
    ".sql",
    ".store",
    ".testing",
    ".web",
)

FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
SECTION = re.compile(r"^## (.*\n)((?:(?!## ).*\n)*)", re.MULTILINE)
FILE = re.compile(r"[\w/]+\.(py|lua|db)")
# events whose names are put together, a function of SQL, and names of asyncio, anyio, logging, SQLAlchemy,
# OpenTelemetry and etcd
OTHERS = re.compile(
    r"processor\.(breaker|limit)|task\.cancel|[Ll]ock\.acquire|record\.(exc_\w+|stack_info)"
    r"|session\.(begin|in_transaction)|error\.type|Session\.Done|tenure\.put"
)


def prose(page):
    return FENCED.sub("", page.read_text("utf-8"))


@cache
def public():
    """The public names of all rooms, and what they stand for: the same name may stand in several rooms."""
    names = {}
    for room in ROOMS:
        module = importlib.import_module(f"tenure{room}")
        for name in module.__all__:
            names.setdefault(name, []).append(getattr(module, name))
    return names


@cache
def owners():
    """The classes that a page may mean: by `queue` a `WorkQueue` or a `local.Queue`, by `RWLock` both of that name."""
    classes = {}
    for name, values in public().items():
        words = re.findall(r"[A-Z][a-z]+|[A-Z]+(?=[A-Z]|$)", name)
        for alias in {name, words[-1].lower(), "_".join(words).lower()} if words else ():
            classes.setdefault(alias, []).extend(filter(inspect.isclass, values))
    return classes


@cache
def attributes(cls):
    """The names of a class, and those that its `__init__` sets."""
    names = set(dir(cls))
    for one in cls.__mro__:
        names |= set(vars(one).get("__annotations__", ()))
        if inspect.isfunction(init := vars(one).get("__init__")):
            names |= {step.argval for step in dis.get_instructions(init) if step.opname == "STORE_ATTR"}
    return names


@cache
def source():
    """The nodes of all modules of the package."""
    files = (ROOT / "src" / "tenure").rglob("*.py")
    return [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]


@cache
def events():
    """The string constants of the package; names of events and metrics are among them, some as `.events` alone."""
    return {node.value for node in source() if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@cache
def settings():
    """The names of all arguments and fields of the package."""
    arguments = {node.arg for node in source() if isinstance(node, ast.arg)}
    return arguments | {ast.unparse(node.target) for node in source() if isinstance(node, ast.AnnAssign)}


def parsed(code):
    """The nodes of a piece of code in a text; none if it is no Python, or an abbreviation."""
    code = re.sub(r" -> .*|\*, |, \*(?=\))", "", " ".join(code.split()))
    for text in (code, f"{code}: pass"):
        with suppress(SyntaxError):
            return list(ast.walk(ast.parse(text)))
    return []


def called(node):
    """The parameters of each function that a call may mean."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="tenure"), attr=name):
            functions = public().get(name, [])
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            functions = [getattr(one, name) for one in owners().get(owner, ()) if hasattr(one, name)]
        case _:
            functions = []
    signatures = [inspect.signature(function).parameters for function in functions if callable(function)]
    # settings that come as **settings: here nobody knows them
    return [one for one in signatures if not any(p.kind is p.VAR_KEYWORD for p in one.values())]


def exists(owner, name):
    """Whether an object or module that is called `owner` has this name, or there is such an event or metric."""
    if owner == "tenure" and name in public():
        return True
    with suppress(ImportError):
        if owner == "tenure" and importlib.import_module(f"tenure.{name}"):
            return True
    if any(name in attributes(one) for one in owners().get(owner, ())) or OTHERS.fullmatch(f"{owner}.{name}"):
        return True
    begins = f".{name}" if owner == "tenure" else f"{owner}.{name}"
    return any(text.startswith((begins, f"{owner}.{name}")) for text in events())


def unknown(code):
    """The attributes and arguments that a piece of code in a text uses, and that do not exist."""
    for node in () if FILE.fullmatch(code) else parsed(code):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == "tenure" or owner in owners():
                if not exists(owner, name):
                    yield f"{owner}.{name}"
            case ast.Call(keywords=keywords) if keywords and (candidates := called(node)):
                names = {keyword.arg for keyword in keywords} - {None}
                if not any(names <= known.keys() for known in candidates):
                    yield ast.unparse(node)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_attributes_and_arguments_in_a_text_exist(page):
    assert [text for code in CODE.findall(prose(page)) for text in unknown(code)] == []


def is_signature(node, known):
    """Whether a call in a heading names arguments and defaults of these parameters."""
    defaults = {
        keyword.arg: keyword.value for keyword in node.keywords if isinstance(keyword.value, ast.Constant)
    }
    names = {one.id for one in node.args if isinstance(one, ast.Name)} | defaults.keys()
    return names <= known.keys() and all(
        known[name].default == value.value for name, value in defaults.items()
    )


def wrong_headings(text):
    """The signatures in headings that are not those of the code."""
    for heading in re.findall(r"^#+ .*", text, re.MULTILINE):
        for node in (node for code in CODE.findall(heading) for node in parsed(code)):
            candidates = called(node) if isinstance(node, ast.Call) else []
            if candidates and not any(is_signature(node, known) for known in candidates):
                yield ast.unparse(node)


def unknown_options(text):
    """The names in the first columns of tables of options that no function takes."""
    for table in re.findall(r"^\| option \|.*\n\|-.*\n((?:\|.*\n)*)", text, re.MULTILINE):
        for cell in re.findall(r"^\|(.*?)(?<!\\)\|", table, re.MULTILINE):
            yield from (name for name in re.findall(r"`([a-z]\w*)", cell) if name not in settings())


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_signatures_and_options_of_the_reference_are_those_of_the_code(page):
    assert [*wrong_headings(prose(page)), *unknown_options(prose(page))] == []


def durations():
    """The names of the arguments in seconds of what several processes share."""
    rooms = ("engines", "processor", "serving", "shared", "store")
    files = [file for room in rooms for file in (ROOT / "src" / "tenure").glob(f"{room}/**/*.py")]
    check = re.compile(r"check_(?:seconds|timeout)\(\s*\"(\w+)\"")
    return {name for file in files for name in check.findall(file.read_text("utf-8"))}


def test_the_table_of_times_has_each_duration():
    page = (DOCS / "reference" / "times.md").read_text("utf-8")
    there = {name for cell in re.findall(r"^\|(.*?)\|", page, re.MULTILINE) for name in CODE.findall(cell)}
    # the argument of hold_off and cool_down
    assert {"ttl", "grace"} <= durations() and durations() - there == {"seconds"}


# ------------------------------------------------------------------------------------------------------ the commands

COMMANDS = (
    *("run", "work", "queue", "schedule", "hold", "holders", "limiter", "doctor", "backup", "top", "web"),
)


def helped(*words):
    said = StringIO()
    with redirect_stdout(said), suppress(SystemExit):
        main([*words, "--help"])
    return said.getvalue()


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_in_the_section_of_a_command_exist(command):
    pages = ("cli.md", "cli-run-work.md")
    sections = SECTION.findall("".join((DOCS / "reference" / name).read_text("utf-8") for name in pages))
    own = "".join(title + body for title, body in sections if re.match(rf"`tenure {command}\b", title))
    if command == "web":
        own = (DOCS / "reference" / "web.md").read_text("utf-8")
    text = helped(command)
    below = (
        re.findall(r"^  ([a-z-]+) ", text, re.MULTILINE)
        if command in ("queue", "schedule", "limiter")
        else ("break",)
        if command == "holders"
        else ()
    )
    there = options_in(text).union(*(options_in(helped(command, one)) for one in below))
    assert own
    assert options_in(own) - there == set()


def test_every_command_is_tried():
    assert tuple(re.findall(r"^  ([a-z]+) ", helped(), re.MULTILINE)) == COMMANDS


# -------------------------------------------------------------------------------------------------------- the tables


def test_the_tables_to_avoid_are_those_of_the_engine():
    page = (DOCS / "how-to" / "exactly-once.md").read_text("utf-8")
    sentence = re.search(r"The engine's tables are called (.*?)\. ", page, re.DOTALL)[1]
    schema = (ROOT / "src/tenure/engines/sqlite/sql/schema.sql").read_text("utf-8")
    tables = [*re.findall(r"^CREATE TABLE (\w+)", schema, re.MULTILINE), *(layout.name for layout in LAYOUTS)]
    assert CODE.findall(sentence) == sorted(tables)


# ------------------------------------------------------------------------- the tests above, tested on planted faults


@pytest.mark.parametrize(
    "code",
    [
        *("task.is_settled", "await queue.putt(1)", "WorkQueue.putt", "tenure.Lok", "pool.leek"),
        *(
            "queue.put(payload, hue=1)",
            "Lock(store, name, hue=1)",
            "tenure.Lock(store, *, hue=1) -> Lock",
        ),
        "async with lock.hold(hue=1) as lease",
    ],
)
def test_a_name_that_does_not_exist_is_seen(code):
    assert len(list(unknown(code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        *(
            "task.payload",
            "store.ttl",
            "pool.leak",
            "tenure.events",
            "tenure.local",
            "tenure.Lock",
            "tenure.db",
        ),
        *(
            "async with lock.hold(timeout=5) as lease",
            "Lock(store, name, *, ttl=None)",
            "no Python",
            "others.name",
        ),
    ],
)
def test_a_name_that_exists_is_let_pass(code):
    assert list(unknown(code)) == []


def test_wrong_headings_and_options_are_seen():
    headings = "# `Lock(store, name, *, ttl=None)`\n# `Lock(store, nam)`\n# `Lock(store, name, *, ttl=1)`\n\n"
    options = "| option | default |\n|---|---|\n| `ttl` | 1 |\n| `hue`, `name` | |\n"
    assert list(wrong_headings(headings)) == ["Lock(store, nam)", "Lock(store, name, ttl=1)"]
    assert list(unknown_options(options)) == ["hue"]
