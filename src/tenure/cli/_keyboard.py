"""A full-screen terminal, without a cursor, and keys as they are pressed."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TextIO

import anyio

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[J", "\x1b[?25h\x1b[?1049l"


@contextmanager
def other_screen(stream: TextIO) -> Generator[None]:
    stream.write(_ENTER)
    stream.flush()
    try:
        with _keys_at_once():
            yield
    finally:
        stream.write(_LEAVE)
        stream.flush()


def draw(stream: TextIO, lines: list[str]) -> None:
    stream.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
    stream.flush()


@contextmanager
def _keys_at_once() -> Generator[None]:
    try:
        import termios
        import tty
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


async def pressed(wanted: str) -> None:
    """Wait until one of the wanted keys is pressed; for ever if there is no keyboard."""
    if sys.stdin.isatty():
        with suppress(OSError, NotImplementedError):
            while True:
                await anyio.wait_readable(sys.stdin.fileno())
                keys = os.read(sys.stdin.fileno(), 64).decode("ascii", "replace")
                if not keys or any(key in wanted for key in keys):
                    return
    await anyio.sleep_forever()
