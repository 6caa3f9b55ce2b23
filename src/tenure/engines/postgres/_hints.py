"""Hints, as notifications."""

from __future__ import annotations

from base64 import b64decode
from hashlib import md5

import tenure.engine as e

from ._codec import Row, answer_of, numbers_in
from ._values import name, text

_NOTICES = {notice.value for notice in e.Notice}


def channel(schema: str, process: str) -> str:
    return f"{schema}.{md5(name(process), usedforsecurity=False).hexdigest()}"


def hint(process: str, payload: str) -> e.Hint:
    """The hint in a notification.

    Its parts, with blanks between them: a word, the key, the name, the numbers of an answer, its names and bytes, and
    an unused number. Names and bytes are in base64.
    """
    word, key, name, *parts, _ = payload.split(" ")
    if word in _NOTICES:
        news = e.Notice(word)
    else:
        count = numbers_in(word)
        news = answer_of(Row(word, list(map(int, parts[:count])), list(map(b64decode, parts[count:]))))
    return e.Hint(process, text(b64decode(key)), text(b64decode(name)), news)
