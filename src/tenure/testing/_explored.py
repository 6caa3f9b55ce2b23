"""The form of an exploration that pytest runs: a decorator for async test functions."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast, overload

from tenure.arguments import Seconds

from ._explore import ScheduleFailed, explore, replay
from ._runs import By, checked_backends, is_asyncios_own, without_asyncio

AsyncTest = Callable[..., Awaitable[object]]
Test = Callable[..., None]


@overload
def explored(test: AsyncTest, /) -> Test: ...
@overload
def explored(
    *,
    seeds: int | Iterable[int] | None = None,
    seconds: Seconds | None = None,
    backends: Sequence[str] | None = None,
    strict: bool = False,
    cancel: By = True,
) -> Callable[[AsyncTest], Test]: ...
def explored(
    test: AsyncTest | None = None,
    /,
    *,
    seeds: int | Iterable[int] | None = None,
    seconds: Seconds | None = None,
    backends: Sequence[str] | None = None,
    strict: bool = False,
    cancel: By = True,
) -> Test | Callable[[AsyncTest], Test]:
    """Make a test of an async function, which passes if `explore()` finds no schedule that breaks it.

    Write `@explored` or `@explored(seeds=1000)`; the arguments are those of `explore()`. Fixtures are made once for all
    runs together, so make inside of the function what a run changes.

    With pytest, `--explore-seeds=N` and `--explore-seconds=T` replace the number of seeds and the seconds of each such
    test. `--explore-seed=S` (a seed, or a schedule as a failure reports it) repeats that one alone, on
    `--explore-backend=NAME` if given.
    """
    seeds = seeds if isinstance(seeds, int | None) else tuple(seeds)
    if test is None:
        options: dict[str, Any] = {"backends": backends, "strict": strict, "cancel": cancel}
        return cast("Any", functools.partial(explored, seeds=seeds, seconds=seconds, **options))

    @functools.wraps(test)
    def runs(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        plugin = sys.modules.get("_tenure_pytest")
        asked: dict[str, Any] = getattr(plugin, "explore_options", {})
        scenario = functools.partial(test, *args, **kwargs)
        chosen = backends if asked.get("backend") is None else (asked["backend"],)
        if asked.get("seed") is not None:
            seed: int | str = int(asked["seed"]) if asked["seed"].isdecimal() else asked["seed"]
            for backend in checked_backends(chosen, cancel):
                with without_asyncio(backend):
                    try:
                        print(replay(scenario, seed, backend, strict=strict, cancel=cancel))  # noqa: T201
                    except ScheduleFailed as failure:
                        if not is_asyncios_own(chosen, backend, failure.__cause__ or failure):
                            raise
                    gc.collect()
            return
        on_command = asked.get("seeds"), asked.get("seconds")
        chosen_seeds, chosen_seconds = (seeds, seconds) if on_command == (None, None) else on_command
        try:
            exploration = explore(
                scenario,
                seeds=chosen_seeds,
                seconds=chosen_seconds,
                backends=chosen,
                strict=strict,
                cancel=cancel,
            )
        except ScheduleFailed as failure:
            failure.add_note(
                f"in pytest: --explore-seed={failure.schedule} --explore-backend={failure.backend} -k {test.__name__}"
            )
            raise
        print(exploration)  # noqa: T201
        if exploration.note and plugin is not None:
            plugin.explored_alone.append(exploration.note)

    return runs
