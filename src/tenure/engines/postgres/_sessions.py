"""Sessions, as calls of functions."""

from __future__ import annotations

from tenure.engine import CloseSession, OpenSession, Ping, RenewSession

from ._calls import Call, Calls, microseconds, name, no_words

SESSIONS: Calls = {
    Ping: Call("ping", lambda _: (), no_words),
    OpenSession: Call(
        "open_session", lambda op: (name(op.session), name(op.process), microseconds(op.ttl)), no_words
    ),
    RenewSession: Call("renew_session", lambda op: (name(op.session),), no_words),
    CloseSession: Call("close_session", lambda op: (name(op.session),), no_words),
}
