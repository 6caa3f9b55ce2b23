"""Names with lone surrogates: the key of a task, or the name of a group, may have no encoding."""

from __future__ import annotations


def encoded_name(name: str) -> bytes:
    """The name as it is stored; it sorts the same."""
    return name.encode("utf-8", "surrogatepass")


def decoded_name(name: bytes) -> str:
    """The reverse of `encoded_name`."""
    return name.decode("utf-8", "surrogatepass")
