"""The log of `tenure work` on standard error: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import reprlib
import time
from typing import Any

from tenure.observe import printable

LEVELS = ("debug", "info", "warning", "error")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of every record; all others were given as `extra`."""


class TextLines(logging.Formatter):
    converter = time.gmtime
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it
        return printable(super().formatMessage(record))


class JsonLines(TextLines):
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "process": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            document["stack"] = record.stack_info
        extra = {name: value for name, value in vars(record).items() if name not in _OWN}
        try:
            return json.dumps(document | extra | document, default=repr, skipkeys=True, allow_nan=False)
        except (ValueError, RecursionError):
            extra = {name: _encodable(value) for name, value in extra.items()}
            return json.dumps(document | extra | document, default=repr, skipkeys=True)


def _encodable(value: Any) -> Any:
    """The value, or a text in place of a value that refers to itself, is nested too deeply, or contains NaN."""
    try:
        json.dumps(value, default=repr, skipkeys=True, allow_nan=False)
    except (ValueError, RecursionError):
        return reprlib.repr(value)
    return value


FORMATS = {"text": TextLines, "json": JsonLines}


def start_logging(level: str, form: str) -> bool:
    """Log to standard error; False if the program has set up its own logging."""
    ours = logging.getLogger("tenure")
    if not ours.level:
        ours.setLevel(level.upper())
    if logging.root.handlers:
        return False
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[form]())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)
    return True
