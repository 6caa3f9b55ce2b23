"""Calls that are interrupted at each place where Python calls the handlers of signals: interrupt_each.py URL STEP

The exception is raised by a trace function, at every STEP-th place in turn; half of the time, a signal interrupts the
cleaning up as well, some microseconds later. Right after that, the thread must be able to hold the same again.
"""

from __future__ import annotations

import dis
import faulthandler
import random
import signal
import sys
import time

from tenure import Limit, blocking

URL, STEP = sys.argv[1], int(sys.argv[2])
# Handlers of signals run after these instructions, and while `with lock` waits.
_AFTER = {dis.opmap.get(name) for name in ("RESUME", "JUMP_BACKWARD", "CALL", "CALL_KW", "CALL_FUNCTION_EX")}
_DURING = {dis.opmap.get(name) for name in ("BEFORE_WITH",)}


class Interrupted(BaseException):
    """Raised at one of the places."""


class Interruption:
    """A trace function that raises at one place, counted from the first, and by a signal some time after that."""

    armed = False

    def __init__(self, place, again):
        self.reached = False
        self._left = place
        self._again = again
        self._before = {}

    def __call__(self, frame, event, argument):
        if frame.f_code is interrupted.__code__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame, event, argument):
        if event == "return":
            self._before.pop(id(frame), None)
        if event != "opcode":
            return self._step
        instruction = frame.f_code.co_code[frame.f_lasti]
        before = self._before.get(id(frame))
        self._before[id(frame)] = instruction
        if before in _AFTER or instruction in _DURING:
            self._left -= 1
            if not self._left:
                self.reached = True
                if self._again:
                    Interruption.armed = True
                    signal.setitimer(signal.ITIMER_REAL, self._again)
                raise Interrupted
        return self._step


def on_signal(*_):
    if Interruption.armed:
        raise Interrupted


def interrupted(call, interruption):
    sys.settrace(interruption)
    try:
        call()
    finally:
        sys.settrace(None)


def main():
    faulthandler.dump_traceback_later(250, exit=True)
    signal.signal(signal.SIGALRM, on_signal)
    chance = random.Random(1)
    with blocking.open_store(URL) as store:
        lock, semaphore = blocking.Lock(store, "report"), blocking.Semaphore(store, "api", 2)
        queue, limiter = (
            blocking.WorkQueue(store, "mail"),
            blocking.RateLimiter(store, "api", Limit(1e6, burst=1e6)),
        )

        def hold():
            with lock.hold() as lease:
                lease.check()

        def hold_plainly():
            with lock:
                pass

        def hold_two():
            with semaphore, semaphore.hold():
                pass

        def put():
            queue.put(1)

        def take():
            with queue.take():
                pass

        def spend():
            with limiter.spend():
                pass

        for call in (hold, hold_plainly, hold_two, put, take, spend):
            place, reached = 1, True
            while reached:
                queue.put(1)
                interruption = Interruption(place, chance.uniform(1e-5, 4e-4) if chance.random() < 0.5 else 0)
                try:
                    interrupted(call, interruption)
                except Interrupted:
                    Interruption.armed = False
                Interruption.armed = False
                with lock.hold(timeout=5), semaphore.hold(2, timeout=5):
                    pass
                deadline = time.monotonic() + 5
                while queue.statistics().leased:
                    assert time.monotonic() < deadline, place
                reached, place = interruption.reached, place + STEP
            assert place > 30, (call, place)
        assert queue.verify().problems == ()


if __name__ == "__main__":
    main()
