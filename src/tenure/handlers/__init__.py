"""The surroundings of a handler, the user's function that works on a task: its arguments, its call, and its
end.
"""

from ._calling import check_signature, describe, in_thread, is_async, name_of, signature_of, until_free
from ._convention import NotBegun, adapted, hint_of, parameters_of
from ._endings import is_closing, is_from_signal, split_failure
from ._processes import HandlerProcess, NotKept

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
