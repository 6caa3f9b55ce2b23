"""What runs in the environment of a release: it explores one scenario there, and prints what came out as JSON."""

from __future__ import annotations

import importlib
import json
import re
import sys
import types
from collections import Counter
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

SOURCES = Path(__file__).parents[2] / "src"


def leave_out_the_front_door() -> None:
    """Make `tenure.testing` importable: the rest of tenure asks for a newer anyio than may be here."""
    house = types.ModuleType("tenure")
    house.__path__ = [str(SOURCES / "tenure")]
    sys.modules["tenure"] = house


def give_anyio_what_it_lacks() -> None:
    """Let names be imported that old releases do not have, and that no scenario uses."""
    for name in ("AsyncContextManagerMixin", "TaskHandle", "wait_readable"):
        if not hasattr(anyio, name):
            setattr(anyio, name, type(name, (), {}))


def give_trio_its_options() -> None:
    """Before 4.14, `anyio.run()` forgot them on trio (anyio #1161), and with them the virtual clock."""
    if tuple(map(int, version("anyio").split(".")[:2])) >= (4, 14):
        return
    import trio
    from anyio._backends._trio import TrioBackend

    def run(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        return trio.run(partial(fn, *args, **kwargs), **options)

    setattr(TrioBackend, "run", staticmethod(run))  # noqa: B010 # an assignment would be checked against its type


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, or the one."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def explored(module: str, name: str, backend: str, runs: int, cancel: Any) -> dict[str, Any]:
    """Try the seeds from 0, each by itself, since an exploration ends with the first that fails."""
    from tenure.testing import ScheduleFailed, _shrink, cancel_everywhere, explore

    # Failures are counted: their schedules may stay long.
    _shrink.BUDGET = 0.0

    scenario = getattr(importlib.import_module(f"benchmarks.bugs.{module}"), name)
    failed: list[int] = []
    errors: Counter[str] = Counter()
    first = ""
    began = perf_counter()
    for seed in range(runs):
        try:
            explore(scenario, seeds=[seed], backends=[backend], cancel=cancel)
        except ScheduleFailed as error:
            first = first or str(error)
            failed.append(seed)
            errors.update({type(leaf).__name__ for leaf in leaves(error.__cause__ or error)})
    seconds = perf_counter() - began
    cancellations = 0
    try:
        cancellations = cancel_everywhere(scenario, backends=[backend], cancel=cancel).runs
        window = ""
    except ValueError:  # it marks nothing that could be cancelled
        window = ""
    except ScheduleFailed as error:
        window = met_in(str(error).splitlines()[1])
    return {
        "failed": len(failed),
        "first": failed[0] if failed else None,
        "per_second": runs / seconds,
        "errors": dict(errors),
        "window": window,
        "cancellations": cancellations,
        "trace": first,
    }


def met_in(message: str) -> str:
    """The window that a failure of `cancel_everywhere()` names."""
    if "nothing cancelled" in message:
        return "none needed"
    found = re.search(r"\bin (W\d)\b", message)
    window = found[1] if found else "?"
    if "with a newcomer" in message and window != "W3":
        window = "W2N"
    return f"{window}, natively" if "natively" in message else window


if __name__ == "__main__":
    leave_out_the_front_door()
    give_anyio_what_it_lacks()
    give_trio_its_options()
    print(
        json.dumps(
            explored(
                *sys.argv[1:4], runs=int(sys.argv[4]), cancel=True if sys.argv[5] == "True" else sys.argv[5]
            )
        )
    )
