"""The convention for handlers: which parameter gets the payload, the task, or the value of a manager of `around`.

Annotations decide, and names do not. If an annotation cannot be resolved, its text decides: `Task`, `tenure.Task` and
`list[Task[int]]` are then tenure's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import Parameter
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Union, get_args, get_origin

from anyio.lowlevel import checkpoint

from tenure.errors import LeaseLost

from ._calling import name_of, signature_of

_OFFERED = {
    "tenure.Task": "Task",
    "tenure.shared.queue._task.Task": "Task",  # before anybody has asked for `tenure.Task`
    "tenure.processor.Context": "Context",
    "tenure.Store": "Store",
    "tenure.store.Store": "Store",
}
_UNRESOLVED = re.compile(r"(?:[\w.]*?(\w+)\[)?['\"]?(?:tenure\.(?:\w+\.)?)?(Task|Context|Store)\b(?!\.)")
_CLASSES = re.compile(r"(?:^|\||Optional\[)[\s'\"]*(?:\w+\.)*+(?!Optional\b)(\w+)")
_LISTS = ("list", "List", "Sequence", "MutableSequence", "Collection", "Iterable")
_WORK = -1


class NotBegun(Exception):
    """The handler was not called: its task goes back, and no try counts."""


class Wanted:
    def __init__(self, handler: str, parameter: Parameter, classes: set[type | str]) -> None:
        self._handler = handler
        self._parameter = parameter
        self._types = tuple(each for each in classes if isinstance(each, type) and each is not NoneType)
        self._names = {each for each in classes if isinstance(each, str)} - {"None"}
        self._default = parameter.default
        if self._default is parameter.empty and not classes.isdisjoint((NoneType, "None")):
            self._default = None

    @property
    def is_possible(self) -> bool:
        return bool(self._types or self._names)

    def taken(self, values: list[Any]) -> Any:
        for number, value in enumerate(values):
            if isinstance(value, self._types) or (
                self._names and any(each.__name__ in self._names for each in type(value).__mro__)
            ):
                return values.pop(number)
        if self._default is Parameter.empty:
            there = ", ".join(type(value).__name__ for value in values) or "nothing"
            raise TypeError(
                f"handler {self._handler}: nothing fills its parameter {self._parameter}: the managers of around "
                f"returned {there}"
            )
        return self._default


def adapted(
    handler: Callable[..., Any],
    *,
    batch: bool = False,
    around: bool = False,
    instead: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """The handler as a function of a task; with `batch`, of a list of tasks; with `around`, of a task and values.

    Each value goes to the first parameter that is annotated with a class of it, and has none yet. `instead` is called
    in the handler's place, with payloads alone. Raises `TypeError`.
    """
    name = name_of(handler)
    order: list[int] = []  # the sources of the positional arguments
    by_name: dict[str, int] = {}
    wanted: list[Wanted] = []
    names = _globals_of(handler)
    first = None
    called = ""
    skipped = False
    for parameter, offered, many in parameters_of(handler):
        kind = parameter.kind
        is_variable = kind in (kind.VAR_POSITIONAL, kind.VAR_KEYWORD)
        want = Wanted(name, parameter, _classes_of(parameter.annotation, names) if around else set())
        if first is None and offered in ("", "Task") and kind not in (kind.KEYWORD_ONLY, kind.VAR_KEYWORD):
            _check_first(name, parameter, offered, many, batch)
            called = parameter.name
            first, source = offered, _WORK
        elif want.is_possible and offered in ("", "Context") and not is_variable:
            source = len(wanted)
            wanted.append(want)
        elif parameter.default is parameter.empty and not is_variable:
            raise TypeError(
                f"handler {name}: nothing fills its parameter {parameter.name}; the first parameter gets the payload, "
                "or the task if it is annotated tenure.Task, and a parameter annotated with a class gets what a "
                "manager of around returns: the context of a Processor, if it is annotated tenure.processor.Context"
            )
        else:
            skipped = True
            continue
        if skipped or kind is kind.KEYWORD_ONLY:
            by_name[parameter.name] = source
        else:
            order.append(source)
    if first is None:
        raise TypeError(
            f"handler {name} must take the payload, or the task as a parameter annotated tenure.Task"
        )
    if instead is not None and (first or wanted):
        problem = "since a task stays in the process of its worker" if first else "and nothing else"
        raise TypeError(
            f'handler {name}: executor="process" hands over the payload, {problem}: '
            f"{f'annotate {called} with the type of the payload instead of Task' if first else 'remove the others'}"
        )
    target = instead or handler
    get: Callable[[Any], Any] = (_tasks if first else _payloads) if batch else _task if first else _payload

    def call(work: Any, values: Sequence[Any] = ()) -> Any:
        value, left = get(work), list(values)
        if get is _payloads and not value:
            return checkpoint()  # no payload can be decoded
        found = [*(each.taken(left) for each in wanted), value]
        named = {name: found[source] for name, source in by_name.items()}
        return target(*[found[source] for source in order], **named)

    def call_with_work(work: Any, _: object = None) -> Any:
        value = get(work)
        return checkpoint() if get is _payloads and not value else target(value)

    function = call_with_work if order == [_WORK] and not by_name else call
    function.__qualname__ = name  # warnings name it
    return function


def _check_first(name: str, parameter: Parameter, offered: str, many: bool, batch: bool) -> None:
    wanted = "list[tenure.Task]" if batch else "tenure.Task"
    if parameter.annotation is parameter.empty and parameter.name in ("task", "tasks"):
        problem = f"has no annotation; annotate it: {parameter.name}: {wanted}, or rename it, as a handler gets the "
        problem += "payloads" if batch else "payload"
    elif offered and many != batch:
        problem = f"is for {'a list of tasks' if many else 'a single task'}; "
        problem += f"annotate it {wanted}, or use {'Worker' if batch else 'BatchWorker'}"
    else:
        return
    raise TypeError(f"handler {name}: its parameter {parameter.name} {problem}")


def parameters_of(function: Callable[..., Any]) -> Iterator[tuple[Parameter, str, bool]]:
    """Each parameter, "Task", "Context" or "Store" if its annotation names that class, and whether it names a list."""
    try:
        parameters = list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # some that are written in C have none
        parameters = [Parameter("payload", Parameter.POSITIONAL_ONLY)]
    names = _globals_of(function)
    for parameter in parameters:
        yield (parameter, *_offered(parameter.annotation, names))


def hint_of(function: Callable[..., Any], annotation: Any) -> Any:
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        try:
            return eval(annotation, _globals_of(function))  # noqa: S307 as `inspect.get_annotations` does
        except Exception:  # noqa: BLE001 an annotation may be any expression
            return Any
    return Any if annotation is Parameter.empty else annotation


def _offered(annotation: Any, names: dict[str, Any]) -> tuple[str, bool]:
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        try:
            return _offered(eval(annotation, names), names)  # noqa: S307 as `inspect.get_annotations` does
        except Exception:  # noqa: BLE001 an annotation may be any expression
            match = _UNRESOLVED.match(annotation)
            outer, name = match.groups() if match else (None, "")
            is_plain = outer in (None, "Optional", "Union", "Annotated")
            return name if is_plain or outer in _LISTS else "", outer in _LISTS
    annotation = getattr(annotation, "__value__", annotation)  # of a `type` statement
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (Union, UnionType, Annotated):
        members = [_offered(part, names) for part in (parts[:1] if kind is Annotated else parts)]
        return next((member for member in members if member[0]), ("", False))
    if parts and getattr(kind, "__name__", None) in _LISTS:
        return _offered(parts[0], names)[0], True
    path = f"{getattr(kind, '__module__', None)}.{getattr(kind, '__qualname__', None)}"
    return _OFFERED.get(path, ""), False


def _classes_of(annotation: Any, names: dict[str, Any]) -> set[type | str]:
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        try:
            return _classes_of(eval(annotation, names), names)  # noqa: S307 as `inspect.get_annotations` does
        except Exception:  # noqa: BLE001 an annotation may be any expression
            return set(_CLASSES.findall(annotation))
    if annotation is None:
        return {NoneType}
    annotation = getattr(annotation, "__value__", annotation)  # of a `type` statement
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (Union, UnionType, Annotated):
        parts = parts[:1] if kind is Annotated else parts
        return {each for part in parts for each in _classes_of(part, names)}
    if kind in (Any, object, Parameter.empty) or not isinstance(kind, type):
        return set()
    try:
        isinstance(None, kind)
    except TypeError:  # a protocol whose instances cannot be told
        return set()
    return {kind}


def _globals_of(function: Any) -> dict[str, Any]:
    while inner := getattr(function, "func" if issubclass(type(function), partial) else "__wrapped__", None):
        function = inner
    call = function if hasattr(function, "__globals__") else type(function).__call__
    return getattr(call, "__globals__", {})


# in the step in which the handler begins, be it in a thread: whatever came before may have taken longer than a lease


def _task(task: Any) -> Any:
    try:
        task.check()
    except LeaseLost as lost:
        raise NotBegun(f"the lease of {lost.key} had passed before its handler began") from lost
    return task


def _payload(task: Any) -> Any:
    payload = task.payload
    _task(task)
    return payload


def _tasks(tasks: Any) -> list[Any]:
    begun: list[Any] = []
    for task in tasks:
        try:
            _task(task)
        except NotBegun as refusal:
            task.fail(refusal)
        else:
            begun.append(task)
    if not begun:
        raise NotBegun("each task of the batch has lost its lease")
    return begun


def _payloads(tasks: Any) -> list[Any]:
    payloads: list[Any] = []
    for task in _tasks(tasks):
        try:
            payloads.append(task.payload)
        except ValueError as problem:  # it cannot be decoded, which is no failure of the other tasks
            task.fail(problem)
    return payloads
