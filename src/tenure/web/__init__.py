"""Eyes on a store: what `tenure top` and the read-only page of `tenure web` show."""

from __future__ import annotations

__all__ = ()
