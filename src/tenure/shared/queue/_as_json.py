"""Bytes as a field of a JSON object: readable where they are JSON themselves, else in base64."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tenure.store import JsonCodec

_JSON = JsonCodec()


def readable(name: str, data: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        value = _JSON.decode(data)
        # exactly these bytes, and not nested too deeply for a field of an object
        if _JSON.encode([[value]]) == b"[[" + data + b"]]":
            return {name: value}
    return {f"{name}_base64": b64encode(data).decode()}


def bytes_of(name: str, document: Mapping[str, Any]) -> bytes:
    """The bytes in the field of that name; none without the field. Raises `TypeError`, `ValueError`."""
    if name in document:
        return _JSON.encode(document[name])
    return b64decode(document.get(f"{name}_base64", ""))
