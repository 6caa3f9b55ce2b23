"""Processes that run a processor, and that may be killed and frozen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from soak.fleet import Fleet

CLIENT = Path(__file__).with_name("processor_client.py")


class ProcessorFleet(Fleet):
    """As `Fleet`, of `processor_client.py`."""

    def __init__(self, folder: Path) -> None:
        self.said = folder / "said"
        self.running: set[int] = set()
        with open(self.said, "ab") as said:
            self._nursery = subprocess.Popen(
                [sys.executable, CLIENT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
