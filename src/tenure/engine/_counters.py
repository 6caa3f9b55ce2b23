"""Counters: spending at a rate, and barriers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ._answers import ArrivalAnswer, Operation, Reply


class SpendRequest(NamedTuple):
    """One caller's request to spend `cost`; it is refused when the delay would be above `max_wait` seconds."""

    cost: float
    max_wait: float | None = None


class Spending(NamedTuple):
    """Booked: act after `delay` seconds; `booking` is for `Refund`. Not booked: `delay` is what it would have been."""

    booked: bool
    delay: float
    booking: float


@dataclass(frozen=True, slots=True)
class Spend(Operation["Spent | Reply"]):
    """Book spendings at `rate` per second with bursts up to `burst` (GCRA), in the order given. -> Spent, GONE, MORE

    The time that a cost or the burst takes at the rate is a duration: no longer than `LONGEST`.
    """

    session: str
    n: int
    key: str
    requests: tuple[SpendRequest, ...]
    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class Spent:
    """One answer for each request."""

    answers: tuple[Spending, ...]


@dataclass(frozen=True, slots=True)
class Refund(Operation[Reply]):
    """Give back the part of a booking that no later booking has overtaken; numbered as `Spend`. -> OK, GONE, MORE"""

    session: str
    n: int
    key: str
    cost: float
    booking: float
    rate: float


@dataclass(frozen=True, slots=True)
class Arrive(Operation[ArrivalAnswer]):
    """Arrive at a barrier of `parties`. -> Waiting, Tripped, Broken, Mismatch, GONE, MORE

    The last to arrive trips the generation for all. `on_departure` is "break" (one that withdraws or dies breaks the
    generation for all its parties, and the barrier stays broken until it is reset) or "drop" (it is forgotten). A
    participant's outcome is kept until it withdraws, so that asking again returns it.
    """

    session: str
    key: str
    participant: str
    parties: int
    on_departure: str = "break"


@dataclass(frozen=True, slots=True)
class Withdraw(Operation[ArrivalAnswer]):
    """Undo an arrival, or fetch its outcome and forget it. -> WITHDRAWN, Tripped, Broken, UNKNOWN, MORE"""

    key: str
    participant: str


@dataclass(frozen=True, slots=True)
class ResetBarrier(Operation[Reply]):
    """Break the generation for those that wait and begin a fresh one. -> OK"""

    key: str


@dataclass(frozen=True, slots=True)
class Arrivals(Operation["Gathering"]):
    """Returns the state of a barrier. -> Gathering, MORE"""

    key: str


class Gathering(NamedTuple):
    """A barrier in its `generation`: how many of the `parties` wait (0 parties: nobody arrived, or it is forgotten).

    `born` is the token of its first arrival. One that was forgotten and is used again counts its generations from 0
    again, and has another one.
    """

    parties: int
    generation: int
    waiting: int
    broken: bool
    born: int = 0
