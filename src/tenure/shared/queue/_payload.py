"""The type of a queue's payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # checkers know it on every Python, so that a bare `WorkQueue` is `WorkQueue[Any]`
    from typing_extensions import TypeVar

    P = TypeVar("P", default=Any)
    P_co = TypeVar("P_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    P = TypeVar("P")
    P_co = TypeVar("P_co", covariant=True)
