"""Handlers in processes: each process calls the user's function for one task at a time, and is killed to stop it.

Parent and child talk by pickles on the child's standard input and output; the function's prints go to standard error.
A process ends with its worker, and with its parent however that ends: a thread of the child reads the pipe.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing import spawn
from typing import Any, cast

import anyio
from anyio import CancelScope, open_process
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from tenure.upkeep import unwrapped_task_group

from ._calling import is_async, name_of
from ._child import RAISED, UNKEPT
from ._endings import NotKept
from ._sent_errors import unpacked

_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from tenure.handlers._child import main; main()"
_SIZE = 8
_START_LIMIT = 60.0
"""Seconds in which a process has to start and to import its handler."""
_GRACE = 0.5
"""Seconds in which the answer of a process that has ended is still read, while a fork of it keeps the pipe open."""


class HandlerProcess:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = name_of(function)
        self._function = pickled(function)
        self._process: Process | None = None
        self._was_ended = False
        self._problem: Exception | None = None

    def replacing(self) -> Awaitable[None] | None:
        return self._replace() if self._was_ended and self._problem is None else None

    async def _replace(self) -> None:
        try:
            await self.start()
        except Exception as problem:  # noqa: BLE001 the next try fails by it
            self._problem = problem

    async def start(self) -> None:
        """Start the process, unless it is there, and wait until it has imported the function.

        Raises `RuntimeError`, `OSError`. Cancellation: the process is killed.
        """
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        if self._process is not None and self._process.returncode is not None:
            await self.end()  # it has ended between two calls
        if self._process is not None:
            return
        with anyio.move_on_after(_START_LIMIT):
            try:
                await self._exchange(
                    await self._open(), self._function, who="its process has not started: it"
                )
            except BaseException:
                await self.end()
                raise
            self._was_ended = False
            return
        raise RuntimeError(
            f"handler {self._name}: its process has not started: importing the handler took longer than "
            f"{_START_LIMIT:g} s"
        )

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """The return value of the function.

        Raises its errors, `RuntimeError` if its process ends, and `TypeError` for arguments that cannot be pickled.
        Cancellation: the process is killed.
        """
        try:
            request = pickle.dumps((args, kwargs))
        except Exception as problem:
            raise TypeError(f"handler {self._name}: its arguments cannot be pickled: {problem}") from problem
        await self.start()
        return await self._exchange(request)

    async def _exchange(self, *requests: bytes, who: str = "its process") -> Any:
        try:
            kind, value = pickle.loads(await self._reply(requests))  # noqa: S301 from a child of this process
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as problem:
            raise RuntimeError(f"handler {self._name}: {who} {await self._ending()}") from problem
        except BaseException:
            await self.end()
            raise
        if kind == RAISED:
            raise unpacked(value)
        if kind == UNKEPT:
            raise NotKept(*value)
        return value

    async def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._was_ended = True
            with CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.aclose()

    async def _open(self) -> bytes:
        preparation = spawn.get_preparation_data("tenure handler")
        preparation.pop("authkey", None)
        # as in `multiprocessing`, the child finds the modules of its parent, `__main__` among them
        command = (sys.executable, "-c", _PROGRAM, *map(str, preparation["sys_path"]))
        # in a shield: a process whose start was cancelled would be left
        with CancelScope(shield=True):
            pipe = subprocess.PIPE
            self._process = await open_process(command, stdin=pipe, stdout=pipe, stderr=None)
        return pickle.dumps((os.getpid(), preparation))

    async def _reply(self, requests: Sequence[bytes]) -> bytes:
        assert self._process is not None
        replies: list[bytes] = []
        async with unwrapped_task_group() as group:
            # a fork may keep the pipe open
            group.start_soon(_cancel_at_end, self._process, group.cancel_scope)
            for request in requests:
                await self._send(request)
            replies.append(await self._receive())
            group.cancel_scope.cancel()
        if not replies:
            raise anyio.EndOfStream
        return replies[0]

    async def _ending(self) -> str:
        process = self._process
        assert process is not None
        with CancelScope(shield=True), anyio.move_on_after(1):
            await process.wait()
        code = process.returncode
        await self.end()
        if code is None:
            return "has closed its connection, and was killed"
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def _send(self, data: bytes) -> None:
        assert self._process is not None
        await cast("ByteSendStream", self._process.stdin).send(len(data).to_bytes(_SIZE) + data)

    async def _receive(self) -> bytes:
        return await self._exactly(int.from_bytes(await self._exactly(_SIZE)))

    async def _exactly(self, count: int) -> bytes:
        assert self._process is not None
        stream = cast("ByteReceiveStream", self._process.stdout)
        parts: list[bytes] = []
        while count:
            parts.append(part := await stream.receive(min(count, 2**20)))
            count -= len(part)
        return b"".join(parts)


def pickled(function: Callable[..., Any]) -> bytes:
    name = name_of(function)
    if is_async(function):
        raise TypeError(
            f"handler {name}: executor is for synchronous functions, and this is a coroutine function"
        )
    main = sys.modules["__main__"]
    if function.__module__ == "__main__" and not hasattr(main, "__file__"):
        raise TypeError(
            f"handler {name} cannot be sent to a process: write it in a module, not in the session"
        )
    try:
        return pickle.dumps(function)
    except Exception as problem:
        raise TypeError(
            f"handler {name} cannot be sent to a process: write it at the top level of a module ({problem})"
        ) from problem


async def _cancel_at_end(process: Process, scope: CancelScope) -> None:
    await process.wait()
    await anyio.sleep(_GRACE)
    scope.cancel("the process has ended")
