"""`tenure web`: a page about a store, which can only be read unless actions are allowed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from socket import gethostname

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from tenure.observe import printable
from tenure.store import Store
from tenure.upkeep import unwrapped_task_group
from tenure.web import Site

from ._errors import Interrupted, UsageError
from ._stop import Stop
from ._with_store import parser, with_store

_LOCAL = "127.0.0.1"
_PORT = 8765
_TOKEN_VARIABLE = "TENURE_WEB_TOKEN"  # noqa: S105 - the name of a variable, not a token


def web(words: Sequence[str]) -> int:
    """Run `tenure web`. Raises `UsageError`, `TenureError`, `OSError`."""
    p = parser(
        "web",
        "A page with live charts, tasks and failures. It can only be read, unless --actions is given. It needs the"
        " extra web: pip install 'tenure[web]'.",
        as_json=False,
    )
    p.add_argument("--host", default=_LOCAL, help="where to listen (default: %(default)s, this machine only)")
    p.add_argument("--port", type=_port, default=_PORT, help="0 for any that is free (default: %(default)s)")
    tokens = p.add_mutually_exclusive_group()
    tokens.add_argument(
        "--token-file",
        metavar="FILE",
        help="holds what each request must carry; the page is opened as /?token=... (default: the token in the"
        f" environment variable {_TOKEN_VARIABLE}, or else none)",
    )
    tokens.add_argument(
        "--token",
        type=_token,
        help="the same, where no other user of this machine can read its processes' arguments",
    )
    p.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name of this server, such as a proxy's; may be repeated",
    )
    p.add_argument("--payloads", action="store_true", help="show the payloads and results of tasks")
    p.add_argument("--no-errors", action="store_true", help="show no errors and tracebacks of tasks")
    p.add_argument(
        "--actions",
        action="store_true",
        help="let the page requeue, cancel and purge tasks, pause queues, change schedules, and break locks; needs a"
        " token",
    )
    p.add_argument(
        "--trust-proxy", action="store_true", help="log X-Forwarded-User with each action: a proxy sets it"
    )
    args = p.parse_args(words)
    args.token = args.token or _token_from_elsewhere(args.token_file)
    if args.actions and args.token is None:
        raise UsageError(
            f"--actions needs a token: --token-file FILE, or the environment variable {_TOKEN_VARIABLE}"
        )
    with_store(args, partial(_serve, args))
    return 0


async def _serve(args: argparse.Namespace, store: Store) -> None:
    check_page("tenure web")
    from tenure.web.server import Server, is_loopback

    if args.token is None and not is_loopback(args.host):
        print(
            "tenure: anyone who reaches this port can read the store; use --token-file FILE to require a token",
            file=sys.stderr,
        )
    names = (args.host, gethostname(), *args.allow_host)
    site = Site(
        store,
        actions=args.actions,
        payloads=args.payloads,
        errors=not args.no_errors,
        trust_proxy=args.trust_proxy,
    )
    server = Server(site, token=args.token, names=names)
    async with unwrapped_task_group() as group:
        stop = Stop(group.cancel_scope, lambda _: None)
        await group.start(stop.listen)
        with stop.ends():
            host = f"[{args.host}]" if ":" in args.host else args.host
            try:
                ports = await group.start(server.serve, args.host, args.port)
            except OSError as problem:
                reason = _reason(problem)
                raise Interrupted(
                    f"cannot listen on {host}:{args.port}: {reason}; see --host and --port"
                ) from problem
            hint = "; open it as /?token=TOKEN" if args.token else ""
            shown = f"http://{host}:{ports[0]}/ shows {store.url}{hint}; Ctrl-C ends it"
            print(printable(shown), flush=True)
            await site.sample()
        group.cancel_scope.cancel()


def check_page(what: str) -> None:
    """Refuse a page where the extra for it is missing. Raises `UsageError`."""
    if find_spec("h11") is None:
        raise UsageError(f"{what} needs h11: pip install 'tenure[web]'")


async def serve_page(store: Store, *, task_status: TaskStatus[str] = TASK_STATUS_IGNORED) -> None:
    """Serve a page with payloads at any free port of this machine alone, whose address is the status."""
    from tenure.web.server import Server

    site = Site(store, payloads=True)
    async with unwrapped_task_group() as group:
        ports = await group.start(Server(site, token=None, names=(_LOCAL,)).serve, _LOCAL, 0)
        task_status.started(f"http://{_LOCAL}:{ports[0]}/")
        await site.sample()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 0 to 65535")
    return int(text)


def _reason(problem: OSError) -> str:
    # asyncio's own text repeats the address
    code = problem.errno or 0
    return os.strerror(code) if code > 0 else problem.strerror or str(problem)


def _token_from_elsewhere(file: str | None) -> str | None:
    """The token in the file, or else in the environment. Raises `UsageError`."""
    if file is not None:
        try:
            source, text = f"--token-file {file}", Path(file).read_text("utf-8").strip()
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
            raise UsageError(f"--token-file {file}: {reason}") from problem
    elif _TOKEN_VARIABLE in os.environ:
        # a token that is empty by mistake must not open the page to all
        source, text = _TOKEN_VARIABLE, os.environ[_TOKEN_VARIABLE]
    else:
        return None
    try:
        return _token(text)
    except argparse.ArgumentTypeError as problem:
        raise UsageError(f"{source}: {problem}") from problem


def _token(text: str) -> str:
    if not text.isalnum() or not text.isascii() or len(text) < 8:
        raise argparse.ArgumentTypeError("a token has at least 8 letters and digits, and nothing else")
    return text
