from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import tenure.engine as e
from tenure.arguments import Seconds, check_name, check_seconds

_WORDS: tuple[e.OnDuplicate, ...] = get_args(e.OnDuplicate)


@dataclass(frozen=True, slots=True)
class Key:
    """A key for `WorkQueue.put`, and what happens if another task of the queue has it.

    A task has its key while it is unfinished, and for at least `ttl` seconds from its put on (None: the queue's). The
    values of `on_duplicate`:

    - "refuse" raises `DuplicateTask`.
    - "keep" puts nothing, and returns the id of the other task.
    - "replace" puts this task in the place of the other task, which keeps only its id. The delay begins anew, but the
      task waits for at most `within` seconds from its first put on (None: no limit). A leased task is not tried again:
      the new task becomes its successor and takes over the key.

    Raises `TypeError`, `ValueError`. Thread safety: any; a key never changes.
    """

    text: str
    on_duplicate: e.OnDuplicate = "refuse"
    ttl: Seconds | None = None
    within: Seconds | None = None

    def __post_init__(self) -> None:
        values = {
            "text": check_name("key", self.text),
            "on_duplicate": check_on_duplicate(self.on_duplicate),
            "ttl": None if self.ttl is None else check_seconds("ttl", self.ttl),
            "within": None if self.within is None else check_seconds("within", self.within),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.within is not None and self.on_duplicate != "replace":
            raise ValueError(f"within needs on_duplicate='replace', not {self.on_duplicate!r}")


def check_on_duplicate(on_duplicate: object) -> e.OnDuplicate:
    for word in _WORDS:
        if word == on_duplicate:
            return word
    raise ValueError(f"on_duplicate must be 'refuse', 'keep' or 'replace', not {on_duplicate!r}")
