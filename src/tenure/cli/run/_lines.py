"""Files of lines as a source: a place is a byte offset; a checksum shows that the bytes before are unchanged."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

from tenure.cli._errors import Interrupted, UsageError

from ._inputs import PORTION, Portion, Position

STANDARD_INPUT = "-"
_CHUNK = 2**16
_LONGEST = 2**20  # as long as a payload may be
_ONCE = "standard input cannot be read twice; repeat the command with the same input"
_FRESH = "; correct it and repeat the command, or use --fresh to start anew"


class Lines:
    """The lines of files, one after the other: str without their ends, or the JSON values of `.jsonl` files.

    A position holds the number of the file, the offset and line in it, a checksum of all bytes read, and a stamp of the
    files' inodes, sizes and times. If the stamp has changed, the bytes are read again and the checksum compared: so a
    file may be copied, or grow.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        for path in paths:
            _check_path(path)
        self._paths = paths
        self._total = sum(size for path in paths if (size := _size(path)) is not None)
        self._sized = all(_size(path) is not None for path in paths)
        self.skipped: list[str] = []
        """The inputs that could not be read, a line each."""
        self.may_wait = not self._sized
        """True if reading may wait for a writer; a thread that does so may be abandoned, and the source closed."""
        self._reader: _Reader | None = None
        self._consumed = False
        self._reading = False
        self._begin()

    def check(self, position: Position) -> None:
        if self._sized and self._chain(position["file"] + 1) != position["stamp"]:
            self._reread(position)
            self._leave()

    def has_more(self, position: Position) -> bool:
        """True if more lines follow: also if all was read, and the last file has grown since."""
        return not position["end"] or (self._sized and (_size(self._paths[-1]) or 0) > position["offset"])

    def open(self, position: Position | None) -> None:
        """Go to the position. Raises `Interrupted` for standard input that was read before."""
        if self._reading:
            raise Interrupted(_ONCE)
        self._begin()
        if position is None:
            return
        if self._sized and self._chain(position["file"] + 1) == position["stamp"]:
            self._file, self._line, self._crc = position["file"], position["line"], position["crc"]
            self._before = sum(Path(path).stat().st_size for path in self._paths[: self._file])
            self._finished = self._chain(self._file)
            self._at().seek(position["offset"])
        else:
            self._reread(position)

    def read(self) -> Portion:
        self._reading = True
        try:
            return self._read()
        finally:
            self._reading = False

    def close(self) -> None:
        """Close the open file; a file that a thread still waits for is left to it."""
        if not self._reading:
            self._leave()

    # inside

    def _begin(self) -> None:
        self._leave()
        self._file = self._line = self._crc = 0
        self._before = 0  # bytes of the files before this one
        self._finished = 0  # the stamp of the files before this one
        self._ended = False

    def _read(self) -> Portion:
        items: list[Any] = []
        size = 0
        while not self._ended and len(items) < PORTION and size < _LONGEST:
            reader = self._at()
            lines, raw = reader.lines(PORTION - len(items))
            if not raw:
                self._ended = self._file == len(self._paths) - 1
                if not self._ended:
                    self._next_file()
                continue
            first, self._line = self._line + 1, self._line + len(lines)
            self._crc = crc32(raw, self._crc)
            size += len(raw)
            items += self._values(lines, first)
            if items and not reader.regular:
                break
        return Portion(items, self._position())

    def _at(self) -> _Reader:
        if self._reader is None:
            path = self._paths[self._file]
            if path == STANDARD_INPUT:
                if self._consumed:
                    raise Interrupted(_ONCE)
                self._consumed = True
            self._reader = _Reader(path)
        return self._reader

    def _leave(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _next_file(self) -> None:
        reader = self._at()
        self._before += reader.offset
        self._finished = reader.stamp(self._finished)
        self._leave()
        self._file += 1
        self._line = 0

    def _values(self, lines: list[bytes], first: int) -> list[Any]:
        values: list[Any] = []
        is_json = self._paths[self._file].endswith(".jsonl")
        for number, line in enumerate(lines, first):
            try:
                if not is_json:
                    values.append(line.removesuffix(b"\r").decode())
                elif line.strip():
                    values.append(json.loads(line, parse_constant=_refuse))
            except UnicodeDecodeError:
                raise UsageError(f"{self._where(number)} is not UTF-8{_FRESH}") from None
            except (ValueError, RecursionError) as problem:
                raise UsageError(f"{self._where(number)} is not a JSON value ({problem}){_FRESH}") from None
        return values

    def _where(self, line: int) -> str:
        return f"{_spoken(self._paths[self._file])}, line {line},"

    def _position(self) -> Position:
        reader = self._reader
        offset = 0 if reader is None else reader.offset
        return {
            "file": self._file,
            "offset": offset,
            "line": self._line,
            "crc": self._crc,
            "stamp": self._finished if reader is None else reader.stamp(self._finished),
            "share": round((self._before + offset) / self._total, 6) if self._sized and self._total else None,
            "end": self._ended,
        }

    def _chain(self, count: int) -> int:
        stamp = 0
        for path in self._paths[:count]:
            stamp = _stamped(Path(path).stat(), stamp)
        return stamp

    def _reread(self, position: Position) -> None:
        self._begin()
        while self._file < position["file"]:
            if not self._take(_CHUNK):
                self._next_file()
        left: int = position["offset"]
        taken = b""
        while left:
            taken = self._take(min(left, _CHUNK))
            if not taken:
                self._changed(self._paths[self._file])
            left -= len(taken)
        if self._crc != position["crc"]:
            self._changed(", ".join(map(_spoken, self._paths[: position["file"] + 1])))
        self._line = position["line"]
        # the last line may have had no end: then its end comes first, or it has changed
        if taken and not taken.endswith(b"\n") and self._take(1) not in (b"", b"\n"):
            self._changed(self._paths[self._file])

    def _take(self, most: int) -> bytes:
        raw = self._at().skip(most)
        self._crc = crc32(raw, self._crc)
        return raw

    def _changed(self, which: str) -> NoReturn:
        self._leave()
        raise UsageError(f"{_spoken(which)}: changed since it was read; use --fresh to start the run anew")


class _Reader:
    """A file, read by lines with a bounded buffer; the present content of a pipe is given at once."""

    def __init__(self, path: str) -> None:
        self._name = _spoken(path)
        try:
            # not through `sys.stdin`, whose lock a thread that is left waiting for input would hold at exit
            self._fd = (
                os.dup(0)
                if path == STANDARD_INPUT
                else os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            )
        except OSError as problem:
            raise UsageError(f"{self._name}: cannot be read ({problem.strerror})") from None
        self.regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self.offset = 0
        self._buffer = b""
        self._ended = False

    def lines(self, most: int) -> tuple[list[bytes], bytes]:
        buffer = self._buffer
        while b"\n" not in buffer:
            if len(buffer) > _LONGEST:
                raise UsageError(
                    f"{self._name}: the line at byte {self.offset} is longer than {_LONGEST} bytes; part it"
                )
            chunk = self._more()
            if not chunk:
                self._buffer = b""
                self.offset += len(buffer)
                return [buffer] if buffer else [], buffer
            buffer += chunk
        *lines, self._buffer = buffer.split(b"\n", most)
        raw = buffer[: len(buffer) - len(self._buffer)]
        self.offset += len(raw)
        return lines, raw

    def skip(self, most: int) -> bytes:
        raw = os.read(self._fd, most)
        self.offset += len(raw)
        return raw

    def seek(self, offset: int) -> None:
        os.lseek(self._fd, offset, os.SEEK_SET)
        self.offset = offset

    def stamp(self, before: int) -> int:
        return _stamped(os.fstat(self._fd), before) if self.regular else before

    def close(self) -> None:
        os.close(self._fd)

    def _more(self) -> bytes:
        if self._ended:  # a terminal would ask for more
            return b""
        chunk = os.read(self._fd, _CHUNK)
        self._ended = not chunk
        return chunk


def _check_path(path: str) -> None:
    if path == STANDARD_INPUT:
        return
    if not Path(path).exists():
        raise UsageError(
            f"{path}: there is no such file; name a file of lines, or --from 'GLOB' for names of files"
        )
    if Path(path).is_dir():
        raise UsageError(
            f"{path} is a directory; to use the names of its files write --from '{path.rstrip('/')}/**'"
        )
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path}: this user may not read it")


def _size(path: str) -> int | None:
    if path == STANDARD_INPUT:
        return None
    status = Path(path).stat()
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _stamped(status: os.stat_result, before: int) -> int:
    return crc32(repr((status.st_ino, status.st_size, status.st_mtime_ns)).encode(), before)


def _spoken(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is none")
