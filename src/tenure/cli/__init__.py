"""The `tenure` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ("main",)


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code.

    0: all is done; 1: something died, or the run was interrupted; 2: usage error, reported in one line. Without
    `words`, the command line is this process's own; the process then ends here if threads are left that nothing can
    stop.
    """
    try:
        # here, so that Ctrl-C in an import shows no traceback
        from ._main import run
    except KeyboardInterrupt:
        print("tenure: interrupted", file=sys.stderr)
        return 1
    return run(words)
