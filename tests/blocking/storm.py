"""A storm of exceptions from the handler of a signal over the calls of one process: storm.py URL SEED NUMBER

Each call is interrupted after a random time, a fifth of them again and again. At the end nothing may be held, and the
books must agree. A thread that hangs ends the process with the stacks of all threads.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import tenure
from tenure import blocking

URL, SEED, NUMBER = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Interrupted(Exception if SEED % 2 else BaseException):
    """Raised by the handler of the signal."""


class Storm:
    """The timer, and whether its signal raises."""

    def __init__(self):
        self.armed = False
        self.random = random.Random(SEED)
        signal.signal(signal.SIGALRM, self._interrupt)

    def _interrupt(self, *_):
        if self.armed:
            raise Interrupted

    def interrupts(self, call, seconds):
        """Interrupt a call that usually takes so long. False if it ended before."""
        again = self.random.uniform(3e-5, 3e-4) if self.random.random() < 0.2 else 0
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, self.random.uniform(1e-6, 1.3 * seconds), again)
            call()
        except Interrupted:
            self.armed = False
            return True
        finally:
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False


def calls(store):
    """What is called: all that holds something or writes."""
    lock, semaphore = blocking.Lock(store, "report"), blocking.Semaphore(store, "api", 2)
    rw, queue = blocking.RWLock(store, "index"), blocking.WorkQueue(store, "mail", max_size=10**6)
    limiter = blocking.RateLimiter(store, "api", tenure.Limit(1e6, burst=1e6))

    def hold():
        with lock.hold(timeout=20) as lease:
            lease.check()

    def hold_plainly():
        with lock:
            pass

    def hold_two():
        with semaphore, semaphore.hold():
            pass

    def read_and_write():
        with rw.read():
            pass
        with rw.write():
            sum(range(300))

    def take():
        with suppress(tenure.AcquireTimeout), queue.take(timeout=0.05) as task:
            task.progress("half")

    def spend():
        with limiter.spend() as spending:
            spending.correct(2)

    def acquire():
        limiter.acquire()

    return (lock, semaphore, rw, queue), (
        *(hold, hold_plainly, hold_two, read_and_write, take, spend, acquire),
        *(partial(queue.put, 1), partial(queue.put_many, [1, 2])),
    )


def contend(lock, stop, turns):
    """Another thread, in which no signal arrives: it must get its turn all the same."""
    while not stop.wait(0.005):
        with lock.hold(timeout=30):
            turns.append(1)


def nothing_is_left(store, locks, queue):
    free = not any((*one.holders(), *one.waiters()) for one in locks)
    counts = queue.statistics()
    return free and not (counts.leased or counts.reserved or counts.producers) and not store.statistics().held


def main():
    faulthandler.dump_traceback_later(60 + NUMBER / 10, exit=True)
    storm = Storm()
    with blocking.open_store(URL) as store:
        (*locks, queue), all_calls = calls(store)
        usual = {}
        for call in all_calls:
            began = time.perf_counter()
            for _ in range(5):
                call()
            usual[call] = (time.perf_counter() - began) / 5
        stop, turns = threading.Event(), []
        other = threading.Thread(target=contend, args=(locks[0], stop, turns))
        other.start()
        number = 0
        while number < NUMBER:
            call = storm.random.choice(all_calls)
            number += storm.interrupts(call, usual[call])
        stop.set()
        other.join()
        assert turns
        # what was not withdrawn in time is found by the loop
        deadline = time.monotonic() + 10
        while not nothing_is_left(store, locks, queue):
            assert time.monotonic() < deadline, [list(one.holders()) for one in locks] + [queue.statistics()]
        assert queue.verify().problems == ()
        for call in all_calls:
            call()
    assert [thread.name for thread in threading.enumerate()] == ["MainThread"]


if __name__ == "__main__":
    main()
