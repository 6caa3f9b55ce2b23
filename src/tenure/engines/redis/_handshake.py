"""The first words on a new connection: who we are, whether the server will do, what to listen to."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

import hiredis
from anyio.abc import ByteStream

from tenure.errors import EngineError, StoreUnavailable

from ._address import Address
from ._resp import Command, pack
from ._scripts import all_scripts

OLDEST = (6, 2)
TRANSIENT = (
    "LOADING",
    "BUSY",
    "READONLY",
    "MASTERDOWN",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "UNKILLABLE",
    "NOREPLICAS",
)
"""Error codes of a server that may do what it was asked for a little later."""


async def greet(
    stream: ByteStream, reader: hiredis.Reader, address: Address, former: int, channels: Iterable[str]
) -> int:
    """Get a connection ready; gives the number under which the server knows it.

    `former` is the number of the connection before: what the server may still have to read from it must not come
    behind what is sent from now on, so it is killed first.
    Raises `EngineError` for a server that will not do, `StoreUnavailable` for one that may do later.
    Cancellation: the connection is of no use any more.
    """
    login = ("AUTH", address.user or "default", address.password) if address.password else ()
    (hello,) = await _ask(stream, reader, address, ("HELLO", "3", *login))
    known = {key.decode(): value for key, value in dict(hello).items()}
    _check_version(address, known["version"].decode())
    commands: list[Command] = [("CLIENT", "KILL", "ID", former or 0), ("SELECT", address.database), ("INFO",)]
    *_, info = await _ask(stream, reader, address, *commands)
    _check_settings(address, bytes(info).decode("utf-8", "replace"))
    await _ask(stream, reader, address, *(("SCRIPT", "LOAD", script.source) for script in all_scripts()))
    if channels := tuple(channels):
        await stream.send(pack([("SUBSCRIBE", *channels)]))
        await _replies(stream, reader, len(channels), pushes=True)
    return int(known["id"])


async def _ask(stream: ByteStream, reader: hiredis.Reader, address: Address, *commands: Command) -> list[Any]:
    await stream.send(pack(commands))
    replies = await _replies(stream, reader, len(commands))
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise refusal(address, reply)
    return replies


async def _replies(
    stream: ByteStream, reader: hiredis.Reader, count: int, *, pushes: bool = False
) -> list[Any]:
    replies: list[Any] = []
    while len(replies) < count:
        reply = reader.gets()
        if reply is False:
            reader.feed(await stream.receive())
        elif isinstance(reply, hiredis.PushNotification) is pushes:
            replies.append(reply)
    return replies


def code_of(error: Exception) -> str:
    """The word with which the server names an error; one that ended a script is quoted by it."""
    quoted = re.search(r"@user_script: ?\d+: -?([A-Z]+) ", str(error))
    return quoted[1] if quoted else str(error).partition(" ")[0]


def refusal(address: Address, error: Exception) -> EngineError | StoreUnavailable:
    """What an error that the server replied means to a caller."""
    text, code = str(error), code_of(error)
    if code in TRANSIENT:
        return StoreUnavailable(f"{address}: {text}")
    if code in {"NOAUTH", "WRONGPASS"}:
        return EngineError(f"{address}: the server refuses this user or password: {text}")
    if code == "NOPERM":
        return EngineError(f"{address}: the user lacks a permission: {text}")
    if code == "NOPROTO" or text.startswith(("ERR unknown command 'HELLO'", "ERR unknown command `HELLO`")):
        return EngineError(f"{address}: the server is older than Redis {OLDEST[0]}.{OLDEST[1]}: {text}")
    return EngineError(f"{address}: {text}")


def _check_version(address: Address, version: str) -> None:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        raise EngineError(f"{address}: Redis {OLDEST[0]}.{OLDEST[1]} or later is needed, this is {version}")


def _check_settings(address: Address, info: str) -> None:
    settings = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    if settings.get("role") == "slave":
        raise StoreUnavailable(f"{address}: this is a replica, which cannot be written to")
    policy = settings.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        warnings.warn(
            f"{address}: with maxmemory-policy {policy} the server may drop what is held; set it to noeviction",
            RuntimeWarning,
            stacklevel=2,
        )
