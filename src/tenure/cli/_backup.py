"""`tenure backup`: a copy of a SQLite store, made while processes use it, and checked."""

from __future__ import annotations

import argparse
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tenure.store import Store

from ._answer import say
from ._arguments import store_option, store_url
from ._errors import Interrupted, UsageError
from ._table import spoken
from ._with_store import file_of, parser, with_store


def backup(words: Sequence[str]) -> int:
    p = parser(
        "backup",
        "Copy a SQLite store, also while processes use it, and check the copy: it is opened, and each page of it is"
        " read. An earlier copy is replaced at once, when the new one is whole.",
    )
    p.add_argument("file", metavar="FILE", type=Path, help="the copy")
    args = p.parse_args(words)
    source, file = file_of(store_url(args.store)), args.file
    if source is None:
        raise UsageError(
            f"{store_option(args.store)}: tenure backup copies a SQLite file; use pg_dump for PostgreSQL, and BGSAVE"
            " for Redis"
        )
    with_store(args, Store.ping)
    if file.exists() and (not is_store(file) or file.samefile(source) or _log_of(file).exists()):
        raise UsageError(f"{file} is no earlier copy, or is in use: name another file")
    part = file.with_name(f"{file.name}.part")
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as db,
            closing(sqlite3.connect(part)) as copy,
        ):
            db.backup(copy)
            ((found,),) = copy.execute("PRAGMA integrity_check(1)")
        if found != "ok":
            raise Interrupted(f"{file}: not written, since the copy is damaged, as {source} may be: {found}")
        url = f"sqlite:///{quote(str(part.absolute()))}"
        with_store(argparse.Namespace(store=url, namespace=args.namespace), Store.ping)
        size = part.replace(file).stat().st_size
    except sqlite3.Error as problem:
        raise Interrupted(f"{file}: not written: {problem}") from problem
    finally:
        for rest in (part, _log_of(part), part.with_name(f"{part.name}-shm")):
            rest.unlink(missing_ok=True)
    return say(args, {"file": str(file), "bytes": size}, f"{file}: {size:,} bytes, checked")


def last_backup(path: Path) -> str:
    """The newest copy beside a store, of those whose names begin as its name does, and its age."""
    copies = [
        (copy.stat().st_mtime, copy.name)
        for copy in path.parent.glob(f"{path.stem.replace('[', '[[]')}*")
        if copy.is_file() and not copy.samefile(path) and is_store(copy) and not _log_of(copy).exists()
    ]
    if not copies:
        return f"none beside the file whose name begins with {path.stem}"
    at, name = max(copies)
    return f"{name}, {spoken(max(0.0, time.time() - at))} old, of those beside the file that begin with {path.stem}"


def is_store(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(72)[68:] == b"tenu"
    except OSError:
        return False


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")
