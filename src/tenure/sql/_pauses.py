from __future__ import annotations

import random
from collections.abc import Iterator

ATTEMPTS = 5


def pauses() -> Iterator[float]:
    """The pauses between attempts, in seconds: up to 10 ms, then twice that and so on, with full jitter."""
    # those that collided must not meet again
    return (random.uniform(0, 0.01 * 2**n) for n in range(ATTEMPTS - 1))
