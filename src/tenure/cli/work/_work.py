"""`tenure work`: its options; it works in this process or in child processes."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import tenure.engine as e
from tenure.cli._arguments import (
    STORE_DEFAULT,
    Parser,
    add_backend,
    check_backend,
    checked,
    count,
    seconds,
    store_option,
    store_url,
    whole_number,
)
from tenure.cli._errors import UsageError
from tenure.cli._one_queue import name_of
from tenure.cli._stop import handled
from tenure.cli._with_store import check_names
from tenure.serving import ending_signals, parse_address

from ._children import CHILD, TOLD, Children
from ._log import FORMATS, LEVELS, start_logging
from ._sources import ReloadWatcher
from ._working import Options, work_here

_MOST_PROCESSES = 1000
_health = checked(partial(parse_address, "it"))

_DESCRIPTION = """\
Work on a queue until SIGTERM, SIGHUP or SIGINT comes. Then take no more tasks, and finish those that have begun. A
second SIGTERM or SIGINT, or the end of the grace, gives back the unfinished tasks, without counting an attempt. While
the server of the store is away, also at the beginning, it waits."""

_EPILOG = """\
handler:
  module:function is imported with the working directory on the path and called as function(payload); if its first
  parameter is annotated tenure.Task, it gets the task. Sync functions run in threads. Its return value is the result
  (JSON); if it raises, the task is retried, and is dead after the last try.
  With --batch N, it gets a list of up to N payloads, or of tasks if its parameter is annotated list[tenure.Task].
  What it raises fails all of them but those for which it called task.fail(error).

program:
  module:main, an async function with a parameter named store, or annotated tenure.Store, is called with the open store.
  It is cancelled by the first signal, unless it calls tenure.serve itself. It takes neither --queue nor the options of
  a handler.

exit code:
  0 stopped, and all that had begun was finished   1 some tasks were given back, or something failed   2 usage error

examples:
  tenure work shop:send_mail --queue mail --store redis://localhost --concurrency 50 --health :8081
  tenure work shop:send_mail --queue mail --reload
  tenure work shop:report --queue reports --cron "0 3 * * *" --tz Europe/Berlin"""


def work(words: Sequence[str]) -> int:
    # the first process of a container ignores a signal for which it has no handler yet
    numbers = [number for number in ending_signals() if number is not signal.SIGINT]
    with handled(dict.fromkeys(numbers, signal.default_int_handler)):
        return _work(_parser().parse_args(words), words)


def _work(args: argparse.Namespace, words: Sequence[str]) -> int:
    check_backend(args.backend)
    check_names(args)
    for name in ("health", "metrics"):
        address = getattr(args, name)
        if address is not None and address[1] and address[1] + args.processes - 1 > 65535:
            raise UsageError(
                f"--{name}: there are no ports for {args.processes} processes from {address[1]} on"
            )
    _check_ranges(args.health, args.metrics, args.processes)
    number, parent, told, deaths = _child()
    if parent is None and (args.processes > 1 or args.reload or args.max_tasks or args.max_memory):
        if os.name != "posix":
            raise UsageError("--processes, --reload, --max-tasks and --max-memory need a POSIX system")
        me = [sys.executable, "-m", "tenure.cli", "work", *words]
        sources = ReloadWatcher(Path.cwd()) if args.reload else None
        start_logging(args.log[1], args.log[0])
        return Children(me, args.processes, args.grace, sources).run()
    given: dict[str, Any] = vars(args) | {
        "store": store_url(args.store),
        "store_option": store_option(args.store),
        "batch": args.batch[0],
        "linger": args.batch[1],
        "health": _address(args.health, number),
        "metrics": _address(args.metrics, number),
        "log_format": args.log[0],
        "log_level": args.log[1],
        "parent": parent,
        "told": told,
        "deaths": deaths,
        "until_empty": args.until_empty or None,
    }
    return work_here(Options(**{field.name: given[field.name] for field in fields(Options)}))


def _check_ranges(
    health: tuple[str | None, int] | None, metrics: tuple[str | None, int] | None, processes: int
) -> None:
    if health is None or metrics is None or not (health[1] and metrics[1]):
        return
    hosts = {address[0] for address in (health, metrics)}
    apart = len(hosts) == 2 and all(map(_is_one_address, hosts))
    if not apart and abs(health[1] - metrics[1]) < processes:
        taken = " and ".join(
            f"{name} takes "
            + (f"ports {first} to {first + processes - 1}" if processes > 1 else f"port {first}")
            for name, (_, first) in (("--health", health), ("--metrics", metrics))
        )
        raise UsageError(f"{taken}: name ports that are {processes} apart at least, one for each process")


def _is_one_address(host: str | None) -> bool:
    try:
        return host is not None and not ip_address(host).is_unspecified
    except ValueError:
        return False  # a name may be any address


def _parser() -> Parser:
    parser = Parser("work", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("handler", metavar="module:handler", help="the function to call for each task")
    add("--queue", metavar="NAME", type=name_of, help="the queue; needed with a handler")
    add("--store", metavar="URL", help=STORE_DEFAULT)
    add("--namespace", metavar="NAME", type=_namespace, default="tenure", help="default: %(default)s")
    add(
        "--ttl",
        metavar="S",
        type=seconds,
        default=30.0,
        help="seconds after which others get the tasks of a worker that died, at least 0.5 (default: 30)",
    )
    add(
        "--concurrency", metavar="N", type=count, help="how many tasks at once, in each process (default: 10)"
    )
    add(
        "--executor",
        choices=("thread", "process"),
        help="where a synchronous handler runs; a process can be killed (default: thread)",
    )
    add(
        "--batch",
        metavar="N[:S]",
        type=_batch,
        default=(None, None),
        help="hand the handler lists of up to N tasks, and wait for S seconds after the first (default: 0)",
    )
    add(
        "--every",
        metavar="S",
        type=seconds,
        help="also put a task every so many seconds, once for all processes",
    )
    add(
        "--cron",
        metavar="EXPRESSION",
        help="also put a task at these times, once: '30 2 * * *' or @daily; needs tenure[cron]",
    )
    add("--tz", metavar="ZONE", help="the time zone of --cron (default: UTC)")
    add("--timeout", metavar="S", type=seconds, help="seconds that a try may take (default: no limit)")
    add("--retries", metavar="N", type=count, help="tries of each task in all (default: 3)")
    add(
        "--max-deliveries",
        metavar="N",
        type=count,
        help="a task that was in work in this many crashes, and alone in the last, is dead (default: 5)",
    )
    add(
        "--on-dead",
        metavar="module:function",
        help="the function to call, once on record, with the record of each task that is dead",
    )
    add(
        "--health",
        metavar="ADDRESS",
        type=_health,
        help="HOST:PORT or :PORT, where /live and /ready are answered; N processes take N ports from here on",
    )
    add(
        "--metrics",
        metavar="ADDRESS",
        type=_health,
        help="HOST:PORT or :PORT, where /metrics has the figures of all queues and of the worker, for Prometheus; N"
        " processes take N ports from here on",
    )
    add(
        "--grace",
        metavar="S",
        type=seconds,
        default=30.0,
        help="seconds to finish tasks after a signal (default: 30)",
    )
    add(
        "--processes",
        metavar="N",
        type=partial(whole_number, least=1, most=_MOST_PROCESSES),
        default=1,
        help="start so many, and start again those that die (default: 1)",
    )
    add(
        "--max-tasks",
        metavar="N",
        type=count,
        help="replace a process that has done N tasks: it finishes what has begun, and ends",
    )
    add(
        "--max-memory",
        metavar="SIZE",
        type=_size,
        help="replace a process likewise that has used more memory, such as 300M or 2G, after a task",
    )
    add(
        "--until-empty",
        action="store_true",
        help="end with 0 when no task waits, is due or leased; tasks that are due later stay",
    )
    add(
        "--reload",
        action="store_true",
        help="start again when a .py file below the working directory changes",
    )
    add(
        "--log",
        metavar="FORMAT[:LEVEL]",
        type=_log,
        default="text:info",
        help=f"lines of {' or '.join(FORMATS)}, of the level {', '.join(LEVELS)} at least (default: %(default)s)",
    )
    add_backend(parser)
    return parser


def _namespace(text: str) -> str:
    if ":" in text:
        raise argparse.ArgumentTypeError(f"a namespace has no colon: {text!r}")
    return name_of(text)


def _address(health: tuple[str | None, int] | None, number: int) -> tuple[str | None, int] | None:
    if health is None or not health[1]:
        return health
    return health[0], health[1] + number


def _batch(text: str) -> tuple[int, float | None]:
    number, _, linger = text.partition(":")
    return whole_number(number, 1, e.CAP), (0.0 if linger == "0" else seconds(linger)) if linger else None


def _log(text: str) -> tuple[str, str]:
    form, _, level = text.partition(":")
    if form not in FORMATS or (level or "info") not in LEVELS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not {' or '.join(FORMATS)}, nor one of these with :LEVEL, which is {', '.join(LEVELS)}"
        )
    return form, level or "info"


def _size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    if not re.fullmatch("[1-9][0-9]{0,8}[KMG]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 300M or 2G")
    return int(text[:-1]) * units[text[-1]]


def _child() -> tuple[int, int | None, tuple[int, int] | None, int]:
    number, parent, file, deaths = (os.environ.pop(CHILD, None) or "1:::0").split(":")
    index = int(number) - 1
    told = (int(file), 2 * TOLD * index) if file else None
    return index, int(parent) if parent else None, told, int(deaths)
