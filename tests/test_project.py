"""What describes the project says the same everywhere."""

from __future__ import annotations

import re
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
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", text)
    assert len(links) > 10
    for picture, address in links:
        kind = "raw" if picture else "blob"
        start = f"{PROJECT['urls']['Source']}/{kind}/v$HFPR_VERSION/"
        assert address.startswith(start)
        assert (ROOT / address.removeprefix(start).partition("#")[0]).exists()
