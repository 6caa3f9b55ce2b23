"""The peers in environments of their own: the headers of their modules, the environments, and a run in one.

A header is a block of inline script metadata (PEP 723). It is read and not run, since what the module imports is
installed in the peer's environment alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks._measure import LOOPS, Result

ROOT = Path(__file__).parents[1]
HARNESS = ("anyio==4.16.0", "hiredis==3.5.0", "psycopg[binary]==3.3.9", "trio==0.35.0", "uvloop==0.23.0")
"""What each peer's environment has besides."""

_QUEUES = ("drain", "put", "put_many", "wake", "idle")
CONTESTS = {
    "redis_queue": ("queue_peers", _QUEUES),
    "postgres": ("queue_peers", _QUEUES),
    "held_transaction": ("queue_peers", ("held",)),
    "groups_redis": ("queue_peers", ("accounts",)),
    "groups_postgresql": ("queue_peers", ("accounts",)),
    "children_redis": ("queue_peers", ("fan_out",)),
    "children_postgresql": ("queue_peers", ("fan_out",)),
    "limiters": ("limiter_peers", ("admit", "wait", "keep")),
}
"""By contest: the folder of its modules, and its works."""


class BadHeader(Exception):
    """The header of a peer's module has a mistake; the text begins with the file."""


@dataclass(frozen=True)
class Peer:
    """What a header says; see benchmarks/README.md."""

    packages: Sequence[str]
    contests: Sequence[str]
    loops: Sequence[str]
    counts: dict[str, int]
    redis: int = 0


def peers_of(contest: str, root: Path = ROOT / "benchmarks") -> dict[str, Peer]:
    """By module, the peers of a contest; raises BadHeader for any module in their folder."""
    folder, _ = CONTESTS[contest]
    modules = sorted((root / folder).glob("[!_]*.py"))
    peers = {path.stem: peer_in(path) for path in modules if not path.stem.startswith("ours")}
    return {name: peer for name, peer in peers.items() if contest in peer.contests}


def peer_in(path: Path) -> Peer:
    """The peer whose module this is; raises BadHeader."""
    file = f"{path.parent.name}/{path.name}"
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        start = lines.index("# /// script")
        end = lines.index("# ///", start)
    except ValueError:
        raise BadHeader(f"{file}: no block from `# /// script` to `# ///`") from None
    try:
        header: dict[str, Any] = tomllib.loads("\n".join(line[2:] for line in lines[start + 1 : end]))
        settings = header["tool"]["tenure-benchmarks"]
        peer = Peer(packages=header["dependencies"], **settings)
    except tomllib.TOMLDecodeError as error:
        raise BadHeader(f"{file}: {error} of the header") from None
    except KeyError as error:
        raise BadHeader(f"{file}: the header has no {error}") from None
    except TypeError as error:
        # what Peer says of keys that it does not know, or that are not there
        raise BadHeader(f"{file}: [tool.tenure-benchmarks]: {str(error).rpartition('() ')[2]}") from None
    if mistake := _mistake(peer, path.parent.name):
        raise BadHeader(f"{file}: {mistake}")
    return peer


def _mistake(peer: Peer, folder: str) -> str:
    contests = {name: works for name, (place, works) in CONTESTS.items() if place == folder}
    for key, values in (("dependencies", peer.packages), ("contests", peer.contests), ("loops", peer.loops)):
        if not _is(list, values) or not all(_is(str, value) for value in values):
            return f"{key} must be a list of strings"
    for package in peer.packages:
        if not re.fullmatch(r"[\w.\[\],-]+==[\w.!+]+", package):
            return f"{package!r} in dependencies is not pinned as NAME==VERSION"
    if not peer.contests or not peer.loops:
        return "contests and loops must name at least one each"
    for contest in peer.contests:
        if contest not in contests:
            return f"{contest!r} is not a contest of {folder}; choose from {', '.join(contests)}"
    for loop in peer.loops:
        if loop not in LOOPS and not re.fullmatch(r"[1-9]\d* threads", loop):
            return f"{loop!r} in loops must be one of {', '.join(LOOPS)}, or like '8 threads'"
    works = [work for contest in peer.contests for work in contests[contest]]
    if not _is(dict, peer.counts) or not peer.counts:
        return "counts must be a table of works"
    for work, count in peer.counts.items():
        if work not in works:
            return f"{work!r} in counts is not a work; choose from {', '.join(dict.fromkeys(works))}"
        if not _is(int, count) or count < 1:
            return f"{work} in counts must be a whole number of at least 1"
    return "" if _is(int, peer.redis) else "redis must be the number of a version"


def _is(kind: type, value: object) -> bool:
    """Whether a value of the header has this type, as it should; `true` is not a number."""
    return type(value) is kind


def cache_folder() -> Path:
    """Where the environments are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenure-benchmarks"


@cache
def python_with(name: str, *packages: str) -> Path | None:
    """The interpreter of an environment with these packages, or None if they cannot be installed.

    A process tries that once.
    """
    folder = cache_folder() / name
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    complete = folder / "complete"
    wanted = "\n".join((*packages, *HARNESS, sys.version))
    if not complete.exists() or complete.read_text() != wanted:
        print(f"installing {name} ...", file=sys.stderr, flush=True)
        command = [python, "-m", "pip", "install", "-qq", *packages, *HARNESS]
        try:
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            subprocess.run(command, env=_environment(), check=True)
            complete.write_text(wanted)
        except subprocess.CalledProcessError:
            # pip has said why
            return None
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
            return None
    return python


def _environment() -> dict[str, str]:
    """Without PYTHONPATH: what lies there would be taken for installed."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def measured(module: str, peer: Peer | None, *words: str, timeout: float = 30) -> Result:
    """What `python -m benchmarks.MODULE WORDS` prints; "missing" says in a few words why there is nothing."""
    name = module.rpartition(".")[2]
    # as one that ran names itself
    shown = peer.packages[0].replace("==", " ") if peer and peer.packages else name
    own = bool(peer and peer.packages)
    python = python_with(name, *peer.packages) if peer and own else Path(sys.executable)
    if python is None:
        return {"name": shown, "missing": "not installable"}
    command = [python, "-m", f"benchmarks.{module}", *words]
    try:
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env=_environment() if own else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"name": shown, "missing": f"no end in {timeout:g} s"}
    if ran.returncode:
        print(ran.stderr, file=sys.stderr, flush=True)
        reasons = [line.strip(" |") for line in ran.stderr.splitlines() if ": " in line]
        return {"name": shown, "missing": reasons[-1][:40] if reasons else f"ended with {ran.returncode}"}
    return json.loads(ran.stdout)
