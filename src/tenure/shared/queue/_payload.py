from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.errors import PayloadTooLarge
from tenure.store import Codec, encoded

if TYPE_CHECKING:
    # checkers know it on every Python, so that a bare `WorkQueue` is `WorkQueue[Any]`
    from typing_extensions import TypeVar

    P = TypeVar("P", default=Any)
    P_co = TypeVar("P_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    P = TypeVar("P")
    P_co = TypeVar("P_co", covariant=True)


def encode(codec: Codec[P], key: str, what: str, value: P, limit: int) -> bytes:
    data = encoded(codec, f"{key}: the {what}", value)
    if len(data) > limit:
        raise PayloadTooLarge(key, what, len(data), limit)
    return data
