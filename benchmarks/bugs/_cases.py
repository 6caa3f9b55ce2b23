"""Which scenario finds which bug, in which releases, and where it is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BOTH = ("asyncio", "trio")
ASYNCIO = ("asyncio",)
CURRENT = "anyio==4.16.0"
# The same everywhere, so that only the subject differs.
TRIO = "trio==0.35.0"
NEWEST = "3.13.0"
"""The Python for current releases: asyncio's own conditions are mended there."""


@dataclass(frozen=True)
class Case:
    """A scenario, which is the function of this name in `module`.

    `broken` are the releases in which it fails, on the loops `backends`; `clean` those in which it must not, on either,
    or on `backends` alone where `cancel` names one way of cancelling: code for asyncio alone takes "native". `python`
    is the interpreter of pyenv to run on, as is a release of "python"; where there is none, the case is left out.
    `beside` is what the release needs and does not install.
    """

    bug: str
    module: str
    scenario: str
    broken: tuple[str, ...]
    backends: tuple[str, ...] = BOTH
    clean: tuple[str, ...] = (CURRENT,)
    cancel: Literal[True, "native", "scope"] = True
    python: str = ""
    beside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which the case is chosen: its module, or the package of that."""
        return self.module.partition(".")[0]


def _found(bug: str, module: str, scenario: str, release: str, *beside: str) -> Case:
    """A bug in a current release of a package for asyncio."""
    return Case(bug, module, scenario, (release,), ASYNCIO, (), "native", NEWEST, beside)


def _hunted(module: str, scenario: str, release: str) -> Case:
    """A scenario that shows no bug of a current release of a package for asyncio."""
    return Case("none", f"hunt.{module}", scenario, (), ASYNCIO, (release,), "native", NEWEST)


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
    Case(
        "psycopg_pool #1275",
        "swallowed_cancel",
        "no_connection_is_lost",
        ("psycopg_pool==3.3.0",),
        ASYNCIO,
        ("psycopg_pool==3.3.1",),
        "native",
        "3.12.1",
        ("psycopg[binary]",),
    ),
    _found(
        "psycopg_pool check", "swallowed_cancel", "a_check_ends", "psycopg_pool==3.3.3", "psycopg[binary]"
    ),
    _found("aiomysql pool", "unwoken_waiter", "every_waiter_is_served", "aiomysql==0.3.2"),
    _found("aiojobs limit", "over_limit", "jobs_within_the_limit", "aiojobs==1.4.0"),
    _found("async-lru entry", "lost_entry", "what_is_cached_is_not_computed_again", "async-lru==2.4.0"),
    _found("redis-py release", "leaked_connection", "maintenance_loses_none", "redis==8.1.0"),
    _found(
        "SQLAlchemy pool", "sleeping_waiter", "a_free_place_wakes_a_waiter", "SQLAlchemy==2.1.9", "greenlet"
    ),
    Case(
        "anyio lru_cache", "shrunken_cache", "every_call_is_answered", (CURRENT,), BOTH, (), "scope", NEWEST
    ),
    Case("anyio lru_cache, room", "shrunken_cache", "the_room_stays", (CURRENT,), BOTH, (), "scope", NEWEST),
    Case("none", "hunt.trio_parts", "channel_loses_nothing", (), ("trio",), (TRIO,), "scope", NEWEST),
    Case("none", "hunt.trio_parts", "limiter_is_given_back", (), ("trio",), (TRIO,), "scope", NEWEST),
    Case("none", "hunt.trio_parts", "every_notice_is_used", (), ("trio",), (TRIO,), "scope", NEWEST),
    _hunted("aiohttp_client", "every_lookup_ends", "aiohttp==3.14.5"),
    _hunted("aiohttp_client", "no_byte_of_a_stream_is_lost", "aiohttp==3.14.5"),
    _hunted("aiokafka_batches", "every_message_is_delivered_once", "aiokafka==0.14.0"),
    _hunted("asyncpg_pool", "no_place_is_lost", "asyncpg==0.32.0"),
    _hunted("websockets_messages", "no_message_is_lost", "websockets==17.4"),
    _hunted("more_pools", "aio_pika_serves_all", "aio-pika==10.2.1"),
    _hunted("more_pools", "pymongo_serves_all", "pymongo==4.20.1"),
    _hunted("more_pools", "aiosqlite_is_closed", "aiosqlite==0.22.1"),
    _hunted("more_queues", "aiochannel_gives_each_item_once", "aiochannel==1.4.1"),
    _hunted("more_queues", "janus_gives_each_item_once", "janus==2.0.0"),
    _hunted("more_queues", "aiolimiter_serves_all_in_time", "aiolimiter==1.3.0"),
)
