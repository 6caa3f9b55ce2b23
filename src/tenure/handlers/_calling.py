from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from tenure.local import Threads

_LONGEST_ERROR = 2000


def until_free(threads: list[Threads], number: int) -> Awaitable[None] | None:
    return threads[number].run(_nothing) if threads[number].statistics().busy else None


async def in_thread(
    threads: Threads, function: Callable[..., Any], *arguments: Any, timeout: float | None = None
) -> Any:

    # a coroutine would not be let out of its thread by trio, a GeneratorExit would close the coroutines that wait here
    def boxed() -> tuple[Any, BaseException | None]:
        try:
            return function(*arguments), None
        except BaseException as error:  # noqa: BLE001 raised again below
            return None, error

    boxed.__qualname__ = name_of(function)
    outcome, error = await threads.run(boxed, timeout=timeout)
    if error is not None:
        raise error
    return await outcome if inspect.isawaitable(outcome) else outcome


def _nothing() -> None:
    pass


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature, also if an annotation names a class that is imported for type checkers alone."""
    if sys.version_info < (3, 14):
        return inspect.signature(function)
    # annotations are evaluated when they are read, from 3.14 on
    from annotationlib import Format

    return inspect.signature(function, annotation_format=Format.FORWARDREF)


def check_signature(what: str, function: Callable[..., Any], *arguments: str) -> None:
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # some that are written in C have none
        return
    try:
        signature.bind(*arguments)
    except TypeError as problem:
        raise TypeError(
            f"{what} must take {' and '.join(arguments)}, but {name_of(function)}{signature} does not ({problem})"
        ) from None


def is_async(function: object) -> bool:
    """True if calling the function returns an awaitable, as far as its definition says."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    call = getattr(type(function), "__call__", None)  # noqa: B004 it is not asked whether it can be called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def describe(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 whatever it is, the task must be settled
        text = ""
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    parts: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if isinstance(error, BaseExceptionGroup):
        text += " [" + "; ".join(map(describe, parts)) + "]"
    return text[:_LONGEST_ERROR]
