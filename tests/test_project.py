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
