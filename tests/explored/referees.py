"""What must hold while a scenario runs."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf

import anyio


class Fair:
    """First come, first served, weights included: nobody is in while one who came before waits, unless both fit.

    `came()` is called in the step in which the wait begins. Of those who may be cancelled (`steady=False`) it cannot be
    told whether they still wait.
    """

    def __init__(self, limit=1):
        self.limit = limit
        self.served = 0
        self._inside = {}
        self._waiting = {}
        self._places = self._steady = 0
        self._tokens = []

    def came(self, weight=1, *, steady=True):
        """Note one who begins to wait."""
        self._places += 1
        if steady:
            self._steady += 1
            self._waiting[self._places] = weight
        return self._places, weight

    async def came_by(self, n):
        """Wait until so many have come who are steady."""
        while self._steady < n:
            await anyio.sleep(0.01)

    @contextmanager
    def inside(self, place, lease=None):
        """Note that it has what it waited for, until the end of the block."""
        number, weight = place
        self._waiting.pop(number, None)
        self._inside[number] = weight
        used = sum(self._inside.values())
        assert used <= self.limit, f"{self._inside} are inside at once, where {self.limit} fit"
        if anyio.current_effective_deadline() > -inf:  # else those who wait may be cancelled, too
            passed_by = {n: w for n, w in self._waiting.items() if n < number}
            assert used + sum(passed_by.values()) <= self.limit, f"{number} overtook {passed_by}"
        if lease is not None:
            self._check_token(lease.token)
        try:
            yield
        finally:
            del self._inside[number]
        self.served += 1

    def _check_token(self, token):
        assert token not in self._tokens, f"token {token} twice"
        if self.limit == 1:  # else they may wake in another order than they were granted
            assert token > max(self._tokens, default=0), f"token {token} after {self._tokens}"
        self._tokens.append(token)
