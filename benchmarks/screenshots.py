"""Draw docs/images/explorer.png and explorer.zh-CN.png: the first view of the explorer.

Run it again after a change of the page: python benchmarks/screenshots.py
It needs playwright, Pillow and a Chromium (also: ELMOKIT_CHROMIUM=/path/to/chromium).
"""

from __future__ import annotations

import io
import os
import shutil
import threading
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from elmokit.serve.app import create_app
from elmokit.serve.service import load_service

IMAGES = Path(__file__).parents[1] / "docs" / "images"
# file: address of the view
PICTURES = {
    "explorer.png": "lang=en&example=bank",
    "explorer.zh-CN.png": "lang=zh&model=chinese&example=苹果",
}
WIDTH, SCALE, COLORS = 1240, 1.5, 96
MAX_BYTES = 200_000


def serve() -> str:
    """Serve elmokit's own model in a thread; return the address."""
    server = uvicorn.Server(
        uvicorn.Config(create_app(load_service([])), port=0, log_level="warning", log_config=None)
    )
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        pass
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"http://127.0.0.1:{port}"


def draw(browser: Browser, address: str) -> Image.Image:
    """Return the page down to the end of the second row of figures."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=SCALE)
    page.goto(address)
    page.wait_for_selector(".point")
    bottom = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.pair > *')]"
        ".map((box) => box.getBoundingClientRect().bottom))"
    )
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": bottom + 16}
    return Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))  # type: ignore[arg-type]


def main() -> None:
    """Write both pictures."""
    address = serve()
    chromium = os.environ.get("ELMOKIT_CHROMIUM") or shutil.which("chromium")
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, fields in PICTURES.items():
            picture = draw(browser, f"{address}/#{fields}").convert("RGB")
            picture.quantize(COLORS).save(IMAGES / name, optimize=True)
            size = (IMAGES / name).stat().st_size
            assert size <= MAX_BYTES, f"{name} has {size:,} bytes"
            print(f"{name}: {picture.width} x {picture.height}, {size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
