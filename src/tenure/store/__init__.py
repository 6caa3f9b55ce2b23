"""The open handle on an engine: sessions, places, settlements, hints, and what travels together."""

from ._codec import Codec, JsonCodec, encoded
from ._places import Attempt, Obtained, Wish
from ._reconciling import given_back
from ._sessions import Held, Session
from ._settling import Settlement
from ._store import Store, StoreStatistics, check_ttl
from ._turns import Alarm, Turns

__all__ = (
    "Alarm",
    "Attempt",
    "Codec",
    "Held",
    "JsonCodec",
    "Obtained",
    "Session",
    "Settlement",
    "Store",
    "StoreStatistics",
    "Turns",
    "Wish",
    "check_ttl",
    "encoded",
    "given_back",
)
