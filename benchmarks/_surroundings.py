"""Which benchmarks there are, and what their figures depend on."""

from __future__ import annotations

import os
import pkgutil
import platform
import re
import time
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

import benchmarks
from benchmarks import _redis_server


def found() -> list[str]:
    """The names of all benchmarks: the modules beside this one."""
    modules = pkgutil.iter_modules(benchmarks.__path__)
    # packages are commands of their own
    return sorted(m.name for m in modules if not m.ispkg and not m.name.startswith("_"))


def surroundings() -> dict[str, Any]:
    """The machine, and the versions of what takes part; a peer with an environment of its own has its own."""
    versions: dict[str, str] = {}
    for name in _involved():
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    try:
        redis = ".".join(map(str, _redis_server.version(_redis_server.usual())))
    except (SystemExit, OSError):
        redis = "none"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()] if hasattr(os, "getloadavg") else [],
        "redis": redis,
        "versions": versions,
    }


def _involved() -> list[str]:
    """anyio, the loops, and what the extra `bench` names."""
    extras = [line for line in requires("tenure") or [] if re.search(r"extra == ['\"]bench['\"]", line)]
    names = {found[0] for line in extras if (found := re.match(r"[\w-]+", line))}
    return sorted({"anyio", "trio", "uvloop", "hiredis", "psycopg", *names} - {"tenure"})
