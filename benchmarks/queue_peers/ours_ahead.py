"""Ours, fetching ahead: twice as many as it works on, as dramatiq does by default."""

from __future__ import annotations

from functools import partial

from benchmarks.queue_peers._works import CONCURRENCY, main
from benchmarks.queue_peers.ours import opened

if __name__ == "__main__":
    main(partial(opened, prefetch=2 * CONCURRENCY), "tenure")
