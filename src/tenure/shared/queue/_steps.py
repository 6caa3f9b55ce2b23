from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import tenure.engine as e
from tenure.arguments import check_name
from tenure.errors import OutcomeUnknown
from tenure.store import decoded
from tenure.waiting import checkpoint

from ._family import BEGUN, STEP, UNKEPT, Family
from ._retry import CANNOT_BE_KEPT, IS_UNKNOWN

R = TypeVar("R")

_STEPS = "step"


async def step(
    family: Family,
    name: str,
    check: Callable[[], object],
    function: Callable[[], Awaitable[R]] | Callable[[], R],
    find: Callable[[], Any] | None,
    encode: Callable[[str, Any], bytes],
    unkept: Callable[[Exception, str], Exception],
) -> R | e.Reply:
    """Return the stored value, or the function's result once that is stored; the `Reply` of a refusal.

    If the value cannot be kept, the reason is stored instead, and raised in later deliveries, through `unkept`, as is
    an `OutcomeUnknown` of `find`.
    """
    family.use(STEP + check_name("name", name), f"the step {name!r}")
    try:
        # all kinds of names in one reading
        stored = await family.stored(_STEPS)
        if (entry := stored.get(f"!{name}")) is not None:
            reason = entry.value.decode()
            problem = RuntimeError(
                f"{family}: the step {name!r} has run before and is not run again: {reason}"
            )
            raise unkept(problem, reason)
        if (entry := stored.get(f"/{name}")) is not None:
            await checkpoint()
        check()
        if entry is not None:
            data = entry.value
        else:
            value = None
            if find is not None:
                if (begun := f"?{name}") in stored:
                    try:
                        value = await _called(find)
                    except OutcomeUnknown as problem:
                        unkept(problem, f"the outcome of the step {name!r} {IS_UNKNOWN}")
                        raise
                else:
                    answer = await family.write(BEGUN + name, b"")
                    if isinstance(answer, e.Reply):
                        return answer
                    stored[begun] = e.Entry(BEGUN + name, "value", "done")
                check()
            if value is None:
                value = await _called(function)
            try:
                data = encode("step", value)
            except Exception as problem:  # noqa: BLE001 a codec may raise anything
                reason = f"the value of the step {name!r}, of type {type(value).__name__}, {CANNOT_BE_KEPT}"
                marker = reason.encode(errors="replace")
                stored[f"!{name}"] = e.Entry(UNKEPT + name, "value", "done", marker)
                answer = await family.write(UNKEPT + name, marker)
                if isinstance(answer, e.Reply):
                    return answer
                raise unkept(problem, reason) from problem.__cause__
            data = await family.write(STEP + name, data)
    except BaseException:
        family.used.remove(STEP + name)  # the handler may try the step again
        raise
    if isinstance(data, e.Reply):
        return data
    return decoded(family.codec, f"{family}: the step {name!r}", data)


async def _called(function: Callable[[], Any]) -> Any:
    made = function()
    return await made if inspect.isawaitable(made) else made
