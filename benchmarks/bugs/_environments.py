"""An environment of its own for each release, made once and kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.bugs._cases import CURRENT, TRIO


def python_with(release: str, cache: Path) -> Path:
    """Give the interpreter of an environment with `release` and what it runs on, installed from PyPI if it is new."""
    folder = cache / release.replace("==", "-")
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {release} ...", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        wanted = [release, TRIO] if release.startswith("anyio==") else [release, CURRENT, TRIO]
        subprocess.run([python, "-m", "pip", "install", "-qq", *wanted], check=True)
        complete.touch()
    return python
