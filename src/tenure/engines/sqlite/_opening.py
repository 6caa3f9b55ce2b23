"""Opening the file: created if need be, and refused, untouched, if it is another program's or unfit."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tenure.engines.rules import LAYOUTS
from tenure.errors import EngineError

from ._busy_retry import BusyRetry
from ._clock import Clocks, boot_id
from ._errors import explain, is_busy
from ._sql import SCHEMA, SESSIONS
from ._tables import schema_of

APPLICATION = 0x74656E75
"""The mark of a database of this library: "tenu" in ASCII."""

_STEPS: dict[int, tuple[str, ...]] = {}
"""By version, the statements that change a file of the version before."""

VERSION = max(_STEPS, default=1)
_OLDEST_LIBRARY = (3, 35)
_MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset(
    {
        *("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ncpfs", "davfs"),
        *("ceph", "glusterfs", "lustre", "fuse.ceph", "fuse.glusterfs"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.davfs", "fuse.smbnetfs"),
    }
)


class _OtherClockError(Exception):
    """The file was last used by processes whose boot or clock may be another."""


def open_file(
    path: Path, clocks: Clocks, synchronous: str, retry: BusyRetry
) -> tuple[sqlite3.Connection, bool]:
    """A connection in autocommit mode to a file with the schema; True: call `end_other_boots` before it writes.

    Another connection has the write lock then. Raises `EngineError` for a file that cannot be a store,
    `StoreUnavailable` if it is locked.
    """
    check_place(path)
    name = str(path)
    try:
        try:
            return _connected(name, clocks, synchronous, retry)
        except _OtherClockError:
            _take_over(name)
            return _connected(name, clocks, synchronous, retry)
    except sqlite3.Error as problem:
        raise explain(name, problem) from problem
    except _OtherClockError:
        raise EngineError(
            f"{name} is open in a process whose clock cannot be compared with this one's: it is in another time "
            "namespace, or /proc is not mounted for one of them; mount it for both, or close the other first"
        ) from None


def _connected(
    name: str, clocks: Clocks, synchronous: str, retry: BusyRetry
) -> tuple[sqlite3.Connection, bool]:
    db = sqlite3.connect(name, timeout=0, isolation_level=None, cached_statements=256)
    try:
        retry.run(partial(_prepare, db, name))
        retry.run(partial(_check_clock, db))
        _configure(db, name, synchronous, retry)
        try:
            end_other_boots(db, clocks)
        except sqlite3.OperationalError as problem:
            if not is_busy(problem):
                raise
            return db, True
    except BaseException:
        db.close()
        raise
    return db, False


def _take_over(name: str) -> None:
    """End the sessions of another clock if no other process has the file open: then none of them can be alive."""
    with closing(sqlite3.connect(name, timeout=0, isolation_level=None)) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as problem:
            if is_busy(problem):
                return
            raise
        _end_sessions(db)
        db.execute("COMMIT")


def check_place(path: Path) -> None:
    if sqlite3.sqlite_version_info < _OLDEST_LIBRARY:
        raise EngineError(
            f"{path}: Python uses SQLite {sqlite3.sqlite_version}, but 3.35 or later is needed; use a newer Python"
        )
    if path.is_dir():
        raise EngineError(f"{path} is a directory; give the path of a file in it")
    if not path.parent.is_dir():
        raise EngineError(f"{path}: there is no directory {path.parent}; make it first")
    kind = file_system(path.parent)
    if kind in _NETWORK:
        raise EngineError(
            f"{path} is on a network file system ({kind}), where SQLite cannot share a file safely; use a local disk"
        )


def file_system(directory: Path) -> str:
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    place = directory.resolve()
    best, kind = -1, ""
    for line in lines:
        _, mounted_at, mounted_type, *_ = line.split(" ")
        point = Path(mounted_at.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # a later mount at the same place hides the earlier one
        if len(point.parts) >= best and place.is_relative_to(point):
            best, kind = len(point.parts), mounted_type
    return kind


def create(db: sqlite3.Connection) -> None:
    for statement in (*SCHEMA.named.values(), *chain.from_iterable(map(schema_of, LAYOUTS))):
        db.execute(statement)
    db.execute(SESSIONS.begin_meta, {"boot": boot_id()})
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def _prepare(db: sqlite3.Connection, path: str) -> None:
    """Make the schema, or bring it up to date.

    Nothing else here waits for the write lock: the caller may have it, and would wait for itself.
    """
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as problem:
        if is_busy(problem):
            db.execute("BEGIN")
            with _rolled_back(db):
                if _version(db, path) == VERSION:
                    return
        raise
    with _rolled_back(db):
        version = _version(db, path)
        if version is None:
            create(db)
        for number, statements in _STEPS.items():
            for statement in statements if version is not None and number > version else ():
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")  # a file that cannot be written is refused here
        db.execute("COMMIT")


@contextmanager
def _rolled_back(db: sqlite3.Connection) -> Generator[None]:
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _version(db: sqlite3.Connection, path: str) -> int | None:
    """The version of the schema, None in an empty file; in a transaction: two processes may open a fresh file at once.

    Raises `EngineError` for the file of another program, and of a later release.
    """
    application, version = _number(db, "application_id"), _number(db, "user_version")
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables and application in (0, APPLICATION):
        return None
    if application != APPLICATION:
        raise EngineError(f"{path} is the database of another application; give another path")
    if version > VERSION:
        raise EngineError(
            f"{path} has schema version {version}, this release knows {VERSION}; use a newer release of tenure"
        )
    return version


def _check_clock(db: sqlite3.Connection) -> None:
    known, boot = _known_boot(db), boot_id()
    if known != boot and not (known and boot):
        raise _OtherClockError


def end_other_boots(db: sqlite3.Connection, clocks: Clocks) -> None:
    """End the sessions of an earlier boot of the machine: their ends mean nothing on the clock of this boot."""
    db.execute("BEGIN IMMEDIATE")
    with _rolled_back(db):
        if _known_boot(db) != boot_id():
            _end_sessions(db)
        db.execute(SESSIONS.end_far, {"now": int(clocks.boot() * 1e6)})
        db.execute("COMMIT")


def _known_boot(db: sqlite3.Connection) -> str:
    return db.execute(SESSIONS.boot).fetchone()[0]


def _end_sessions(db: sqlite3.Connection) -> None:
    db.execute(SESSIONS.end_all)
    db.execute(SESSIONS.change_boot, {"boot": boot_id()})


def _configure(db: sqlite3.Connection, path: str, synchronous: str, retry: BusyRetry) -> None:
    mode = retry.run(lambda: _row(db, "PRAGMA journal_mode = WAL"))
    if mode != "wal":
        raise EngineError(
            f"{path}: this place allows no write-ahead log (journal mode {mode}); use a local disk"
        )
    db.execute(f"PRAGMA synchronous = {synchronous}")
    # pages that change all the time are copied back once per checkpoint: fewer of them, less to write
    db.execute("PRAGMA wal_autocheckpoint = 2000")
    db.execute("PRAGMA journal_size_limit = 67108864")
    # a big transaction is counted before any of it is in the log; see _room.py
    db.execute("PRAGMA cache_spill = OFF")
    # some builds overwrite deleted data, which would take more room than it frees
    db.execute("PRAGMA secure_delete = FAST")
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("PRAGMA cache_size = -8192")


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return _row(db, f"PRAGMA {pragma}")


def _row(db: sqlite3.Connection, sql: str) -> Any:
    return db.execute(sql).fetchone()[0]
