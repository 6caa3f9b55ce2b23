from __future__ import annotations

from functools import partial

import tenure.engine as e
from tenure.errors import ResultUnavailable, StoreClosed
from tenure.shared._watch import Watch, new_line, wake
from tenure.store import Session, StoreHandle
from tenure.waiting import Line

from ._following import Feed

_DRAINED = ""
_OF_MEMORY = "each open_store('memory:') is a store of its own, so put and ask in one"


class Watchers:
    def __init__(self, store: StoreHandle, key: str) -> None:
        self._store = store
        self._key = key
        self._lines: dict[str, Line[None, None]] = {}
        self._feeds: dict[str, Feed] = {}

    async def outcome(self, task_id: int) -> e.Outcome:
        while True:
            session = await self._store.session(self._store.ttl, self._key)
            with self._watch(str(task_id), session) as watch:
                answer = await self._store.call(e.GetResult(self._key, task_id, session.id), patient=True)
                if isinstance(answer, e.Outcome):
                    return answer
                if answer is e.Reply.UNKNOWN:
                    raise ResultUnavailable(
                        self._key, task_id, _OF_MEMORY if self._store.url == "memory:" else ""
                    )
                if isinstance(answer, e.Unfinished):
                    await watch.changed(answer.ask_again_in)
                else:
                    session.lose("gone")

    async def drained(self) -> None:
        while True:
            session = await self._store.session(self._store.ttl, self._key)
            with self._watch(_DRAINED, session) as watch:
                answer = await self._store.call(e.Count(self._key, session.id), patient=True)
                if not isinstance(answer, e.QueueCounts):
                    session.lose("gone")
                elif answer.waiting or answer.delayed or answer.leased or answer.suspended or answer.ending:
                    await watch.changed(answer.ask_again_in)
                else:
                    return

    def feed(self, task_id: int) -> Feed:
        name = str(task_id)
        feed = self._feeds.get(name)
        if feed is None or feed.over:  # a dead task may have been requeued since
            feed = self._feeds[name] = Feed(self._store, self._key, task_id, self._drop_feed)
        return feed

    def _drop_feed(self, feed: Feed) -> None:
        if self._feeds.get(str(feed.task_id)) is feed:
            del self._feeds[str(feed.task_id)]

    def wake_followers(self, name: str) -> None:
        if (feed := self._feeds.get(name)) is not None:
            feed.wake()

    def wake(self, name: str = _DRAINED) -> None:
        if (line := self._lines.get(name)) is not None:
            wake(line)

    def wake_all(self) -> None:
        for name in list(self._lines):
            self.wake(name)
        for name in list(self._feeds):
            self.wake_followers(name)

    def close(self) -> None:
        for line in list(self._lines.values()):
            line.fail_all(lambda: StoreClosed("the store was closed"))
        for feed in list(self._feeds.values()):
            feed.fail(lambda: StoreClosed("the store was closed"))

    def _watch(self, name: str, session: Session) -> Watch:
        line = self._lines.setdefault(name, new_line(f"the queue {self._key}"))
        return Watch(line, session, partial(self._drop, name, line))

    def _drop(self, name: str, line: Line[None, None]) -> None:
        if self._lines.get(name) is line:
            del self._lines[name]
