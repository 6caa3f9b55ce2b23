"""Where a server is, and as whom to speak to it: what a URL says."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
from anyio.abc import ByteStream

_SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class Address:
    """One server: a host and a port, or the path of a socket."""

    host: str
    port: int
    path: str = ""
    database: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The URL, without the password."""
        user = f"{self.user}@" if self.user else ""
        if self.path:
            return f"unix://{user}{self.path}" + (f"?db={self.database}" if self.database else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        database = f"/{self.database}" if self.database else ""
        return f"redis{'s' if self.tls else ''}://{user}{host}:{self.port}{database}"

    async def connect(self) -> ByteStream:
        """Open a connection. Raises `OSError`. Cancellation: nothing is left open."""
        if self.path:
            return await anyio.connect_unix(self.path)
        if self.tls is None:
            return await anyio.connect_tcp(self.host, self.port)
        return await anyio.connect_tcp(
            self.host, self.port, ssl_context=self.tls, tls_standard_compatible=False
        )


def address(url: str, tls: ssl.SSLContext | None = None) -> Address:
    """What a URL means. Raises `ValueError`."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{_safe(url)!r}: a Redis URL begins with redis://, rediss:// or unix://")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    try:
        port = parts.port or 6379
    except ValueError as error:
        raise ValueError(f"{_safe(url)!r}: {error}") from None
    database = options.pop("db", "" if parts.scheme == "unix" else parts.path.strip("/")) or "0"
    if options or parts.fragment:
        raise ValueError(f"{_safe(url)!r}: the only option that a Redis URL has is db, not {sorted(options)}")
    if not (database.isascii() and database.isdigit()):
        raise ValueError(f"{_safe(url)!r}: a database is a number, not {database!r}")
    path = unquote(parts.path) if parts.scheme == "unix" else ""
    if parts.scheme == "unix" and not path.startswith("/"):
        raise ValueError(f"{_safe(url)!r}: write unix:///absolute/path/to/the/socket")
    return Address(
        parts.hostname or "localhost",
        port,
        path,
        int(database),
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        (tls or ssl.create_default_context()) if parts.scheme == "rediss" else None,
    )


def _safe(url: str) -> str:
    """The URL for a message: whatever stands between // and the last @ may be a password."""
    scheme, slashes, rest = url.partition("//")
    return scheme + slashes + rest.rpartition("@")[2]
