"""The page is used in a real browser: by pointer, by keys alone, on a phone, and by those who listen to it."""

from __future__ import annotations

import re

import anyio
import anyio.to_thread
import pytest
from browser import CHROMIUM, Browser
from filled_store import filled
from needed import NO_CHROMIUM

import tenure
from tenure.web import Site
from tenure.web.server import Server

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.backends("asyncio"),
    pytest.mark.slow,
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
                    # a task that is gone is nothing to complain of
                    assert [text for text in browser.complaints if "status of 404" not in text] == []

            await anyio.to_thread.run_sync(browse)

        run.store = store
        yield run
        group.cancel_scope.cancel()


def panel(browser):
    return browser.ask(
        "document.querySelector('#panel').open ? document.querySelector('#panel').innerText : ''"
    )


async def test_dead_letters_are_looked_through_with_the_keyboard_alone(visit):
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
        while browser.focused() != "5":
            browser.press("Tab")
        browser.press("Enter")
        browser.until("document.querySelector('#found pre')")
        text = panel(browser)
        assert "Task 5 of mails" in text
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
    def use(browser):
        browser.ask("location.hash = '#queue=mails&task=2'")
        browser.until("document.querySelector('#found pre')")
        assert "no route to city-1" in panel(browser)
        browser.ask("location.hash = '#queue=mails&task=77'")
        browser.until("/no such task/.test(document.querySelector('#found').textContent)")
        browser.ask("history.back()")
        browser.until("document.querySelector('#found pre')")
        browser.click("#panel [data-do=close]")
        browser.until("!document.querySelector('#panel').open && location.hash === ''")

    await visit(use)


async def test_the_history_of_a_task_is_what_the_page_has_seen(visit):
    queue = tenure.WorkQueue(visit.store, "seen")
    task_id = await queue.put(1)

    def use(browser):
        browser.ask(f"location.hash = '#queue=seen&task={task_id}'")
        browser.until("/waiting, 0 failed/.test(document.querySelector('#found ol').textContent)")
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
        browser.until("document.querySelectorAll('#charts line.cursor').length === 4")
        assert browser.ask("document.querySelectorAll('#charts em').length") == 4
        browser.point("h1")
        browser.until("document.querySelectorAll('#charts line.cursor').length === 0")
        browser.ask("document.querySelector('#charts figure').focus()")
        browser.press("ArrowLeft", times=2)
        browser.until("document.querySelectorAll('#charts line.cursor').length === 4")
        assert re.fullmatch(
            r"[\d.]+ m?s ago: waiting 39, running 1, delayed 2, dead 7",
            browser.ask("document.querySelector('#reading').textContent"),
        )
        browser.press("Escape")
        browser.until("document.querySelectorAll('#charts line.cursor').length === 0")

    await visit(use)


async def test_the_latencies_axis_is_logarithmic_and_labelled(visit):
    def use(browser):
        label = "[...document.querySelectorAll('#charts figure')[2].querySelectorAll('svg text')]"
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

    def use(browser):
        browser.ask("location.hash = '#queue=mails&task=2'")
        browser.until("document.querySelector('#found button')")
        browser.ask("document.querySelector('#found button').focus()")
        browser.press("Enter")
        browser.until("document.querySelector('#confirm').open")
        text = browser.ask("document.querySelector('#confirm').innerText")
        assert "Make task 2 of mails ready again" in text
        # what does no harm has the focus
        assert browser.focused() == "Keep everything as it is"
        browser.press("Escape")
        browser.until("!document.querySelector('#confirm').open && document.querySelector('#panel').open")
        assert anyio.from_thread.run(queue.get, 2).state == "dead"
        browser.press("Enter")
        browser.until("document.querySelector('#confirm').open")
        browser.press("Tab")
        browser.press("Enter")
        browser.until("/Done: 1 changed/.test(document.querySelector('#confirm-outcome').textContent)")
        assert anyio.from_thread.run(queue.get, 2).state == "waiting"

    await visit(use, site={"actions": True})


async def test_a_lock_is_broken_from_the_page(visit):
    def use(browser):
        browser.click("button[aria-label^='Break lock nightly report']")
        browser.until("document.querySelector('#confirm').open")
        browser.click("#confirm-do")
        browser.until("/Done: 1 changed/.test(document.querySelector('#confirm-outcome').textContent)")

    await visit(use, site={"actions": True})


async def test_without_actions_there_are_no_buttons_that_change_anything(visit):
    def use(browser):
        browser.ask("location.hash = '#queue=mails&state=dead'")
        browser.until("document.querySelector('#found table')")
        assert browser.ask("document.querySelectorAll('[data-action]').length") == 0

    await visit(use)


@pytest.mark.parametrize("dark", [False, True])
async def test_on_a_phone_nothing_is_cut_off(visit, dark):
    def use(browser):
        beyond = "document.documentElement.scrollWidth - innerWidth"
        assert browser.ask(beyond) <= 0
        # each figure is within the screen, with the name of its column
        cut = """[...document.querySelectorAll('td')].filter(cell => { const box = cell.getBoundingClientRect();
            return box.left < 0 || box.right > innerWidth || cell.scrollWidth > cell.clientWidth + 1; }).length"""
        assert browser.ask("document.querySelectorAll('td').length") > 30
        assert browser.ask(cut) == 0
        label = "getComputedStyle(document.querySelector('#queues td:nth-child(2)'), '::before').content"
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
        assert ("group", "Chart: Depth. Arrow keys read its values.") in found
        assert ("region", "Who waits for whom") in found
        assert ("columnheader", "waiting") in found
        assert {role for role, _ in found} >= {"table", "row", "cell", "status", "main", "banner"}
        assert [pair for pair in found if pair[0] in ("button", "link", "textbox") and not pair[1]] == []
        live = browser.ask(
            "[...document.querySelectorAll('[role=status], [role=alert], [aria-live]')].map(n => n.id)"
        )
        assert live == ["news", "reading", "confirm-outcome"]

    await visit(use)
