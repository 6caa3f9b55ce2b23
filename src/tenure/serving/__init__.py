"""Running services until a signal asks them to end, with health checks over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.lazy import exports

if TYPE_CHECKING:
    from ._address import parse_address
    from ._health import answering
    from ._serve import serve
    from ._serving import Serving
    from ._signals import ending_signals, is_hangup, signals_received

__all__ = ("serve",)

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "tenure": {
            "_address": "parse_address",
            "_health": "answering",
            "_serve": "serve",
            "_serving": "Serving",
            "_signals": "ending_signals is_hangup signals_received",
        }
    },
)
