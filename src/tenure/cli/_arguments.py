"""Options: read and checked, one by one and, for `tenure run`, together."""

from __future__ import annotations

import argparse
import math
import os
import re
import sysconfig
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn, TypeVar

import anyio

from tenure.processor import PRESETS

from ._errors import UsageError

T = TypeVar("T")

DEFAULT_STORE = "sqlite:///tenure.db"
STORE_VARIABLE = "TENURE_STORE"
STORE_DEFAULT = f"default: the environment variable {STORE_VARIABLE}, or else {DEFAULT_STORE}"
_WORKERS = 10
_MOST_WORKERS = 10_000
_MOST = 1_000_000_000
"""The largest number, and the longest time in seconds, that an option may be."""

_QUEUE_SIZE = 10_000
_EXAMPLE = "tenure.examples:digest"
"""The handler to try the command with: without an input, it gets the source files of Python's standard library."""

_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_RATE = re.compile(r"(\d+(?:\.\d+)?)/([smh])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_DESCRIPTION = """\
Call a function for every input, durably. Each input becomes a task in the store; stop the command at any moment, even
with kill -9, and the same command continues where it stopped, each input done once on record."""

_EPILOG = """\
inputs:
  FILE            each line is an input, a str without its line end
  FILE.jsonl      each line is a JSON value, blank lines are skipped
  -               lines from standard input; needs --run
  --from GLOB     the names of matching files are the inputs, in sorted order; ** matches any directories
  none            for tenure.examples:digest alone: the source files of Python's standard library

handler:
  module:function is imported with the working directory on the path and called as function(input); if its first
  parameter is annotated tenure.Task, it gets the task. Sync functions run in threads. Its return value is the result
  (JSON); if it raises, the input is retried, and is dead after the last try.

exit code:
  0 all is done   1 something died, or the run was interrupted   2 usage error, reported in one line

examples:
  tenure run tenure.examples:digest
  tenure run tenure.examples:words poems.txt --results words.jsonl
  tenure run tenure.examples:digest --from 'src/**/*.py' --workers 4 --results digests.jsonl
  tenure run shop:order orders.jsonl --rate 600/m --retries 5 --timeout 30"""


@dataclass(frozen=True, slots=True)
class RateArgument:
    number: float
    per: float


@dataclass(frozen=True, slots=True)
class Options:
    handler: str
    inputs: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    store: str = DEFAULT_STORE
    store_option: str = "--store"
    run: str | None = None
    fresh: bool = False
    workers: int = _WORKERS
    rate: RateArgument | None = None
    retries: int = 3
    max_deliveries: int = 3
    timeout: float | None = None
    queue_size: int = _QUEUE_SIZE
    results: str | None = None
    backend: str = "asyncio"


class Parser(argparse.ArgumentParser):
    """A parser of the options of one command. Raises `UsageError` where argparse would exit."""

    def __init__(self, command: str, description: str, epilog: str | None = None) -> None:
        form = argparse.RawDescriptionHelpFormatter if epilog else argparse.HelpFormatter
        super().__init__(
            f"tenure {command}", None, description, epilog, formatter_class=form, allow_abbrev=False
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def store_url(named: str | None) -> str:
    return named if named is not None else os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


def store_option(named: str | None) -> str:
    if named is not None:
        return "--store"
    return STORE_VARIABLE if os.environ.get(STORE_VARIABLE) else f"the default store, {DEFAULT_STORE}"


def parse_run(words: Sequence[str]) -> Options:
    args = _parser().parse_intermixed_args(words)
    preset = PRESETS.get(args.preset)
    if args.inputs and args.globs:
        raise UsageError("name either input files or --from, not both")
    globs: list[str] = args.globs
    if not args.inputs and not globs and args.handler == _EXAMPLE:
        stdlib = sysconfig.get_path("stdlib")
        globs = [f"{stdlib}/*.py", f"{stdlib}/[!s]*/**/*.py"]  # not site-packages, which may be large
    if not args.inputs and not globs:
        raise UsageError("there is no input: name files of lines, - for standard input, or --from 'GLOB'")
    if "-" in args.inputs and args.run is None:
        raise UsageError("standard input (-) needs --run NAME, by which the run is found again")
    if args.inputs.count("-") > 1:
        raise UsageError("standard input (-) can be read only once")
    rate = args.rate
    if rate is None and preset is not None:
        rate = RateArgument(preset.rate, 1.0)
    check_backend(args.backend)
    given: dict[str, Any] = vars(args) | {
        "inputs": tuple(args.inputs),
        "globs": tuple(globs),
        "store": store_url(args.store),
        "store_option": store_option(args.store),
        "workers": args.workers or (preset.workers if preset else _WORKERS),
        "rate": rate or None,
        "queue_size": preset.queue_size if preset else _QUEUE_SIZE,
    }
    return Options(**{field.name: given[field.name] for field in fields(Options)})


def _parser() -> Parser:
    parser = Parser("run", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("handler", metavar="module:handler", help="the function to call for each input")
    add("inputs", metavar="INPUTS", nargs="*", help="files of lines, or - for standard input")
    add(
        "--from",
        metavar="GLOB",
        dest="globs",
        action="append",
        default=[],
        help="names of files; may be repeated",
    )
    add("--store", metavar="URL", help=f"where the run is kept; {STORE_DEFAULT}")
    add(
        "--run",
        metavar="NAME",
        type=_name,
        help="the run's name (default: derived from handler, inputs and options)",
    )
    add("--fresh", action="store_true", help="forget what the run has done so far and start it anew")
    add(
        "--workers",
        metavar="N",
        type=partial(whole_number, least=1, most=_MOST_WORKERS),
        help=f"how many inputs at once, {_MOST_WORKERS:,} at most (default: {_WORKERS})",
    )
    add(
        "--rate",
        metavar="N/s",
        type=_rate,
        help="limit of starts: 100/s, 600/m, 10/h, or none (the default)",
    )
    add(
        "--retries",
        metavar="N",
        type=count,
        default=3,
        help="tries of each input in all (default: %(default)s)",
    )
    add(
        "--max-deliveries",
        metavar="N",
        type=count,
        default=3,
        help="an input that was in work in this many crashes, and alone in the last, is dead (default: %(default)s)",
    )
    add("--timeout", metavar="S", type=seconds, help="seconds that a try may take (default: no limit)")
    add("--preset", choices=tuple(PRESETS), help="defaults for workers, rate and queue: %(choices)s")
    add("--results", metavar="FILE", help="where to write a line of JSON for each input that has ended")
    add_backend(parser)
    return parser


def add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        choices=("asyncio", "uvloop", "trio"),
        default="asyncio",
        help="the event loop (default: %(default)s)",
    )


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name: use up to 100 letters, digits, dots, - and _"
        )
    return text


def whole_number(text: str, least: int, most: int) -> int:
    # Python refuses to read numbers of thousands of digits, in words of its own
    if not re.fullmatch(r"[0-9]{1,40}", text) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least:,} to {most:,}")
    return int(text)


count = partial(whole_number, least=1, most=_MOST)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (math.isfinite(number) and 0 < number <= _MOST):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and up to {_MOST:,}")
    return number


def _rate(text: str) -> RateArgument | bool:
    if text == "none":
        return False
    match = _RATE.fullmatch(text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write 100/s, 600/m, 10/h or none")
    return RateArgument(float(match[1]), _PERIODS[match[2]])


def checked(check: Callable[[str], T]) -> Callable[[str], T]:
    def read(text: str) -> T:
        try:
            return check(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return read


def check_backend(name: str) -> None:
    if name == "uvloop" and find_spec("uvloop") is None:
        raise UsageError("--backend uvloop: uvloop is not installed; pip install 'tenure[cli]'")
    if name == "trio" and find_spec("trio") is None:
        raise UsageError("--backend trio: trio is not installed; pip install 'tenure[trio]'")


def run_on(backend: str, function: Callable[..., Awaitable[T]], *args: object) -> T:
    if backend == "trio":
        return anyio.run(function, *args, backend="trio")
    return anyio.run(function, *args, backend_options={"use_uvloop": backend == "uvloop"})
