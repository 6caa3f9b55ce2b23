"""What tenure tells about itself: one method, called with the name of an event and its fields."""

from ._logging import LoggingObserver
from ._observer import Observer

__all__ = ("LoggingObserver", "Observer")

for _name in __all__:
    globals()[_name].__module__ = __name__
