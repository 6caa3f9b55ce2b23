"""What type checkers make of synchronous code: the types of the asynchronous classes, without `await`.

Not run, as payloads.py beside it.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import assert_type

import tenure
from tenure import blocking


def send_mail(user: int, text: str = "hello") -> bool:
    return bool(text[user:])


def program(store: blocking.Store) -> None:
    queue = blocking.WorkQueue[int](store, "mail")
    assert_type(queue.put(1, priority=2), int)
    assert_type(queue.put_many([1, tenure.Item(2)]), list[int | tenure.DuplicateTask])
    assert_type(queue.put_many([1], on_duplicate="keep"), list[int])
    assert_type(queue.get(1), tenure.types.TaskRecord[int] | None)
    assert_type(list(queue.tasks("dead")), list[tenure.types.TaskRecord[int]])
    assert_type(queue.children(1).page(), tenure.types.Page[tenure.types.ChildRecord])
    assert_type(queue.put_in_sync(object(), 1), int)
    queue.put("one")  # type: ignore[arg-type]
    with queue.take(timeout=5) as task:
        assert_type(task, blocking.Task[int])
        assert_type(task.payload, int)
        task.progress("half")
    with blocking.Lock(store, "report") as lease, blocking.Semaphore(store, "api", 3).hold(2) as other:
        assert_type(lease, blocking.Lease)
        assert_type(other.token, int)
        lease.check()
    assert_type(blocking.RateLimiter(store, "api", tenure.Limit(1)).try_acquire(), bool)
    send = blocking.Job(blocking.WorkQueue(store, "jobs"), send_mail)
    assert_type(send.put(user=1), int)
    assert_type(send.result(1), bool)
    send.put("ann")  # type: ignore[arg-type]
    queue.follow(1)  # type: ignore[attr-defined]


async def wrong_store(store: tenure.Store) -> None:
    blocking.Lock(store, "report")  # type: ignore[arg-type]
