"""A real Chromium, and pages in it that hear every complaint and every request."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
    from playwright.sync_api import Error as BrowserError
except ImportError as missing:
    if os.environ.get("CI"):
        raise
    pytest.skip(f"{missing.name} is not installed", allow_module_level=True)

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 300_000  # milliseconds; the machine may be busy


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium that is installed; the test is skipped if there is none, except in CI."""
    paths = [os.environ.get("ELMOKIT_CHROMIUM"), *map(shutil.which, NAMES)]
    path = next(filter(None, paths), None)
    which: dict[str, Any] = {"executable_path": path} if path else {"channel": "chrome"}
    with sync_playwright() as playwright:
        try:
            launched = playwright.chromium.launch(args=["--no-sandbox"], **which)
        except BrowserError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"there is no Chromium: {str(error).splitlines()[0]}")
        yield launched
        launched.close()


class Window:
    """A page of the explorer."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context, self.address = context, address
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        self.page: Page = context.new_page()
        self.page.set_default_timeout(SECONDS)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, fields: str = "", ready: str = ".point") -> Page:
        """Load the page with these fields in its address, until it shows something."""
        self.page.goto("about:blank")  # A change of the hash alone would not load the page.
        self.page.goto(f"{self.address}/#{fields}")
        self.page.wait_for_selector(ready)
        return self.page

    def check(self, expected: tuple[str, ...] = ()) -> None:
        """Raise if anything else than expected was complained about, or asked for elsewhere."""
        assert [text for text in self.complaints if not text.startswith(expected)] == []
        own = (self.address + "/", "blob:", "about:")
        assert [url for url in self.requests if not url.startswith(own)] == []


def check_access(page: Page) -> None:
    """Raise if somebody could not use a page: a serious finding of axe."""
    result = Axe().run(page).response["violations"]
    grave = [one for one in result if one["impact"] in ("serious", "critical")]
    assert [(one["id"], one["nodes"][0]["html"]) for one in grave] == []


def check_width(page: Page, width: int) -> None:
    """Raise if a page, its tab, buttons or titles are wider than a phone."""
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for box in page.locator("[role=tab][aria-selected=true], button.primary, figure h3").all():
        bounds = box.bounding_box()
        assert bounds is not None
        assert 0 <= bounds["x"] <= bounds["x"] + bounds["width"] <= width
