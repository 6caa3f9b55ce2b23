"""A browser without a window, driven through a pipe by its own protocol: real keys, a real pointer, real sizes."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import threading

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KEYS = {
    " ": 32,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowRight": 39,
}


class Browser:
    """One page in a browser. Its methods block: call them in a thread."""

    def __init__(self, profile, *, width=1000, height=900, dark=False):
        command = [
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
        ]
        # the browser reads commands at 3 and writes answers at 4
        self._process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null', "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._watchdog = threading.Timer(50, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        self._rest, self._number, self._session = b"", 0, None
        self.complaints = []
        target = next(t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self(f"{domain}.enable")
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, EOFError):
            self("Browser.close")
        self._process.wait()
        self._watchdog.cancel()
        self._watchdog.join()
        self._process.stdin.close()
        self._process.stdout.close()

    def __call__(self, method, **params):
        """The result of a command."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        self._process.stdin.write(json.dumps(command).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]
            if said.get("method") == "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])
            if said.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(said["params"]["exceptionDetails"]))

    def _next(self):
        while b"\0" not in self._rest:
            part = self._process.stdout.read(2**20)
            if not part:
                raise EOFError("the browser has gone")
            self._rest += part
        said, _, self._rest = self._rest.partition(b"\0")
        return json.loads(said)

    def open(self, url):
        self("Page.navigate", url=url)

    def ask(self, expression):
        """The value of an expression in the page."""
        found = self("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true; its value. The browser's watchdog limits the wait."""
        probe = f"""new Promise(done => {{ const look = () => {{ let value;
            try {{ value = ({expression}); }} catch {{}}
            value ? done(value) : setTimeout(look, 20); }}; look(); }})"""
        while True:
            try:
                return self.ask(probe)
            except RuntimeError as problem:  # another document came meanwhile
                if "context" not in str(problem) and "navigated" not in str(problem):
                    raise

    def press(self, key, times=1):
        for _ in range(times):
            text = {"text": "\r"} if key == "Enter" else {}
            known = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            self("Input.dispatchKeyEvent", type="keyDown", **known, **text)
            self("Input.dispatchKeyEvent", type="keyUp", **known)

    def type(self, text):
        self("Input.insertText", text=text)

    def point(self, selector, across=0.5):
        box = self.ask(
            f"(() => {{ const one = document.querySelector({selector!r}); one.scrollIntoView({{block: 'center'}});"
            " const b = one.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        x, y = box[0] + box[2] * across, box[1] + box[3] / 2
        self("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector):
        x, y = self.point(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def focused(self):
        return self.ask(
            "document.activeElement.textContent || document.activeElement.name || document.activeElement.tagName"
        )

    def screenshot(self):
        return base64.b64decode(self("Page.captureScreenshot", format="png")["data"])
