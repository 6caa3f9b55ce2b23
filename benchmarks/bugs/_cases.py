"""Which scenario finds which bug, in which releases, and where it is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BOTH = ("asyncio", "trio")
ASYNCIO = ("asyncio",)
CURRENT = "anyio==4.16.0"
# The same everywhere, so that only the subject differs.
TRIO = "trio==0.35.0"


@dataclass(frozen=True)
class Case:
    """A scenario, which is the function of this name in `module`.

    `broken` are the releases in which it fails, on the loops `backends`; `clean` those in which it must not, on either,
    or on asyncio alone where only `task.cancel()` cancels: `cancel` is "native". A release of "python" is that
    interpreter of pyenv, and left out where there is none.
    """

    bug: str
    module: str
    scenario: str
    broken: tuple[str, ...]
    backends: tuple[str, ...] = BOTH
    clean: tuple[str, ...] = (CURRENT,)
    cancel: Literal[True, "native"] = True


CASES = (
    Case("anyio #728", "lost_item", "lost_item", ("anyio==4.3.0",)),
    Case("anyio #947", "lost_token", "lost_token", ("anyio==4.3.0", "anyio==4.9.0"), ASYNCIO),
    Case("anyio #1170", "over_grant", "over_grant", ("anyio==4.3.0", "anyio==4.13.0"), ASYNCIO),
    Case(
        "anyio #1145, lock", "dead_waiter", "dead_waiter_of_lock", ("anyio==4.9.0", "anyio==4.13.0"), ASYNCIO
    ),
    Case(
        "anyio #1145, semaphore",
        "dead_waiter",
        "dead_waiter_of_semaphore",
        ("anyio==4.9.0", "anyio==4.13.0"),
        ASYNCIO,
    ),
    Case("anyio #1075", "lost_notice", "lost_notice", ("anyio==4.3.0", "anyio==4.9.0")),
    Case("httpcore #1093", "stranded_slot", "stranded_slot", ("httpcore==1.0.9",), clean=()),
    Case("hyx bulkhead", "lost_capacity", "lost_capacity", ("hyx==0.0.2",), ASYNCIO, clean=()),
    Case("aiorwlock reader", "parked_reader", "parked_reader", ("aiorwlock==1.5.1",), ASYNCIO, clean=()),
    Case("stream, natively", "lost_item", "lost_item_natively", (CURRENT,), ASYNCIO, clean=()),
    Case("condition, natively", "lost_notice", "lost_notice_natively", (CURRENT,), ASYNCIO, clean=()),
    Case(
        "redis-py #2624",
        "wrong_reply",
        "wrong_reply",
        ("redis==4.5.2",),
        ASYNCIO,
        clean=("redis==5.0.1",),
        cancel="native",
    ),
    Case(
        "aiochannel #13",
        "sleeping_getter",
        "sleeping_getter",
        ("aiochannel==1.1.1",),
        ASYNCIO,
        clean=("aiochannel==1.3.0",),
        cancel="native",
    ),
    Case(
        "aiohttp #9670",
        "lost_slot",
        "lost_slot",
        ("aiohttp==3.10.10", "aiohttp==3.14.5"),
        ASYNCIO,
        clean=(),
        cancel="native",
    ),
    Case(
        "CPython gh-112202",
        "lost_notify",
        "lost_notify",
        ("python==3.11.7", "python==3.12.1"),
        ASYNCIO,
        clean=("python==3.13.0",),
        cancel="native",
    ),
)
