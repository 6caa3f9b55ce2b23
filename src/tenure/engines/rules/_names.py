"""Keys and names of groups with lone surrogates, which have no encoding."""

from __future__ import annotations


def encoded_name(name: str) -> bytes:
    """The name as it is stored; it sorts the same."""
    return name.encode("utf-8", "surrogatepass")


def decoded_name(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")
