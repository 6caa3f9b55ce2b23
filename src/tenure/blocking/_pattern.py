"""Classes for synchronous code, made from the asynchronous classes.

A coroutine function becomes a plain function that waits, an `async with` block a `with` block. All else is taken over:
names, arguments, exceptions, docstrings.
"""

# pyright: reportPrivateUsage=false
# the functions that `made` defines become methods

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from operator import attrgetter, methodcaller
from threading import local
from types import TracebackType
from typing import Any, Generic, TypeVar, get_origin
from weakref import ref

import tenure.engine as e
from tenure import shared
from tenure.arguments import AsyncBlock, SyncBlock, check_timeout
from tenure.store import Store as AsyncStore

from ._block import Block
from ._portal import Portal
from ._request import PortalEnded
from ._store import Store

R = TypeVar("R")

_LIMITED = "Raises `TimeoutError` after `{}` seconds (None: never), with the effects of an interruption."


def described(text: str | None) -> str:
    """The docstring of asynchronous code for the synchronous code that is made from it.

    Code loses `async` and `await`. Two labels change: an interruption replaces a cancellation, and any thread may call.
    """
    text = (text or "").replace("async with ", "with ").replace("await ", "")
    text = text.replace("Cancellation:", "Interruption:")
    before, label, rule = text.partition("Thread safety:")
    return f"{before}{label} any.{rule.partition('.')[2]}" if label else text


def members(cls: type[Any], left_out: str) -> Iterator[tuple[str, Any]]:
    inherited = {name: member for base in reversed(cls.__mro__[:-1]) for name, member in vars(base).items()}
    for name, member in inherited.items():
        public = not name.startswith("_") and name not in left_out.split()
        if public and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def returns(function: Callable[..., Any]) -> str:
    return str(function.__annotations__.get("return", ""))


class SyncProxy:
    _inside: Any

    def __repr__(self) -> str:
        return repr(self._inside).replace("<", "<blocking.", 1)

    def _call(self, name: str, args: Any, kwargs: Any, timeout: float | None = None) -> Any:
        raise NotImplementedError

    def _call_plain(self, name: str, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError

    def _call_opened(self, name: str, args: Any, kwargs: Any) -> Any:
        return self._call_here(name, args, kwargs)

    def _call_here(self, name: str, args: Any, kwargs: Any) -> Any:
        return getattr(self._inside, name)(*args, **kwargs)


class Held(SyncProxy):
    def __init__(self, inside: Any, portal: Portal) -> None:
        self._inside = inside
        self._portal = portal

    def _call(self, name: str, args: Any, kwargs: Any, timeout: float | None = None) -> Any:
        del timeout  # the loss of the lease ends each wait
        args, kwargs = map(_opened, args), {key: _opened(value) for key, value in kwargs.items()}
        call = partial(getattr(self._inside, name), *args, **kwargs)
        try:
            return self._portal.call(call, self._inside.check)
        except PortalEnded:
            return self._inside.check()  # its block has ended with the portal, which this raises

    def _call_plain(self, name: str, args: Any, kwargs: Any) -> Any:
        call = partial(getattr(self._inside, name), *args, **kwargs)
        try:
            return self._portal.call_plain(call)
        except PortalEnded:
            return call()


class Pattern(SyncProxy):
    """A pattern over a synchronous store: it makes the asynchronous object anew for each store that is opened."""

    def __init__(self, owner: Any, make: Callable[[Any], Any]) -> None:
        self._owner = owner
        self._store: Store = owner if isinstance(owner, Store) else owner._store
        self._make = make
        self._over: AsyncStore = self._store._template
        # whatever is wrong with the arguments is raised here
        self._inside = make(owner._template if isinstance(owner, Store) else owner._inside)
        self._entered = local()

    def _inside_of(self, store: AsyncStore) -> Any:
        if self._over is not store:
            owner = self._owner
            self._inside = self._make(store if isinstance(owner, Store) else owner._inside_of(store))
            self._over = store
        return self._inside

    def _call(self, name: str, args: Any, kwargs: Any, timeout: float | None = None) -> Any:
        async def call(store: AsyncStore) -> Any:
            return await getattr(self._inside_of(store), name)(*args, **kwargs)

        return self._store._call(call, timeout)

    def _call_opened(self, name: str, args: Any, kwargs: Any) -> Any:
        return getattr(_opened(self), name)(*args, **kwargs)

    def _block(
        self,
        make: Callable[[Any], AbstractAsyncContextManager[Any, Any]],
        kind: Any,
        exclusive: bool,
        timeout: float | None = None,
    ) -> Block:
        what = (type(self).__name__, self._store._key, self._inside.name) if exclusive else ()
        return Block(self._store, lambda store: make(self._inside_of(store)), kind, what, timeout)

    def _enter(self, block: Block) -> Any:
        entered = self._entered.__dict__
        leaving = entered.pop("leaving", lambda: None)()
        blocks: list[Block] = entered.setdefault("blocks", []) if leaving is None else leaving.args[0]
        blocks.append(block)
        try:
            return block.__enter__()
        except BaseException:
            blocks.pop()
            raise

    def _leave(self, blocks: list[Block], *error: Any) -> bool | None:
        blocks = blocks or self._entered.__dict__.get("blocks", [])
        if not blocks:
            raise RuntimeError(f"{self!r}: not held by this thread")
        return blocks.pop().__exit__(*error)


class Listing(Pattern, Generic[R]):
    """Records in an order: `for record in queue.tasks("dead")`, or page by page, as `tenure.types.Listing` has them.

    Thread safety: any; an iterator belongs to one thread at a time.
    """

    def __iter__(self) -> Iterator[R]:
        after, left = None, self._inside.limit
        while left > 0:
            page = self.page(after, min(e.CAP, left))
            yield from page.records
            after, left = page.next, left - len(page.records)
            if after is None:
                return

    def page(self, after: str | None = None, limit: int = 100) -> shared.Page[R]:
        """Read up to `limit` records; `after` is the `next` of the page before, or None for the first page.

        Raises as the asynchronous one.
        Interruption: no effect.
        """
        return self._call("page", (after, limit), {})


class _Exit:
    """The descriptor of `__exit__`, which makes a function for each `with lock`.

    The statement refers to the function, and the function to the block. So an interruption that ends the statement
    without a call of the function frees the block, which is then given back. The block of a plain call of `__enter__`
    belongs to the thread.
    """

    def __init__(self, function: Callable[..., bool | None]) -> None:
        self._function = function

    def __get__(self, pattern: Pattern | None, cls: type[Pattern]) -> Callable[..., bool | None]:
        if pattern is None:
            return self._function
        leaving = partial(pattern._leave, [])
        pattern._entered.leaving = ref(leaving)
        return leaving


def made(
    cls: type[Any],
    base: type[SyncProxy],
    fields: str,
    *,
    left_out: str = "",
    on_loop: str = "",
    waits: str = "",
    exclusive: bool = False,
    hands_over: type[Held] | None = None,
) -> Any:
    """Make the class for synchronous code.

    `fields` are the public attributes, `left_out` is for asynchronous code alone, `on_loop` names plain functions that
    belong to the loop. `waits` names functions that wait for more than an answer, and take a time limit: `timeout`, or
    the name behind a colon. Blocks hand over `hands_over`; a thread enters them only once if `exclusive`.
    """
    body: dict[str, Any] = {"__doc__": described(cls.__doc__), "__module__": "tenure.blocking"}
    body |= {
        "_made_from": cls,
        "_hands_over": hands_over,
        "_fields": fields.split(),
        "_left_out": left_out.split(),
        "_waits": {
            name: limit or "timeout" for name, _, limit in (wait.partition(":") for wait in waits.split())
        },
    }
    body |= {name: _field(name) for name in fields.split()}
    for name, member in members(cls, left_out):
        body[name] = _member(name, member, on_loop.split(), exclusive, hands_over, body["_waits"].get(name))
    if base is Pattern:
        body["__init__"] = _maker(cls)
        first = next(iter(inspect.signature(cls).parameters))
        body[first] = property(attrgetter("_owner"), doc="What it is over.")
        if issubclass(cls, AsyncBlock):
            body |= _entering(cls, exclusive, hands_over)
    bases = (SyncBlock, base) if issubclass(cls, AsyncBlock) else (base,)
    generic = [original for original in getattr(cls, "__orig_bases__", ()) if get_origin(original) is Generic]
    return types.new_class(
        cls.__name__, (*bases, *generic), exec_body=lambda namespace: namespace.update(body)
    )


def _opened(value: Any) -> Any:
    async def find(store: AsyncStore) -> Any:
        return value._inside_of(store)

    return value._store._call(find) if isinstance(value, Pattern) else value


def _field(name: str, doc: str | None = None) -> property:
    return property(attrgetter(f"_inside.{name}"), doc=doc)


def _member(
    name: str, member: Any, on_loop: list[str], exclusive: bool, kind: type[Held] | None, limit: str | None
) -> Any:
    if isinstance(member, property):
        return _field(name, described(member.__doc__))
    returned = returns(member)

    def limited(kwargs: dict[str, Any]) -> float | None:
        seconds = kwargs.pop(limit, None) if limit else None
        return None if seconds is None else check_timeout(limit or "", seconds)

    def waits(self: SyncProxy, *args: Any, **kwargs: Any) -> Any:
        seconds = limited(kwargs)
        return self._call(name, args, kwargs, seconds)

    def plain(self: SyncProxy, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, way)(name, args, kwargs)

    def block(self: Pattern, *args: Any, **kwargs: Any) -> Any:
        seconds = limited(kwargs)
        make = methodcaller(name, *args, **kwargs)
        make(self._inside)  # whatever is wrong with the arguments is raised here
        return self._block(make, kind, exclusive, seconds)

    def derived(self: Pattern, *args: Any, **kwargs: Any) -> Any:
        other = copy.copy(self)
        change = methodcaller(name, *args, **kwargs)
        Pattern.__init__(other, self._owner, lambda owner: change(self._make(owner)))
        return other

    def listed(self: Pattern, *args: Any, **kwargs: Any) -> Any:
        return Listing[Any](self, methodcaller(name, *args, **kwargs))

    made: Any
    way = "_call_opened" if name.endswith("_sync") else "_call_plain" if name in on_loop else "_call_here"
    if inspect.iscoroutinefunction(member):
        made = waits
    elif returned.startswith("AbstractAsyncContextManager"):
        made = block
    elif way == "_call_here" and returned.startswith("Listing"):
        made = listed
    elif way == "_call_here" and returned == "Self":
        made = derived
    else:
        made = plain
    wraps(member)(made)
    made.__doc__ = described(member.__doc__)
    if limit:
        made.__doc__ = f"{made.__doc__.rstrip()}\n\n        {_LIMITED.format(limit)}"
        signature = inspect.signature(member)
        parameters = [*signature.parameters.values()]
        options = parameters.pop() if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else None
        parameters.append(inspect.Parameter(limit, inspect.Parameter.KEYWORD_ONLY, default=None))
        made.__signature__ = signature.replace(parameters=[*parameters, *([options] if options else [])])
    return made


def _maker(cls: type[Any]) -> Any:
    signature = inspect.signature(cls)
    first = next(iter(signature.parameters))
    over = Pattern if first == "queue" else Store

    @wraps(cls.__init__)
    def __init__(self: Pattern, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        bound = signature.bind(*args, **kwargs)
        owner, *arguments = bound.args
        if not isinstance(owner, over):
            raise TypeError(f"{first} must be made by tenure.blocking, not {type(owner).__name__}")
        Pattern.__init__(self, owner, lambda inside: cls(inside, *arguments, **bound.kwargs))

    hint: Callable[[Any], Any] | None = getattr(cls.__init__, "hint", None)
    return hint(__init__) if hint else __init__


def _entering(cls: type[Any], exclusive: bool, kind: type[Held] | None) -> dict[str, Any]:
    def __enter__(self: Pattern) -> Any:  # noqa: N807
        return self._enter(self._block(lambda inside: inside, kind, exclusive))

    def __exit__(  # noqa: N807
        self: Pattern,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._leave([], error_type, error, trace)

    __enter__.__doc__ = described(cls.__aenter__.__doc__)
    __exit__.__doc__ = described(cls.__aexit__.__doc__)
    return {"__enter__": __enter__, "__exit__": _Exit(__exit__)}
