"""Sessions, as calls of scripts."""

from __future__ import annotations

from tenure.engine import CloseSession, OpenSession, Ping, RenewSession

from ._calls import Call, Calls, microseconds, no_words

SESSIONS: Calls = {
    Ping: Call("sessions", lambda _: ("ping",), no_words),
    OpenSession: Call(
        "sessions", lambda op: ("open", op.session, op.process, microseconds(op.ttl)), no_words
    ),
    RenewSession: Call("sessions", lambda op: ("renew", op.session), no_words),
    CloseSession: Call("sweep", lambda op: (op.session,), no_words),
}
