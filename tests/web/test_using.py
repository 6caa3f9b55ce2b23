"""The page is used in a real browser: by pointer, by keys alone, on a phone, and by those who listen to it."""

from __future__ import annotations

import os
import re

import anyio
import anyio.to_thread
import pytest
from browser import CHROMIUM, Browser
from family import three_levels
from filled_store import fails, filled, ids_of
from needed import NO_AXE, NO_CHROMIUM

import tenure
from tenure.web import Site
from tenure.web.server import Server

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.backends("asyncio"),
    pytest.mark.full,
]
SHOWN = "+document.documentElement.dataset.polls >= 1 && document.querySelector('#failures table')"


@pytest.fixture
async def visit(tmp_path):
    """Calls a function with a browser, the page's address and how to ask it, in a thread: `await visit(use)`."""
    async with filled() as store, anyio.create_task_group() as group:

        async def run(use, *, site=None, **options):
            site = Site(store, **(site or {}))
            (port,) = await group.start(Server(site).serve, "127.0.0.1", 0)

            def browse():
                with Browser(tmp_path / f"profile-{port}", **options) as browser:
                    browser.open(f"http://127.0.0.1:{port}/")
                    browser.until(SHOWN)
                    use(browser)
                    assert browser.complaints == []

            await anyio.to_thread.run_sync(browse)

        run.store = store
        yield run
        group.cancel_scope.cancel()


def panel(browser):
    return browser.ask(
        "document.querySelector('#panel').open ? document.querySelector('#panel').innerText : ''"
    )


async def test_dead_letters_are_looked_through_with_the_keyboard_alone(visit):
    *_, fifth, _, _ = await ids_of(tenure.WorkQueue(visit.store, "mails"))

    def use(browser):
        for _ in range(30):
            browser.press("Tab")
            if browser.focused() == "7":
                break
        style = browser.ask("getComputedStyle(document.activeElement).outlineStyle")
        assert style == "solid"
        browser.press("Enter")
        browser.until("document.querySelector('#found table')")
        text = panel(browser)
        assert "Queue mails" in text
        assert "no route to city-1" in text
        assert browser.focused() == "Queue mails"
        # the search
        while browser.focused() != "find":
            browser.press("Tab")
        browser.type("city-4")
        browser.press("Enter")
        browser.until("document.querySelectorAll('#found tbody tr').length === 1")
        while browser.focused() != str(fifth):
            browser.press("Tab")
        browser.press("Enter")
        browser.until("document.querySelector('#found pre')")
        text = panel(browser)
        assert f"Task {fifth} of mails" in text
        assert "Traceback (most recent call last)" in text
        assert "order-4" in text
        assert "meta tenant" in text
        assert "Seen by this page" in text
        assert "hidden" not in text
        browser.press("Escape")
        browser.until("!document.querySelector('#panel').open && location.hash === ''")
        # it is where it was
        assert browser.focused() == "7"

    await visit(use)


async def test_a_queue_and_a_task_have_addresses_of_their_own(visit):
    _, second, *_ = await ids_of(tenure.WorkQueue(visit.store, "mails"))

    def use(browser):
        browser.ask(f"location.hash = '#queue=mails&task={second}'")
        browser.until("document.querySelector('#found pre')")
        assert "no route to city-1" in panel(browser)
        browser.ask("location.hash = '#queue=mails&task=77'")
        browser.until("/no such task/.test(document.querySelector('#found').textContent)")
        browser.ask("history.back()")
        browser.until("document.querySelector('#found pre')")
        browser.click("#panel [data-do=close]")
        browser.until("!document.querySelector('#panel').open && location.hash === ''")

    await visit(use)


async def test_a_task_shows_its_children_and_for_which_of_them_it_waits(visit):
    root, _, b, c = await three_levels(visit.store)

    def use(browser):
        browser.ask(f"location.hash = '#queue=sites&task={root}'")
        browser.until("document.querySelectorAll('#found tbody tr').length === 3")
        text = panel(browser)
        assert f"pages/b: task {b} of pages, suspended > pages/c: task {c} of images, waiting" in text
        assert "1 unfinished" in text
        browser.ask(f"document.querySelector('#found a[href*=\"task={c}\"]').click()")
        browser.until("/Task .* of images/.test(document.querySelector('#panel-title').textContent)")
        browser.until("/parent/.test(document.querySelector('#found').textContent)")
        assert f"task {b} of pages" in panel(browser)
        browser.ask("location.hash = '#queue=sites'")
        browser.until("/suspended 1/.test(document.querySelector('#found nav').textContent)")
        assert "Purge" not in panel(browser)
        assert "ending" not in browser.ask("document.querySelector('#found nav').textContent")
        legend = "document.querySelector('#charts .legend').textContent"
        assert browser.ask(legend).startswith("waiting 40leased 1delayed 2suspended 2dead 7")

    await visit(use, site={"actions": True})


async def test_what_runs_is_listed_and_a_task_has_times_with_dates(visit):
    def use(browser):
        rows = "[...document.querySelectorAll('#running tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        ((_, queue, process, seconds),) = browser.ask(rows)
        assert queue == "images"
        assert re.fullmatch(r"[\d.]+ m?s", seconds)
        browser.click("#running a")
        browser.until("document.querySelector('#found dl')")
        text = panel(browser)
        for name in ("put", "started"):
            date = r"\w{3}, \d+ \w{3,4} \d{4}, \d\d:\d\d \S+"
            assert re.search(rf"{name}\s+[\d.]+ m?s ago, {date}\n", text), text
        assert "ended" not in text
        assert f"leased to {process}, attempts 0, deliveries 1" in text
        stamps = browser.ask(
            "[...document.querySelectorAll('#found time')].map(t => Date.now() - new Date(t.dateTime))"
        )
        assert len(stamps) == 3
        assert all(0 <= stamp < 60_000 for stamp in stamps)

    await visit(use)


async def test_the_history_of_a_task_is_what_the_page_has_seen(visit):
    queue = tenure.WorkQueue(visit.store, "seen")
    task_id = await queue.put(1)

    def use(browser):
        browser.ask(f"location.hash = '#queue=seen&task={task_id}'")
        browser.until(
            "/waiting, attempts 0, deliveries 0/.test(document.querySelector('#found ol').textContent)"
        )
        anyio.from_thread.run(queue.cancel, task_id)
        browser.until("document.querySelectorAll('#found ol li').length === 2")
        assert "cancelled" in panel(browser)

    await visit(use)


async def test_what_has_the_focus_keeps_it_while_the_page_changes(visit):
    def use(browser):
        browser.ask("document.querySelector('#queues a').focus()")
        polls = browser.ask("+document.documentElement.dataset.polls")
        browser.until(f"+document.documentElement.dataset.polls > {polls + 1}")
        assert browser.focused() == "images"
        assert browser.ask("document.activeElement.closest('#queues') !== null")

    await visit(use)


async def test_failures_are_shown_by_their_type(visit):
    def use(browser):
        rows = browser.ask(
            "[...document.querySelectorAll('#failures tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        assert sorted(row[:4] for row in rows) == [
            ["ConnectionError", "images", "0", "1"],
            ["ConnectionError", "mails", "4", "0"],
            ["KeyError", "mails", "3", "0"],
        ]
        assert "KeyError: 'city-6'" in [row[5] for row in rows]

    await visit(use)


async def test_who_waits_for_whom_is_drawn_and_listed(visit):
    def use(browser):
        names = browser.ask("[...document.querySelectorAll('#graph g title')].map(t => t.textContent)")
        assert {"lock accounts", "lock ledger", "lock nightly report", "semaphore render"} < set(names)
        red = browser.ask("[...document.querySelectorAll('#graph g.dead title')].map(t => t.textContent)")
        assert sorted(name for name in red if name.startswith("lock")) == ["lock accounts", "lock ledger"]
        assert len(red) == 4
        # a circle of two waits and two holds
        assert browser.ask("document.querySelectorAll('#graph path.dead:not(.tip)').length") == 4
        sentences = browser.ask("[...document.querySelectorAll('#graph li')].map(t => t.textContent)")
        assert sum(text.endswith(", in a deadlock") for text in sentences) == 4
        assert sum("waits for lock nightly report" in text for text in sentences) == 2
        boxes = browser.ask(
            "[...document.querySelectorAll('#graph rect')].map(r => [r.x, r.y].map(v => v.baseVal.value).join())"
        )
        assert len(set(boxes)) == len(boxes) == len(names)
        # announced once, and not again with each second
        assert browser.ask("document.querySelector('#news').textContent").startswith("Deadlock: ")
        assert not re.search(r"\d s\b", browser.ask("document.querySelector('#news').textContent"))

    await visit(use)


async def test_values_in_charts_are_read_by_pointer_and_by_keys(visit):
    def use(browser):
        browser.until("+document.documentElement.dataset.polls >= 4")
        browser.point("#charts figure svg", 0.95)
        browser.until("document.querySelectorAll('.charts line.cursor').length === 4")
        assert browser.ask("document.querySelectorAll('.charts em').length") == 4
        browser.point("h1")
        browser.until("document.querySelectorAll('.charts line.cursor').length === 0")
        browser.ask("document.querySelector('#charts figure').focus()")
        browser.press("ArrowLeft", times=2)
        browser.until("document.querySelectorAll('.charts line.cursor').length === 4")
        assert re.fullmatch(
            r"[\d.]+ m?s ago: waiting 39, leased 1, delayed 2, dead 7",
            browser.ask("document.querySelector('#reading').textContent"),
        )
        browser.press("Escape")
        browser.until("document.querySelectorAll('.charts line.cursor').length === 0")

    await visit(use)


async def test_the_latencies_axis_is_logarithmic_and_labelled(visit):
    def use(browser):
        label = "[...document.querySelectorAll('.charts figure')[2].querySelectorAll('svg text')]"
        texts = browser.ask(f"{label}.map(t => t.textContent)")
        assert texts[:3] == ["0.1 ms", "1 ms", "10 ms"]
        heights = browser.ask(f"{label}.slice(0, 3).map(t => +t.getAttribute('y'))")
        assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)

    await visit(use)


async def test_an_hour_is_shown_if_that_is_chosen(visit):
    def use(browser):
        browser.ask(
            "for (let i = 1; i < 300; i++) samples.unshift({...samples[0], at: seconds() - 10 * i - 5}); drawCharts()"
        )
        ago = "document.querySelector('#charts svg text:nth-last-of-type(2)').textContent"
        browser.until(f"{ago} === '5 min ago'")
        browser.click("input[value='3600']")
        browser.until(f"{ago} === '50 min ago'")

    await visit(use)


async def test_actions_are_confirmed_and_carried_out(visit):
    queue = tenure.WorkQueue(visit.store, "mails")
    _, second, *_ = await ids_of(queue)

    def use(browser):
        browser.ask(f"location.hash = '#queue=mails&task={second}'")
        browser.until("document.querySelector('#found button')")
        browser.ask("document.querySelector('#found button').focus()")
        browser.press("Enter")
        browser.until("document.querySelector('#confirm').open")
        text = browser.ask("document.querySelector('#confirm').innerText")
        assert f"Make task {second} of mails ready again? Its attempts start anew." in text
        # what does no harm has the focus
        assert browser.focused() == "Keep everything as it is"
        browser.press("Escape")
        browser.until("!document.querySelector('#confirm').open && document.querySelector('#panel').open")
        assert anyio.from_thread.run(queue.get, second).state == "dead"
        browser.press("Enter")
        browser.until("document.querySelector('#confirm').open")
        browser.press("Tab")
        browser.press("Enter")
        # the outcome is told in a line that goes away, and nothing has to be closed
        browser.until("document.querySelector('#panel-outcome').textContent === '1 task made ready again'")
        assert not browser.ask("document.querySelector('#confirm').open")
        assert anyio.from_thread.run(queue.get, second).state == "waiting"
        browser.until(
            "[...document.querySelectorAll('#found button')].some(b => /Cancel/.test(b.textContent))"
        )
        browser.ask("stays = 10; tell('gone soon')")
        browser.until("document.querySelector('#panel-outcome').textContent === ''")

    await visit(use, site={"actions": True})


async def test_a_lock_is_broken_from_the_page(visit):
    def use(browser):
        browser.click("button[aria-label^='Break lock nightly report']")
        browser.until("document.querySelector('#confirm').open")
        # who breaks a lock knows what becomes of its holder
        assert 'ends with LeaseLost("broken")' in browser.ask("document.querySelector('#confirm').innerText")
        browser.click("#confirm-do")
        browser.until("document.querySelector('#outcome').textContent === 'lock nightly report is broken'")
        assert not browser.ask("document.querySelector('#confirm').open")

    await visit(use, site={"actions": True})


def buttons(browser):
    return browser.ask("[...document.querySelectorAll('#found button')].map(b => b.textContent)")


async def test_a_queue_opens_on_its_dead_tasks_and_has_only_buttons_that_do_something(visit):
    dead = await ids_of(tenure.WorkQueue(visit.store, "mails"))
    idle = tenure.WorkQueue(visit.store, "idle")
    await idle.put(1)
    async with idle.take():
        pass

    def use(browser):
        browser.ask("location.hash = '#queue=mails'")
        browser.until("document.querySelector('#found table')")
        tabs = "[...document.querySelectorAll('#found nav a')].map(a => a.textContent)"
        assert browser.ask(tabs) == ["waiting 0", "delayed 0", "leased 0", "dead 7", "ended"]
        assert browser.ask("document.querySelector('#found [aria-current]').textContent") == "dead 7"
        ids = "[...document.querySelectorAll('#found tbody tr')].map(row => row.cells[0].textContent)"
        assert browser.ask(ids) == [str(task_id) for task_id in reversed(dead)]
        assert buttons(browser) == [
            "Pause",
            "Requeue all dead tasks",
            "Purge all dead tasks",
            "Select all shown",
        ]
        browser.click("#found button")
        browser.until("document.querySelector('#confirm').open")
        browser.click("#confirm-do")
        browser.until("document.querySelector('#found button').textContent === 'Resume'")
        assert buttons(browser)[1:3] == ["Requeue all dead tasks", "Purge all dead tasks"]
        browser.ask("location.hash = '#queue=images'")
        browser.until("document.querySelector('#found [aria-current]').textContent === 'waiting 39'")
        browser.until("document.querySelectorAll('#found button').length === 3")
        assert buttons(browser)[:2] == ["Pause", "Purge all waiting tasks"]
        browser.ask("location.hash = '#queue=idle'")
        browser.until("document.querySelector('#found [aria-current]').textContent === 'ended'")
        assert buttons(browser) == ["Pause", "Select all shown"]

    await visit(use, site={"actions": True})


async def test_a_rate_and_what_is_held_off_are_shown(visit):
    queue = tenure.WorkQueue(visit.store, "calls")
    await queue.configure(rate=tenure.Limit(5), groups=tenure.Groups(rate=tenure.Limit(5, per=60)))
    await queue.put_many([tenure.Item(n, group="ab"[n % 2]) for n in range(5)])
    await queue.hold_off(3000)
    await queue.hold_off(36_000, group="b")

    def use(browser):
        browser.until("document.querySelector('#queues')?.textContent.includes('calls')")
        browser.ask("location.hash = '#queue=calls'")
        browser.until("document.querySelectorAll('#found table').length === 2")
        setter = f"({visit.store.process})"
        assert (
            f"\nrate 5 a second {setter}, groups.rate 1 in 12.0 s {setter}, held off for 50 min\n"
            in panel(browser)
        )
        rows = "[...document.querySelectorAll('#found table')[0].rows].map(row => row.cells[4].textContent)"
        assert browser.ask(rows) == ["next start", "now", "held off for 10 h"]

    await visit(use)


async def test_the_view_of_a_queue_has_its_charts(visit):
    def use(browser):
        browser.until("+document.documentElement.dataset.polls >= 3")
        browser.ask("location.hash = '#queue=images'")
        legends = "[...document.querySelectorAll('#queue-charts .legend')].map(l => l.textContent)"
        browser.until(f"{legends}.length === 2")
        assert browser.ask(legends) == ["waiting 39", "out 0"]
        browser.ask("document.querySelector('#queue-charts figure').focus()")
        browser.press("ArrowLeft")
        browser.until("document.querySelectorAll('#queue-charts line.cursor').length === 2")
        assert browser.ask("document.querySelector('#reading').textContent").endswith("ago: waiting 39")

    await visit(use)


async def test_the_groups_that_flood_a_queue_are_shown(visit):
    queue = tenure.WorkQueue(visit.store, "prompts", max_size=2000)
    await queue.put_many([tenure.Item(n, group="globex") for n in range(1000)])
    await queue.put_many([tenure.Item(n, group=f"tenant-{n:02}") for n in range(30)])

    def use(browser):
        rows = (
            "[...document.querySelectorAll('#found table')].map(table => [...table.tBodies[0].rows]"
            ".map(row => [...row.cells].map(cell => cell.textContent)))[0]"
        )
        browser.until("document.querySelector('#queues')?.textContent.includes('groups')")
        browser.ask("location.hash = '#queue=prompts'")
        browser.until("document.querySelectorAll('#found table').length === 2")
        assert browser.ask(rows)[:2] == [["globex", "1,000", "0", "0"], ["tenant-00", "1", "0", "0"]]
        assert len(browser.ask(rows)) == 5
        browser.ask(
            "[...document.querySelectorAll('#found a')].find(a => a.textContent === 'all 31').click()"
        )
        browser.until("document.querySelectorAll('#found tbody tr').length === 31")
        # a group leads to its tasks
        browser.ask(
            "[...document.querySelectorAll('#found a')].find(a => a.textContent === 'tenant-29').click()"
        )
        browser.until("document.querySelectorAll('#found tbody tr').length === 1")
        assert "tenant-29" in panel(browser)

    await visit(use)


async def test_a_pool_opens_its_resources_and_who_has_them(visit):
    def use(browser):
        browser.ask(
            "[...document.querySelectorAll('#pools a')].find(a => a.textContent === 'api keys').click()"
        )
        browser.until("document.querySelectorAll('#found tbody tr').length === 3")
        rows = browser.ask(
            "[...document.querySelectorAll('#found tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        )
        assert [row[:2] for row in rows] == [["key-0", "claimed"], ["key-1", "free"], ["key-2", "free"]]
        (holder,) = [
            one["process"]
            for one in browser.ask("ask('state.json').then(state => state.processes)")
            if one["claims"]
        ]
        assert rows[0][2:4] == ["1", holder]

    await visit(use)


async def test_who_leads_is_shown_by_its_node(visit):
    def use(browser):
        row = "[...document.querySelectorAll('#keys tr')].find(row => /scheduler/.test(row.textContent))"
        assert re.fullmatch(r"node-a \(\S+, .* m?s\)", browser.ask(f"{row}.cells[2].textContent"))

    await visit(use)


async def test_a_search_goes_on_by_itself_until_it_is_stopped(visit, monkeypatch):
    monkeypatch.setattr("tenure.web._tasks._MOST_LOOKED_AT", 64)
    queue = tenure.WorkQueue(visit.store, "many", max_size=2000)
    await queue.put_many([tenure.Item(n, key=f"order-{n}") for n in range(1000)])
    heard = "document.querySelector('#panel-outcome').textContent"

    def use(browser):
        # below the settings of the queue
        progress = "[...document.querySelectorAll('#found .acts')].at(-1)?.textContent"
        browser.ask("location.hash = '#queue=many&state=waiting&find=order-99'")
        browser.until(f"{heard} === '11 found'")
        assert browser.ask(progress) == "1,000 of 1,000 waiting tasks were looked at, 11 found"
        # it is bounded by what it finds, too
        browser.ask("location.hash = '#queue=many&state=waiting&find=order'")
        browser.until(f"{heard} === '64 found'")
        assert browser.ask(progress) == "64 of 1,000 waiting tasks were looked at, 64 foundSearch on"
        browser.click("#found [data-do=on]")
        browser.until(f"{heard} === '128 found'")
        # and by whoever stops it
        browser.ask(
            "ask = (ask => (...a) => new Promise(done => setTimeout(() => done(ask(...a)), 100)))(ask)"
        )
        browser.ask("location.hash = '#queue=many&state=waiting&find=nosuch'")
        browser.until("document.querySelector('#found [data-do=stop]')")
        browser.click("#found [data-do=stop]")
        browser.until(f"{heard} === '0 found'")
        looked_at = int(browser.ask(progress).partition(" ")[0])
        assert looked_at < 1000
        browser.click("#found [data-do=on]")
        browser.until(f"{progress}.startsWith('1,000 of 1,000')")

    await visit(use)


async def test_what_waits_for_its_own_process_is_drawn_as_tasks(tmp_path):
    async with tenure.open_store("memory:") as store, anyio.create_task_group() as group:

        async def hold():
            async with tenure.Lock(store, "report"):
                await anyio.sleep_forever()

        for _ in range(3):
            group.start_soon(hold)
        (port,) = await group.start(Server(Site(store)).serve, "127.0.0.1", 0)

        def browse():
            with Browser(tmp_path / "profile") as browser:
                browser.open(f"http://127.0.0.1:{port}/")
                browser.until("document.querySelectorAll('#graph li').length === 3")
                first, second, held = browser.ask(
                    "[...document.querySelectorAll('#graph li')].map(t => t.textContent)"
                )
                assert browser.complaints == []
                return [
                    first.partition(" waits for ")[0],
                    second.partition(" waits for ")[0],
                    held.split(" by ")[1],
                ]

        drawn = await anyio.to_thread.run_sync(browse)
        group.cancel_scope.cancel()
    assert len(set(drawn)) == 3
    assert all(name.startswith(f"{store.process} task ") for name in drawn)


TROUBLES = "[...document.querySelectorAll('.trouble')].map(t => t.innerText.replace(/\\s+/g, ' ').trim())"


def press(browser, label):
    """Press the button of this name, confirm it, and wait for what is told of it."""
    browser.click(f"button[aria-label='{label}']")
    browser.until("document.querySelector('#confirm').open")
    browser.click("#confirm-do")
    browser.until("document.querySelector('#outcome').textContent")
    outcome = browser.ask("document.querySelector('#outcome').textContent")
    browser.ask("tell('')")
    return outcome


async def test_what_is_wrong_is_told_at_the_top_with_its_button(visit):
    paused = tenure.WorkQueue(visit.store, "invoices")
    await paused.put_many(range(12))
    await paused.pause()
    idle = tenure.WorkQueue(visit.store, "webhooks", max_size=300)
    await idle.put_many(range(300))
    tick = {"tick": 1.0, "every": 3600.0, "tz": "UTC", "kept": True}
    await paused.put_many([], cursor=("schedule/hourly", tick))
    await idle.schedules.set("daily", every=86400)
    await idle.schedules.pause("daily")

    def use(browser):
        browser.until(f"{TROUBLES}.some(t => t.startsWith('No process works on'))")
        troubles = browser.ask(TROUBLES)
        assert troubles[0].startswith("Deadlock, for ")
        # the address of a task is shown only beside another task of its process
        assert "waits for" in troubles[0] and " task " not in troubles[0]
        assert re.fullmatch(
            r"No process works on webhooks: 300 tasks wait, for up to [\d.]+ s Open", troubles[1]
        )
        assert re.fullmatch(
            r"Schedule hourly of invoices has stopped: its tick is late by \d+ d Run now", troubles[2]
        )
        assert troubles[3:] == [
            "7 tasks of mails are dead, all in the last hour Open Requeue",
            "invoices is paused: 12 tasks wait Open Resume",
            "Schedule daily of webhooks is paused Resume",
        ]
        assert browser.ask("document.title") == "(4) tenure"
        assert press(browser, "Resume invoices") == "invoices is resumed"
        assert press(browser, "Resume schedule daily of webhooks") == "schedule daily is resumed"
        assert press(browser, "Requeue all dead tasks of mails") == "7 tasks made ready again"
        browser.until(f"{TROUBLES}.length === 3")
        assert not any("paused" in text or "mails are dead" in text for text in browser.ask(TROUBLES))

    await visit(use, site={"actions": True})


async def test_advice_is_no_fault_and_can_be_put_aside(visit):
    def use(browser):
        advice = "the append-only file is off: set appendonly yes"
        browser.ask(
            "ask = (ask => async (path, ...rest) => { const said = await ask(path, ...rest);"
            f" return path === 'state.json' ? {{...said, problems: ['{advice}', 'the disk is full']}} : said; }})(ask)"
        )
        browser.until(f"{TROUBLES}.at(-1)?.startsWith('{advice}')")
        troubles = browser.ask(TROUBLES)
        assert [text for text in troubles if "disk" in text or "dead" in text] == troubles[1:3]
        assert browser.ask("document.title") == "(3) tenure"
        assert "advice" not in browser.ask("document.querySelector('#news').textContent")
        browser.click("[data-do=aside]")
        browser.until(f"!{TROUBLES}.some(t => t.startsWith('{advice}'))")
        browser.ask("drawTroubles()")
        assert browser.ask("document.title") == "(3) tenure"
        browser.click("[data-do=advice]")
        browser.until(f"{TROUBLES}.at(-1).startsWith('{advice}')")
        assert not browser.ask("document.querySelector('[data-do=advice]')")

    await visit(use)


async def test_periods_of_schedules_are_exact_and_their_last_tick_has_a_zone(visit):
    queue = tenure.WorkQueue(visit.store, "reports")
    periods = {0.5: "0.5 s", 5: "5 s", 100: "100 s", 5400: "90 min", 7200: "2 h", 604800: "7 d"}
    for seconds, period in periods.items():
        await queue.schedules.set(f"each {period}", every=seconds)
    ticked = {"tick": 1.1e9, "every": 5.0, "tz": "UTC", "kept": True}
    await queue.put_many([], cursor=("schedule/each 5 s", ticked))

    def use(browser):
        row = "[...document.querySelectorAll('#schedules tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        browser.until(f"{row}.length === {len(periods)} && {row}.some(r => r[4] !== '-')")
        rows = {cells[0]: cells for cells in browser.ask(row)}
        assert {name: cells[2] for name, cells in rows.items()} == {
            f"each {period}": f"every {period}" for period in periods.values()
        }
        assert re.fullmatch(r"\w{3}, \d+ \w{3,4} \d{4}, \d\d:\d\d \S+", rows["each 5 s"][4])

    await visit(use)


async def test_schedules_are_listed_and_changed(visit):
    queue = tenure.WorkQueue(visit.store, "reports")
    schedules = queue.schedules
    await schedules.set("nightly", cron="30 2 * * *", tz="Europe/Berlin", payload="p")

    def use(browser):
        row = "[...document.querySelectorAll('#schedules tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        browser.until(f"{row}.length === 1")
        cells = browser.ask(row)[0]
        assert cells[:5] == ["nightly", "reports", "30 2 * * *", "Europe/Berlin", "-"]
        assert re.fullmatch(r"in (\d+ (h|min)|[\d.]+ s), \w{3}, \d+ \w{3,4} \d{4}, \d\d:30 \S+", cells[5])
        next_in = browser.ask("new Date(document.querySelector('#schedules time').dateTime) - Date.now()")
        assert 0 < next_in < 90_000_000
        assert cells[6:] == ["on time", "Run nowPauseRemove"]
        outcome = press(browser, "Run now: schedule nightly of reports")
        assert outcome == "a task of schedule nightly was put"
        assert press(browser, "Pause schedule nightly of reports") == "schedule nightly is paused"
        browser.until(f"{row}[0][6] === 'paused'")
        assert press(browser, "Remove schedule nightly of reports") == "schedule nightly is removed"
        browser.until("document.querySelector('#schedules').closest('section').hidden")

    await visit(use, site={"actions": True})
    (task,) = [task for task in (await queue.tasks("waiting").page()).records if task.meta]
    assert (task.payload, task.meta["schedule"]) == ("p", "nightly")


async def test_selected_tasks_are_counted_and_then_changed(visit):
    queue = tenure.WorkQueue(visit.store, "mails")

    def use(browser):
        browser.ask("location.hash = '#queue=mails'")
        browser.until("document.querySelector('#found table')")
        browser.ask("document.querySelector('details').open = true")
        browser.click("#selection button")
        browser.until("/one field/.test(document.querySelector('#selected').textContent)")
        browser.ask("document.querySelector('#selection [name=error]').focus()")
        browser.type("KeyError")
        assert browser.ask("document.querySelector('#selected').textContent") == ""
        browser.press("Enter")
        browser.until("document.querySelectorAll('#selected button').length === 2")
        assert browser.ask("document.querySelector('#selected').textContent") == "3 dead tasksRequeuePurge"
        browser.click("#selected button")
        browser.until("document.querySelector('#confirm').open")
        assert (
            "Make the dead tasks of mails with type of error KeyError ready again? Their attempts start anew."
            in browser.ask("document.querySelector('#confirm').innerText")
        )
        browser.click("#confirm-do")
        browser.until("document.querySelector('#panel-outcome').textContent === '3 tasks made ready again'")
        # each state has a selection of its own
        browser.ask(
            "[...document.querySelectorAll('#found nav a')].find(a => /waiting/.test(a.textContent)).click()"
        )
        browser.until("document.querySelector('#found [aria-current]')?.textContent === 'waiting 3'")
        assert browser.ask("document.querySelector('#selection [name=error]').value") == ""

    await visit(use, site={"actions": True})
    assert (await queue.statistics()).waiting == 3


async def test_ticked_tasks_are_changed_with_the_keyboard_alone(visit):
    queue = tenure.WorkQueue(visit.store, "mails")
    *_, sixth, seventh = await ids_of(queue)

    def use(browser):
        def do(label, ticks):
            browser.ask("document.querySelector('#found [name=tick]').focus()")
            for _ in range(ticks):
                browser.press(" ")
                browser.press("Tab", times=2)  # past the link of the task
            browser.until(
                f"[...document.querySelectorAll('#found button')].some(b => b.textContent === '{label}')"
            )
            browser.ask(
                f"[...document.querySelectorAll('#found button')].find(b => b.textContent === '{label}').focus()"
            )
            browser.press("Enter")
            browser.until("document.querySelector('#confirm').open")
            text = browser.ask("document.querySelector('#confirm-text').textContent")
            browser.press("Tab")
            browser.press("Enter")
            browser.until("!document.querySelector('#confirm').open")
            return text

        browser.ask("location.hash = '#queue=mails'")
        browser.until("document.querySelector('#found table')")
        assert not any("1 task" in label for label in buttons(browser))
        links = browser.ask("document.querySelector('#found tbody tr').querySelectorAll('a').length")
        assert links == 1
        text = do("Requeue 2 tasks", 2)
        assert text == f"Make 2 tasks of mails ({seventh}, {sixth}) ready again? Their attempts start anew."
        browser.until("document.querySelectorAll('#found tbody tr').length === 5")
        assert browser.ask("document.querySelectorAll('#found :checked').length") == 0
        assert do("Purge 1 task", 1).endswith("This cannot be undone.")
        browser.until("document.querySelectorAll('#found tbody tr').length === 4")
        browser.ask("location.hash = '#queue=mails&state=waiting'")
        browser.until("document.querySelector('#found [aria-current]')?.textContent === 'waiting 2'")
        browser.click("#found [data-do=tick]")
        assert do("Cancel 2 tasks", 0).startswith("Cancel 2 tasks of mails (")
        browser.until("document.querySelector('#found .empty')")

    await visit(use, site={"actions": True})
    statistics = await queue.statistics()
    assert (statistics.waiting, statistics.dead, statistics.cancelled, statistics.purged) == (0, 4, 2, 1)


async def test_the_workers_of_a_queue_are_shown_with_their_tasks(visit):
    def use(browser):
        browser.ask("location.hash = '#queue=images'")
        browser.until("document.querySelector('#found table')")
        browser.ask(
            "[...document.querySelectorAll('#panel a')].find(a => /^Workers/.test(a.textContent)).click()"
        )
        browser.until("/Workers of queue images/.test(document.querySelector('#panel-title').textContent)")
        browser.until("document.querySelector('#found table')")
        (row,) = browser.ask(
            "[...document.querySelectorAll('#found tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        assert row[1] == "1"
        assert re.fullmatch(r"\d+ \([\d.]+ m?s\)", row[3])
        assert row[4] == "no"

    await visit(use)


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
async def test_an_empty_store_says_what_to_do_next(tmp_path, url):
    url = f"sqlite:///{tmp_path}/empty.db" if url == "sqlite" else url
    async with tenure.open_store(url) as store, anyio.create_task_group() as group:
        (port,) = await group.start(Server(Site(store)).serve, "127.0.0.1", 0)

        def browse():
            with Browser(tmp_path / "profile") as browser:
                browser.open(f"http://127.0.0.1:{port}/")
                browser.until(SHOWN.replace("#failures table", "#welcome:not([hidden])"))
                text = browser.ask("document.body.innerText")
                assert "This store is empty" in text
                assert (f"tenure work module:function --queue jobs --store {url}" in text) is (
                    url != "memory:"
                )
                assert "none" not in text
                assert browser.ask("document.querySelectorAll('main section:not([hidden])').length") == 1
                anyio.from_thread.run(tenure.WorkQueue(store, "jobs").put, 1)
                browser.until("document.querySelector('#welcome').hidden")
                browser.until("document.querySelector('#queues td').textContent === 'jobs'")
                assert browser.complaints == []

        await anyio.to_thread.run_sync(browse)
        group.cancel_scope.cancel()


async def test_a_lost_link_is_told_above_what_was_seen_last(visit):
    def use(browser):
        browser.ask("fetch = () => Promise.reject(new TypeError('failed'))")
        browser.until(
            f"/No news for [\\d.]+ m?s: the server of this page cannot be reached/.test({TROUBLES}[0])"
        )
        assert browser.ask("getComputedStyle(document.querySelector('main')).opacity") < "1"
        assert browser.ask("document.querySelector('#queues a').textContent") == "images"

    await visit(use)


async def test_without_actions_there_are_no_buttons_that_change_anything(visit):
    def use(browser):
        browser.ask("location.hash = '#queue=mails&state=dead'")
        browser.until("document.querySelector('#found table')")
        assert browser.ask("document.querySelectorAll('[data-action]').length") == 0

    await visit(use)


async def test_the_times_of_a_processor_can_be_read_on_a_phone(visit, monkeypatch):
    monkeypatch.setattr("tenure.processor._processor.EVERY", 0.1)

    async def handler(payload):
        pass

    async with tenure.Processor(visit.store, "harvest", handler) as processor:
        await processor.submit(1)
        await processor.join()

        def use(browser):
            browser.until("/ms \\/ /.test(document.querySelector('#processors').textContent)")
            heights = "[...document.querySelectorAll('#processors td')].map(cell => cell.offsetHeight)"
            assert max(browser.ask(heights)) <= 50  # two lines
            assert browser.ask("document.documentElement.scrollWidth - innerWidth") <= 0

        await visit(use, width=390, height=844)


@pytest.mark.parametrize("dark", [False, True])
async def test_on_a_phone_nothing_is_cut_off(visit, dark):
    def use(browser):
        beyond = "document.documentElement.scrollWidth - innerWidth"
        assert browser.ask(beyond) <= 0
        # each figure is within the screen, with the name of its column
        cut = """[...document.querySelectorAll('td')].filter(cell => { const box = cell.getBoundingClientRect();
            return box.left < 0 || box.right > innerWidth || cell.scrollWidth > cell.clientWidth + 1; }).length"""
        assert browser.ask("document.querySelectorAll('td').length") > 30
        left = """[...document.querySelectorAll('#rest td:not(.nil)')].filter(cell =>
            getComputedStyle(cell).justifyContent !== 'normal').length"""
        assert browser.ask(left) == 0
        assert browser.ask(cut) == 0
        label = "getComputedStyle(document.querySelector('#queues td:nth-child(3)'), '::before').content"
        assert browser.ask(label) == "attr(data-label)" or "waiting" in browser.ask(label)
        browser.ask("location.hash = '#queue=mails&state=dead'")
        browser.until("document.querySelector('#found table')")
        assert browser.ask(cut) == 0
        assert (
            browser.ask(
                "document.querySelector('#panel').scrollWidth - document.querySelector('#panel').clientWidth"
            )
            <= 0
        )
        paper = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(21, 24, 28)" if dark else "rgb(251, 251, 250)")

    await visit(use, width=390, height=844, dark=dark)


@pytest.mark.parametrize("width", [1280, 1920])
async def test_no_panel_is_cut_on_a_desktop(visit, width):
    queue = tenure.WorkQueue(visit.store, "mails of the whole enterprise", retry=tenure.Retry(attempts=1))
    for n in range(3):
        await queue.put({"to": "a city with a long name " * 5, "n": n}, key=f"{n}-{'k' * 30}")
    await fails(queue, 3)

    def use(browser):
        browser.until("/enterprise/.test(document.querySelector('#failures').textContent)")
        cut = """[...document.querySelectorAll('.wide:not(#graph), #panel[open], td')]
            .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.id || one.textContent)"""
        assert browser.ask(cut) == []
        browser.ask("location.hash = '#queue=mails of the whole enterprise'")
        browser.until("document.querySelector('#found table')")
        names = "[...document.querySelectorAll('#found th')].map(th => th.textContent)"
        assert browser.ask(names) == ["id", "age", "attempts", "payload", "key", "error"]
        assert browser.ask(cut) == []

    await visit(use, site={"actions": True, "payloads": True}, width=width, height=900)


async def test_a_screen_reader_finds_names_and_roles(visit):
    def use(browser):
        nodes = browser("Accessibility.getFullAXTree")["nodes"]
        found = {
            (node["role"]["value"], node.get("name", {}).get("value", "").strip())
            for node in nodes
            if not node.get("ignored")
        }
        assert ("heading", "Queues") in found
        assert ("link", "mails") in found
        assert ("radio", "1 hour") in found
        assert ("figure", "Chart: Depth. Arrow keys read its values.") in found
        assert ("region", "Who waits for whom") in found
        assert ("columnheader", "waiting") in found
        assert {role for role, _ in found} >= {"table", "row", "cell", "status", "main", "banner"}
        assert [pair for pair in found if pair[0] in ("button", "link", "textbox") and not pair[1]] == []
        live = browser.ask(
            "[...document.querySelectorAll('[role=status], [role=alert], [aria-live]')].map(n => n.id)"
        )
        assert live == ["news", "reading", "panel-outcome", "confirm-problem", "outcome"]

    await visit(use)


@pytest.mark.skipif("TENURE_AXE" not in os.environ, reason=NO_AXE)
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
async def test_axe_finds_no_serious_barrier(visit, width, dark):
    script = await anyio.Path(os.environ["TENURE_AXE"]).read_text("utf-8")
    _, second, *_ = await ids_of(tenure.WorkQueue(visit.store, "mails"))
    places = {
        "": "document.querySelector('#limiters table')",
        "#queue=mails&state=dead": "document.querySelector('#found table')",
        f"#queue=mails&task={second}": "document.querySelector('#found pre')",
        "#pool=api keys": "document.querySelector('#found table')",
    }
    found = {}

    def use(browser):
        browser.ask(f"{script};0")
        for place, shown in places.items():
            browser.ask(f"location.hash = {place!r}")
            browser.until(shown)
            found[place] = browser.ask(
                """axe.run().then(said => said.violations.filter(v => ["serious", "critical"].includes(v.impact))
                    .map(v => `${v.id}: ${v.help}: ${v.nodes.map(n => n.target.join(" ")).slice(0, 3).join("; ")}`))"""
            )

    await visit(use, site={"actions": True}, width=width, height=900, dark=dark)
    assert found == {place: [] for place in places}
