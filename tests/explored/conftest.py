"""The scenarios are modules beside the tests, imported as `explored.x`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
