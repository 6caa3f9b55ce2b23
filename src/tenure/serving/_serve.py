"""`serve`: services until a signal comes."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import Protocol

from tenure.arguments import Seconds, check_flag, check_seconds, check_timeout
from tenure.observe import log

from ._address import parse_address
from ._health import answering
from ._serving import Serving
from ._signals import signals_received


class Service(Protocol):
    """An object that `serve` runs: it ends by its async method `drain()`, or else by a cancellation."""

    async def run(self) -> object: ...


async def serve(
    *services: Service,
    grace: Seconds | None = 30.0,
    health: str | None = None,
    stalled: Seconds = 10.0,
    signals: bool = True,
) -> bool:
    """Run services until they have ended, or until SIGTERM, SIGINT or SIGHUP comes; then drain them.

    A service is a `Worker`, a `Processor`, or any object with an async method `run()`. The first signal calls the async
    method `drain()` of each service, all at once; it has to make `run()` end. A service without one is cancelled
    instead. A second SIGTERM or SIGINT, or the end of `grace` seconds (None: no limit), cancels what still runs: its
    tasks are given back, and no attempt is counted. If a service raises, the others are drained, and the error is
    raised in the end; if several raise, an `ExceptionGroup`. Returns True if all services have ended, False if some
    were cancelled after they had been drained for too long, or by a second signal.

    `health` is an address (`"127.0.0.1:8081"`; `":8081"` for all interfaces; port 0 for any that is free, which is
    logged) at which a thread answers GET over HTTP. `/live` is 200 unless the event loop has been blocked for more than
    `stalled` seconds, which is 503. `/ready` is 200 unless the loop is blocked, the services drain, or a service has an
    attribute `unready` that is not None: a text that says why, which is the answer. A worker and a processor have one
    while the engine cannot be reached or their session is lost.

    Signals are received only in the main thread, and only while `serve` runs; afterwards they do what they did before.
    SIGHUP stays ignored where it is ignored, as under nohup.
    `signals=False` leaves them alone. Raises `RuntimeError` in another thread without `signals=False`; `OSError` if the
    health address cannot be used; `TypeError` and `ValueError` for invalid arguments.

    Cancellation: the services are cancelled.
    """
    grace = check_timeout("grace", grace)
    stalled = check_seconds("stalled", stalled, least=None)
    signals = check_flag("signals", signals)
    address = None if health is None else parse_address("health", health)
    serving = Serving(services, grace=grace)
    async with AsyncExitStack() as stack:
        if signals:
            await stack.enter_async_context(signals_received(serving.on_signal))
        if address is not None:
            ports = stack.enter_context(answering(*address, stalled, serving.unready))
            log(logging.INFO, f"health checks: /live and /ready at port {ports[0]}")
        return await serving.run()
