"""An environment of its own for each release, made once and kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.bugs._cases import CURRENT, TRIO, Case


def interpreter(case: Case, release: str) -> str | None:
    """The interpreter to make the environment of a release with: this one, or one of pyenv if the case says which."""
    package, _, version = release.partition("==")
    version = version if package == "python" else case.python
    if not version:
        return sys.executable
    there = Path.home() / ".pyenv/versions" / version / "bin/python"
    return str(there) if there.exists() else None


def python_with(case: Case, release: str, cache: Path) -> Path | None:
    """Give the interpreter of an environment with `release` and what it runs on, installed from PyPI if it is new.

    None if there is no such interpreter, or `release` cannot be installed there.
    """
    folder = cache / "-".join(filter(None, [*release.split("=="), case.python]))
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    complete = folder / "complete"
    if not complete.exists():
        if (base := interpreter(case, release)) is None:
            return None
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {release} ...", file=sys.stderr, flush=True)
        subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
        own = [] if release.startswith("python==") else [release, *case.beside]
        wanted = [*own, TRIO] if release.startswith("anyio==") else [*own, CURRENT, TRIO]
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", *wanted]
        if subprocess.run(pip, check=False).returncode:
            return None
        complete.touch()
    return python
