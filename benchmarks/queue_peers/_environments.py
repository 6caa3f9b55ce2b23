"""An environment of its own for each peer, made once and kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PEERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # module: (what it needs, on which loops it runs, or in how many threads)
    "streaq": (("streaq",), ("asyncio", "uvloop", "trio")),
    "saq": (("saq[redis]", "typing_extensions"), ("asyncio", "uvloop")),
    "arq": (("arq",), ("asyncio", "uvloop")),
    "taskiq": (("taskiq", "taskiq-redis"), ("asyncio", "uvloop")),
    "dramatiq": (("dramatiq[redis]",), ("8 threads", "32 threads")),
    "huey": (("huey", "redis"), ("32 threads",)),
}
POSTGRES_PEERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pgqueuer": (("pgqueuer[asyncpg]", "psycopg[binary]"), ("asyncio", "uvloop")),
    # these two spend their time otherwise than in the loop
    "procrastinate": (("procrastinate", "psycopg[binary]"), ("asyncio",)),
    "saq_postgres": (("saq[postgres]", "psycopg[binary]", "typing_extensions"), ("asyncio",)),
}
GROUP_PEERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "groups_docket": (("pydocket",), ("asyncio",)),
    "groups_procrastinate": (("procrastinate", "psycopg[binary]"), ("asyncio",)),
}
LIMITER_PEERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "limits": (("limits", "redis"), ("asyncio", "uvloop")),
    "pyrate": (("pyrate-limiter", "redis"), ("asyncio", "uvloop")),
    "locked": (("redis",), ("asyncio", "uvloop")),
}
_HARNESS = ("anyio", "trio", "uvloop", "hiredis")


def cache() -> Path:
    """Where the environments are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenure-benchmarks"


def python_with(peer: str) -> Path | None:
    """The interpreter of the peer's environment, made if there is none yet; None if it cannot be installed."""
    folder = cache() / peer
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {peer} ...", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        packages = (*(PEERS | POSTGRES_PEERS | GROUP_PEERS | LIMITER_PEERS)[peer][0], *_HARNESS)
        if subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=False).returncode:
            return None
        complete.touch()
    return python
