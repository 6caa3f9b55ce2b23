"""The classes of messages: operations, their parts, answers and rows of pages are values, whose fields never change.

Such a class is a dataclass with slots. Only its constructor is compiled for the class: compiling seven methods for each
of seventy classes took a third of the time of `import tenure`. Type checkers alone refuse assignments to its fields:
the constructor of a frozen dataclass takes seven times as long, and each lock cycle calls four.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class of values of a class with annotated fields."""
    for name, method in _METHODS.items():
        setattr(cls, name, method)
    return dataclass(slots=True, repr=False, eq=False)(cls)


def _repr(self: Any) -> str:
    fields = self.__dataclass_fields__.values()
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__dataclass_fields__])


_METHODS: dict[str, Callable[..., Any]] = {"__repr__": _repr, "__eq__": _eq, "__hash__": _hash}
