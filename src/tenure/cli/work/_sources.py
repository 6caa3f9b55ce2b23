"""A watch for changes of Python files below a directory."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic

_EVERY = 0.5


class ReloadWatcher:
    """Looks twice a second at most. Hidden directories and virtual environments are left out."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = self._look()
        self._next = monotonic() + _EVERY

    def changed(self) -> bool:
        if monotonic() < self._next:
            return False
        before, self._seen = self._seen, self._look()
        self._next = monotonic() + _EVERY
        return before != self._seen

    def _look(self) -> dict[str, int]:
        times: dict[str, int] = {}
        for folder, folders, files in os.walk(self._root):
            folders[:] = [
                name
                for name in folders
                if not name.startswith((".", "__pycache__")) and not Path(folder, name, "pyvenv.cfg").exists()
            ]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)  # noqa: PTH118 - twice a second, for thousands of files
                    try:
                        times[path] = os.stat(path).st_mtime_ns  # noqa: PTH116 - as above
                    except OSError:  # it has gone meanwhile
                        continue
        return times
