"""A private PostgreSQL server that can be stopped as in a crash and started again."""

from __future__ import annotations

from pathlib import Path

import psycopg
from sql.server import Postgres

EMPTY = ("session", "hold", "claim", "resource", "producer", "taker", "task", "family", "entry")
"""Tables that have no row when no process is left, and the dead letters and resources were removed."""


class PostgresServer:
    """A server on a socket in `folder`, which is open to all."""

    def __init__(self, folder: Path) -> None:
        # the server has a user of its own
        for outer in (folder, folder.parent):
            outer.chmod(0o755)
        place = folder / "postgres"
        place.mkdir()
        self._server = Postgres(place)
        self.url = self._server.url()

    def start(self) -> None:
        """Start; what was committed before a crash is there again."""
        self._server.start()

    def kill(self) -> None:
        """Stop without a checkpoint, so that the next start recovers."""
        self._server.stop()

    def leftovers(self) -> list[str]:
        """The tables that ought to be empty and are not."""
        with psycopg.connect(self.url) as connection:
            return [
                f"{rows} rows of {table}"
                for table in EMPTY
                for (rows,) in connection.execute(f"SELECT count(*) FROM tenure.{table}")
                if rows
            ]
