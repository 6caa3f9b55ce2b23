# pyright: reportPrivateUsage=false
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import tenure.engine as e
from tenure.arguments import check_name

from ._children import Parent, Target
from ._family import RELEASE, Family
from ._groups import group_of_children
from ._new_task import new_task
from ._options import Item, PutOptions
from ._own_options import thing_of
from ._put_span import PutSpan

_NEVER = ("at", "delay", "expires", "key")


@dataclass(frozen=True, slots=True)
class Release:
    """A release of a task, as `Task.at_end` has named it: it begins when the task would end.

    `thing` is a unique name for what it undoes, "{queue}-{id}", with its own `id`. `state` is "held", or what an
    earlier delivery has made of it: "unfinished", "done", "dead" or "kept".
    """

    name: str
    id: int
    thing: str
    state: str


async def name_release(
    parent: Parent,
    family: Family,
    target: Target[Any],
    name: str,
    payload: Any,
    held: Literal["end", "unless_done"],
    together: bool,
    options: PutOptions,
) -> Release:
    entry = RELEASE + check_name("name", name)
    called, key = target._call(Item(payload, **options)), target._place.key
    if wrong := [option for option in _NEVER if called.options.get(option) not in (None, 0)]:
        raise ValueError(f"{wrong[0]} is no option of a release: it begins when its task ends")
    asked: PutOptions = {"priority": parent.priority, **called.options}
    family.use(entry, f"the release {name!r}")
    try:
        with PutSpan(family.store.reporter, key, 1) as span:
            task = new_task(target._place, called.payload, span.meta, _release=name, **asked)
            task = replace(task, group=group_of_children(task.group))
            answer = await family.store.call(
                e.PutChildren(
                    *(family.key, family.id, family.token, key, (entry,), (task,)),
                    most=e.MOST_ENTRIES,
                    held=held,
                    together=together,
                ),
                patient=True,
            )
        if isinstance(answer, e.Entry):
            raise ValueError(  # noqa: TRY004 the types are right
                f"payload and queue_or_job must be those with which {family} has named the release {name!r} before"
            )
        family.check_room(answer)
        parent._check_answer(answer)
    except BaseException:
        family.used.remove(entry)  # the handler may name it again
        raise
    named = cast("e.Named", answer)
    (task_id,), (state,) = cast("tuple[int]", named.ids), named.states
    return Release(name, task_id, thing_of(target._place.name, task_id), state)


async def change_release(
    parent: Parent, family: Family, name: str, change: Literal["begin", "keep"]
) -> e.Entry | None:
    """Begin a held release, or keep what it is for. Returns the entry of a release that has begun, or is kept."""
    answer = await family.store.call(
        e.SetEntry(family.key, family.id, family.token, RELEASE + check_name("name", name), change=change),
        patient=True,
    )
    if answer is e.Reply.UNKNOWN:
        raise ValueError(f"name must be of a release that {family} has named, and {name!r} is of none")
    parent._check_answer(answer)
    return answer if isinstance(answer, e.Entry) else None
