"""The values of a function's annotations in a form that any codec keeps: plain JSON values."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine
from types import NoneType, UnionType
from typing import Any, Literal, Never, NoReturn, Protocol, TypeVar, Union, cast, get_args, get_origin

from tenure.lazy import extra
from tenure.store import Codec, MsgspecCodec, PydanticCodec

_ANYTHING = (Any, object, bytes, Never, NoReturn)
_PLAIN: dict[Any, tuple[type, ...]] = {
    **{kind: (kind,) for kind in (str, bool, int, list, dict)},
    float: (int, float),
    None: (NoneType,),
    NoneType: (NoneType,),
}


class Conversion(Protocol):
    """A pair of functions between the values of a type and plain values."""

    def encode(self, value: Any, /) -> Any: ...

    def decode(self, data: Any, /) -> Any: ...


class Checked:
    def __init__(self, hint: Any, fits: Callable[[Any], bool]) -> None:
        self._hint = hint
        self._fits = fits

    def encode(self, value: Any) -> Any:
        if not self._fits(value):
            raise TypeError(f"must be {_name_of(self._hint)}, not {value!r}")
        return value

    decode = encode


class _Converted:
    def __init__(self, hint: Any, codec: Codec[Any]) -> None:
        self._hint = hint
        self._codec = codec

    def encode(self, value: Any) -> Any:
        return json.loads(self._fitting(self._codec.encode, value))

    def decode(self, data: Any) -> Any:
        return self._fitting(self._codec.decode, json.dumps(data).encode())

    def _fitting(self, convert: Callable[[Any], Any], value: Any) -> Any:
        try:
            return convert(value)
        except (TypeError, ValueError) as problem:
            raise ValueError(f"must fit {_name_of(self._hint)}: {problem}") from problem


def _name_of(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def conversion_of(what: str, hint: Any) -> Conversion | None:
    """The conversion for an annotation; None for an annotation that says nothing."""
    while (inner := getattr(hint, "__value__", getattr(hint, "__supertype__", hint))) is not hint:
        hint = inner
    if get_origin(hint) in (Awaitable, Coroutine):
        hint = get_args(hint)[-1]
    if hint in _ANYTHING or isinstance(hint, TypeVar):
        return None
    if (fits := _check_of(hint)) is not None:
        return Checked(hint, fits)
    problems: list[Exception] = []
    for make in (PydanticCodec, _by_msgspec):
        try:
            return _Converted(hint, make(hint))
        except ModuleNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001 a library says in its own way that it does not know a type
            problems.append(error)
    if not problems:
        raise ModuleNotFoundError(
            f"{what} is {hint!r}, which needs pydantic or msgspec: "
            "pip install 'tenure[pydantic]' or 'tenure[msgspec]'"
        )
    raise TypeError(f"{what} is {hint!r}, of which nothing can be made that is stored: {problems[0]}")


def _by_msgspec(hint: Any) -> Codec[Any]:
    info = extra("msgspec.inspect", "msgspec").type_info(hint)
    if "CustomType(" in repr(info):
        raise TypeError(f"msgspec does not know {hint!r}")
    return MsgspecCodec(hint)


def _check_of(hint: Any) -> Callable[[Any], bool] | None:
    if hint is Any or hint is object:
        return lambda _: True
    origin, parts = get_origin(hint), get_args(hint)
    if origin is None:
        kinds = _PLAIN.get(hint)
        return None if kinds is None else lambda value: isinstance(value, kinds)
    if origin is Literal:
        return lambda value: value in parts
    checks = [_check_of(part) for part in parts]
    known = [check for check in checks if check is not None]
    if len(known) < len(checks):
        return None
    if origin in (Union, UnionType):
        return lambda value: any(check(value) for check in known)
    if origin is list:
        return lambda value: isinstance(value, list) and all(map(known[0], cast("list[Any]", value)))
    if origin is dict and parts[0] is str:
        return lambda value: (
            isinstance(value, dict)
            and all(known[0](key) and known[1](part) for key, part in cast("dict[Any, Any]", value).items())
        )
    return None
