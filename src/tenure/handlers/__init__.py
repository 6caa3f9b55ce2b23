"""The surroundings of a handler, the user's function that works on a task: its arguments, its call, and its end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.lazy import exports

from ._calling import check_signature, describe, in_thread, is_async, name_of, signature_of, until_free
from ._convention import NotBegun, adapted, hint_of, parameters_of
from ._endings import NotKept, is_closing, is_from_signal, split_failure

if TYPE_CHECKING:
    from ._processes import HandlerProcess

__all__ = (
    "HandlerProcess",
    "NotBegun",
    "NotKept",
    "adapted",
    "check_signature",
    "describe",
    "hint_of",
    "in_thread",
    "is_async",
    "is_closing",
    "is_from_signal",
    "name_of",
    "parameters_of",
    "signature_of",
    "split_failure",
    "until_free",
)

__getattr__: Callable[[str], Any] = exports(
    "tenure.handlers", {"tenure.handlers": {"_processes": "HandlerProcess"}}
)
