"""Who answers on a new connection, and what is set on it, or in each of its transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenure.errors import EngineError, StoreUnavailable

from ._address import Address
from ._binary import Texts
from ._refusals import OLDEST, refusal
from ._wire import Statement, Wire, failed, message_of, rows, state_of

SETTINGS = {
    "default_transaction_isolation": "read committed",
    "client_min_messages": "error",
    # a plan that was made while a table was empty must not last when it is full
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # nor may one that sorts what an index has in order
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    # planning anew takes longer than most statements do
    "plan_cache_mode": "force_generic_plan",
    # which would be compiled for each call, at what a forbidden scan is said to cost
    "jit": "off",
}
"""What is set on each connection, or in each transaction through a pooler."""

_HELLO = "SELECT pg_backend_pid(), current_setting('transaction_read_only'), current_setting('transaction_isolation')"


async def ask(address: Address, wire: Wire, statement: Statement) -> list[Any]:
    """The rows that answer a statement. Raises `EngineError`, `StoreUnavailable`, `OSError`.

    Cancellation: it is executed or not.
    """
    (result,) = await wire.send([statement]).wait()
    if failed(result):
        raise refusal(address, state_of(result), message_of(result))
    return rows(result)


async def greet(address: Address, wire: Wire, settings: Mapping[str, str]) -> int:
    """Find out who answers and whether through a pooler, and set what is needed; gives the server's process.

    Raises `EngineError` for a server that will not do, `StoreUnavailable` for one that cannot be written to, `OSError`.
    Cancellation: close the connection.
    """
    if wire.server_version < OLDEST * 10000:
        found = wire.parameter("server_version")
        raise EngineError(f"{address}: PostgreSQL {OLDEST} or later is needed, this is {found}")
    ((pid, read_only, isolation),) = await ask(address, wire, Statement(_HELLO))
    if read_only == b"on":
        raise StoreUnavailable(f"{address}: this is a replica, or read-only, and cannot be written to")
    server = int.from_bytes(pid, "big")
    # a pooler makes up a number for each of its clients
    pooled = server != wire.pid
    assignments = ", ".join(f"set_config('{name}', '{value}', {pooled})" for name, value in settings.items())
    if not pooled:
        await ask(address, wire, Statement(f"SELECT {assignments}"))
        wire.before = None
    elif isolation == b"read committed":
        wire.before = Statement(f"SELECT {assignments}")
    else:
        raise EngineError(
            f"{address}: through a pooler the user's default_transaction_isolation has to be read committed, "
            f"not {isolation.decode()}"
        )
    return server


def of_link(schema: str, name: str, settings: Mapping[str, str]) -> Statement:
    """Begins each transaction of a link through a pooler."""
    values = name.encode(), Texts(settings), Texts(settings.values())
    return Statement.of(f"SELECT {schema}.of_link($1, $2, $3)", *values)


def farewell(schema: str, name: str, wire: Wire, response_timeout: float) -> Statement:
    """What the server may still read from a link must not come behind what is sent after this; False if it may."""
    if wire.before is not None:
        return Statement.of(f"SELECT {schema}.end_link($1)", name.encode())
    end = "SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity WHERE application_name = $1 AND usename = user"
    return Statement.of(end, name, int(response_timeout * 1000))
