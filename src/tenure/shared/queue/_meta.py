from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

MOST_BYTES = 1024
"""No meta may be larger, as JSON in UTF-8."""


def encode_meta(meta: object, more: Mapping[str, str] | None = None) -> bytes:
    if meta is None:
        return _filled({}, b"", more) if more else b""
    if not isinstance(meta, Mapping):
        raise TypeError(f"meta must be a mapping of str to str, not {type(meta).__name__}")
    texts = cast("Mapping[object, object]", meta)
    for name, value in texts.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"meta must be a mapping of str to str, and has {name!r}: {value!r}")
    try:
        data = _dumped(texts) if texts else b""
    except UnicodeEncodeError:
        raise ValueError("meta must not have lone surrogates") from None
    if len(data) > MOST_BYTES:
        raise ValueError(f"meta must have at most {MOST_BYTES} bytes as JSON, not {len(data)}")
    if more and more.keys().isdisjoint(texts):
        return _filled(texts, data, more)
    return data


def _filled(texts: Mapping[object, object], data: bytes, more: Mapping[str, str]) -> bytes:
    names = list(more)
    while names:
        longer = _dumped({**texts, **{name: more[name] for name in names}})
        if len(longer) <= MOST_BYTES:
            return longer
        names.pop()
    return data


def _dumped(meta: Mapping[object, object]) -> bytes:
    return json.dumps(dict(meta), ensure_ascii=False, separators=(",", ":")).encode()


def decode_meta(data: bytes) -> dict[str, str]:
    found: Any = json.loads(data) if data else {}
    return found[0] if data[:1] == b"[" else found
