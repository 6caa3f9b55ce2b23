"""A private PgBouncer in front of a private PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time

from sql.server import SERVANT, as_servant

PROGRAM = os.environ.get("TENURE_PGBOUNCER") or shutil.which(
    "pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"
)
"""None where there is none."""


class PgBouncer:
    """A pooler on a socket in `folder`, in front of the server on a socket in `behind`; with `settings` as lines."""

    def __init__(self, folder, behind, *settings):
        self.folder = folder
        self.process = None
        (folder / "users").write_text('"tenure" ""\n"strict" ""\n')
        (folder / "ini").write_text(
            "\n".join(
                (
                    *("[databases]", f"* = host={behind}", "[pgbouncer]", f"unix_socket_dir = {folder}"),
                    *(
                        "listen_port = 6432",
                        "listen_addr =",
                        "auth_type = trust",
                        f"auth_file = {folder}/users",
                    ),
                    *(
                        "pool_mode = transaction",
                        "server_login_retry = 0.1",
                        "admin_users = tenure",
                        *settings,
                    ),
                )
            )
        )
        if os.geteuid() == 0:
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, SERVANT)

    def start(self):
        """Start, also again; waits until it answers."""
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "-q", self.folder / "ini"], **as_servant(), stdout=log, stderr=log
            )
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.01)

    def _answers(self):
        with socket.socket(socket.AF_UNIX) as knock:
            return knock.connect_ex(f"{self.folder}/.s.PGSQL.6432") == 0

    def url(self, direct=None, user="tenure", database="postgres"):
        url = f"postgresql://{user}@:6432/{database}?host={self.folder}"
        return url if direct is None else f"{url}&direct={direct}"

    def stop(self):
        self.process.kill()
        self.process.wait()
