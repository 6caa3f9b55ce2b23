"""`python manage.py tenure_worker`: run the tasks of Django."""

# Django has no types of its own, and Python 3.11 has no Django with tasks.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

import anyio
from django.core.management.base import CommandError
from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, task_backends

from tenure.django import TenureBackend
from tenure.django._bases import BaseCommand
from tenure.engines import open_store
from tenure.errors import TenureError
from tenure.serving import serve


class Command(BaseCommand):
    """The command: workers for queues of a backend, until SIGTERM or SIGINT comes."""

    help = "Run the tasks that were enqueued with tenure.django.TenureBackend, until SIGTERM or SIGINT comes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of the command."""
        add = parser.add_argument
        add("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="an alias of TASKS (default: default)")
        add("--queue", action="append", help="a queue; may be repeated (default: the QUEUES of the backend)")
        add("--concurrency", type=int, default=10, help="tasks at a time, of each queue (default: 10)")
        add("--timeout", type=float, help="seconds that a try may take (default: no limit)")
        add("--grace", type=float, default=30.0, help="seconds to finish tasks after a signal (default: 30)")
        add("--health", metavar="HOST:PORT", help="the address of /live and /ready (default: none)")

    def handle(self, **options: Any) -> None:
        """Work. Raises `CommandError` for wrong options, or if the store fails."""
        backend = task_backends[options["backend"]]
        if not isinstance(backend, TenureBackend):
            raise CommandError(f"TASKS[{backend.alias!r}] is no tenure.django.TenureBackend")
        queues = options["queue"] or sorted(backend.queues)
        if not queues:
            raise CommandError("--queue is missing: the backend has no QUEUES")
        if backend.url.startswith("memory:"):
            raise CommandError("memory: is visible only to its own process; name a file or a server")
        try:
            anyio.run(self._work, backend, queues, options)
        except (TenureError, TypeError, ValueError, OSError) as problem:
            raise CommandError(str(problem)) from problem

    async def _work(self, backend: TenureBackend, queues: list[str], options: dict[str, Any]) -> None:
        async with open_store(**backend.store_options) as store:
            limits = {name: options[name] for name in ("concurrency", "timeout")}
            workers = [backend.worker(store, name, **limits) for name in queues]
            self.stderr.write(f"works on {', '.join(queues)} of {store.url}; Ctrl-C stops it")
            await serve(*workers, grace=options["grace"], health=options["health"])
