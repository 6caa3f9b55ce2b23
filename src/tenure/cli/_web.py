"""`tenure web`: a read-only page about a store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from socket import gethostname

import anyio

from tenure.store import Store
from tenure.upkeep import unwrapped_task_group
from tenure.web._watch import Watch

from ._misuse import Misuse
from ._stop import Stop
from ._visit import parser, visit

_PORT = 8765


def web(words: Sequence[str]) -> int:
    """Carry out `tenure web`. Raises `Misuse`, `TenureError`, `OSError`."""
    p = parser(
        "web", "A read-only page with live charts. It shows no payloads, results or metadata.", as_json=False
    )
    p.add_argument(
        "--host", default="127.0.0.1", help="where to listen (default: %(default)s, this machine only)"
    )
    p.add_argument("--port", type=_port, default=_PORT, help="0 for any that is free (default: %(default)s)")
    p.add_argument("--token", type=_token, help="what each request must carry; opened as /?token=...")
    p.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name of this server, such as a proxy's; may be repeated",
    )
    given = p.parse_args(words)
    visit(given, partial(_serve, given))
    return 0


async def _serve(given: argparse.Namespace, store: Store) -> None:
    try:
        from tenure.web._server import Server, is_loopback
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise Misuse("tenure web needs h11: pip install 'tenure[web]'") from None
    if given.token is None and not is_loopback(given.host):
        print(
            "tenure: whoever reaches this port can look at the store; --token asks for a password",
            file=sys.stderr,
        )
    names = (given.host, gethostname(), *given.allow_host)
    server = Server(Watch(store).state, token=given.token, names=names)
    async with unwrapped_task_group() as group:
        stop = Stop(group.cancel_scope, lambda _: None)
        await group.start(stop.listen)
        with stop.ends():
            ports = await group.start(server.serve, given.host, given.port)
            host = f"[{given.host}]" if ":" in given.host else given.host
            end = f"/?token={given.token}" if given.token else "/"
            print(f"http://{host}:{ports[0]}{end} shows {store.url}; Ctrl-C ends it", flush=True)
            await anyio.sleep_forever()
        group.cancel_scope.cancel()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to 65535")
    return int(text)


def _token(text: str) -> str:
    if not text.isalnum() or not text.isascii() or len(text) < 8:
        raise argparse.ArgumentTypeError("a token has at least 8 letters and digits, and nothing else")
    return text
