"""The address of a server and its user, as a URL says."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import anyio
from anyio.abc import ByteStream, SocketAttribute

import tenure.engine as e
from tenure.arguments import check_count

_SCHEMES = ("redis", "rediss", "unix")
_LOGIN = re.compile(r"[a-zA-Z+]+://([^@/?#]*@)?[^@]*")
_KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel find within half a minute that the other machine is gone: an idle store sends nothing."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Endpoint(Protocol):
    @property
    def user(self) -> str: ...

    @property
    def password(self) -> str: ...

    @property
    def database(self) -> int: ...

    async def connect(self) -> ByteStream:
        """Open a connection. Raises `OSError`, `EngineError`. Cancellation: nothing is left open."""
        ...

    async def moved(self) -> bool:
        """True if the last connection now leads elsewhere. Cancellation: nothing is left open."""
        ...


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    path: str = ""
    database: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        if self.path:
            return f"unix://{user}{self.path}" + (f"?db={self.database}" if self.database else "")
        database = f"/{self.database}" if self.database else ""
        return f"redis{'s' if self.tls else ''}://{user}{self.place}{database}"

    def at(self, host: str, port: int) -> Address:
        return replace(self, host=host, port=port)

    async def connect(self) -> ByteStream:
        if self.path:
            return await anyio.connect_unix(self.path)
        host = (await e.addresses_of(self.host))[0] if e.only_known.get() else self.host
        stream: ByteStream
        if self.tls is None:
            stream = await anyio.connect_tcp(host, self.port)
        else:
            stream = await anyio.connect_tcp(
                host,
                self.port,
                ssl_context=self.tls,
                tls_standard_compatible=False,
                tls_hostname=self.host,
            )
        # if the other side has closed the connection already, there is no address, and on uvloop no socket
        with suppress(AttributeError):
            if reached := stream.extra(SocketAttribute.remote_address, None):  # noqa: S610 not Django's
                e.remember(self.host, str(reached[0]))
                keep_alive(stream.extra(SocketAttribute.raw_socket))  # noqa: S610
        return stream

    async def moved(self) -> bool:
        return False


def address(url: str, tls: ssl.SSLContext | None = None, port: int = 6379) -> Address:
    """The address that a URL means; `port` is for a host without a port. Raises `ValueError`."""
    parts = _parts(url)
    if parts.scheme not in _SCHEMES or "://" not in url:
        raise ValueError(f"{safe(url)!r}: a Redis URL begins with redis://, rediss:// or unix://")
    options = _options(url, parts, ["db"])
    try:
        port = parts.port or port
    except ValueError:
        # it may be a password, if the host was forgotten
        raise ValueError(f"{parts.scheme}://...: what follows the : of the host is not a port") from None
    database = options.get("db", "" if parts.scheme == "unix" else parts.path.strip("/"))
    path = unquote(parts.path) if parts.scheme == "unix" else ""
    if parts.scheme == "unix" and not path.startswith("/"):
        raise ValueError(f"{safe(url)!r}: write unix:///absolute/path/to/the/socket")
    return Address(
        parts.hostname or "localhost",
        port,
        path,
        database_number(url, database),
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        (tls or ssl.create_default_context()) if parts.scheme == "rediss" else None,
    )


def addresses(url: str, tls: ssl.SSLContext | None, port: int = 6379) -> tuple[list[Address], str]:
    """The servers that a URL with several hosts means, and its path. Raises `ValueError`."""
    check_login(url)
    start, slashes, rest = url.partition("://")
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    # without the hosts: brackets around one of several are an error in newer Pythons
    parts = _parts(start + slashes + rest[len(netloc) :])
    _options(url, parts, [])
    scheme = parts.scheme.partition("+")[0]
    login, at, hosts = netloc.rpartition("@")
    return [address(f"{scheme}://{login}{at}{host}", tls, port) for host in hosts.split(",")], parts.path


def database_number(url: str, text: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError(f"{safe(url)!r}: a database is a number, not {text!r}")
    return int(text or 0)


def check_login(url: str) -> None:
    """Refuse a URL in which a part of the password may stand behind the login. Raises `ValueError`."""
    if "@" in url and not _LOGIN.fullmatch(url):
        raise ValueError(
            f"{safe(url)!r}: a Redis URL has at most one @, behind the password; write / # ? @ in a password, and "
            "@ anywhere else, as %2F %23 %3F %40"
        )


def safe(url: str) -> str:
    """The URL without anything before an @, which may be a password."""
    before, _, rest = url.rpartition("@")
    scheme = re.match(r"[a-zA-Z+]+://|", before)
    return (scheme[0] if scheme else "") + rest


def _parts(url: str) -> SplitResult:
    check_login(url)
    try:
        return urlsplit(url)
    except ValueError:
        # its words may quote the password
        problem = f"{safe(url)!r}: this is no URL; write [ and ] in a password as %5B and %5D"
        raise ValueError(problem) from None


def _options(url: str, parts: SplitResult, known: Iterable[str]) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.fragment:
        raise ValueError(f"{safe(url)!r}: a Redis URL has nothing behind a #")
    if options.keys() - set(known):
        raise ValueError(
            f"{safe(url)!r}: the only options that a Redis URL has are db and replicas, not {sorted(options)}"
        )
    return options


def number_in(
    url: str, name: str, argument: int | None, default: int, *, least: int, most: int
) -> tuple[str, int]:
    """The URL without its option `name`, and the number: the argument's, else the URL's, else the default.

    Raises `TypeError`, `ValueError`.
    """
    where, _, query = url.partition("?")
    options = [option.partition("=") for option in query.split("&") if option]
    values = [value for option, _, value in options if option == name]
    rest = "&".join("".join(option) for option in options if option[0] != name)
    if argument is None:
        if not all(value.isascii() and value.isdigit() for value in values):
            raise ValueError(f"{name} must be a number in the URL, not {values[-1]!r}")
        argument = int(values[-1]) if values else default
    return f"{where}?{rest}" if rest else where, check_count(name, argument, least=least, most=most)
