"""Stores for real processes."""

from __future__ import annotations

import pytest


@pytest.fixture(params=("sqlite", "redis", pytest.param("postgres", marks=pytest.mark.full)))
def url(request, tmp_path):
    """A store that is empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    found = request.getfixturevalue(f"{request.param}_server").url
    return found() if request.param == "postgres" else found
