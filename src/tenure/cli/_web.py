"""`tenure web`: a page about a store."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from socket import gethostname

from tenure.observe import printable
from tenure.serving import parse_address
from tenure.store import Store
from tenure.upkeep import unwrapped_task_group
from tenure.web import Site

from ._arguments import checked
from ._errors import Interrupted, UsageError
from ._stop import Stop
from ._with_store import parser, with_store

_LOCAL = "127.0.0.1"
_PORT = 8765
_TOKEN_VARIABLE = "TENURE_WEB_TOKEN"  # noqa: S105 - the name of a variable, not a token


def web(words: Sequence[str]) -> int:
    p = parser(
        "web",
        "A page with live charts, tasks and failures. It can only be read, unless --allow is given. Each request must"
        f" carry the token in the environment variable {_TOKEN_VARIABLE}, if there is one; the page is opened as"
        " /?token=... It needs the extra web: pip install 'tenure[web]'.",
        as_json=False,
    )
    p.add_argument(
        "address",
        metavar="HOST:PORT",
        nargs="?",
        type=checked(partial(parse_address, "it")),
        default=f"{_LOCAL}:{_PORT}",
        help="where to listen; port 0 is any that is free, :PORT all interfaces (default: %(default)s)",
    )
    p.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name of this server, such as a proxy's, whose X-Forwarded-User is then logged with each action;"
        " may be repeated",
    )
    p.add_argument(
        "--show",
        choices=("counts", "errors", "payloads"),
        default="errors",
        help="what is shown of tasks: neither errors nor payloads, errors and tracebacks, or payloads and results too"
        " (default: %(default)s)",
    )
    p.add_argument(
        "--allow",
        choices=("actions", "puts"),
        action="append",
        default=[],
        help="actions: let the page requeue, cancel and purge tasks, pause queues, change schedules, and break locks;"
        " puts: let programs put tasks; needs a token; may be repeated",
    )
    args = p.parse_args(words)
    args.token = _token()
    if args.allow and args.token is None:
        raise UsageError(f"--allow needs a token in the environment variable {_TOKEN_VARIABLE}")
    with_store(args, partial(_serve, args))
    return 0


async def _serve(args: argparse.Namespace, store: Store) -> None:
    if find_spec("h11") is None:
        raise UsageError("tenure web needs h11: pip install 'tenure[web]'")
    from tenure.web.server import Server, is_loopback

    host, port = args.address
    if args.token is None and not is_loopback(host or ""):
        print(
            f"tenure: anyone who reaches this port can read the store; {_TOKEN_VARIABLE} holds a token to require",
            file=sys.stderr,
        )
    names = (host or "localhost", gethostname(), *args.allow_host)
    site = Site(
        store,
        actions="actions" in args.allow,
        puts="puts" in args.allow,
        payloads=args.show == "payloads",
        errors=args.show != "counts",
        trust_proxy=bool(args.allow_host),
    )
    server = Server(site, token=args.token, names=names)
    async with unwrapped_task_group() as group:
        stop = Stop(group.cancel_scope, lambda _: None)
        await group.start(stop.listen)
        with stop.ends():
            shown = f"[{host}]" if ":" in (host or "") else host or "0.0.0.0"  # noqa: S104 shown alone
            try:
                ports = await group.start(server.serve, host, port)
            except OSError as problem:
                reason = _reason(problem)
                raise Interrupted(
                    f"cannot listen on {shown}:{port}: {reason}; name another HOST:PORT"
                ) from problem
            hint = "; open it as /?token=TOKEN" if args.token else ""
            print(
                printable(f"http://{shown}:{ports[0]}/ shows {store.url}{hint}; Ctrl-C ends it"), flush=True
            )
            await site.sample()
        group.cancel_scope.cancel()


def _reason(problem: OSError) -> str:
    # asyncio's own text repeats the address
    code = problem.errno or 0
    return os.strerror(code) if code > 0 else problem.strerror or str(problem)


def _token() -> str | None:
    """The token in the environment: an argument could be read by every user of the machine. Raises `UsageError`."""
    text = os.environ.get(_TOKEN_VARIABLE)
    token = text and text.strip()  # a file ends with a newline
    # a token that is empty by mistake must not open the page to all
    if token is not None and not (token.isalnum() and token.isascii() and len(token) >= 8):
        raise UsageError(f"{_TOKEN_VARIABLE}: a token has at least 8 letters and digits, and nothing else")
    return token
