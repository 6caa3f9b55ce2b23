"""The app, which has the command `tenure_worker`."""

from __future__ import annotations

from ._bases import AppConfig


class TenureConfig(AppConfig):
    """`tenure.django` among the `INSTALLED_APPS`. Its label is "tenure"."""

    name = "tenure.django"
    label = "tenure"
