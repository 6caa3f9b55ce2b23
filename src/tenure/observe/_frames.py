from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import anyio

_OURS = tuple(f"{path}{os.sep}" for path in (Path(__file__).parents[1], Path(anyio.__file__).parent))


def is_ours(filename: str) -> bool:
    return filename.startswith(_OURS)


def trimmed(trace: TracebackType | None) -> TracebackType | None:
    start = trace
    while start is not None and is_ours(start.tb_frame.f_code.co_filename):
        start = start.tb_next
    return start or trace
