"""A primary that Sentinels know: they are asked anew for each connection."""

from __future__ import annotations

import random
import ssl
from collections.abc import Sequence
from typing import cast
from urllib.parse import unquote

import anyio
import hiredis
from anyio.abc import ByteStream

from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._endpoint import Address, addresses, database_number, safe
from ._handshake import UNEXPECTED, asked, refusal, unexpected_server

LOOK_UP = 1.0
"""Seconds after which Sentinels that have not answered are not waited for."""

_PORT = 26379


class SentinelEndpoint:
    """The address of the primary of a service, as most of its Sentinels say.

    The user and the password are the primary's; a Sentinel receives them only when it asks for them.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        self._sentinels, path = addresses(url, tls, _PORT)
        service, _, database = path.strip("/").partition("/")
        self._service = unquote(service)
        if not self._service:
            raise ValueError(
                f"{safe(url)!r}: the service is missing: write redis+sentinel://HOST,HOST/SERVICE"
            )
        self._known = (0, self._sentinels[0])
        self.database = database_number(url, database)
        self.user, self.password = self._sentinels[0].user, self._sentinels[0].password

    def __str__(self) -> str:
        s = "s" if self._sentinels[0].tls else ""
        user = f"{self.user}@" if self.user else ""
        where = ",".join(sentinel.place for sentinel in self._sentinels)
        database = f"/{self.database}" if self.database else ""
        return f"redis{s}+sentinel://{user}{where}/{self._service}{database}"

    async def connect(self) -> ByteStream:
        """Open a connection to the present primary.

        Raises `OSError`, `StoreUnavailable` when no Sentinel can be reached, `EngineError` when none knows the service
        or all refuse the password.
        Cancellation: nothing is left open.
        """
        self._known = await self._primary()
        return await self._known[1].connect()

    async def moved(self) -> bool:
        """True if any of the Sentinels names another server as the primary. Cancellation: nothing is left open."""
        try:
            with anyio.fail_after(LOOK_UP):
                answer = await self._ask(random.choice(self._sentinels))
        except (EngineError, StoreUnavailable, TimeoutError):
            return False
        return answer[0] > self._known[0] and answer[1] != self._known[1]

    async def _primary(self) -> tuple[int, Address]:
        # a Sentinel that was cut off may still believe in a primary that was replaced: of what more than half of them
        # say the newest counts
        answers: list[tuple[int, Address]] = []
        failures: list[Exception] = []
        with anyio.move_on_after(LOOK_UP):
            async with unwrapped_task_group() as group:

                async def look_up(sentinel: Address) -> None:
                    try:
                        answers.append(await self._ask(sentinel))
                    except (EngineError, StoreUnavailable) as error:
                        failures.append(error)
                    if 2 * len(answers) > len(self._sentinels):
                        group.cancel_scope.cancel()

                for sentinel in self._sentinels:
                    group.start_soon(look_up, sentinel)
        if answers:
            return max(answers, key=lambda answer: answer[0])
        for error in failures:
            if isinstance(error, EngineError):
                raise error
        raise StoreUnavailable(f"{self}: no Sentinel answers")

    async def _ask(self, sentinel: Address) -> tuple[int, Address]:
        question = ("SENTINEL", "MASTER", self._service)
        (answer,) = await asked(sentinel, question)
        if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOAUTH"):
            login = ("AUTH", self.user, self.password) if self.user else ("AUTH", self.password)
            refused, answer = await asked(sentinel, login, question)
            answer = refused if isinstance(refused, hiredis.ReplyError) else answer
        if isinstance(answer, hiredis.ReplyError):
            raise refusal(sentinel, answer)
        try:
            known = _pairs(cast("list[bytes]", answer))
            return int(known["config-epoch"]), sentinel.at(known["ip"], int(known["port"]))
        except UNEXPECTED:
            raise unexpected_server(sentinel.place, "no Sentinel", answer) from None


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))
