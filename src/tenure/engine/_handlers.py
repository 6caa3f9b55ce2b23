"""The assignment of operations to the parts of an engine that apply them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ._answers import Operation
from ._claims import AddResource, Claim, EditClaim, GiveBack, RemoveResource, Resources
from ._counters import Arrivals, Arrive, HoldOff, ReadLimiter, Refund, ResetBarrier, Spend, Withdraw
from ._families import Entries, PutChildren, SetEntry
from ._holds import Acquire, Ask, BreakHold, Holders, Release, Resize, SetValue
from ._sessions import CloseSession, OpenSession, Ping, RenewSession
from ._survey import CheckHealth, DescribeSession, ListKeys
from ._tasks import (
    Browse,
    Count,
    Exchange,
    GetResult,
    GetTask,
    Groups,
    Leave,
    Move,
    Progress,
    Put,
    SetGroups,
    SetPaused,
)

OPERATIONS: dict[str, tuple[type[Operation[Any]], ...]] = {
    "sessions": (Ping, OpenSession, RenewSession, CloseSession),
    "holds": (Acquire, Ask, Release, SetValue, BreakHold, Resize, Holders),
    "claims": (AddResource, RemoveResource, Claim, GiveBack, EditClaim, Resources),
    "producers": (Put, Leave),
    "tasks": (Exchange, Progress, GetResult, GetTask, SetPaused, SetGroups),
    "admin": (Move, Browse, Count, Groups),
    "families": (PutChildren, SetEntry, Entries),
    "rates": (Spend, Refund, HoldOff, ReadLimiter),
    "barriers": (Arrive, Withdraw, ResetBarrier, Arrivals),
    "introspection": (ListKeys, DescribeSession, CheckHealth),
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
