"""The modules of the Redis scripts: each names what it needs, and shows only what others need of it.

luacheck reads each module as plain Lua, so it finds a name of another module that the file has not by `require`, a
`require` for nothing, and a local that hides a module. The linker refuses a name that a module does not export.

Needs luacheck (Debian: lua-check); without it the tests that run it are skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from needed import NO_LUACHECK

from tenure.engines.redis import _scripts

ROOT = Path(__file__).parents[2]
LUA = Path(_scripts.__file__).parent / "lua"
NAMES = sorted(path.stem for path in LUA.glob("*.lua"))
MODULES = [name for name in NAMES if name not in (*_scripts.SCRIPTS, "prelude")]
LUACHECK = shutil.which("luacheck")
FINDING = re.compile(r".*?:\d+:\d+: (\([WE]\d+\) .*)")
KEY = re.compile(r"P \.\. '(\w+)|\.\. ':(\w+)")
ASSIGNED = re.compile(r"^ .*?\b(\w+)\.\w+(?:, [\w.]+)* = ", re.MULTILINE)

needs_luacheck = pytest.mark.skipif(LUACHECK is None, reason=NO_LUACHECK)


def luacheck(source, *options):
    """What luacheck finds: code and text."""
    fixed = ("-", "--config", ROOT / ".ci/luacheckrc", "--codes", "--formatter", "plain")
    said = subprocess.run(
        (LUACHECK, *fixed, *options), input=source, capture_output=True, text=True, check=False
    )
    assert said.returncode in (0, 1), said.stdout + said.stderr
    return FINDING.findall(said.stdout)


@needs_luacheck
@pytest.mark.parametrize("name", NAMES)
def test_a_module_uses_what_it_names_and_nothing_else(name):
    options = {"prelude": ("--no-unused",), "probe": ("--globals", "COMMANDS")}.get(name, ())
    assert luacheck(_scripts.text_of(name), *options) == []


@needs_luacheck
@pytest.mark.parametrize("name", _scripts.SCRIPTS)
def test_a_script_is_sound_as_it_is_linked(name):
    assert luacheck(_scripts.script(name).source.decode(), "--only", "0", "1") == []


@needs_luacheck
def test_a_name_of_another_module_is_found():
    text = _scripts.text_of("producers")
    planted = text.replace("\nreturn producers\n", "\nread_task(find_none)\nreturn producers\n")
    found = luacheck(planted)
    assert [finding.split("'")[1] for finding in found] == ["read_task", "find_none"]


def test_a_name_that_a_module_does_not_export_is_refused(monkeypatch):
    exports = _scripts.exports_of
    monkeypatch.setattr(_scripts, "exports_of", lambda name: {*exports(name)} - {"read_queue"})
    with pytest.raises(LookupError, match="queues exports no read_queue"):
        _scripts.source_of("exchange")


PLANTED = {
    "script": """
-- not one of these: local plain = require('plain'), require('plain').text
--[[
local plain = require('plain')
require('plain').text
]]
local one = require('one')
local said = {"require('plain').text", 'it\\'s require("plain")', one.name, one.name_of('two')}
if #said == 4 then
    said[5] = require('late_one').count(3)
end
return said
""",
    "one": """
local one = {}
one.name = "it's one"
function one.name_of(name)
    return name .. '.' .. one.name -- of one.name
end
return one
""",
    # two that need each other, once they are made
    "late_one": """
local late_one = {}
function late_one.count(number)
    return number == 0 and 'late_one' or require('late_two').count(number - 1)
end
return late_one
""",
    "late_two": """
local late_two = {}
function late_two.count(number)
    return number == 0 and 'late_two' or require('late_one').count(number - 1)
end
return late_two
""",
    "renamed": "local other = require('one')\nreturn other.name\n",
}


@pytest.fixture
def planted(monkeypatch):
    cached = (_scripts.exports_of, _scripts._needs_of, _scripts._late_of, _scripts._words_of)
    text_of = _scripts.text_of
    monkeypatch.setattr(_scripts, "text_of", lambda name: PLANTED.get(name) or text_of(name))
    yield
    for each in cached:
        each.cache_clear()


@pytest.mark.usefixtures("planted")
def test_what_stands_in_texts_and_comments_is_not_linked(redis_server):
    source = _scripts.source_of("script")
    assert redis_server("EVAL", source, 1, "tenure:{0}:", "", 256) == [
        b"require('plain').text",
        b'it\'s require("plain")',
        b"it's one",
        b"two.it's one",
        b"late_two",
    ]
    assert b"\ndo -- one.lua\n" in source  # an error of the server names a line of this text


@pytest.mark.usefixtures("planted")
def test_a_module_has_its_own_name_where_it_is_needed():
    with pytest.raises(LookupError, match="renamed needs a module in a way"):
        _scripts.source_of("renamed")


def test_each_name_that_a_module_exports_is_needed_by_another():
    texts = {name: _scripts.text_of(name) for name in NAMES}
    for name in MODULES:
        used = re.compile(rf"(?:\b{name}|require\('{name}'\))\.(\w+)")
        others = {found for other, text in texts.items() if other != name for found in used.findall(text)}
        assert set(_scripts.exports_of(name)) - others == set(), name


def test_each_module_is_in_a_script_and_in_none_twice():
    seen = set()
    for script in _scripts.SCRIPTS:
        declared = re.findall(
            r"^local (\w+__\w+(?:, \w+)*)$", _scripts.source_of(script).decode(), re.MULTILINE
        )
        names = Counter(name.partition("__")[0] for line in declared for name in set(line.split(", ")))
        once = {name: len(_scripts.exports_of(name)) for name in names}
        assert dict(names) == once or script == "acquire", script  # which makes one in each of two blocks
        seen |= names.keys()
    assert seen == {name for name in MODULES if _scripts.exports_of(name)}


def test_what_a_module_that_is_made_late_exports_does_not_change():
    """Others see it in a table that is made once."""
    sources = [_scripts.source_of(script).decode() for script in _scripts.SCRIPTS]
    late = {name for text in sources for name in re.findall(r"^make_(\w+) = ", text, re.MULTILINE)}
    assert len(late) > 5
    for name in NAMES:
        assert late.isdisjoint(ASSIGNED.findall(_scripts.text_of(name))), name


def test_the_comments_of_the_modules_name_each_key_and_the_fields_of_families():
    text = "".join(_scripts.text_of(name) for name in NAMES if name != "probe")
    shown = set(re.findall(r"\w+", " ".join(re.findall("--.*", text))))
    code = re.sub("--.*", "", text)
    named = {word for words in KEY.findall(code) for word in words if word}
    assert named - shown == set()
    fields = re.search(r"\nlocal FIELDS = \{([^}]+)", _scripts.text_of("families"))[1]
    assert set(re.findall(r"\w+", fields)) - shown == set()
