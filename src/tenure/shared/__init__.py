"""Patterns across processes, each written once over the store."""

from ._lease import Hold, Lease
from ._lock import Lock, Party, Who

__all__ = ("Hold", "Lease", "Lock", "Party", "Who")
