"""Errors on their way from a handler's process.

An error that would be another one after pickling is made anew from its class, arguments and attributes, without its
`__init__`. A class that cannot be found has a stand-in of its name.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any, cast


def packed(error: BaseException, *, with_cause: bool = True) -> tuple[Any, ...]:
    cause = None
    if with_cause and error.__cause__ is not None:
        cause = packed(error.__cause__, with_cause=False)
    kind = type(error)
    text = f"{kind.__name__}: {_text_of(error)}"
    attributes = {name: value for name, value in vars(error).items() if _is_sendable(value)}
    if (whole := _pickled(error)) is None and isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        parts = [packed(part, with_cause=with_cause) for part in group.exceptions]
        return None, BaseExceptionGroup, (group.message, parts), attributes, cause, text
    args = error.args if _is_sendable(error.args) else (_text_of(error),)
    return whole, _described(kind), args, attributes, cause, text


def unpacked(sent: tuple[Any, ...]) -> BaseException:
    whole, kind, args, attributes, cause, text = sent
    error: BaseException = RuntimeError(text)
    with suppress(Exception):
        error = _made(kind, args, attributes)
    if whole is not None:
        with suppress(Exception):
            error = pickle.loads(whole)  # noqa: S301 from a child of this process
    if cause is not None:
        error.__cause__ = unpacked(cause)
    return error


def _pickled(error: BaseException) -> bytes | None:
    if type(error) in (BaseExceptionGroup, ExceptionGroup):
        return None
    try:
        data = pickle.dumps(error)
        back = pickle.loads(data)  # noqa: S301
        return data if type(back) is type(error) and str(back) == str(error) else None
    except Exception:  # noqa: BLE001 pickling calls any code
        return None


def _made(kind: Any, args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    if kind is BaseExceptionGroup:
        message, parts = args
        error: BaseException = BaseExceptionGroup(message, [unpacked(part) for part in parts])
    else:
        made = _class_of(kind)
        try:
            error = made.__new__(made, *args)
        except TypeError:
            error = made.__new__(made)
        error.args = args
    vars(error).update(attributes)
    return error


def _described(kind: type) -> tuple[Any, ...]:
    data = pickle.dumps(kind) if _is_sendable(kind) else None
    bases = tuple(_described(base) for base in kind.__bases__ if base is not object)
    return data, kind.__name__, kind.__qualname__, kind.__module__, bases


def _class_of(described: tuple[Any, ...]) -> type[BaseException]:
    data, name, qualname, module, bases = described
    if data is not None:
        with suppress(Exception):
            return pickle.loads(data)  # noqa: S301
    return type(name, tuple(map(_class_of, bases)), {"__qualname__": qualname, "__module__": module})


def _is_sendable(value: object) -> bool:
    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301
    except Exception:  # noqa: BLE001 pickling calls any code
        return False
    return True


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 it is the user's code
        return ""
