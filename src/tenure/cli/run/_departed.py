"""Dead commands of this machine: their leases are freed as soon as another process notices their death.

Elsewhere they are free when the sessions have run out. A process is known by its host and boot, the namespaces in which
its number means something, its number, and its start, since numbers are used again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tenure.engine as e
from tenure.store import StoreHandle, read_pages
from tenure.web import read_processes

_PROC = Path("/proc")
_PLACE = ("host", "boot", "spaces")

Identity = dict[str, Any]


def own_identity() -> Identity | None:
    try:
        if str((_PROC / "self").readlink()) != str(os.getpid()):  # that is the /proc of other namespaces
            return None
        spaces = [str((_PROC / "self/ns" / name).readlink()) for name in ("pid", "time")]
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        _, started = _look(os.getpid())
    except (OSError, ValueError, IndexError):
        return None
    return {
        "host": socket.gethostname(),
        "boot": boot,
        "spaces": spaces,
        "pid": os.getpid(),
        "started": started,
    }


def has_died(identity: Identity | None) -> bool:
    """True if the process ran on this machine and is surely dead."""
    own = own_identity()
    if own is None or not identity or any(identity.get(part) != own[part] for part in _PLACE):
        return False
    try:
        os.kill(identity["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is there, and belongs to another user
        pass
    try:
        state, started = _look(identity["pid"])
    except (OSError, ValueError, IndexError):  # hidden, or it has ended right now
        return False
    return state in "ZX" or started != identity["started"]


def _look(pid: int) -> tuple[str, int]:
    # its name, in parentheses, may contain anything
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])


async def end_sessions(store: StoreHandle, process: str) -> bool:
    """End the sessions of a dead process; return True if it had tasks. Cancellation: some may be left."""
    sessions = (await read_pages(store, e.Scan(e.NAMES["sessions"], only=f"{process}/"))).rows
    had_tasks = any(seen.tasks for seen in await read_processes(store, sessions))
    for session in sessions:
        await store.call(e.CloseSession(session))
    return had_tasks


def departed(cursors: Mapping[str, Any], prefix: str) -> list[str]:
    return [name for name, value in cursors.items() if name.startswith(prefix) and has_died(value.get("who"))]
