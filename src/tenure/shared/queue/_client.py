from __future__ import annotations

import tenure.engine as e
from tenure.store import Session, StoreHandle, give_back_of

from ._following import Feed
from ._puts import Producers
from ._results import Watchers
from ._settings import QueueRecord, deliveries_of
from ._takes import Takers


class QueueClient:
    """The parts that all descriptions of one queue in this process share."""

    def __init__(self, store: StoreHandle, key: str) -> None:
        self.record = QueueRecord(store, key)
        self.producers = Producers(store, key, self.record)
        # what the engine has offered to takers that have left since has to be given back: they keep the listener
        self.takers = Takers(store, key, self, self.record)
        self.record.on_change = self._on_change
        self.watchers = Watchers(store, key)

    def _on_change(self) -> None:
        self.takers.suspects.limit(deliveries_of(self.record.current))

    def on_hint(self, hint: e.Hint) -> None:
        match hint.news:
            case e.Notice.READY:
                self.takers.on_ready()
            case e.Notice.ROOM:
                self.producers.on_room(hint.name)
            case e.Notice.STOP:
                self.takers.stop(int(hint.name))
            case e.Notice.FINISHED:
                self.watchers.wake(hint.name)
            case e.Notice.CHANGED:
                self.watchers.wake_followers(hint.name)
            case e.Notice.DRAINED:
                self.watchers.wake()
            case e.Notice.MISSED:
                self.takers.reask()
                self.producers.ask_everything()
                self.watchers.wake_all()
            case _:
                pass

    def feed(self, task_id: int) -> Feed:
        return self.watchers.feed(task_id)

    def on_found(self, session: Session, item: e.SessionItem) -> None:
        if item.family == "tasks":
            self.takers.on_found(session, give_back_of(item))
        elif item.family == "takers":
            self.takers.on_found_idle()
        else:
            self.producers.on_found(item.name)

    def close(self) -> None:
        self.producers.close()
        self.takers.close()
        self.watchers.close()
