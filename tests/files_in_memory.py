"""Temporary files in memory: a file that SQLite commits to waits for the disk each time, and no test is about that."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30
"""Bytes: what all processes of a run need, their servers' files included, and much more."""


def begin(config):
    """Where there is enough memory for files, and nobody has said where they go, have them there for this run."""
    if hasattr(config, "workerinput") or "TMPDIR" in os.environ:
        return
    try:
        if shutil.disk_usage(MEMORY).free < ENOUGH:
            return
        folder = tempfile.TemporaryDirectory(prefix="tenure-files", dir=MEMORY)
    except OSError:
        return
    # PostgreSQL runs as another user there
    Path(folder.name).chmod(0o755)
    os.environ["TMPDIR"] = folder.name
    tempfile.tempdir = None

    def end():
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        folder.cleanup()

    config.add_cleanup(end)
