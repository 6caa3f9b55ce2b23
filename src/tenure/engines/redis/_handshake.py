"""The handshake on a new connection: log in, check the server, load the scripts, subscribe."""

from __future__ import annotations

import re
import ssl
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import anyio
import hiredis
from anyio.abc import ByteStream

from tenure.errors import EngineError, StoreUnavailable
from tenure.pages import doc_page

from ._endpoint import Endpoint
from ._resp import Command, pack
from ._scripts import loads, script

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
"""Error codes of a server that may accept the request a little later."""

LAYOUT = b"1"
"""The version of the names and types of the keys."""

_ELSEWHERE = ("MOVED", "ASK", *TRANSIENT)
_SUBSCRIBED = ([b"subscribe"], [b"ssubscribe"])
# 0 is refused
_NOBODY = 2**63 - 1
_LONGEST_SHOWN = 100


class Greeting(NamedTuple):
    server: str
    number: int
    version: str


async def handshake(
    stream: ByteStream,
    reader: hiredis.Reader,
    address: Endpoint,
    former: Greeting | None,
    channels: Iterable[str],
    probes: Mapping[str, str],
) -> Greeting:
    """Get a connection ready; return what the server said of itself.

    `former` is the greeting on the former connection, which is killed first: its unread commands must not come behind
    later ones. `probes` are beginnings of keys, each with the number of shards under which the layout is stored.
    Raises `EngineError` for an unsuitable server, `StoreUnavailable` for a server that may do later.
    Cancellation: the connection is then useless.
    """
    login = ("AUTH", address.user or "default", address.password) if address.password else ()
    (hello,) = await _ask(stream, reader, address, ("HELLO", "3", *login))
    try:
        version, number = hello[b"version"].decode(), int(hello[b"id"])
    except UNEXPECTED:
        raise unexpected_server(address, "no Redis server", hello) from None
    _check_version(address, version)
    *_, raw = await _ask(stream, reader, address, ("SELECT", address.database), ("INFO",))
    if not isinstance(raw, bytes):
        raise unexpected_server(address, "no Redis server", raw)
    info = dict(line.split(":", 1) for line in raw.decode("utf-8", "replace").splitlines() if ":" in line)
    _check_settings(address, info)
    greeting = Greeting(info.get("run_id", ""), number, version)
    # on another server the number is somebody else's
    own = former.number if former and former.server == greeting.server else _NOBODY
    subscriptions = (("SUBSCRIBE", channel) for channel in channels)
    await _ask(stream, reader, address, ("CLIENT", "KILL", "ID", own), *loads(), *subscriptions)
    await _probe(stream, reader, address, probes)
    return greeting


async def _probe(
    stream: ByteStream, reader: hiredis.Reader, address: Endpoint, probes: Mapping[str, str]
) -> None:
    sha = script("probe").sha
    commands = [("EVALSHA", sha, "1", prefix, shards) for prefix, shards in probes.items()]
    for reply, shards in zip(await exchange(stream, reader, commands), probes.values(), strict=True):
        if isinstance(reply, hiredis.ReplyError):
            if code_of(reply) in _ELSEWHERE:
                continue  # another node has these keys
            raise refusal(address, reply)
        try:
            refused, layout, stored, unknown, undeclared = reply
            names, lacking, declared = (
                ", ".join(sorted({name.decode() for name in names}))
                for names in (refused, unknown, undeclared)
            )
        except UNEXPECTED:
            raise unexpected_server(address, "no Redis server", reply) from None
        if names:
            raise EngineError(
                f"{address}: the user may not use {names} on keys tenure:* and channels tenure:*;"
                f" {doc_page('explanations/redis-scripts')} lists the rights that are needed"
            )
        if lacking:
            raise EngineError(
                f"{address}: the server has no {lacking}, which the scripts call: it is no Redis or Valkey,"
                " or its commands are renamed"
            )
        if declared:
            raise EngineError(
                f"{address}: the server refuses keys that a script has not declared, with {declared};"
                f" {doc_page('how-to/use-a-managed-server')} says what other servers need"
            )
        if layout != LAYOUT:
            raise EngineError(
                f"{address}: the keys tenure:* have layout {layout.decode()}, this version has {LAYOUT.decode()};"
                " finish the work with the version that made them, delete them, or use another database"
            )
        if stored.decode() != shards:
            raise EngineError(
                f"{address}: there are {stored.decode()} shards, not {shards}: all processes need the same shards="
            )


async def _ask(
    stream: ByteStream, reader: hiredis.Reader, address: Endpoint, *commands: Command
) -> list[Any]:
    replies = await exchange(stream, reader, commands)
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise refusal(address, reply)
    return replies


async def exchange(stream: ByteStream, reader: hiredis.Reader, commands: Sequence[Command]) -> list[Any]:
    """The replies to commands, errors among them. Cancellation: the connection is then useless."""
    await stream.send(pack(commands))
    replies: list[Any] = []
    data = b""
    while len(replies) < len(commands):
        try:
            reply = reader.gets()
        except hiredis.ProtocolError as error:
            raise hiredis.ProtocolError(f"{error}: it says {shown(data)}") from None
        if reply is False:
            data = await stream.receive()
            reader.feed(data)
        elif is_reply(reply):
            replies.append(reply)
    return replies


async def asked(address: Endpoint, *commands: Command) -> list[Any]:
    """The replies to commands on a connection of their own, errors among them.

    Raises `StoreUnavailable`, and `EngineError` for another kind of server.
    Cancellation: nothing is left open.
    """
    try:
        stream = await address.connect()
        try:
            return await exchange(stream, hiredis.Reader(), commands)
        finally:
            await anyio.aclose_forcefully(stream)
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        if refused_by_tls(error):
            raise EngineError(f"{address}: TLS: {error}") from error
        raise StoreUnavailable(
            f"{address}: {error or 'the server closed the connection: is it a Redis server?'}"
        ) from error
    except hiredis.ProtocolError as error:
        raise EngineError(f"{address}: this is no Redis server: {error}") from None


def is_reply(received: Any) -> bool:
    """True if the message answers a command; a subscription is answered by a push."""
    return not isinstance(received, hiredis.PushNotification) or received[:1] in _SUBSCRIBED


UNEXPECTED = (TypeError, LookupError, ValueError, AttributeError)
"""The errors raised by taking apart an answer of another shape."""


def unexpected_server(place: object, what: str, said: object) -> EngineError:
    return EngineError(f"{place}: this is {what}: it says {shown(said)}")


def shown(said: object) -> str:
    text = repr(said)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def refused_by_tls(error: Exception) -> bool:
    return isinstance(error, ssl.SSLError) and not isinstance(
        error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    )


def code_of(error: Exception) -> str:
    """The word with which the server names an error; an error that ended a script is quoted in the message."""
    quoted = re.search(r"@user_script: ?\d+: -?([A-Z]+) ", str(error))
    return quoted[1] if quoted else str(error).partition(" ")[0]


def refusal(address: object, error: Exception, script: str | None = None) -> EngineError | StoreUnavailable:
    text, code = str(error), code_of(error)
    if code in TRANSIENT:
        return StoreUnavailable(f"{address}: {text}")
    if code == "MOVED":
        return EngineError(f"{address}: this is one node of a cluster: write redis+cluster://")
    if code == "NOAUTH":
        return EngineError(f"{address}: the server wants a password: write redis://:PASSWORD@HOST")
    if code == "WRONGPASS":
        return EngineError(f"{address}: the server refuses this user or password: {text}")
    if code == "OOM":  # Redis refuses a script before its first write only
        done = "put" if script == "put" else "changed"
        return EngineError(f"{address}: the server is at maxmemory; nothing was {done}")
    if code == "NOPERM":
        return EngineError(f"{address}: the user lacks a permission: {text}")
    if code == "NOPROTO" or text.startswith(("ERR unknown command 'HELLO'", "ERR unknown command `HELLO`")):
        return EngineError(f"{address}: the server is older than Redis {OLDEST[0]}.{OLDEST[1]}: {text}")
    return EngineError(f"{address}: {text}")


def version_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _check_version(address: Endpoint, version: str) -> None:
    if version_of(version) < OLDEST:
        raise EngineError(f"{address}: Redis {OLDEST[0]}.{OLDEST[1]} or later is needed, this is {version}")


def _check_settings(address: Endpoint, info: dict[str, str]) -> None:
    if info.get("role") == "slave":
        raise StoreUnavailable(f"{address}: this is a replica, which cannot be written to")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and info.get("maxmemory", "0") != "0":
        warnings.warn(
            f"{address}: with maxmemory-policy {policy} the server may drop what is held; set it to noeviction",
            RuntimeWarning,
            stacklevel=2,
        )
