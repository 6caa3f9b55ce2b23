"""Make `tenure.svg`, the recording in the README, out of a run of real commands in two shells.

In the repository: `PYTHONPATH=tests:tests/web python docs/recording/make.py`. It needs a POSIX system with bash, the
`tenure` command with its extra `web` on the PATH, Chromium, and the package pyte (0.8), which is the terminal. What a
shell shows is sampled, from the moment at which the first command moves; all samples stand side by side in the picture,
which moves past a window in steps. Lines that occur more than once are in it once. One frame is the page of `tenure
web`, as PNGs for light and dark: with it the picture begins, since the shells are nearly empty at their start. There is
no script and no font in it. The commands see another name of this machine.
"""

from __future__ import annotations

import base64
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import termios
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyte
from browser import CHROMIUM, Browser
from needed import NO_CHROMIUM
from pictures import smaller

COLUMNS, LINES = 80, 24
SAMPLE = 0.35  # seconds, at least, between two pictures
LONGEST = 1.2  # seconds that nothing may happen; longer rests are shortened
REST = 4.5  # seconds at the end
PAGE: tuple[str, ...] = ("the page",)  # the sample that stands for the page
PAGE_REST = 4.0  # seconds that the page is shown
POLLS = 10  # how often the page has asked for news, about once a second, before its picture is taken
WIDTH, HEIGHT, EDGE = 8.4, 18, 12  # of a character, a line, and the frame, in pixels
PAGE_SIZE = 1000, 660  # of the browser's window, in pixels
HOST = "shop"
PARTS = (
    *("asyncio", "concurrent", "ctypes", "distutils", "email", "encodings", "idlelib", "importlib", "json"),
    *("lib2to3", "multiprocessing", "unittest", "xml"),
)
RUN = "tenure run tenure.examples:digest --from 'lib/**/*.py' --rate 25/s"
STYLE = """
svg{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.w{fill:#f6f8fa;stroke:#d0d7de}text{fill:#1f2328;white-space:pre}
.b{font-weight:bold}.red{fill:#cf222e}.green{fill:#1a7f37}.dark{display:none}
@media(prefers-color-scheme:dark){.w{fill:#0d1117;stroke:#30363d}text{fill:#e6edf3}.red{fill:#ff7b72}.green{fill:#56d364}
.light{display:none}.dark{display:inline}}
"""


class Shell:
    """A bash on a terminal of its own, which is sampled. A hidden one is read too: it would stop otherwise."""

    def __init__(self, folder: str, hidden: Shell | None = None) -> None:
        self.samples: list[tuple[float, tuple[str, ...]]] = hidden.samples if hidden else []
        self._hidden = hidden
        self._typed = ""
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        pid, self._fd = pty.fork()
        if pid == 0:
            os.chdir(folder)
            path = os.pathsep.join(filter(None, (f"{folder}/names", os.environ.get("PYTHONPATH"))))
            new = {"PS1": "$ ", "TERM": "xterm", "PYTHONPATH": path}
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], {**os.environ, **new})
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.pid = pid
        self.until(self.ready)

    def type(self, line: str) -> None:
        """Type a line, as a hand would, and press return."""
        self._typed = line
        for start in range(0, len(line), 4):
            os.write(self._fd, line[start : start + 4].encode())
            self._read(0.1)
        os.write(self._fd, b"\r")
        self._read(0.5)

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self._fd, key)

    def until(self, condition: Callable[[], object], seconds: float = 120.0) -> None:
        """Read on until something is to be seen."""
        limit = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > limit:
                sys.exit("\n".join(self._screen.display))
            self._read(0.05)

    def wait(self, seconds: float) -> None:
        """Read on for some seconds."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end)

    def ready(self) -> bool:
        """Whether the shell waits for a command."""
        return self._screen.display[self._screen.cursor.y].rstrip() in {"$", "^C$"}

    def shows(self, pattern: str) -> re.Match[str] | None:
        """Where the screen has a text."""
        return re.search(pattern, "\n".join(self._screen.display))

    def _read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        shells = {shell._fd: shell for shell in (self, self._hidden) if shell}
        while (left := end - time.monotonic()) > 0:
            for fd in select.select(shells, [], [], left)[0]:
                shells[fd]._feed(os.read(fd, 1 << 16))
        self._sample()

    def _feed(self, data: bytes) -> None:
        if b"\x1b[?1049l" in data:  # the other screen is left: pyte has only one
            self._screen.reset()
            data = b"$ " + self._typed.encode() + b"\r\n" + data.rpartition(b"\x1b[?1049l")[2]
        self._stream.feed(data)

    def _sample(self) -> None:
        now = time.monotonic()
        seen = tuple(self._line(y) for y in range(LINES))
        if not self.samples or seen != self.samples[-1][1]:
            if len(self.samples) > 1 and now - self.samples[-2][0] < SAMPLE:
                now = self.samples.pop()[0]
            self.samples.append((now, seen))

    def _line(self, y: int) -> str:
        """A line of the screen as the content of a text element."""
        row = self._screen.buffer[y]
        length = len(self._screen.display[y].rstrip())
        parts: list[str] = []
        for style, run in groupby((row[x] for x in range(length)), lambda c: (c.fg, c.bold)):
            text = escape("".join(c.data for c in run), quote=False)
            names = " ".join(
                name for name in (style[0] * (style[0] in {"red", "green"}), "b" * style[1]) if name
            )
            parts.append(f'<tspan class="{names}">{text}</tspan>' if names else text)
        return f'textLength="{length * WIDTH:.1f}">' + "".join(parts) if length else ""


def record() -> tuple[list[tuple[float, tuple[str, ...]]], dict[str, bytes]]:
    """Run the commands; returns when the screen showed what, and the page's pictures."""
    with TemporaryDirectory() as folder:
        library = Path(sysconfig.get_path("stdlib"))
        for part in PARTS:
            if (library / part).is_dir():
                shutil.copytree(library / part, Path(folder, "lib", part))
        Path(folder, "names").mkdir()
        Path(folder, "names", "sitecustomize.py").write_text(
            f"import socket\n\nsocket.gethostname = lambda: {HOST!r}\n"
        )
        shell = Shell(folder)
        shell.type(RUN)
        shell.until(lambda: shell.shows(r"\] (?:[1-9]\d|\d{3})/"))
        del shell.samples[:-1]  # it begins while something moves
        shell.until(lambda: shell.shows(r"\] (?:[6-9]\d|\d{3})/"))
        (run,) = subprocess.check_output(["pgrep", "-P", str(shell.pid)], text=True).split()
        os.kill(int(run), signal.SIGKILL)
        shell.until(shell.ready)
        shell.type("# it was killed with kill -9: the same command continues")
        shell.type(RUN)
        shell.until(lambda: shell.shows(r"\] (?:9\d|\d{3})/"))
        other = Shell(folder, shell)
        pages = meanwhile(other)
        shell.until(shell.ready)
        shell.wait(1)
        shell.type("clear")
        for name in ("encoder", "decoder"):
            shell.type(f"tenure queue put files '\"lib/json/{name}.py\"'")
            shell.until(shell.ready)
        shell.type("tenure work tenure.examples:digest --queue files")
        shell.wait(4)
        shell.press(b"\x03")  # it drains
        shell.until(shell.ready)
        return shell.samples, pages


def meanwhile(shell: Shell) -> dict[str, bytes]:
    """What happens in another terminal; returns the pictures of the page."""
    shell.type("# meanwhile, in another terminal")
    shell.type("tenure top")
    shell.until(lambda: shell.shows("round trip"))
    shell.wait(4)
    shell.press(b"q")
    shell.until(shell.ready)
    shell.type("tenure web")
    shell.until(lambda: shell.shows(r"http://\S+"))
    found = shell.shows(r"http://[^\s,]+")
    assert found is not None
    with ThreadPoolExecutor() as threads:
        pages = threads.submit(photograph, found[0])
        shell.until(pages.done)
    shell.samples.append((time.monotonic(), PAGE))
    shell.press(b"\x03")
    shell.until(shell.ready)
    return pages.result()


def photograph(url: str) -> dict[str, bytes]:
    """The page, light and dark, as PNGs with few colours."""
    pages: dict[str, bytes] = {}
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Browser(profile, width=PAGE_SIZE[0], height=PAGE_SIZE[1]) as browser,
    ):
        browser("Emulation.setScrollbarsHidden", hidden=True)
        browser.open(url)
        browser.until(f"+document.documentElement.dataset.polls >= {POLLS}")
        for scheme in ("light", "dark"):
            browser(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
            )
            time.sleep(0.5)  # until it is drawn
            pages[scheme] = browser.screenshot()
    return {scheme: smaller(page) for scheme, page in pages.items()}


def picture(samples: list[tuple[float, tuple[str, ...]]], pages: dict[str, bytes]) -> str:
    """The recording as SVG."""
    times, at = [0.0], 0.0
    for (before, seen), (after, _) in pairwise(samples):
        times.append(at := at + (PAGE_REST if seen is PAGE else min(LONGEST, after - before)))
    whole = at + REST
    names = {
        line: f"l{n}"
        for n, line in enumerate(
            dict.fromkeys(line for _, seen in samples if seen is not PAGE for line in seen if line)
        )
    }
    wide, high = COLUMNS * WIDTH + 2 * EDGE, LINES * HEIGHT + 2 * EDGE
    steps = "".join(
        f"{100 * moment / whole:.2f}%{{transform:translateX({-n * wide:.0f}px)}}"
        for n, moment in enumerate(times)
    )
    page = "".join(
        f'<image class="{scheme}" x="4" y="4" width="{wide - 8:.0f}" height="{high - 8}"'
        f' href="data:image/png;base64,{base64.b64encode(png).decode()}"/>'
        for scheme, png in pages.items()
    )
    frames = "".join(
        f'<svg x="{n * wide:.0f}" width="{wide:.0f}">'
        + (page if seen is PAGE else "")
        + "".join(
            f'<use href="#{names[line]}" y="{y * HEIGHT}"/>' for y, line in enumerate(seen) if line in names
        )
        + "</svg>"
        for n, (_, seen) in enumerate(samples)
    )
    lines = "".join(
        f'<text id="{name}" x="{EDGE}" y="{EDGE + 14}" {line}</text>' for line, name in names.items()
    )
    cover = next(n for n, (_, seen) in enumerate(samples) if seen is PAGE)
    moves = f"animation:f {whole:.1f}s {-times[cover] - 0.05:.2f}s step-end infinite"
    last = f"#f{{animation:none;transform:translateX({-(len(samples) - 1) * wide:.0f}px)}}"
    still = f"@media(prefers-reduced-motion:reduce){{{last}}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}" height="{high}">'
        f"<style>{STYLE}#f{{{moves};transform:translateX({-cover * wide:.0f}px)}}@keyframes f{{{steps}}}{still}</style>"
        f'<defs xml:space="preserve">{lines}</defs><rect class="w" x=".5" y=".5" width="{wide - 1:.0f}"'
        f' height="{high - 1}" rx="8"/><g id="f">{frames}</g></svg>\n'
    )


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit(f"The recording shows the page of tenure web, and needs {NO_CHROMIUM}")
    drawn = picture(*record())
    Path(__file__).with_name("tenure.svg").write_text(drawn, "utf-8")
    print(f"{len(drawn):,} bytes")
