# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Any, Generic, Literal, NoReturn, Protocol, Self, Unpack, cast

import tenure.engine as e
from tenure.arguments import AsyncBlock, check_count, check_name, shows_options
from tenure.errors import TaskCancelled, TaskFailed, TooManyChildren
from tenure.store import Codec, Store, decoded
from tenure.waiting import checkpoint

from ._family import CHILD, Family
from ._groups import group_of_children
from ._new_task import Encoding, new_task
from ._options import Item, PutOptions
from ._payload import P
from ._put_span import PutSpan

OnFailure = Literal["cancel", "collect"]
"""The effect of a failed child on the other children of its block: they are cancelled, or they go on."""

_MOST_BYTES = 4 * 2**20
_OF_ROOTS = ("expires", "key")


class TargetQueue(Encoding[Any], Protocol):
    store: Store


class Target(Generic[P]):
    """A queue or a job, where children can be put."""

    @property
    def _place(self) -> TargetQueue:
        raise NotImplementedError

    def _call(self, item: Item[Any]) -> Item[Any]:
        raise NotImplementedError

    def _result_in(self, value: Any) -> Any:
        return value


class Parent(Protocol):
    priority: int

    def check(self) -> None: ...

    def _check_answer(self, answer: object) -> None: ...

    async def _suspend(self, verdict: e.Verdict, until: str, delay: float = 0.0) -> NoReturn: ...


class Child:
    """A child of a task, as its parent knows it.

    `state` is "unfinished", "done", "dead", "discarded", "cancelled", "expired" or "purged"; `id` is the id of
    the task in the queue with the key `queue`.
    """

    __slots__ = ("_codec", "_job", "_value", "id", "name", "queue", "state", "swept")

    def __init__(self, codec: Codec[Any], name: str, entry: e.Entry, job: Target[Any]) -> None:
        self._codec = codec
        self._job = job
        self._value = entry.value
        self.name: str = name
        self.queue: str = entry.queue
        self.id: int = entry.id
        self.state: str = entry.state
        self.swept: bool = entry.swept
        """True if the failure of another child, or the end of their parent's try, cancelled the child."""

    def __repr__(self) -> str:
        return f"<Child {self.name!r}: task {self.id} of {self.queue} {self.state}>"

    @property
    def ended(self) -> bool:
        """True if the child is not unfinished."""
        return self.state != "unfinished"

    @property
    def result(self) -> Any:
        """The result of a done child, as the store's codec makes it, or as `Job.result` for a `Job`.

        Raises `TaskFailed` or `TaskCancelled` if the child has ended in another way, `RuntimeError` before its end, and
        `ValueError` for a result that the codec refuses.
        """
        if not self.ended:
            raise RuntimeError(f"{self!r} has not ended: read its result after the block of children")
        if (failure := self.failure) is not None:
            raise failure
        return self._job._result_in(
            decoded(self._codec, f"{self.queue}: the result of task {self.id}", self._value)
        )

    @property
    def error(self) -> str | None:
        """The error or the reason of a failed child, as far as it is known; else None."""
        if self.state in ("unfinished", "done"):
            return None
        return self._value.decode(errors="replace") or None

    @property
    def failure(self) -> TaskFailed | TaskCancelled | None:
        """The exception for a child that has ended in another way than done; else None."""
        if self.state in ("unfinished", "done"):
            return None
        if self.state == "cancelled":
            return TaskCancelled(self.queue, self.id)
        return TaskFailed(self.queue, self.id, self.state, self.error or "")


class Children(AsyncBlock, Generic[P]):
    """The children of a task in one block, made by `Task.children`.

    Iterating gives the children that this delivery put, in order, and then those that only an earlier delivery has put.

    Thread safety: none; any task of the event loop may call `put` and `put_many` while the block is open.
    """

    def __init__(
        self,
        parent: Parent,
        family: Family,
        target: Target[Any],
        name: str,
        on_failure: OnFailure,
        max_children: int,
    ) -> None:
        if "/" in check_name("name", name):
            raise ValueError(f"name must have no '/', as {name!r} has")
        if on_failure not in ("cancel", "collect"):
            raise ValueError(f'on_failure must be "cancel" or "collect", not {on_failure!r}')
        self._parent = parent
        self._family = family
        self._target = target
        self._name = name
        self._prefix = f"{CHILD}{name}/"
        self._on_failure = on_failure
        self._most: int = check_count("max_children", max_children, most=e.MOST_ENTRIES)
        self._open = False
        self._known: dict[str, e.Entry] = {}
        self._children: dict[str, Child] = {}
        self._used: set[str] = set()
        self._same: dict[str, int] = {}  # the last number of a digest

    def __repr__(self) -> str:
        return f"<Children {self._name!r} of {self._family}: {len(self._children)}>"

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Child]:
        return iter(self._children.values())

    async def __aenter__(self) -> Self:
        self._parent.check()
        of_all, block = await self._family.children(), f"{self._name}/"
        self._known = {name[len(block) :]: entry for name, entry in of_all.items() if name.startswith(block)}
        await checkpoint()
        self._parent.check()  # what follows may act on their results
        self._family.use(self._prefix, f"the block of children {self._name!r}")
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._recall()
        if error is None:
            await self._finish()
        else:
            self._family.left |= self._unfinished()

    def ended(self) -> AsyncIterator[Child]:
        """Iterate over the children in the order in which they end, within the block.

            async for child in children.ended():
                await task.step(f"add {child.name}", partial(add, child.result))

        The loop gives children that are put meanwhile too, and ends when no child is unfinished. If no further end is
        on record, the task is suspended, holds nothing, and goes on at the next end. Then **its handler runs again
        from its start**: the loop gives the children from the record in the order of the earlier deliveries, and then
        those that have ended since. So put the work of the loop into steps. With "collect", failed children are given
        too. With "cancel", the first failed child ends the loop and the block.

        Raises the errors of the end of the block, and `RuntimeError` outside of the block.
        Cancellation: the task is given back, and a later delivery gives the children again.
        """
        return _Ended(self, sorted((entry.ended, name) for name, entry in self._known.items() if entry.ended))

    def _recall(self) -> None:
        for name, entry in self._known.items():
            self._children.setdefault(name, self._child(name, entry))

    def _unfinished(self) -> bool:
        states = {entry.state for entry in self._known.values()} | {child.state for child in self}
        return "unfinished" in states

    def _child(self, name: str, entry: e.Entry) -> Child:
        return Child(self._family.codec, name, entry, self._target)

    async def _finish(self) -> None:
        await self._wait(e.Verdict.WAIT, self._prefix if self._on_failure == "cancel" else "")
        if self._on_failure == "cancel":
            self._raise_failures()

    async def _give(self, name: str) -> Child:
        child = self._children.get(name) or self._child(name, self._known[name])
        if child.failure is not None and self._on_failure == "cancel":
            self._recall()
            await self._finish()
        return child

    async def _wait(self, verdict: e.Verdict, until: str) -> None:
        if self._unfinished():
            self._parent.check()
            await self._parent._suspend(verdict, until)

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError(f"{self!r}: use children within the block: async with task.children(...)")
        self._parent.check()

    @shows_options(PutOptions, delay=0.0)
    async def put(self, payload: P, name: str | None = None, **options: Unpack[PutOptions]) -> Child:
        """Put a child and return it, unless an earlier delivery of the task has put the child of that name.

        `name` is the child's name in the block. None: a digest of queue and payload, and the number of equal ones
        before it in this delivery. The options are those of `WorkQueue.put`, but a child has no `key` and no
        `expires`, and its `priority` is the parent's by default. No limit of the queue makes a child wait. The payload
        of a `Job` is its only argument, or what `Job.item` returns.

        Raises as `WorkQueue.put` does; `LeaseLost`, `TaskCancelled` if the task's cancellation was requested, and
        `TooManyChildren`. Raises `RuntimeError` outside of the block and for a name that was used before in this
        delivery, and `EngineError` for a queue in another shard and at the deepest level.
        Cancellation: the child may or may not be put.
        """
        (child,) = await self.put_many([Item(payload, name=name, **options)])
        return child

    async def put_many(self, items: Iterable[P | Item[P]]) -> list[Child]:
        """Put many children, payloads or `Item`s, 256 in a round trip, and return them.

        Raises as `put` does; a wrong item raises before anything is put.
        Cancellation: the children of some round trips may be put.
        """
        self._check_open()
        family, place = self._family, self._target._place
        made = [cast("Item[Any]", item) if isinstance(item, Item) else Item(item) for item in items]
        with PutSpan(family.store.reporter, place.key, len(made)) as span:
            tasks: dict[str, e.NewTask] = {}
            try:
                for item in made:
                    task = self._task_of(item, span.meta)
                    tasks[self._name_of(item.name, task)] = task
                new = [(name, task) for name, task in tasks.items() if not self._is_there(name)]
                for portion in _portions(new):
                    await self._put(place.key, portion)
                if not new:
                    await checkpoint()
            except BaseException:
                # the next attempt uses the same names: a child that arrived is not put again
                self._used.difference_update(tasks)
                self._same.clear()
                raise
        return [self._children[name] for name in tasks]

    def _task_of(self, item: Item[Any], span_meta: Mapping[str, str]) -> e.NewTask:
        called = self._target._call(item)
        if wrong := sorted(name for name in _OF_ROOTS if called.options.get(name) is not None):
            raise ValueError(f"a child has no {wrong[0]}: only a task without a parent has")
        options: PutOptions = {"priority": self._parent.priority, **called.options}
        task = new_task(self._target._place, called.payload, span_meta, **options)
        return replace(task, group=group_of_children(task.group))

    def _name_of(self, name: str | None, task: e.NewTask) -> str:
        if name is None:
            place = self._target._place.key.encode()
            digest = sha256(b"%d %b%b" % (len(place), place, task.payload)).hexdigest()[:32]
            number = self._same.get(digest, 0) + 1
            while (name := f"{digest}-{number}") in self._used:
                number += 1
            self._same[digest] = number
        elif check_name("name", name) in self._used:
            raise RuntimeError(f"the name {name!r} was used before in {self!r}: use another name")
        self._used.add(name)
        return name

    def _is_there(self, name: str) -> bool:
        if (entry := self._known.get(name)) is None:
            return False
        self._children[name] = self._child(name, entry)
        return True

    async def _put(self, key: str, portion: Sequence[tuple[str, e.NewTask]]) -> None:
        family = self._family
        names = tuple(name for name, _ in portion)
        # even if the put is cancelled: with a number too high, a wait only ends too early
        family.put += len(names)
        answer = await family.store.call(
            e.PutChildren(
                *(family.key, family.id, family.token, key),
                tuple(self._prefix + name for name in names),
                tuple(task for _, task in portion),
                self._most,
            ),
            patient=True,
        )
        if isinstance(answer, e.TooMany):
            raise TooManyChildren(family.key, family.id, answer.most)
        if isinstance(answer, e.Accepted):
            for name, task_id in zip(names, answer.ids, strict=True):
                assert isinstance(task_id, int)
                entry = e.Entry(self._prefix + name, "child", "unfinished", queue=key, id=task_id)
                self._children[name] = self._child(name, entry)
        else:
            self._parent._check_answer(answer)

    def _raise_failures(self) -> None:
        failed = [child for child in self if child.failure is not None]
        causes = [child for child in failed if not child.swept] or failed
        if causes:
            what = "a child" if len(causes) == 1 else f"{len(causes)} children"
            raise ExceptionGroup(
                f"{what} of {self._family} failed", [cast("Exception", child.failure) for child in causes]
            )


class _Ended:
    def __init__(self, children: Children[Any], ended: list[tuple[int, str]]) -> None:
        self._children = children
        self._ended = iter(ended)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Child:
        children = self._children
        children._check_open()
        await checkpoint()
        for _, name in self._ended:
            return await children._give(name)
        await children._wait(e.Verdict.WAIT_FOR_END, str(children._family.unfinished() - 1))
        raise StopAsyncIteration


def _portions(tasks: Iterable[tuple[str, e.NewTask]]) -> Iterator[list[tuple[str, e.NewTask]]]:
    """The tasks in parts that are put together, of at most `CAP` tasks and about 4 MiB."""
    portion: list[tuple[str, e.NewTask]] = []
    size = 0
    for name, task in tasks:
        if portion and (len(portion) == e.CAP or size + len(task.payload) > _MOST_BYTES):
            yield portion
            portion, size = [], 0
        portion.append((name, task))
        size += len(task.payload)
    if portion:
        yield portion
