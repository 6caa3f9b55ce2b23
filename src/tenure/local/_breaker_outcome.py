from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

Matcher: TypeAlias = "type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool]"
"""A set of exceptions: a class, several classes, or a function that returns True for them."""


class Outcomes:
    """Sorts exceptions: `ignore` says nothing, `record` is a failure, the rest a success.

    A `BaseException` (cancellation above all) says nothing. A group is as bad as the worst exception in it.
    """

    __slots__ = ("_ignored", "_recorded")

    def __init__(self, record: Matcher, ignore: Matcher) -> None:
        self._recorded = _matching("record", record)
        self._ignored = _matching("ignore", ignore)

    def failed(self, error: BaseException) -> bool | None:
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            verdicts = {self.failed(each) for each in group.exceptions}
            return True if True in verdicts else None if None in verdicts else False
        if not isinstance(error, Exception) or self._ignored(error):
            return None
        return bool(self._recorded(error))


def _matching(name: str, matcher: Matcher) -> Callable[[Exception], bool]:
    if callable(matcher) and not isinstance(matcher, type):
        return matcher
    classes = matcher if isinstance(matcher, tuple) else (matcher,)
    if not all(map(_is_exception_class, classes)):
        raise TypeError(f"{name} must be exception classes or a function, not {matcher!r}")
    return lambda error: isinstance(error, classes)


def _is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
