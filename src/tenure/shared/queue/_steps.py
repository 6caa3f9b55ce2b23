"""Steps: parts of a handler that run once on record, so that a later delivery gets what an earlier one has stored."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tenure.arguments import check_name
from tenure.engine import Reply
from tenure.store import decoded

from ._family import STEP, Family

R = TypeVar("R")


async def step(
    family: Family,
    name: str,
    check: Callable[[], object],
    function: Callable[[], Awaitable[R]] | Callable[[], R],
    encode: Callable[[Any], bytes],
) -> R | Reply:
    """Return the stored value, or what the function returns once that is stored; the `Reply` of a refusal.

    Raises `RuntimeError` for a name that was used before, and for too many entries.
    Cancellation: the value may or may not be stored.
    """
    family.use(STEP + check_name("name", name), f"the step {name!r}")
    try:
        entry = await family.found(STEP, name)
        check()
        if entry is not None:
            data = entry.value
        else:
            made = function()
            data = encode(await made if inspect.isawaitable(made) else made)
            data = await family.write(STEP + name, data)
    except BaseException:
        family.used.remove(STEP + name)  # the handler may try the step again
        raise
    if isinstance(data, Reply):
        return data
    return decoded(family.codec, f"{family}: the step {name!r}", data)
