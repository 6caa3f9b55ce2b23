"""What travels with a task besides its payload: a few short texts, for tracing, requests and tenants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

MOST_BYTES = 1024
"""No meta may be larger, as JSON in UTF-8."""


def encode_meta(meta: object) -> bytes:
    """The bytes of a meta; none for an empty one. Raises `TypeError`, `ValueError`."""
    if meta is None:
        return b""
    if not isinstance(meta, Mapping):
        raise TypeError(f"meta must be a mapping of str to str, not {type(meta).__name__}")
    given = cast("Mapping[object, object]", meta)
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"meta must be a mapping of str to str, and has {name!r}: {value!r}")
    if not given:
        return b""
    try:
        data = json.dumps(dict(given), ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise ValueError("meta must not have lone surrogates") from None
    if len(data) > MOST_BYTES:
        raise ValueError(f"meta must have at most {MOST_BYTES} bytes as JSON, not {len(data)}")
    return data


def decode_meta(data: bytes) -> dict[str, str]:
    """The meta that was put; empty if there was none."""
    return json.loads(data) if data else {}
