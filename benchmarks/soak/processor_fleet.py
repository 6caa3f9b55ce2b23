"""Processes that run a processor, and that may be killed and frozen."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak.fleet import Fleet


class ProcessorFleet(Fleet):
    """As `Fleet`, of `processor_client.py`."""

    client = Path(__file__).with_name("processor_client.py")
