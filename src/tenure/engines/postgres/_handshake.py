"""The checks and settings of a new connection; through a pooler each transaction has the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenure.errors import EngineError, StoreUnavailable

from ._address import Address
from ._errors import OLDEST, error_of
from ._pipeline import FAILED, Pipeline, Statement, message_of, rows, state_of
from ._values import Texts

SETTINGS = {
    "default_transaction_isolation": "read committed",
    "client_min_messages": "error",
    # a plan that was made while a table was empty must not last when it is full
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # nor may a plan sort rows that an index has in order
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    # nor may a plan read a whole queue to join it with a few of its tasks
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # planning anew takes longer than most statements do
    "plan_cache_mode": "force_generic_plan",
    # which would be compiled for each call, at what a forbidden scan is said to cost
    "jit": "off",
}
"""Settings of each connection, or of each transaction through a pooler."""

_HELLO = "SELECT pg_backend_pid(), current_setting('transaction_read_only'), current_setting('transaction_isolation')"


async def ask(address: Address, pipeline: Pipeline, statement: Statement) -> list[Any]:
    """The rows that answer a statement. Raises `EngineError`, `StoreUnavailable`, `OSError`.

    Cancellation: it is executed or not.
    """
    result = await pipeline.ask(statement)
    if result.status in FAILED:
        raise error_of(address, state_of(result), message_of(result))
    return rows(result)


async def handshake(address: Address, pipeline: Pipeline, settings: Mapping[str, str]) -> int:
    """Check the server, find out whether a pooler is in between, and make the settings. Return the server's process.

    Raises `EngineError` for an unsuitable server, `StoreUnavailable` for a server that cannot be written to, `OSError`.
    Cancellation: close the connection.
    """
    if pipeline.server_version < OLDEST * 10000:
        found = pipeline.parameter("server_version")
        raise EngineError(f"{address}: PostgreSQL {OLDEST} or later is needed, this is {found}")
    ((pid, read_only, isolation),) = await ask(address, pipeline, Statement(_HELLO))
    if read_only == b"on":
        raise StoreUnavailable(f"{address}: this is a replica, or read-only, and cannot be written to")
    server = int.from_bytes(pid, "big")
    # a pooler makes up a number for each of its clients
    pooled = server != pipeline.pid
    assignments = ", ".join(f"set_config('{name}', '{value}', {pooled})" for name, value in settings.items())
    if not pooled:
        await ask(address, pipeline, Statement(f"SELECT {assignments}"))
        pipeline.before = None
    elif isolation == b"read committed":
        pipeline.before = Statement(f"SELECT {assignments}")
    else:
        raise EngineError(
            f"{address}: through a pooler the user's default_transaction_isolation has to be read committed, "
            f"not {isolation.decode()}"
        )
    return server


def beginning(schema: str, name: str, settings: Mapping[str, str]) -> Statement:
    values = name.encode(), Texts(settings), Texts(settings.values())
    return Statement.of(f"SELECT {schema}.of_link($1, $2, $3)", *values)


def termination(schema: str, name: str, pipeline: Pipeline, response_timeout: float) -> Statement:
    """The statement that ends a former connection; its result is False if the server may still be executing."""
    if pipeline.before is not None:
        return Statement.of(f"SELECT {schema}.end_link($1)", name.encode())
    end = "SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity WHERE application_name = $1 AND usename = user"
    return Statement.of(end, name, int(response_timeout * 1000))
