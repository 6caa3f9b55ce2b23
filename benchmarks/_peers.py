"""The peers of peers.toml: an environment of its own for each, made once and kept, and a run in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._measure import Result

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Peer:
    """An entry of peers.toml."""

    packages: Sequence[str]
    loops: Sequence[str]
    counts: dict[str, int]
    redis: int = 0


_FILE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("peers.toml").read_text())
_HARNESS: list[str] = _FILE.pop("harness")
PEERS: dict[str, dict[str, Peer]] = {
    contest: {name: Peer(**entry) for name, entry in entries.items()} for contest, entries in _FILE.items()
}
"""By contest and module."""


def cache() -> Path:
    """Where the environments are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenure-benchmarks"


def python_with(name: str, packages: Sequence[str]) -> Path | None:
    """The interpreter of an environment with these packages; None if they cannot be installed."""
    folder = cache() / name
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    complete = folder / "complete"
    wanted = "\n".join((*packages, *_HARNESS, sys.version))
    if not complete.exists() or complete.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {name} ...", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        command = [python, "-m", "pip", "install", "-qq", *packages, *_HARNESS]
        if subprocess.run(command, check=False).returncode:
            return None
        complete.write_text(wanted)
    return python


def measured(module: str, peer: Peer | None, *words: str, timeout: float = 30) -> Result:
    """What `python -m benchmarks.MODULE WORDS` prints; "missing" says in a few words why there is nothing."""
    name = module.rpartition(".")[2]
    python = python_with(name, peer.packages) if peer and peer.packages else Path(sys.executable)
    if python is None:
        return {"name": name, "missing": "not installable"}
    command = [python, "-m", f"benchmarks.{module}", *words]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"name": name, "missing": f"no end in {timeout:g} s"}
    if ran.returncode:
        print(ran.stderr, file=sys.stderr, flush=True)
        reasons = [line.strip(" |") for line in ran.stderr.splitlines() if ": " in line]
        return {"name": name, "missing": reasons[-1][:40] if reasons else f"ended with {ran.returncode}"}
    return json.loads(ran.stdout)
