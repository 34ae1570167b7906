"""How long does the explorer without a server take until it shows the first map?

    make docs && python benchmarks/first_map.py site

A static server on this machine gives the built site to Chromium. *first visit*: a new profile with
empty caches, so that the page fetches onnxruntime-web and the model; *next visit*: the page is
opened again; *slow*: a first visit, where the server sends no more than --megabits a second. The
time runs from the request of the page to the first point of a map. Needs playwright and a Chromium
(also: ELMOKIT_CHROMIUM=/path/to/chromium).
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import statistics
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from parsers import described_parser
from playwright.sync_api import Browser, Page, sync_playwright
from speed import machine

HERE = Path(__file__).parent
VIEWS = {"english": "lang=en&example=bank", "chinese": "lang=zh&model=chinese&example=苹果"}


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("site", type=Path, help="the folder that make docs writes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabits", type=float, default=50, help="bandwidth of a slower visit")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "first_map.json")
    arguments = parser.parse_args()
    server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(arguments.site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    chromium = os.environ.get("ELMOKIT_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        rows = {
            model: measure(browser, server, view, arguments.rounds, arguments.megabits)
            for model, view in VIEWS.items()
        }
        version = browser.version
        browser.close()
    server.shutdown()
    settings = {"rounds": arguments.rounds, "megabits": arguments.megabits}
    result = {"machine": machine(), "chromium": version, **settings, "rows": rows}
    print(json.dumps(result, indent=1))
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


class Server(ThreadingHTTPServer):
    """A static server that counts what it sends, and may send slowly."""

    daemon_threads = True
    sent = 0
    bytes_per_second = float("inf")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has closed its connection."""


class Handler(SimpleHTTPRequestHandler):
    """Answer without a log; the connections share the bandwidth of a slow server."""

    protocol_version = "HTTP/1.1"
    server: Server
    lock = threading.Lock()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def copyfile(self, source: Any, outputfile: Any) -> None:
        while block := source.read(1 << 16):
            with self.lock:
                time.sleep(len(block) / self.server.bytes_per_second)
                self.server.sent += len(block)
            outputfile.write(block)


def measure(
    browser: Browser, server: Server, view: str, rounds: int, megabits: float
) -> dict[str, Any]:
    """Return the median seconds of first, next and slow first visits, and what they fetch."""
    address = f"http://127.0.0.1:{server.server_port}/explorer/#{view}"
    seconds: dict[str, list[float]] = {"first": [], "next": [], "slow": []}
    for _ in range(rounds):
        for kind, rate in (("first", float("inf")), ("slow", megabits * 1e6 / 8)):
            server.sent, server.bytes_per_second = 0, rate
            context = browser.new_context()
            page = context.new_page()
            seconds[kind].append(visit(page, address))
            fetched = server.sent
            if kind == "first":
                page.goto("about:blank")
                seconds["next"].append(visit(page, address))
            context.close()
    return {
        "fetched_mb": round(fetched / 1e6, 1),
        "seconds": {kind: round(statistics.median(own), 2) for kind, own in seconds.items()},
    }


def visit(page: Page, address: str) -> float:
    """Open the page and wait for the first point of a map; return the seconds."""
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".point")
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
