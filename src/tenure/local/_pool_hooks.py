from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable


async def bounded(
    what: str, seconds: float, function: Callable[..., Any], *args: Any, shield: bool = False
) -> Any:
    with anyio.move_on_after(seconds, shield=shield):
        outcome = function(*args)
        return await outcome if isawaitable(outcome) else outcome
    raise TimeoutError(f"{what} took longer than {seconds:g} s")


async def passes_check(
    seconds: float,
    function: Callable[..., Any],
    resource: object,
    *,
    shield: bool,
    what: str = "check",
    failed: Callable[[Exception], object],
) -> bool:
    try:
        return await bounded(what, seconds, function, resource, shield=shield) is not False
    except Exception as error:  # noqa: BLE001 - whatever it is, the answer is no
        failed(error)
        return False
