"""Tasks of trio that wait until a socket can be read: for `_park` alone."""

from __future__ import annotations

from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from trio.abc import Instrument
from trio.lowlevel import RunVar, add_instrument, current_task, remove_instrument, wait_readable

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket


async def read(source: socket, callback: Callable[[], None]) -> NoReturn:
    """Call `callback` in each turn of the loop in which the socket can be read; see `on_readable`."""
    reader, number, readers = _Reader(callback), source.fileno(), _readers_of_this_run()
    readers.add(reader)
    try:
        while True:
            reader.task.custom_sleep_data = reader
            await wait_readable(number)
            # trio removes an instrument in which an exception occurred: the handler of a signal may raise it
            if reader.task.custom_sleep_data is None:
                reader.call_back()
            if reader.problem is not None:
                raise reader.problem
    finally:
        readers.remove(reader)
        # each of these refers to the reader: let go of them, or all wait for the garbage collector
        reader.problem = reader.task.custom_sleep_data = None


class _Reader:
    """A task that waits until a socket can be read, and the function that is then called.

    The task's `custom_sleep_data` is the reader, until trio wakes the task, and again once the function was called.
    """

    __slots__ = ("_call", "problem", "task")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._call: Callable[[], object] = partial(copy_context().run, callback)
        self.problem: BaseException | None = None
        self.task = current_task()

    def call_back(self) -> None:
        self.task.custom_sleep_data = self
        try:
            self._call()
        except BaseException as problem:  # noqa: BLE001 the task raises it
            self.problem = problem


class _Readers(Instrument):
    """The instrument of a run of trio that calls the readers' functions before any task runs: trio's only callbacks.

    A task that did so would cost one turn more for each answer.
    """

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: dict[_Reader, None] = {}

    def add(self, reader: _Reader) -> None:
        add_instrument(self)  # does nothing if trio has it already
        self._readers[reader] = None

    def remove(self, reader: _Reader) -> None:
        del self._readers[reader]
        if not self._readers:
            with suppress(KeyError):  # trio has removed it
                remove_instrument(self)

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 the name that trio gave it
        for reader in self._readers:
            if reader.task.custom_sleep_data is None:
                reader.call_back()


_of_a_run: RunVar[_Readers | None] = RunVar("tenure readers", default=None)


def _readers_of_this_run() -> _Readers:
    readers = _of_a_run.get()
    if readers is None:
        readers = _Readers()
        _of_a_run.set(readers)
    return readers
