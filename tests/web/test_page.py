"""The page in a real browser: it shows what the server tells, as text only, and under its policy."""

from __future__ import annotations

import re
import shutil
import subprocess

import anyio
import anyio.to_thread
import pytest
from counted import counts
from needed import NO_CHROMIUM

from tenure.engine import Holder, Resource, ResourcePage
from tenure.errors import StoreUnavailable
from tenure.processor._metrics import Latencies, Latency
from tenure.web import _site
from tenure.web._document import document
from tenure.web._flows import Flow
from tenure.web._processors import SeenProcessor
from tenure.web._view import SeenKey, SeenPool, SeenProcess, View
from tenure.web._waits import Deadlock, Wait

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.backends("asyncio"),
]


@pytest.fixture
def browse(tmp_path):
    """What a browser makes of a page after so many seconds of its own time, and what it complains of."""

    async def visit(url, seconds=3.5):
        command = [
            *(
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--window-size=1000,900"),
            *(f"--virtual-time-budget={seconds * 1000:.0f}", "--dump-dom", url),
        ]
        ended = await anyio.to_thread.run_sync(
            lambda: subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
        )
        console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
        return ended.stdout, console

    return visit


def seen(**given):
    empty = {
        "queues": {},
        "keys": (),
        "pools": (),
        "processes": (),
        "processors": (),
        "deadlocks": (),
        "limiters": {},
        "more": frozenset(),
    }
    return View(**{"at": 0.0, "ping": 0.0012, **empty, **given})


def cells(dom, place):
    """The texts of a table, row by row."""
    section = dom.partition(f'id="{place}"')[2].partition("</table>")[0]
    rows = section.partition("<tbody")[2].split("</tr>")[:-1]
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


async def test_what_is_there_is_shown_and_drawn(serve, browse):
    holder, waiter = (
        Holder("host:1:ab", "s.1@7f", 9, 1, b"", 75.0),
        Holder("host:2:cd", "s.2@8f", 0, 1, b"", 2.0),
    )
    wait = Wait("host:1:ab", "7f", "lock A", 9.0, ("lock B",))
    none, some = Latency(0, 0, 0, 0, 0, 0), Latency(9, 0.3, 0.25, 1.5, 2.0, 2.0)
    polls = []

    async def state():
        polls.append(1)
        view = seen(
            queues={
                "idle": counts(done=1_234),
                "mail": counts(waiting=5 + len(polls), leased=2, dead=1, oldest=3.0, paused=True),
            },
            keys=(SeenKey("lock", "report", 1, 1, (holder,), (waiter,)),),
            pools=(
                SeenPool(
                    "keys",
                    ResourcePage((Resource("r", (), 0, "claimed", "p", 1, 0.0, "", claimed=1),), waiting=4),
                ),
            ),
            processes=(SeenProcess("host:1:ab", {"mail": 2}, {"idle"}, 1, 0, 3),),
            processors=(SeenProcessor("harvest", 2, 20, 7, 12.0, Latencies(none, some, some)),),
            deadlocks=(Deadlock((wait, wait), certain=True, behind=2),),
        )
        seen_now = document(
            "redis://host", "tenure", view, {"idle": Flow(), "mail": Flow(4.0, 12.0, 0.5, 0.02)}
        )
        return {**seen_now, "problems": ["the server is <tired>"]}

    ask = await serve(state)
    dom, console = await browse(ask.url)
    assert console == []
    assert len(polls) >= 3
    assert f'data-polls="{len(polls)}"' in dom or f'data-polls="{len(polls) - 1}"' in dom
    assert "redis://host, namespace tenure, round trip 1.2 ms" in dom
    mail, idle = cells(dom, "queues")
    assert mail[0] == "mail (paused)"
    assert int(mail[2]) >= 7
    assert mail[3:] == ["3.00 s", "2", "1", "4.0", "12", "0.500 s", "20 ms", "0", "0"]
    assert idle[-1] == "1,234"
    assert re.findall(r'<td[^>]* class="bad"[^>]*><a [^>]*>(.*?)</a></td>', dom) == [
        "1"
    ]  # the dead of a queue
    assert cells(dom, "processes") == [["host:1:ab", "mail: 2", "idle", "1", "0", "3"]]
    (harvest,) = cells(dom, "processors")
    assert harvest == ["harvest", "2", "7 of 20", "12", "-", *["0.250 s / 1.50 s / 2.00 s"] * 2]
    assert cells(dom, "keys") == [["lock report", "1 of 1", "host:1:ab (75.0 s)", "host:2:cd (2.00 s)"]]
    assert cells(dom, "pools") == [["keys", "0", "1 of 1", "0", "0", "4"]]
    assert "the server is &lt;tired&gt;" in dom
    assert re.search(r'<a href="https://[^"]*#tenure-doctor-url" target="_blank"[^>]*>What to do</a>', dom)
    assert "Deadlock, for 9.00 s" in dom
    assert "host:1:ab task 7f holds lock B and waits for lock A" in dom
    assert "2 more wait behind them" in dom
    assert re.findall(r"<figcaption>(.*?)</figcaption>", dom) == [
        *("Depth", "Throughput, per second", "Latency, logarithmic", "Holders"),
    ]
    assert re.search(r'<p class="big a"[^>]*>\d+<small>waiting</small>', dom)
    assert (
        len(
            re.findall(
                r'<svg class="spark"[^>]* aria-label="up to \d+ waiting, up to \d+ out per second"', dom
            )
        )
        == 2
    )
    lines = re.findall(r'<polyline class="\w" points="([^"]*)"', dom)
    assert len(lines) == 13 + 2
    # the depth rises from poll to poll
    heights = [float(point.split(",")[1]) for point in lines[0].split()]
    assert len(heights) >= 3
    assert heights == sorted(heights, reverse=True)
    assert len(set(heights)) == len(heights)


async def test_a_queue_without_a_worker_says_how_to_start_one(serve, browse):
    async def state():
        view = seen(queues={"mail": counts(waiting=5, oldest=9.0), "new": counts(waiting=1, oldest=1.0)})
        return document("redis://host", "tenure", view, {"mail": Flow(), "new": Flow()})

    dom, console = await browse((await serve(state)).url, 1.5)
    assert console == []
    assert "No process works on mail: 5 tasks wait, for up to 9.00 s" in dom
    assert "<code>tenure work module:function --queue mail --store redis://host</code>" in dom
    assert 'class="trouble well"' not in dom


async def test_names_are_text_and_never_markup(serve, browse):
    evil = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"

    async def state():
        view = seen(
            queues={evil: counts(waiting=1)},
            processes=(SeenProcess(evil, {evil: 1}, {evil}, 0, 0, 0),),
            deadlocks=(Deadlock((Wait(evil, evil, evil, 1.0, (evil,)),), certain=True),),
        )
        return document(evil, evil, view, {evil: Flow()})

    dom, _ = await browse((await serve(state)).url, 1.5)
    assert "<title>(1) tenure</title>" in dom  # a deadlock
    dom = re.sub(r' title="[^"]*"', "", dom)  # older browsers write < in there as it is
    assert "<img" not in dom
    assert dom.count("<script>") == 1
    assert "&lt;img src=x" in dom


MEASURE = """setInterval(() => {
  const greatest = (selector, measure) => Math.max(...[...document.querySelectorAll(selector)].map(measure));
  document.documentElement.dataset.measured = [document.documentElement.scrollWidth - innerWidth,
    greatest("#queues, #pools", place => place.scrollWidth - place.clientWidth),
    greatest("tr", row => row.offsetHeight)].join(" ");
}, 100);
</script>"""


NAMES = {
    "long": "x" * 512,
    "escapes": "\x1b[2J\x07" * 100,
    "turned": "\u202e\u2066" * 85,
    "wide": "\u6f22" * 170,
    "stacked": "e" + "\u0301" * 255,
    "words": "a b " * 128,
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(NAMES.values(), id="all"),
        # where none can hide behind another
        *(pytest.param([name], id=key, marks=pytest.mark.full) for key, name in NAMES.items()),
    ],
)
async def test_no_name_breaks_the_layout(serve, browse, monkeypatch, names):
    body, _ = _site.page(actions=False)
    measured = body.replace(b"</script>", MEASURE.encode())
    monkeypatch.setattr(_site, "page", lambda **_: (measured, "default-src * 'unsafe-inline'"))

    async def state():
        holders = [Holder(name, "s.1@7f", 9, 1, b"", 75.0) for name in names]
        view = seen(
            queues={**{name: counts(waiting=12_345) for name in names}, "mail": counts()},
            keys=tuple(
                SeenKey("lock", name, 1, 1, (holder,), (holder,) * 5)
                for name, holder in zip(names, holders, strict=True)
            ),
            pools=tuple(SeenPool(name, ResourcePage((), waiting=4)) for name in names),
            processes=tuple(SeenProcess(name, {name: 2}, {name}, 1, 0, 3) for name in names),
            deadlocks=tuple(
                Deadlock((Wait(name, "7f", name, 9.0, (name,)),), certain=True) for name in names
            ),
        )
        flows = {name: Flow() for name in (*names, "mail")}
        return document(f"redis://{next(iter(names))}", "tenure", view, flows)

    dom, _ = await browse((await serve(state)).url, 1.5)
    page_beyond, table_beyond, height = map(int, re.search(r'data-measured="([^"]*)"', dom)[1].split())
    assert page_beyond <= 0
    assert table_beyond <= 0  # all figures are to be seen without scrolling
    assert height <= 40
    assert not {c for c in dom if not c.isprintable()} - {"\n"}


async def test_a_store_that_is_away_is_reported_and_comes_back(serve, browse):
    polls = []

    async def state():
        polls.append(1)
        if len(polls) == 1:
            raise StoreUnavailable("redis://host: no answer within 5 s")
        return document("redis://host", "tenure", seen(), {})

    ask = await serve(state)
    dom, _ = await browse(ask.url, 0.5)
    assert "No news: redis://host: no answer within 5 s" in dom
    assert 'class="bad"' in dom
    dom, _ = await browse(ask.url, 0.5)
    assert "redis://host, namespace tenure" in dom
    assert cells(dom, "queues") == []


async def test_a_token_in_the_address_opens_the_page_and_leaves_the_address(serve, browse):
    async def state():
        return document("redis://host", "tenure", seen(), {})

    ask = await serve(state, token="correcthorse7")
    dom, console = await browse(f"{ask.url}?token=correcthorse7")
    assert "redis://host, namespace tenure" in dom
    assert "correcthorse7" not in dom
    assert console == []
    dom, _ = await browse(f"{ask.url.replace('127.0.0.1', 'localhost')}?token=wrongwrong1", 0.5)
    assert "this token is wrong" in dom
