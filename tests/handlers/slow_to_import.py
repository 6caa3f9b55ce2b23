"""A module that takes as long to import as its environment says, or fails."""

import os
import time
from pathlib import Path

delay = os.environ.get("TENURE_TEST_IMPORT", "0")
if delay == "fails":
    raise OSError("no such model")
if delay == "exits":
    os._exit(3)
time.sleep(float(delay))


def quick(payload: float):
    time.sleep(payload)
    return os.getpid()


def quick_batch(payloads: list[str]):
    for path in payloads:
        Path(path).touch()
