"""The server's own figures, asked on a plain socket: no client library is in every environment."""

from __future__ import annotations

import re
import socket


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
        }

    def _ask(self, *words: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            connection.sendall((" ".join(words) + "\r\n").encode())
            answer = connection.makefile("rb")
            size = int(answer.readline()[1:])
            return answer.read(size).decode()
