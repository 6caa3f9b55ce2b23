"""The demand of a process on a queue: how many tasks, how many takers it advertises, and how many it fetches ahead.

An exchange asks for `requested` tasks and may *advertise*: the engine then remembers as many idle takers as it had no
task for, and sends one hint once there are tasks for them. With that hint it forgets them, and counts on this process
to ask for the tasks: they are *promised*, and offered to no other taker. So promised tasks are asked for even if their
takers have left.

A hint may overtake the answer of an exchange: then the takers of this exchange and those before all count as promised,
and none as registered. An answer may overtake a hint, for which the engine offered more tasks than the exchange asked
for: the takers that the former exchange had advertised, and this exchange did not ask for, are *unasked* until the next
hint.

| event                     | advertised | registered | promised                      | requested | window      |
|---------------------------|------------|------------|-------------------------------|-----------|-------------|
| an exchange leaves        |            |            | 0                             | wanted    |             |
| its answer                | idle       | idle       |                               |           | grows, or 0 |
| its answer, after a hint  | 0          | 0          | max(idle, advertised - requested) |       | grows, or 0 |
| a hint                    | 0          | 0          | max(promised, advertised, unasked) |      |             |
| a hint, exchange on its way |          |            | noted until the answer        |           |             |
| hints may have been lost  |            | 0          |                               |           |             |
| an exchange has failed    |            | 0          | 0                             |           |             |
| the session is lost       | 0          | 0          | 0                             |           |             |

The window grows while exchanges bring all they ask for (1, 3, 7, ... up to `prefetch`) and closes with the first that
does not.
"""

from __future__ import annotations

import tenure.engine as e


class Demand:
    __slots__ = (
        "_hinted",
        "advertised",
        "advertising",
        "prefetch",
        "prefetch_window",
        "promised",
        "reask",
        "registered",
        "requested",
        "unasked",
    )

    def __init__(self) -> None:
        self.prefetch = 0
        self.prefetch_window = 0
        self.requested = 0
        self.advertising = False
        """True if the exchange on its way registers the tasks that it does not get."""
        self.advertised = 0
        """The number of takers that the engine may count on, as known before the exchange on its way."""
        self.registered = 0
        self.promised = 0
        self.unasked = 0
        """The number of takers before the last exchange for which a hint may still come, and no task was asked for."""
        self.reask = False
        """True to ask even if all waiting takers are registered: hints may have been lost."""
        self._hinted = False

    def is_needed(self, waiting: int) -> bool:
        return self.reask or self.promised > 0 or min(e.CAP, waiting) > self.registered

    def ask(self, waiting: int, *, probing: int, prefetched: int) -> int:
        """The number of tasks for which the leaving exchange asks.

        Of the `waiting` takers, `probing` wait for this answer only; `prefetched` tasks wait for takers.
        """
        ahead = max(0, min(self.prefetch_window, self.prefetch) - prefetched)
        self.requested = min(e.CAP, max(waiting, self.promised) + ahead)
        # only takers that wait already: a taker that comes after this answer asks then
        self.advertising = waiting > probing and not ahead
        self.promised = 0
        self._hinted = self.reask = False
        return self.requested

    def answered(self, tasks: int, *, usable: bool) -> int:
        if self.requested:
            full = tasks >= self.requested
            self.prefetch_window = min(2 * self.prefetch_window + 1, self.prefetch) if full else 0
        idle = self.requested - tasks if self.advertising else 0
        self.unasked = max(0, self.unasked - self.requested, self.advertised - self.requested)
        if self._hinted:
            self.promised = max(idle, self.unasked)
            self.unasked, idle = idle, 0
        self.advertised = self.registered = idle if usable else 0
        return idle

    def hinted(self, *, busy: bool) -> None:
        if busy:
            self._hinted = True
        else:
            self.promised = max(self.promised, self.advertised, self.unasked)
            # if the hint was for the takers before, another may come for these
            self.unasked = self.advertised if self.unasked else 0
            self.advertised = self.registered = 0

    def left(self, waiting: int, *, busy: bool) -> None:
        if self.registered > waiting or (busy and self.advertising):
            self.reask = True

    def failed(self) -> None:
        self.registered = self.promised = 0
        self.reask = False

    def session_lost(self) -> None:
        self.advertised = self.registered = self.promised = self.unasked = 0
