"""A headless Chromium for tests of pages, driven over its own debugging pipe: no driver, no Python packages.

    with Browser(profile_directory) as browser:
        tab = browser.open(path, width=390, dark=True)
        assert tab.evaluate("document.title") == "…"
        assert tab.errors == [] and tab.requests == []
        tab.screenshot(out)

The protocol is Chrome's DevTools protocol: JSON messages ended by a zero byte, commands on descriptor 3 of the browser,
answers and events on its descriptor 4. One browser serves a whole test session; every `open` is a fresh tab.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Self

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage --disable-extensions --hide-scrollbars --remote-debugging-pipe"
).split()
TIMEOUT = 60.0


class BrowserError(Exception):
    """The browser refused a command, the page's script failed, or there was no answer in time."""


class Browser:
    """A running Chromium; use it as a context manager."""

    def __init__(self, profile: Path) -> None:
        self._profile = profile
        self._answers: dict[int, dict[str, Any]] = {}
        self._tabs: dict[str, Tab] = {}
        self._buffer = b""
        self._last_id = 0

    def __enter__(self) -> Self:
        assert CHROMIUM is not None, "ask for `CHROMIUM is None` first, and skip"
        their_input, self._commands = _pipe()
        self._events, their_output = _pipe()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._pid = os.posix_spawn(
            CHROMIUM,
            [CHROMIUM, *FLAGS, *sandbox, f"--user-data-dir={self._profile}", "about:blank"],
            os.environ,
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, null, descriptor) for descriptor in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, their_input, 3),
                (os.POSIX_SPAWN_DUP2, their_output, 4),
            ],
            setpgroup=0,
        )
        for descriptor in (their_input, their_output, null):
            os.close(descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrowserError, OSError):
            self.send("Browser.close")
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):  # helpers that outlive it, in the group that is theirs alone
            os.killpg(self._pid, signal.SIGKILL)
        os.close(self._commands)
        os.close(self._events)

    def open(self, path: Path, *, fragment: str = "", width: int = 1280, height: int = 900, **emulated: bool) -> "Tab":
        """Open an HTML file in a new tab and wait until it has loaded; see `Tab.emulate` for the rest."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, target, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.send(f"{domain}.enable")
        tab.emulate(width=width, height=height, **emulated)
        tab.go(path.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        return tab

    def close_tabs(self) -> None:
        """Close every tab that was opened."""
        for tab in self._tabs.values():
            self.send("Target.closeTarget", targetId=tab.target)
        self._tabs.clear()

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send one command and return its result, taking in whatever events come first."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        wanted, deadline = self._last_id, time.monotonic() + TIMEOUT
        while wanted not in self._answers:
            self.take_events(deadline)
        answer = self._answers.pop(wanted)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return dict(answer["result"])

    def take_events(self, deadline: float) -> None:
        """Wait for messages until the deadline and hand them out."""
        ready, _, _ = select.select([self._events], [], [], max(deadline - time.monotonic(), 0))
        data = os.read(self._events, 1 << 20) if ready else b""
        if not data:
            raise BrowserError("the browser gave no answer in time" if not ready else "the browser is gone")
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif tab := self._tabs.get(message.get("sessionId", "")):
                tab.take(message["method"], message["params"])


class Tab:
    """One page: what it reported, and what can be done with it."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self.errors: list[str] = []  # exceptions, console.error, console.warn, blocked resources
        self.requests: list[str] = []  # everything it tried to fetch, except itself and data: addresses
        self.target = target
        self._browser, self._session = browser, session
        self._loaded = False

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command of the DevTools protocol to this tab."""
        return self._browser.send(method, self._session, **params)

    def take(self, method: str, params: dict[str, Any]) -> None:
        """Keep what an event says."""
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(part.get("value", part.get("description"))) for part in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and params["type"] != "Document":
            address = params["request"]["url"]
            if not address.startswith("data:"):
                self.requests.append(address)

    def go(self, address: str) -> None:
        """Load an address and wait for it."""
        self._loaded = False
        failure = self.send("Page.navigate", url=address).get("errorText")
        if failure:
            raise BrowserError(f"{address}: {failure}")
        deadline = time.monotonic() + TIMEOUT
        while not self._loaded:
            self._browser.take_events(deadline)

    def emulate(
        self,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        paper: bool = False,
        reduced_motion: bool = False,
        touch: bool = False,
    ) -> None:
        """Make the page believe in a window of that size, a dark system, a printer, a touch screen."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if reduced_motion else "no-preference",
        }
        self.send(
            "Emulation.setEmulatedMedia",
            media="print" if paper else "screen",
            features=[{"name": name, "value": value} for name, value in features.items()],
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are waited for."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if details := answer.get("exceptionDetails"):
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until the page has drawn what the last action asked for."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse, scrolling it into view first."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def tap(self, selector: str) -> None:
        """Touch the middle of an element with a finger."""
        x, y = self._middle(selector)
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def press(self, key: str) -> None:
        """Press and release a key, by its DOM name: "Tab", "ArrowRight", "Enter"."""
        codes = {"Tab": 9, "Enter": 13, "Home": 36, "End": 35, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
        typed = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **typed)
        self.settle()

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        """Save a PNG of the whole page, or of what the window shows."""
        self.settle()
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def _middle(self, selector: str) -> tuple[float, float]:
        found = self.evaluate(
            f"(e => {{ if (!e) return null; e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const r = "
            f"e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        if found is None:
            raise BrowserError(f"no element matches {selector}")
        return found[0], found[1]


def _pipe() -> tuple[int, int]:
    """Return the reading and the writing end of a pipe, on descriptors that 3 and 4 cannot collide with."""
    ends = []
    for descriptor in os.pipe():
        ends.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(descriptor)
    return ends[0], ends[1]
