"""Patterns inside one process: no engine, no I/O, as fast as the event loop allows."""

from __future__ import annotations

from tenure.local._threads import Done, Finished, Threads, ThreadsStatistics

__all__ = ("Done", "Finished", "Threads", "ThreadsStatistics")

# They are known by the name under which they are imported.
for _name in __all__:
    globals()[_name].__module__ = __name__
