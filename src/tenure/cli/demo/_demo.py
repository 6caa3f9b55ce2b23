"""`tenure demo`: a fleet of workers that are killed, and the records of their work."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio import CancelScope

from tenure.cli._arguments import Parser, add_backend, check_backend, run_on, seconds
from tenure.cli._errors import UsageError
from tenure.cli._keyboard import other_screen, pressed
from tenure.cli._stop import Stop
from tenure.cli._web import check_page, serve_page
from tenure.observe import printable
from tenure.upkeep import unwrapped_task_group
from tenure.web import View

from ._audit import Verdict, judge
from ._eyes import NotSeen, StoreProbe
from ._fleet import Fleet
from ._screen import Screen, styled
from ._story import DemoScript
from ._worker import Post, close_counter, open_post, post_in, work

_QUICK = 5.0
_TIMEOUT = 60.0

_DESCRIPTION = """\
Show what happens to workers that are killed. Four processes deliver letters from a queue, take turns at a ledger, and
elect a postmaster, over a SQLite file in a temporary folder. They are killed with kill -9, or stopped when
it is too late. At the end, all records are compared: each letter must be delivered once, and the ledger must have no
stale write."""

_EPILOG = """\
exit code:
  0 the records agree   1 they do not, or it was stopped before the end   2 usage error"""


def demo(words: Sequence[str]) -> int:
    """Run `tenure demo`. Raises `UsageError`, `TenureError`, `OSError`."""
    args = _parser().parse_args(words)
    check_backend(args.backend)
    if args.web:
        check_page("--web")
    if os.name != "posix":
        raise UsageError("tenure demo needs a POSIX system")
    if args.child is not None:
        name, parent, folder = args.child.split(":", 2)
        run_on(args.backend, work, Path(folder), name, int(parent))
        return 0
    # before its folder is made: it is to be deleted
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # on a full disk it cannot be deleted either, and the demo has failed for that reason before
        with TemporaryDirectory(prefix="tenure-demo-", ignore_cleanup_errors=True) as folder:
            return run_on(args.backend, _Demo(args, Path(folder)).run)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _parser() -> Parser:
    p = Parser("demo", _DESCRIPTION, _EPILOG)
    length = p.add_mutually_exclusive_group()
    length.add_argument(
        "--seconds", metavar="N", type=seconds, default=120.0, help="about how long it takes (default: 120)"
    )
    length.add_argument(
        "--quick", dest="seconds", action="store_const", const=_QUICK, help="one kill, and the end"
    )
    p.add_argument("--web", action="store_true", help="show the page of tenure web too, at a free port")
    add_backend(p)
    p.add_argument("--child", help=argparse.SUPPRESS)
    return p


class _Demo:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._folder = folder
        self._fleet = Fleet(folder, args.backend)
        self._screen = Screen(args.seconds, self._fleet)
        self._handovers: list[float] = []
        self._problems: list[str] = []
        self._finished = False

    async def run(self) -> int:
        """Show the demo, and return the exit code. Cancellation: all processes are ended."""
        with ExitStack() as processes:
            processes.callback(self._fleet.end)
            async with open_post(self._folder) as store:
                post = post_in(store, self._folder)
                post.log.make()
                with other_screen(sys.stdout) if self._screen.is_terminal else nullcontext():
                    await self._show(post)
                self._fleet.end()
                audit, sent = await post.queue.verify(), await close_counter(post.queue)
        verdict = judge(audit, sent, post.log.read(), finished=self._finished)
        return self._report(verdict)

    async def _show(self, post: Post) -> None:
        """Show frames until the end, or until a key or a signal ends the demo before."""
        async with unwrapped_task_group() as group:
            stop = Stop(group.cancel_scope, lambda _: None)
            await group.start(stop.listen)
            with stop.ends() as scope:
                async with unwrapped_task_group() as parts:
                    probe = StoreProbe(post.store)
                    if self._args.web:
                        self._screen.page = await parts.start(serve_page, post.store)
                        self._screen.say(f"{self._screen.page} shows it too")
                    parts.start_soon(probe.watch, partial(self._on_look, scope))
                    parts.start_soon(self._play, post, probe, scope)
                    if self._screen.is_terminal:
                        await pressed("qQ\x03")
                        scope.cancel()
            group.cancel_scope.cancel()

    def _on_look(self, scope: CancelScope, view: View) -> None:
        self._screen.draw(view)
        if fallen := self._fleet.fallen():
            self._problems.append(fallen)
            scope.cancel()

    async def _play(self, post: Post, probe: StoreProbe, scope: CancelScope) -> None:
        script = DemoScript(self._fleet, probe, post.log, self._screen.say)
        self._handovers = script.handovers
        try:
            await script.tell(self._args.seconds)
            sent = await close_counter(post.queue)
            self._screen.say(f"no more letters: the last one has the number {sent}")
            with anyio.fail_after(_TIMEOUT):
                await post.queue.join()
            self._finished = True
        except NotSeen as problem:
            self._problems.append(str(problem))
        except TimeoutError:
            self._problems.append(f"letters are left after {_TIMEOUT:g} s")
        scope.cancel()

    def _report(self, verdict: Verdict) -> int:
        fleet = self._fleet
        print("\n".join(verdict.lines))
        after = f"; others took over after {max(self._handovers):.1f} s at most" if self._handovers else ""
        print(f"workers         {fleet.killed} killed, {fleet.frozen} stopped{after}")
        problems = [*verdict.problems, *self._problems]
        for problem in problems:
            print(styled(printable(problem), "bad"))
        if problems:
            print(styled("FAILED: see above.", "bad"))
        elif self._finished:
            print(
                styled(
                    "PASSED: each letter was delivered once, and no stale write was made.",
                    "good",
                )
            )
        else:
            print("STOPPED before the end. So far, the records agree.")
        return 0 if self._finished and not problems else 1
