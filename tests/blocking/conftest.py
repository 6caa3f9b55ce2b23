import sys
from pathlib import Path

import pytest

from tenure import blocking

sys.path.append(str(Path(__file__).parent))
SHARED = ("sqlite", "redis", "postgres")


def where(request, kind, folder):
    if kind == "memory":
        return "memory:"
    if kind == "sqlite":
        return f"sqlite:///{folder}/blocking.db"
    url = request.getfixturevalue(f"{kind}_server").url
    return url() if kind == "postgres" else url


@pytest.fixture(params=["memory", *SHARED])
def url(request, tmp_path):
    """Where a store keeps its state, on each engine."""
    return where(request, request.param, tmp_path)


@pytest.fixture(params=SHARED)
def shared_url(request, tmp_path):
    """Where processes can share a store."""
    return where(request, request.param, tmp_path)


@pytest.fixture(params=["sqlite", *(pytest.param(kind, marks=pytest.mark.full) for kind in SHARED[1:])])
def process_url(request, tmp_path):
    """Where a process of its own has a store: for tests of the process, not of what it does to the store."""
    return where(request, request.param, tmp_path)


@pytest.fixture(params=["redis", pytest.param("postgres", marks=pytest.mark.full)])
def server_url(request, tmp_path):
    """Where a child can share a store that its parent has opened."""
    return where(request, request.param, tmp_path)


@pytest.fixture
def store(url):
    with blocking.open_store(url) as store:
        yield store
