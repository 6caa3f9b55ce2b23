"""Every operation there is, as the call of a script."""

from __future__ import annotations

from ._calls import Calls
from ._claims import CLAIMS
from ._counters import COUNTERS
from ._holds import HOLDS
from ._sessions import SESSIONS
from ._survey import SURVEYS
from ._tasks import TASKS

CALLS: Calls = SESSIONS | HOLDS | CLAIMS | COUNTERS | TASKS | SURVEYS
