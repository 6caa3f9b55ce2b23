"""The classes of Django that are inherited here, typed as far as they are used: Django has no types of its own."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:

    class AppConfig:
        """`django.apps.AppConfig`."""

    class BaseCommand:
        """`django.core.management.base.BaseCommand`."""

        stderr: TextIO

    class BaseTaskBackend:
        """`django.tasks.backends.base.BaseTaskBackend`."""

        alias: str
        queues: set[str]
        options: dict[str, Any]

        def __init__(self, alias: str, params: Mapping[str, Any]) -> None: ...
        def validate_task(self, task: Any) -> None: ...

else:
    from django.apps import AppConfig
    from django.core.management.base import BaseCommand
    from django.tasks.backends.base import BaseTaskBackend

__all__ = ("AppConfig", "BaseCommand", "BaseTaskBackend")
