"""What describes the project says the same everywhere."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]


def test_a_citation_names_the_project_as_it_is():
    cited = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE))
    assert (cited["title"], cited["version"], cited["license"]) == tuple(
        PROJECT[name] for name in ("name", "version", "license")
    )


def test_a_package_index_finds_what_the_readme_refers_to():
    text = (ROOT / "README.md").read_text("utf-8")
    for each in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    links = re.findall(r"(!?)\[[^]]*\]\(([^)\s]+)\)", text)
    assert len(links) > 10
    assert 'WorkQueue[str](store, "photos")' in text
    for picture, address in links:
        kind = "raw" if picture else "blob"
        start = f"{PROJECT['urls']['Source']}/{kind}/v$HFPR_VERSION/"
        assert address.startswith(start)
        assert (ROOT / address.removeprefix(start).partition("#")[0]).exists()


def test_the_badges_say_what_the_project_says():
    badges = runpy.run_path(str(ROOT / "docs" / "site" / "badges.py"))
    said = badges["words"]()
    claimed = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one]
    assert said == {
        "python": " | ".join(claimed),
        "loops": "asyncio | trio",
        "types": "strict",
        "licence": PROJECT["license"],
    }
    assert {"Framework :: AsyncIO", "Framework :: Trio", "Typing :: Typed"} <= set(PROJECT["classifiers"])
    drawn = {f"{name}.svg": badges["badge"](name, value) for name, value in said.items()}
    assert {file.name: file.read_text("utf-8") for file in badges["FOLDER"].iterdir()} == drawn
    shown = re.findall(r"!\[([^]]+)\]\(docs/badges/([\w.]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert shown == [(f"{name}: {value}", f"{name}.svg") for name, value in said.items()]
