from __future__ import annotations

from sqlalchemy.orm import Session


def is_blocking(session: object) -> bool:
    """True for a `Session`, False for an `AsyncSession`; TypeError for anything else."""
    if isinstance(session, Session):
        return True
    # it needs greenlet, which not everybody has
    from sqlalchemy.ext.asyncio import AsyncSession

    if isinstance(session, AsyncSession):
        return False
    raise TypeError(f"session must be a Session or AsyncSession of SQLAlchemy, not {session!r}")
