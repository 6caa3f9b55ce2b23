"""Room in a queue: reserved slots, and the lines of producers that wait for slots."""

from __future__ import annotations

from dataclasses import dataclass

import tenure.engine as e

from ._names import decoded_name, encoded_name
from ._queues import Queue, Queues
from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table

IN_LINE, RESERVED, IN_GROUP = 0, 1, 2
"""The places of a producer: in the line of the queue, with slots reserved, in the line of its group."""


@dataclass(slots=True)
class Producer:
    """A producer that waits to put `count` tasks, or has as many slots reserved; in `group`, if it has one."""

    queue: str
    name: str
    session: int
    rank: int
    count: int
    ordinal: int
    place: int
    group_name: bytes

    @property
    def group(self) -> str:
        return decoded_name(self.group_name)


PRODUCERS = Layout(
    "producer",
    Producer,
    ("queue", "name"),
    line=Order(("queue",), ("ordinal",), when=("place", IN_LINE), grows=True),
    in_groups=Order(("queue",), ("group_name", "ordinal"), when=("place", IN_GROUP)),
    session=OF_SESSION,
)


class Room:
    def __init__(self, state: State, queues: Queues) -> None:
        self._state = state
        self._queues = queues
        self._producers: Table[Producer] = state.table(PRODUCERS)

    def find(self, queue: Queue, name: str) -> Producer | None:
        if queue.producers or queue.reserved or queue.groups.producers:
            return self._producers.get(queue.name, name)
        return None

    def join(self, queue: Queue, name: str, session: int, count: int, group: str) -> Producer:
        queue.ordinal += 1
        place, groups = IN_LINE, queue.groups
        if groups.room(group) < count:
            groups.join(group, queue.waiting)
            place = IN_GROUP
        else:
            groups.reserve(group, count, queue.waiting)
            queue.producers += 1
        producer = Producer(
            *(queue.name, name, session, self._state.rank(), count),
            *(queue.ordinal, place, encoded_name(group)),
        )
        self._producers.save(producer)
        return producer

    def position(self, producer: Producer) -> int:
        if producer.place == IN_LINE:
            head = self._producers.first("line", producer.queue)
        else:
            head = self._first_in(producer.queue, producer.group)
        assert head is not None
        return producer.ordinal - head.ordinal + 1

    def remove(self, queue: Queue, producer: Producer) -> None:
        self._producers.remove(producer)
        if producer.place == IN_GROUP:
            queue.groups.leave(producer.group)
            return
        queue.groups.reserve(producer.group, -producer.count, queue.waiting)
        if producer.place == RESERVED:
            queue.reserved -= producer.count
        else:
            queue.producers -= 1

    def make_room(self, queue: Queue, group: str) -> None:
        groups = queue.groups
        while groups.has_line(group):
            producer = self._first_in(queue.name, group)
            if not groups.admits(group, producer.count):
                break
            groups.reserve(group, producer.count, queue.waiting)
            groups.leave(group)
            queue.ordinal += 1
            queue.producers += 1
            self._producers.move(producer, place=IN_LINE, ordinal=queue.ordinal)
        self.admit(queue)

    def make_room_in_groups(self, queue: Queue) -> None:
        if queue.groups.producers:
            for group in sorted({row.group for row in self._producers.each("in_groups", queue.name)}):
                self.make_room(queue, group)

    def admit(self, queue: Queue) -> None:
        while queue.producers:
            producer = self._producers.first("line", queue.name)
            assert producer is not None
            if producer.count > queue.room and (queue.live or queue.reserved):
                return
            self._producers.move(producer, place=RESERVED)
            queue.producers -= 1
            queue.reserved += producer.count
            self._state.hint(self._state.process(producer.session), queue.name, producer.name, e.Notice.ROOM)

    def drop(self, producer: Producer) -> None:
        queue = self._queues.get(producer.queue)
        self.remove(queue, producer)
        self.make_room(queue, producer.group)

    def item(self, producer: Producer) -> e.SessionItem:
        return e.SessionItem("producers", producer.queue, producer.name, producer.place == RESERVED, 0)

    def _first_in(self, queue: str, group: str) -> Producer:
        (head,) = self._producers.some("in_groups", queue, limit=1, after=(encoded_name(group), -1))
        return head
