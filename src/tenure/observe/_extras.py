"""Libraries that only adapters need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def extra(module: str, name: str) -> Any:
    """Import a module of an extra. Raises `RuntimeError` that names the extra if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        raise RuntimeError(f"{module.partition('.')[0]} is missing: pip install 'tenure[{name}]'") from None
