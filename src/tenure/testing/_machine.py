"""State machines whose rules are coroutines that run at once, in an order that an exploration chooses.

The idea of a machine of rules and invariants is that of QuickCheck's and hypothesis' stateful tests.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeVar

import anyio

from ._cancellable import cancellable, newcomer
from ._director import current_director

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_tenure_machine"
VALUES = 240
"""The number from which the combination of arguments is drawn: whatever the rule, one choice."""


class _Rule(NamedTuple):
    arguments: Mapping[str, Sequence[Any]]
    when: Callable[[Any], bool] | None
    cancel: bool


class _MachineCall(NamedTuple):
    name: str
    rule: _Rule
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


def rule(
    *, when: Callable[[Any], bool] | None = None, cancel: bool = True, **arguments: Sequence[Any]
) -> Callable[[F], F]:
    """Mark an async method of a `Machine` as a rule: `@rule()`, or `@rule(amount=(1, 2, 5))` with values to draw from.

    A call is left out if `when(machine)` is false at the moment in which it would begin. It is cancelled at any moment
    in some runs, as a `cancellable()` block is, unless `cancel` is False.
    """
    given: dict[str, Any] = dict(arguments)
    for name, values in given.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise TypeError(f"{name}: a sequence of values to draw from, not {values!r}")

    def mark(method: F) -> F:
        if not inspect.iscoroutinefunction(method):
            raise TypeError(f"rule: an async method, not {method!r}")
        setattr(method, _MARK, _Rule(arguments, when, cancel))
        return method

    return mark


def invariant(method: F) -> F:
    """Mark a method without arguments of a `Machine` that asserts what must be true between any two steps."""
    if inspect.iscoroutinefunction(method):
        raise TypeError(f"invariant: a sync method, not {method!r}: it is called between two steps of tasks")
    setattr(method, _MARK, "invariant")
    return method


def at_rest(method: F) -> F:
    """Mark a method without arguments of a `Machine`, async or not, that asserts what is true when all rules have
    ended.

    It is not called if the run is cancelled as a whole.
    """
    setattr(method, _MARK, "at rest")
    return method


class Machine:
    """A state machine whose rules run at once: derive from it, mark methods, and explore `YourMachine.scenario`.

    In each run an exploration makes a new object without arguments, and draws a program: up to `tasks` tasks, and for
    each of them up to `steps` rules with arguments. The tasks run at once; each calls its rules one after the other.
    Methods marked by `@invariant` are called between any two steps of tasks, methods marked by `@at_rest` when all
    tasks have ended. The first error fails the run. The program is shortened with the schedule, and the same seed
    repeats both.

    In `cancel_everywhere`, each rule is called by a task of its own with its first arguments, and the last rule by two
    more.
    """

    tasks = 4
    steps = 3

    @classmethod
    async def scenario(cls) -> None:
        """Run a new machine; hand this to `explore()`, `replay()` or `cancel_everywhere()`.

        Cancellation: all rules are cancelled.
        """
        __tracebackhide__ = True
        marked = _marked(cls)
        rules = {name: mark for name, mark in marked.items() if isinstance(mark, _Rule)}
        if not rules:
            raise TypeError(f"{cls.__name__}: no method is marked by @rule()")
        director = current_director()
        choose = None if director is None else director.choose
        program = (
            _drawn(rules, choose, cls.tasks, cls.steps)
            if choose is not None
            else [[call] for call in [*_first(rules), _first(rules)[-1]]]
        )
        machine = cls()
        invariants = [getattr(machine, name) for name, mark in marked.items() if mark == "invariant"]
        if director is not None:
            director.interleaving = hash(tuple("; ".join(map(str, calls)) for calls in program))
            director.check = partial(_check, invariants)
        async with anyio.create_task_group() as group:
            for calls in program:
                group.start_soon(partial(_perform, machine, calls), name="; ".join(map(str, calls)))
            if director is not None and director.newcomers_wait:
                group.start_soon(partial(_perform, machine, _first(rules)[-1:], newcomer), name="newcomer")
        _check(invariants)
        for name, mark in marked.items():
            if mark == "at rest" and isinstance(asked := getattr(machine, name)(), Awaitable):
                await asked


async def _perform(
    machine: Machine, calls: Sequence[_MachineCall], arrival: Callable[[], Awaitable[None]] | None = None
) -> None:
    if arrival is not None:
        await arrival()
    for name, mark, arguments in calls:
        if mark.when is None or mark.when(machine):
            with cancellable() if mark.cancel else nullcontext():
                await getattr(machine, name)(**arguments)


def _drawn(
    rules: Mapping[str, _Rule], choose: Callable[[int], int], tasks: int, steps: int
) -> list[list[_MachineCall]]:
    """A program by chance.

    The number of choices is always the same, so that one call can be left out or replaced while the rest stays.
    """
    names = list(rules)
    program: list[list[_MachineCall]] = []
    for _ in range(tasks):
        length = choose(steps + 1)
        calls = [_calls(name := names[choose(len(names))], rules[name]) for _ in range(steps)]
        drawn = [each[choose(VALUES) % len(each)] for each in calls]
        if length:
            program.append(drawn[:length])
    return program


def _first(rules: Mapping[str, _Rule]) -> list[_MachineCall]:
    return [_calls(name, mark)[0] for name, mark in rules.items()]


def _calls(name: str, mark: _Rule) -> list[_MachineCall]:
    return [
        _MachineCall(name, mark, dict(zip(mark.arguments, values, strict=True)))
        for values in product(*mark.arguments.values())
    ]


def _check(invariants: Sequence[Callable[[], None]]) -> None:
    for check in invariants:
        check()


def _marked(cls: type[Machine]) -> dict[str, Any]:
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    return {name: mark for name in names if (mark := getattr(getattr(cls, name), _MARK, None)) is not None}
