"""Whether a wheel has all files of the package, and no others: `python .ci/wheel.py FILE.whl`."""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
EXTRA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def main(wheel: str) -> None:
    """Compare, and exit with what differs."""
    sources = ROOT / "src"
    expected = {
        file.relative_to(sources).as_posix()
        for file in sources.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and not file.parent.name.endswith(".egg-info")
    }
    found = set(ZipFile(wheel).namelist())
    (info,) = {name.partition("/")[0] for name in found if ".dist-info/" in name}
    expected |= {f"{info}/{name}" for name in EXTRA}
    problems = [f"missing: {name}" for name in sorted(expected - found)]
    problems += [f"not expected: {name}" for name in sorted(found - expected)]
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
