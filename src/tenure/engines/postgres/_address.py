"""The address of a server and its user, as a URL says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from psycopg import Error
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import tenure.engine as e

_SCHEMES = ("postgresql", "postgres")
_SHOWN = ("user", "host", "port", "dbname")
_PLACE = ("host", "hostaddr", "port")
_LOGIN = re.compile(r"([^@/?#]*@)?[^@]*")
_KEEP_ALIVE = {"keepalives_idle": "15", "keepalives_interval": "5", "keepalives_count": "3"}
"""An idle store sends nothing: the kernel finds within half a minute that the other machine is gone."""
_PORTS = re.compile(r"[0-9,]*")
_DIRECT = re.compile(r"(?<=[?&])direct=([^&]*)&?")


@dataclass(frozen=True, slots=True)
class Address:
    parameters: dict[str, Any] = field(repr=False)
    direct: Address | None = None
    """The address of the server itself, if this is a pooler in front of it."""

    def __str__(self) -> str:
        user, host, port, database = (str(self.parameters.get(name, "")) for name in _SHOWN)
        login = f"{user}@" if user else ""
        query = ""
        if "/" in host:
            host, query = "", f"?host={host}"
        return f"postgresql://{login}{host}{':' if port else ''}{port}/{database}{query}"

    async def conninfo(self, **more: str) -> str:
        """The connection string for libpq, with more parameters; names of hosts are looked up. Raises `OSError`."""
        hosts = str(self.parameters.get("host", "")).split(",")
        if not any(_has_to_be_looked_up(host) for host in hosts) or "hostaddr" in self.parameters:
            return make_conninfo(**_KEEP_ALIVE | self.parameters, **more)
        ports = str(self.parameters.get("port", "")).split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        found: list[tuple[str, str, str]] = []
        for host, port in zip(hosts, ports, strict=True):
            if _has_to_be_looked_up(host):
                found += [(host, known, port) for known in await e.addresses_of(host)]
            else:
                found.append((host, "", port))
        places = {
            name: ",".join(column) for name, column in zip(_PLACE, zip(*found, strict=True), strict=True)
        }
        return make_conninfo(**_KEEP_ALIVE | self.parameters | places, **more)


def _has_to_be_looked_up(host: str) -> bool:
    if not host or host.startswith(("/", "@")):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def address(url: str) -> Address:
    scheme, _, rest = url.partition("://")
    if scheme not in _SCHEMES:
        raise ValueError(f"{safe(url)!r}: a PostgreSQL URL begins with postgresql://")
    around = _DIRECT.search(rest)
    if around is not None:
        rest = _DIRECT.sub("", rest).rstrip("&")
    if not _LOGIN.fullmatch(rest):
        raise ValueError(
            f"{safe(url)!r}: a PostgreSQL URL has at most one @, behind the password; write / # ? @ in a password, and "
            "@ anywhere else, as %2F %23 %3F %40"
        )
    try:
        parameters = dict(conninfo_to_dict(f"postgresql://{rest}"))
    except Error as error:
        # the words of libpq may quote the password
        raise ValueError(f"{safe(url)!r}: libpq does not understand this URL") from (
            None if "@" in rest or "password" in rest else error
        )
    if not _PORTS.fullmatch(str(parameters.get("port", ""))):
        # it may be a password, if the host was forgotten
        raise ValueError(f"{scheme}://...: what follows the : of the host is not a port")
    if around is None:
        return Address(parameters)
    direct = around[1] if "://" in around[1] else unquote(around[1])
    theirs = address(direct).parameters
    ours = {name: value for name, value in parameters.items() if name not in _PLACE}
    return Address(parameters, Address(ours | theirs))


def safe(url: str) -> str:
    before, _, rest = url.rpartition("@")
    scheme = re.match(r"[a-zA-Z]+://|", before)
    return (scheme[0] if scheme else "") + rest.partition("?")[0]
