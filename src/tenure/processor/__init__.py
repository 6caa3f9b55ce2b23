"""The composed system: so far its presets, which `tenure run --preset` uses too."""

from __future__ import annotations

from ._presets import PRESETS, Preset

__all__ = ("PRESETS", "Preset")

Preset.__module__ = __name__
