"""The assignment of operations to the parts of an engine that apply them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ._answers import Operation
from ._claims import AddResource, Claim, EditClaim, GiveBack, RemoveResource
from ._counters import HoldOff, Refund, Spend
from ._families import PutChildren, SetEntry
from ._holds import Acquire, Ask, BreakHold, Release, Resize, SetValue
from ._scan import Scan
from ._sessions import CloseSession, OpenSession, Ping, RenewSession
from ._settings import Configure
from ._tasks import Count, Exchange, GetResult, Leave, Move, Progress, Put, SetPaused

OPERATIONS: dict[str, tuple[type[Operation[Any]], ...]] = {
    "sessions": (Ping, OpenSession, RenewSession, CloseSession),
    "holds": (Acquire, Ask, Release, SetValue, BreakHold, Resize),
    "claims": (AddResource, RemoveResource, Claim, GiveBack, EditClaim),
    "producers": (Put, Leave),
    "tasks": (Exchange, Progress, GetResult, SetPaused, Configure),
    "admin": (Move, Count),
    "families": (PutChildren, SetEntry),
    "rates": (Spend, Refund, HoldOff),
    "scans": (Scan,),
}
"""The operations by family."""


def handlers(**families: object) -> dict[type[Any], Callable[[Any], Any]]:
    """The method that applies each operation: a method of its family, named as the operation in snake case.

    Raises `KeyError` for a missing family, `AttributeError` for a missing method.
    """
    return {
        operation: getattr(families[family], method)
        for family, methods in _METHODS.items()
        for operation, method in methods
    }


def _method_name(operation: type[Operation[Any]]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation.__name__).lower()


_METHODS = {
    family: [(operation, _method_name(operation)) for operation in operations]
    for family, operations in OPERATIONS.items()
}
