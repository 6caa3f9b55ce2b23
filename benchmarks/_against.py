"""Ours beside ours of another revision: each benchmark in turn with the sources of both, without peers."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks._measure import Figure, Row, row
from benchmarks._running import ROOT, Failed, rows_of

ROUNDS = {"smoke": 1, "quick": 3, "full": 5}


class NoRevision(Exception):
    """git has no sources of that revision."""


@contextmanager
def sources_of(revision: str) -> Generator[Path]:
    """A temporary folder with the sources of a revision; raises NoRevision."""
    command = ["git", "-C", str(ROOT), "archive", "--end-of-options", revision, "src"]
    try:
        archive = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise NoRevision("--against needs git") from None
    if archive.returncode:
        raise NoRevision(f"{revision}: {archive.stderr.decode(errors='replace').strip()}")
    with TemporaryDirectory(prefix="bench") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        Path(folder).chmod(0o711)
        yield Path(folder) / "src"


def rows_against(name: str, size: str, revision: str, sources: Path) -> Iterator[Row | str]:
    """The rows of a benchmark, whose peer is that revision; each round measures both, in turn first."""
    seen: dict[tuple[Any, ...], tuple[Row, dict[str, list[float]]]] = {}
    sides = [("ours", ROOT / "src"), (revision, sources)]
    for number in range(ROUNDS[size]):
        for side, folder in sides if number % 2 == 0 else reversed(sides):
            path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
            here: dict[tuple[Any, ...], Row] = {}
            try:
                for line in rows_of(name, size, "only-ours", environment={"PYTHONPATH": path}):
                    if isinstance(line, str):
                        yield f"{side}: {line}"
                    else:
                        # the rows of one contest repeat our figure, beside each peer
                        here.setdefault((line["work"], line["loop"], line.get("x"), line["unit"]), line)
            except Failed as error:
                raise Failed(f"{side}: {error}") from None
            for key, line in here.items():
                _, values = seen.setdefault(key, (line, {"ours": [], revision: []}))
                values[side].append(line["ours"])
    for line, values in seen.values():
        if all(values.values()):
            yield {
                "benchmark": name,
                **row(
                    line["work"],
                    line["loop"],
                    {side: Figure(each) for side, each in values.items()},
                    revision,
                    unit=line["unit"],
                    less_is_better=line["less_is_better"],
                    x=line.get("x"),
                    difference=line.get("difference", False),
                ),
            }
