from __future__ import annotations


def parse_address(name: str, address: object) -> tuple[str | None, int]:
    if not isinstance(address, str):
        raise TypeError(f"{name} must be a str such as '127.0.0.1:8081', or None, not {address!r}")
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    plain = port.isascii() and port.isdecimal() and len(port) <= 5
    if not colon or not plain or int(port) > 65535 or (":" in host and not bracketed):
        raise ValueError(
            f"{name} must be HOST:PORT, such as 127.0.0.1:8081, [::1]:8081 or :8081, not {address!r}"
        )
    return host or None, int(port)
