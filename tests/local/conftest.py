"""What the tests of several patterns share are modules beside them, imported as `local.x`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
