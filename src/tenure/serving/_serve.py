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

        await serve(Worker(queue, send), health="127.0.0.1:8081")

    - `services`: a `Worker`, a `Processor`, or any object with an async method `run()`. Its async `drain()` has to make
      `run()` end; a service without `drain` is cancelled.
    - `grace`: seconds for draining (None: no limit). Then, or at a second SIGTERM or SIGINT, the services are
      cancelled, and their tasks given back.
    - `health`: an address (":8081": all interfaces; port 0: a free port) of `/live` and `/ready`. A service with an
      attribute `unready` that is not None is not ready.
    - `stalled`: seconds for which the event loop may be blocked while `/live` is 200.
    - `signals`: False leaves signals alone.

    Returns True if all services have ended, False if some were cancelled after the drain.

    Raises the error of a service when the others are drained, of several an `ExceptionGroup`; `RuntimeError`
    outside of the main thread without `signals=False`; `OSError` if the health address cannot be used; `TypeError`
    and `ValueError`. Cancellation: the services are cancelled.
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
