"""What surrounds a handler, the function of the user's that works on a task: calling it, and what ended it."""

from ._calling import check_signature, describe, in_thread, is_async, until_free
from ._endings import is_closing, is_from_signal, parted
from ._loop_watch import watched_loop

__all__ = (
    "check_signature",
    "describe",
    "in_thread",
    "is_async",
    "is_closing",
    "is_from_signal",
    "parted",
    "until_free",
    "watched_loop",
)
