"""Draws what the docs show: `python docs/site/draw.py` writes docs/drawings/*.svg.

A drawing is narrow, so that it can be read on a phone. Alone it follows the system's light or dark colours; in the site
it has those of the page, which sets the variables.
"""

from __future__ import annotations

from html import escape
from math import hypot
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "drawings"
WIDTH = 480
STYLE = """
.drawing { --ink: #1f2933; --line: #66727f; --soft: #eef2f5; --good: #00796b; --bad: #b3261e }
@media (prefers-color-scheme: dark) {
  .drawing { --ink: #dde3e9; --line: #93a0ad; --soft: #2b333d; --good: #4db6ac; --bad: #f28b82 }
}
.drawing text { font: 14px system-ui, "Segoe UI", Roboto, sans-serif; fill: var(--ink) }
.drawing .small { font-size: 12.5px }
.drawing .bold { font-weight: 600 }
.drawing .good { fill: var(--good) }
.drawing .bad { fill: var(--bad) }
"""


class Drawing:
    """Shapes on a white sheet of 480 units' width; `y` grows downwards."""

    def __init__(self, name: str, height: int) -> None:
        self.name = name
        self.height = height
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, *, kind: str = "", anchor: str = "middle") -> None:
        """Write lines of text, the first one's middle at `y`."""
        for number, line in enumerate(words.split("\n")):
            place = f'x="{x:g}" y="{y + 17 * number + 5:g}" text-anchor="{anchor}"'
            self._parts.append(f'<text {place} class="{kind}">{escape(line)}</text>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str = "",
        *,
        kind: str = "",
        edge: str = "line",
    ) -> None:
        """Draw a box with its text in the middle; a dotted one if `edge` ends with "dotted"."""
        dots = ' stroke-dasharray="5 4"' if edge.endswith("dotted") else ""
        fill = "none" if dots else "var(--soft)"
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}"'
            f' stroke="var(--{edge.removesuffix(" dotted")})" stroke-width="1.5"{dots}/>'
        )
        if words:
            self.text(x + width / 2, y + height / 2 - 8.5 * words.count("\n"), words, kind=kind)

    def arrow(
        self, *points: tuple[float, float], colour: str = "line", dotted: bool = False, head: bool = True
    ) -> None:
        """Draw a line through the points, with a head at the last one."""
        (x0, y0), (x1, y1) = points[-2:]
        length = hypot(x1 - x0, y1 - y0)
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dots = ' stroke-dasharray="5 4"' if dotted else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="var(--{colour})" stroke-width="1.5"{dots}/>'
        )
        if head:
            left = f"{x1 - 9 * dx - 4.5 * dy:.1f},{y1 - 9 * dy + 4.5 * dx:.1f}"
            right = f"{x1 - 9 * dx + 4.5 * dy:.1f},{y1 - 9 * dy - 4.5 * dx:.1f}"
            self._parts.append(f'<polygon points="{x1:g},{y1:g} {left} {right}" fill="var(--{colour})"/>')

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Draw a filled bar of a chart."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="2" fill="var(--{colour})"/>'
        )

    def dot(self, x: float, y: float, colour: str = "line") -> None:
        """Draw a small filled circle."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="var(--{colour})"/>')

    def cross(self, x: float, y: float) -> None:
        """Draw a cross: something ends, or is cut."""
        self._parts.append(
            f'<path d="M{x - 6:g},{y - 6:g} l12,12 m0,-12 l-12,12" stroke="var(--bad)" stroke-width="2.5" fill="none"/>'
        )

    def svg(self) -> str:
        """Return the text of the file."""
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {WIDTH} {self.height}"'
            f' width="{WIDTH}">\n<style>{STYLE}</style>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )


def picture() -> Drawing:
    """What tenure is: blocks in processes, held on one engine."""
    d = Drawing("picture", 392)
    for x, loop, body, edge in (
        (2, "asyncio", "async with\nlock:", "good"),
        (164, "trio", "async with\nqueue.take():", "good"),
        (326, "asyncio", "async with\nlock:", "line"),
    ):
        d.text(x + 76, 14, f"a process on {loop}", kind="small")
        d.box(x, 30, 152, 112, edge="line dotted")
        d.box(x + 14, 46, 124, 56, body, edge=edge)
    d.text(78, 122, "holds the lock", kind="small good")
    d.text(240, 122, "works on a task", kind="small good")
    d.text(402, 122, "waits in line", kind="small")
    for x in (78, 240):
        d.arrow((x, 142), (x, 206), colour="good")
    d.arrow((402, 206), (402, 142))
    d.text(90, 174, "heartbeat", kind="small", anchor="start")
    d.text(252, 174, "heartbeat", kind="small", anchor="start")
    d.text(392, 174, "hint", kind="small", anchor="end")
    d.box(2, 206, 476, 92)
    d.text(240, 226, "one engine: memory, a SQLite file, Redis or PostgreSQL", kind="bold small")
    for x, words in (
        (12, "lock: 1 holds\n1 waits"),
        (170, "queue: 3 wait\n1 leased"),
        (328, "limits, leaders,\nschedules"),
    ):
        d.box(x, 242, 140, 46, edge="line dotted")
        d.text(x + 70, 257, words, kind="small")
    d.arrow((240, 298), (240, 322), dotted=True, head=False)
    d.text(240, 336, "A process dies, freezes or loses its connection:", kind="small bad")
    d.text(240, 356, "its block is cancelled, its lease ends, the next one gets it,", kind="small")
    d.text(240, 374, "and what it still sends is refused by its number (the fence).", kind="small")
    return d


def lease() -> Drawing:
    """The deadlines of a lease in the process and on the engine."""
    d = Drawing("lease", 366)
    process, engine = 96, 236
    for y, name in ((process, "the process"), (engine, "the engine")):
        d.arrow((8, y), (474, y))
        d.text(8, y - 60 if y == process else y + 50, name, kind="bold", anchor="start")
    for x, words in ((40, "acquire"), (136, "renew")):
        d.arrow((x, process), (x + 18, engine), colour="good")
        d.arrow((x + 20, engine), (x + 38, process), colour="good")
        d.text(x + 4, process - 16, words, kind="small", anchor="start")
    d.arrow((232, process), (241, (process + engine) / 2 - 6), colour="bad", head=False)
    d.cross(243, (process + engine) / 2)
    d.text(256, (process + engine) / 2, "no answer", kind="small bad", anchor="start")
    d.text(226, process - 16, "renew", kind="small", anchor="start")
    # the body
    d.box(78, process - 8, 270, 16, edge="good")
    d.text(300, process + 22, "the block runs", kind="small good")
    d.dot(348, process, "bad")
    d.text(348, process - 52, "the block is\ncancelled", kind="small bad")
    d.arrow((136, process - 78), (348, process - 78))
    d.text(242, process - 89, "ttl - margin, from the sending", kind="small")
    # the engine
    d.dot(420, engine, "bad")
    d.arrow((154, engine + 36), (420, engine + 36))
    d.text(300, engine + 22, "ttl, from the arrival", kind="small")
    d.text(420, engine - 34, "the session\nends", kind="small bad")
    d.text(420, engine + 70, "the next in line\nis granted", kind="small good")
    d.arrow((420, engine + 8), (420, engine + 60), colour="good")
    d.box(348, process + 12, 72, 26, "margin", kind="small", edge="bad dotted")
    d.text(240, 346, "The block ends before the engine grants to anybody else.", kind="small")
    return d


def hand_over() -> Drawing:
    """The messages of a hand-over of a lock."""
    d = Drawing("hand-over", 430)
    lanes = {"holder": 70, "engine": 240, "next": 410}
    for x, words in ((70, "holder"), (240, "engine"), (410, "first in line")):
        d.box(x - 58, 4, 116, 34, words, kind="bold")
        d.arrow((x, 38), (x, 424), dotted=True, head=False)
    holder, engine, after = lanes.values()
    d.box(holder - 8, 48, 16, 190, edge="good")
    d.text(holder + 14, 140, "the block\nruns", kind="small good", anchor="start")
    d.arrow((after, 72), (engine, 86))
    d.text(322, 66, "Acquire", kind="small")
    d.arrow((engine, 108), (after, 122))
    d.text(322, 102, "Queued, place 1", kind="small")
    d.box(after - 8, 122, 16, 186, edge="line dotted")
    d.text(after - 14, 190, "parked:\nno polling", kind="small", anchor="end")
    d.arrow((holder, 244), (engine, 262), colour="good")
    d.text(158, 232, "Release", kind="small")
    d.box(engine - 62, 264, 124, 42, "", edge="good")
    d.text(engine, 276, "one atomic step:\nfree, then grant", kind="small")
    d.arrow((engine + 62, 290), (after, 308), colour="good")
    d.text(352, 276, "hint: granted", kind="small", anchor="middle")
    d.arrow((engine - 62, 300), (holder, 318))
    d.text(136, 296, "done", kind="small")
    d.box(after - 8, 308, 16, 112, edge="good")
    d.text(after - 14, 350, "the block runs,\nwith a higher token", kind="small good", anchor="end")
    d.text(134, 392, "The others in line\nare not woken.", kind="small")
    return d


def windows() -> Drawing:
    """The four windows of cancellation."""
    d = Drawing("windows", 470)
    rows = (
        ("W1", (("parked", 70, "line"), ("cancelled", 190, "bad")), "It leaves the line."),
        ("W2", (("cancelled", 120, "bad"), ("offered", 230, "good")), "The offer goes to the next waiter."),
        (
            "W2N",
            (("cancelled", 98, "bad"), ("offered", 190, "good"), ("a newcomer comes", 306, "line")),
            "The newcomer finds an empty line.",
        ),
        ("W3", (("granted", 120, "good"), ("cancelled", 230, "bad")), "It owns the grant, or gives it back."),
    )
    for number, (name, events, outcome) in enumerate(rows):
        y = 46 + 112 * number
        d.text(4, y, name, kind="bold", anchor="start")
        d.arrow((48, y), (470, y))
        if name != "W1":
            first, last = events[0][1] - 40, events[-1][1] + (60 if name == "W2N" else 40)
            d.box(first, y - 22, last - first, 54, edge="line dotted")
            d.text(first + 4, y - 32, "one turn of the loop", kind="small", anchor="start")
            d.dot(last + 40, y)
            d.text(last + 40, y + 20, "it runs", kind="small")
        for words, x, colour in events:
            d.dot(x, y, colour)
            d.text(x, y + 20, words, kind=f"small {colour if colour != 'line' else ''}")
        d.text(48, y + 46, outcome, kind="small", anchor="start")
    return d


def task_states() -> Drawing:
    """The states of a task."""
    d = Drawing("task-states", 530)
    d.text(240, 14, "put", kind="bold")
    d.arrow((240, 24), (240, 62))
    d.arrow((258, 14), (390, 14), (390, 62))
    d.text(398, 36, "delay=", kind="small", anchor="start")
    d.box(170, 62, 140, 44, "waiting", kind="bold")
    d.box(330, 62, 120, 44, "delayed", kind="bold")
    d.arrow((330, 84), (310, 84))
    d.arrow((240, 106), (240, 196), colour="good")
    d.text(248, 150, "taken", kind="small good", anchor="start")
    d.box(170, 196, 140, 44, "leased", kind="bold", edge="good")
    d.arrow((190, 196), (190, 106))
    d.text(182, 142, "its taker died,\nor gave it back", kind="small", anchor="end")
    d.arrow((310, 218), (390, 218), (390, 106))
    d.text(398, 142, "failed, to be\ntried again;\nRetryLater", kind="small", anchor="start")
    d.arrow((230, 240), (230, 300), colour="good")
    d.text(222, 268, "returned", kind="small good", anchor="end")
    d.box(170, 300, 110, 44, "done", kind="bold", edge="good")
    d.arrow((290, 240), (290, 272), (350, 272), (350, 300), colour="bad")
    d.text(300, 255, "its last try failed, or too", kind="small", anchor="start")
    d.text(358, 278, "many takers died", kind="small", anchor="start")
    d.box(300, 300, 110, 44, "dead", kind="bold", edge="bad")
    d.arrow((170, 218), (80, 218), (80, 300))
    d.text(88, 246, "Discard", kind="small", anchor="start")
    d.box(28, 300, 110, 44, "discarded", kind="bold")
    d.arrow((355, 344), (355, 364), (8, 364), (8, 84), (170, 84))
    d.text(16, 72, "requeue", kind="small", anchor="start")
    d.box(60, 396, 150, 44, "cancelled", kind="bold")
    d.text(135, 458, "queue.cancel, from\nwaiting, delayed, leased", kind="small")
    d.box(270, 396, 150, 44, "expired", kind="bold")
    d.text(345, 458, "expires= has passed,\nfrom waiting, delayed", kind="small")
    d.text(
        240, 514, "A task ends once. Its record is forgotten after keep.results or keep.dead.", kind="small"
    )
    return d


def children() -> Drawing:
    """The life of a task with children, in three lanes of time."""
    d = Drawing("children", 330)
    parent, first, second = 60, 160, 230
    for y, words in ((parent, "parent"), (first, "child 1"), (second, "child 2")):
        d.text(4, y, words, kind="bold", anchor="start")
    d.box(66, parent - 20, 98, 40, "leased: puts\nits children", kind="small", edge="good")
    d.box(
        164,
        parent - 20,
        186,
        40,
        "suspended: no lease,\nno worker, no place",
        kind="small",
        edge="line dotted",
    )
    d.box(350, parent - 20, 122, 40, "leased: runs again,\nhas the results", kind="small", edge="good")
    for x, y in ((100, first), (130, second)):
        d.arrow((x, parent + 20), (x, y), (x + 40, y))
    d.text(108, 106, "put", kind="small", anchor="start")
    d.box(140, first - 20, 120, 40, "leased by any\nworker: done", kind="small", edge="good")
    d.box(170, second - 20, 160, 40, "leased by any\nworker: done", kind="small", edge="good")
    d.arrow((330, second), (350, second), (350, parent + 20), colour="good")
    d.text(
        356, 150, "the last child's end\nmakes the parent\nready, in one step", kind="small", anchor="start"
    )
    d.text(240, 286, "If a child fails, or the parent is cancelled, the other children are", kind="small")
    d.text(240, 304, "cancelled first: a task ends after its children.", kind="small")
    return d


def which_pattern() -> Drawing:
    """Questions, and the pattern that the first yes leads to."""
    questions = (
        ("One process only,\nand nothing must last?", "tenure.local"),
        ("One user at a time\nof one thing?", "Lock; RWLock if\nmost only read"),
        ("At most n users\nof equal things?", "Semaphore"),
        ("One of n named things\n(keys, machines)?", "ResourcePool"),
        ("So many in a second,\nhour or day?", "RateLimiter"),
        ("One process in charge\nfor a long time?", "Election"),
        ("All meet before\nany goes on?", "Barrier"),
        ("Work at certain times?", "Schedule, with a\nWorkQueue"),
        ("A fixed list of inputs,\nfrom a shell?", "tenure run"),
        ("Work that must not\nget lost?", "WorkQueue, Worker"),
        ("Work with limits, locks\nand metrics as well?", "Processor"),
        ("Rows of your\nown tables?", "tenure.sql"),
    )
    d = Drawing("which-pattern", 66 * len(questions) + 34)
    for number, (question, answer) in enumerate(questions):
        y = 6 + 66 * number
        d.box(6, y, 214, 46, question, kind="small")
        d.arrow((220, y + 23), (292, y + 23), colour="good")
        d.text(254, y + 13, "yes", kind="small good")
        d.box(292, y, 182, 46, answer, kind="bold small", edge="good")
        d.arrow((113, y + 46), (113, y + 66))
        d.text(122, y + 55, "no", kind="small", anchor="start")
    d.text(113, 66 * len(questions) + 18, "Perhaps not tenure: see below.", kind="small")
    return d


DRAWINGS = (picture(), lease(), hand_over(), windows(), task_states(), children(), which_pattern())

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for drawing in DRAWINGS:
        (FOLDER / f"{drawing.name}.svg").write_text(drawing.svg(), "utf-8")
