"""`Scan`, the operation that reads: its answer is a page of rows of an index."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, get_origin, get_type_hints

from ._answers import CAP, Operation, Reply
from ._value import value

R = TypeVar("R")
P = TypeVar("P", bound="Page[Any]")


@value
class Page(Generic[R]):
    """Rows of an index, in its order; `next` is empty after the last page."""

    rows: tuple[R, ...]
    next: str = ""


class Index(Generic[P]):
    """Rows in an order: the rows of an object of the kind `of`, or of the whole engine, where `of` is empty.

    `row` is the class of its rows, `page` the class of its pages, which may say more of the object.
    """

    __slots__ = ("name", "of", "page", "row", "watchable")

    def __init__(self, name: str, of: str, row: type[Any], page: type[P], *, watchable: bool = False) -> None:
        self.name: str = name
        self.of: str = of
        self.row: type[Any] = row
        self.page: type[P] = get_origin(page) or page
        self.watchable: bool = watchable

    @property
    def others(self) -> dict[str, Any]:
        """The fields of its pages beside the rows and `next`, with their types."""
        hints = get_type_hints(self.page, localns={"R": Any})
        return {name: hint for name, hint in hints.items() if name not in ("rows", "next")}

    def __repr__(self) -> str:
        return f"<Index {self.name}>"


@value
class Scan(Operation[P | Reply], Generic[P]):
    """Read a page of an index. -> Page, UNKNOWN (the session has ended), GONE, MORE

    `key` is the object; it is empty for an index of the whole engine. To page, pass the previous `next` as `after`. A
    page is read in one step. It has at most `limit` rows; it may have fewer, even none, and not be the last. A row that
    is in the index from the first page to the last is listed; others may be missed or come twice. An `after` that no
    page has given may fail with an `EngineError`. `only` narrows the index. With `watch`, that session's process is
    hinted CHANGED once, at the next change of the rows. Time alone hints nothing.

    - `NAMES`, of a kind: "holds" (keys that a session holds), "limiters" (that are held off or make a caller wait),
      "pools" (that have a resource), "queues" (into which a task was put and that are not forgotten) or "sessions"
      (that are open); those that begin with `only`. In engine order. Keys, limiters and sessions may come more than
      once.
    - `SESSION`: what the session `key` has and waits for, in the order of `FAMILIES`, within a family in engine order.
    - `HEALTH`: a row for the file or server; for each shard of a cluster, one.
    - `HOLDERS`: the holders of a key in the order of their tokens, then the waiters in the order of the line. The watch
      is on the holders and their values.
    - `RESOURCES`: the resources of a pool, by name.
    - `LIMITER`: one row, also for a name that is not in use.
    - `TASKS`, of a state: "waiting" by group, then in the order of taking without aging; "delayed" by due time, then
      id; "leased" by token; "suspended" and "ending" by id; each of `ENDED`, and "ended" in any way, in the order of
      the endings: their `next` is a `seq`, in decimal digits, and any `seq` will do as `after`. A delayed task that is
      due is waiting; of those that no exchange has moved yet, only the first `CAP` may count as such, for `Count` too.
    - `TASK`: the task whose id is `only`, in decimal digits; `KEYED_TASK`: the task that has the key `only`. No row if
      there is none. The watch is on an unfinished task: when it is taken, returns, is postponed or ends, and when its
      holder reports.
    - `GROUPS`: the groups of a queue that have an unfinished task, those with the most first, then by name. The cost
      may depend on the number of groups.
    - `ENTRIES`: the entries of the task whose id is `only`, by name: their `next` is a name, and any name will do as
      `after`. A page ends with the entry that makes its values exceed `ENTRY_BYTES`. `UNFINISHED_CHILDREN`: the entries
      of unfinished children alone.

    Raises `ValueError` for a `limit` that is not from 1 to `CAP`, and for a `watch` on an index without one.
    """

    index: Index[P]
    key: str = ""
    after: str = ""
    limit: int = CAP
    only: str = ""
    watch: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= CAP:
            raise ValueError(f"limit must be from 1 to {CAP}, not {self.limit}")
        if self.watch and not self.index.watchable:
            raise ValueError(f"{self.index.name} cannot be watched")
