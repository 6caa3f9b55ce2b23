"""The user's own functions as a pool calls them: with a time limit, and plain ones too."""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("bounded", "works")


async def bounded(
    what: str, seconds: float, function: Callable[..., Any], *args: Any, shield: bool = False
) -> Any:
    """Call `function(*args)`, await what it gives, and return that; TimeoutError names `what` took too long.

    Cancellation: passed on to the function, unless there is a shield.
    """
    with anyio.move_on_after(seconds, shield=shield):
        outcome = function(*args)
        return await outcome if isawaitable(outcome) else outcome
    raise TimeoutError(f"{what} took longer than {seconds:g} s")


async def works(seconds: float, function: Callable[..., Any], resource: object, *, shield: bool) -> bool:
    """Tell whether a check or a reset is content: it did not raise, was in time, and did not return False.

    Cancellation: raised, never taken for an answer; kept out by a shield.
    """
    try:
        return await bounded("it", seconds, function, resource, shield=shield) is not False
    except Exception:  # noqa: BLE001 - whatever it is, the answer is no
        return False
