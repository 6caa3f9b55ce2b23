"""A backend for Django's tasks (`TASKS`, Django 6): Django enqueues, and workers of tenure run the tasks.

In the settings, `TASKS = {"default": {"BACKEND": "tenure.django.TenureBackend", "OPTIONS": {"store": URL}}}`, and
`"tenure.django"` among the `INSTALLED_APPS` for the command `python manage.py tenure_worker`.
"""

from __future__ import annotations

try:
    from ._backend import TenureBackend
except ModuleNotFoundError as _error:
    if not (_error.name or "").startswith("django"):
        raise
    raise ModuleNotFoundError(
        "tenure.django needs Django 6 or later, and so Python 3.12 or later: pip install 'tenure[django]'",
        name=_error.name,
    ) from None

__all__ = ("TenureBackend",)

TenureBackend.__module__ = __name__
