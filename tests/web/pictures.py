"""Make the pictures of the page in its docs: `PYTHONPATH=tests python tests/web/pictures.py`. It needs Chromium."""

from __future__ import annotations

import linecache
import random
import struct
import sys
import tempfile
import zlib
from collections import Counter
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread
import filled_store
from browser import Browser

import tenure
from tenure.store import _store
from tenure.web import Site
from tenure.web.server import Server

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PICTURES = {
    "web-desktop": ("", "", 40, {"width": 1000, "height": 960}),
    "web-graph": ("", "#keys", 6, {"width": 1160, "height": 470}),
    "web-queue": ("#queue=images", "", 6, {"width": 820, "height": 560}),
    "web-phone": ("#queue=mails&task={second}", "", 6, {"width": 390, "height": 700, "dark": True}),
}


def take(url, scroll, polls, place, options):
    """A picture of the page after so many polls."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Browser(profile, **options) as browser,
    ):
        browser._watchdog.cancel()  # a busy machine takes its time
        browser.open(url)
        browser.until(
            f"+document.documentElement.dataset.polls >= {polls} && document.querySelector('#failures table')"
        )
        if scroll:
            browser.ask(f"document.querySelector('{scroll}').previousElementSibling.scrollIntoView()")
        place.write_bytes(smaller(browser.screenshot()))


def smaller(png):
    """The same picture with at most 256 colours, the commonest ones: a fraction of the size."""
    width, height = struct.unpack(">II", png[16:24])
    depth = {2: 3, 6: 4}[png[25]]
    data, at = b"", 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += size + 12
    raw, stride, before = zlib.decompress(data), width * depth, bytearray(width * depth)
    pixels = []
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for i in range(stride):
            left, up = line[i - depth] if i >= depth else 0, before[i]
            corner = before[i - depth] if i >= depth else 0
            if kind == 4:
                distances = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                guess = (left, up, corner)[distances.index(min(distances))]
            else:
                guess = (0, left, up, (left + up) // 2)[kind]
            line[i] = (line[i] + guess) & 255
        pixels += [tuple(line[i] & 252 for i in range(x, x + 3)) for x in range(0, stride, depth)]
        before = line
    counted = Counter(pixels)
    palette = [colour for colour, _ in counted.most_common(256)]
    number = {colour: i for i, colour in enumerate(palette)}
    for colour in counted.keys() - number.keys():
        number[colour] = min(
            range(len(palette)),
            key=lambda i: sum((a - b) ** 2 for a, b in zip(palette[i], colour, strict=True)),
        )
    lines = b"".join(
        b"\0" + bytes(number[one] for one in pixels[y * width : (y + 1) * width]) for y in range(height)
    )
    colours = bytes(part | part >> 6 for colour in palette for part in colour)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (b"IHDR" + header, b"PLTE" + colours, b"IDAT" + zlib.compress(lines, 9), b"IEND")
    chunks = [struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in parts]
    return png[:8] + b"".join(chunks)


def name_the_unnamed():
    """Give processes and files names that are the same on every machine."""
    number = count(1)
    _store._new_process = lambda: f"web-{next(number)}:812:5e1f"
    source, place = Path(filled_store.__file__).read_text("utf-8"), "/srv/shop/mails.py"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    exec(compile(source, place, "exec"), filled_store.__dict__)


async def traffic(store):
    """Queues with something to do, so that the charts move."""

    async def produce(queue, rate):
        for n in count():
            await queue.put({"n": n})
            await anyio.sleep(chance.expovariate(rate * (1 + (n // 60) % 2)))

    async def work(queue, seconds):
        while True:
            async with queue.take():
                await anyio.sleep(chance.expovariate(1 / seconds))

    chance = random.Random(4)
    async with anyio.create_task_group() as group:
        for name, rate, seconds, workers in (("thumbnails", 12, 0.2, 3), ("webhooks", 30, 0.03, 2)):
            queue = tenure.WorkQueue(store, name)
            group.start_soon(produce, queue, rate)
            for _ in range(workers):
                group.start_soon(work, queue, seconds)


async def main(folder):
    """All pictures."""
    name_the_unnamed()
    async with filled_store.filled() as store, anyio.create_task_group() as group:
        group.start_soon(traffic, store)
        _, second, *_ = await filled_store.ids_of(tenure.WorkQueue(store, "mails"))
        site = Site(store)
        group.start_soon(site.sample)
        (port,) = await group.start(Server(site).serve, "127.0.0.1", 0)
        for name, (where, scroll, polls, options) in PICTURES.items():
            place = folder / f"{name}.png"
            url = f"http://127.0.0.1:{port}/{where.format(second=second)}"
            await anyio.to_thread.run_sync(take, url, scroll, polls, place, options)
            sys.stdout.write(f"{place}: {place.stat().st_size} bytes\n")
        group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]) if sys.argv[1:] else DOCS)
