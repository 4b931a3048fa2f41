"""A headless Chromium for tests of pages, driven by Playwright.

One browser serves many tests; every `open` is a fresh profile with one tab.
"""

import shutil
from pathlib import Path
from typing import Any

from playwright import sync_api as playwright

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


class Browser:
    """A running Chromium."""

    def __init__(self, chromium: playwright.Browser) -> None:
        self._chromium = chromium

    def open(self, path: Path, *, fragment: str = "", touch: bool = False, **look: Any) -> "Tab":
        """Open an HTML file and wait until it has loaded; `look` is what `Tab.emulate` takes."""
        tab = Tab(self._chromium.new_context(has_touch=touch, is_mobile=touch).new_page())
        tab.emulate(**look)
        tab.page.goto(path.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        return tab


class Tab:
    """One page: what it reported, and what can be done with it."""

    def __init__(self, page: playwright.Page) -> None:
        self.page = page
        self.errors: list[str] = []  # exceptions, console.error, console.warn, blocked resources
        self.requests: list[str] = []  # everything it tried to fetch, except itself and data: addresses

        def take_message(message: playwright.ConsoleMessage) -> None:
            if message.type in ("error", "warning", "assert"):
                self.errors.append(message.text)

        def take_request(request: playwright.Request) -> None:
            if request.resource_type != "document" and not request.url.startswith("data:"):
                self.requests.append(request.url)

        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", take_message)
        page.on("request", take_request)

    def emulate(self, *, width: int = 1280, height: int = 900, dark: bool = False, paper: bool = False) -> None:
        """Make the page believe in a window of that size, a dark system, a printer."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(media="print" if paper else "screen", color_scheme="dark" if dark else "light")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are waited for."""
        return self.page.evaluate(expression)

    def settle(self) -> None:
        """Wait until the page has drawn what the last action asked for."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true; the page's policy forbids Playwright's own way."""
        frames = f"for (let i = 0; i < 2000 && !({condition}); i++) await new Promise(requestAnimationFrame)"
        assert self.evaluate(f"(async () => {{ {frames}; return {condition} }})()"), condition

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse, scrolling it into view first."""
        self.page.click(selector)
        self.settle()

    def tap(self, selector: str) -> None:
        """Touch the middle of an element with a finger; the tab must have been opened with `touch`."""
        self.page.tap(selector)
        self.settle()

    def press(self, key: str) -> None:
        """Press and release a key, by its DOM name: "Tab", "ArrowRight", "Enter"."""
        self.page.keyboard.press(key)
        self.settle()
