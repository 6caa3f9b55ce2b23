"""The server's own figures: Redis is asked on a plain socket, no client library is in every environment."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path


class Server:
    """A server on a unix socket."""

    def __init__(self, path: str) -> None:
        self._path = path

    def counters(self) -> dict[str, float]:
        """CPU seconds, commands (those inside of scripts too), reads from sockets (round trips), connections."""
        info = self._ask("INFO", "everything")
        fields = dict(re.findall(r"^(\w+):([\d.]+)\r$", info, re.MULTILINE))
        calls = re.findall(r"^cmdstat_(?!info)\S+:calls=(\d+)", info, re.MULTILINE)
        return {
            "cpu": float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"]),
            "commands": sum(map(int, calls)),
            "reads": float(fields["total_reads_processed"]),
            "connections": float(fields["connected_clients"]) - 1,
            "memory": float(fields["used_memory"]),
        }

    def _ask(self, *words: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            connection.sendall((" ".join(words) + "\r\n").encode())
            answer = connection.makefile("rb")
            size = int(answer.readline()[1:])
            return answer.read(size).decode()


class PostgresServer:
    """A private server with its data in `data`, beside its socket."""

    def __init__(self, url: str) -> None:
        self._url = url
        folder = Path(url.rpartition("host=")[2])
        self._postmaster = int((folder / "data" / "postmaster.pid").read_text().split()[0])

    def counters(self) -> dict[str, float]:
        """CPU seconds of all its processes, transactions that wrote something, connections."""
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint,"
                " (SELECT count(*) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND datname = current_database())"
            ).fetchone()
        assert found is not None
        return {"cpu": self._cpu(), "commands": found[0], "connections": found[1] - 1}

    def _cpu(self) -> float:
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # it has ended
            if int(fields[1]) == self._postmaster:
                ticks += int(fields[11]) + int(fields[12])
            elif stat.parent.name == str(self._postmaster):
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")
