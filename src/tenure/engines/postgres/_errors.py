"""The errors that callers get for the error codes of a server."""

from __future__ import annotations

import re

from tenure.errors import EngineError, StoreUnavailable

OLDEST = 15

# what may pass: serialization, deadlock, lock_not_available, query_canceled, shutdown, too many connections
_PASSING = ("40001", "40P01", "55P03", "57014", "57P", "08", "53300")
_READ_ONLY = "25006"
_LATER = re.compile(
    r"starting up|shutting down|recovery|not (yet )?accepting connections|too many (clients|connections)"
    r"|connection slots|target_session_attrs|session is (read-only|not read-write)|server closed|terminating"
    # PgBouncer, when the server is down or busy
    r"|query_wait_timeout|server_login_retry|no more connections allowed",
    re.IGNORECASE,
)
_FATAL = re.compile(
    r"FATAL|does not support SSL|certificate|no password supplied|fe_sendauth|authentication"
    # what libpq does not understand
    r"|invalid response|error response during SSL|SSL error: (?!unexpected eof)",
    re.IGNORECASE,
)
_WRONG_OPTION = re.compile(r"^invalid (\w+ value|port number|integer value)")


def error_of(place: object, state: str, message: str) -> EngineError | StoreUnavailable:
    if state == _READ_ONLY:
        return StoreUnavailable(f"{place}: the server is read-only: {message}")
    if state.startswith(_PASSING):
        return StoreUnavailable(f"{place}: {message}")
    if state == "42501":
        return EngineError(f"{place}: the user lacks a permission: {message}")
    return EngineError(f"{place}: {message}")


def connection_error(place: object, message: str) -> EngineError | StoreUnavailable:
    text = " ".join(message.split())
    if _WRONG_OPTION.search(text) or (_FATAL.search(text) and not _LATER.search(text)):
        return EngineError(f"{place}: {text}")
    return StoreUnavailable(f"{place}: {text}")


def is_read_only(state: str) -> bool:
    return state == _READ_ONLY
