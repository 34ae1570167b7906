"""The server process: load, listen, answer, and drain at the end.

With several workers each is a process with its own models; this process starts them again if they
die, and their measurements are added up.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import ipaddress
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.request import ProxyHandler, build_opener

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from elmokit.errors import ElmokitError, reason_of
from elmokit.io.jsonfile import read_text
from elmokit.progress import set_threads
from elmokit.serve.gate import ABORT
from elmokit.serve.limits import Limits
from elmokit.serve.log import log_json_lines

if TYPE_CHECKING:
    from fastapi import FastAPI

    from elmokit.serve.service import Service

SETTINGS = "ELMOKIT_SERVE"  # the environment variable by which workers get the settings
MULTIPROC = "PROMETHEUS_MULTIPROC_DIR"
HEADER_SECONDS = 10  # for the first line and the headers of a request
LOAD_SECONDS = 600  # for a worker to load its models
POLL_SECONDS = 0.1  # between looks whether a worker answers
MIN_KEY = 16  # characters
LARGE = 16 << 20  # bytes of a block of memory that is given back at once
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names of glibc


@dataclass(frozen=True)
class Settings:
    """What a server is started with."""

    models: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    senses: str | None = None
    index: str | None = None
    host: str = "127.0.0.1"
    port: int = 8090
    api_key_file: str | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    log_texts: bool = False
    device: str = "cpu"
    precision: Literal["float32", "float16", "int8"] = "float32"
    threads: int | None = None

    def check(self) -> None:
        """Raise if a number is out of range or the key file cannot be read."""
        numbers = {**asdict(self.limits), "workers": self.workers}
        for name, value in numbers.items():
            if not value > 0:
                raise ElmokitError(f"--{name.replace('_', '-')} must be above 0, not {value}")
        if not 0 <= self.port < 65536:
            raise ElmokitError(f"--port must be from 0 to 65535, not {self.port}")
        self.keys()

    def keys(self) -> list[str]:
        """Return the keys of the key file, one per line; none without a file."""
        if self.api_key_file is None:
            return []
        lines = read_text(Path(self.api_key_file).expanduser()).splitlines()
        keys = [line.strip() for line in lines if line.strip()]
        if not keys or any(len(key) < MIN_KEY or not key.isascii() for key in keys):
            raise ElmokitError(
                f"{self.api_key_file} must have a key of at least {MIN_KEY} ASCII characters per "
                "line"
            )
        return keys

    def load(self) -> Service:
        """Load and warm up the models."""
        from elmokit.serve.service import load_service

        set_threads(self.threads)
        give_back_memory()
        service = load_service(
            self.models,
            tasks=self.tasks,
            senses=self.senses,
            index=self.index,
            limits=self.limits,
            device=self.device,
            precision=self.precision,
        )
        gc.freeze()  # What is loaded stays: looking through it for garbage takes time of requests.
        return service

    def app(self) -> FastAPI:
        """Load the models and return the application."""
        from elmokit.serve.app import create_app

        return create_app(self.load(), keys=self.keys(), log_texts=self.log_texts)


def give_back_memory() -> None:
    """Give large blocks of memory back to the system as soon as an answer is sent.

    Unless told, glibc soon takes blocks of up to 32 MB from the heap of a thread, where pieces that
    are still in use keep it from ever shrinking.
    """
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, LARGE)
            mallopt(M_TRIM_THRESHOLD, 2 * LARGE)  # Less would slow down the models.


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(settings: Settings) -> socket.socket:
    """Bind the address before anything is loaded, so that a used port is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.host, settings.port))
    except OSError as error:
        sock.close()
        address = f"{settings.host}:{settings.port}"
        raise ElmokitError(f"cannot listen on {address}: {reason_of(error)}") from None
    sock.set_inheritable(True)
    return sock


def serve(settings: Settings, announce: Callable[[str], None]) -> int:
    """Serve until a signal ends it; return the exit code.

    Args:
        settings: What to load, and how to listen.
        announce: Called with the address when the models are warm.
    """
    settings.check()
    with listen(settings) as sock:
        app = settings.app()  # With several workers a test, whose errors are one sentence.
        host, port = settings.host, sock.getsockname()[1]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        log_json_lines()
        # uvicorn raises the signal again after it has drained: being asked to end is not an error.
        signal.signal(signal.SIGTERM, lambda *_: None)
        if settings.workers == 1:
            config = uvicorn.Config(app, **options_of(settings))
            Server(config, lambda: announce(address)).run(sockets=[sock])
            return 0
    del app
    waiting = threading.Thread(target=announce_when_ready, args=(address, announce), daemon=True)
    waiting.start()
    serve_with_workers(settings, port)
    return 0


def announce_when_ready(address: str, announce: Callable[[str], None]) -> None:
    """Announce the address as soon as the first worker answers there."""
    own = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    opener = build_opener(ProxyHandler({}))  # not by the proxy of the environment
    for _ in range(int(LOAD_SECONDS / POLL_SECONDS)):
        with suppress(OSError):
            opener.open(f"{own}/health", timeout=HEADER_SECONDS).close()
            announce(address)
            return
        time.sleep(POLL_SECONDS)


class Server(uvicorn.Server):
    """uvicorn, which says when it listens."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self.announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        self.announce()


def options_of(settings: Settings) -> dict[str, Any]:
    """Return the options of uvicorn."""
    return {
        "http": PatientProtocol,
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": int(settings.limits.timeout) + 1,
    }


def serve_with_workers(settings: Settings, port: int) -> None:
    """Run several processes that share a port."""
    with tempfile.TemporaryDirectory(prefix="elmokit-metrics-") as folder:
        os.environ[MULTIPROC] = folder  # read by prometheus_client when a worker imports it
        os.environ[SETTINGS] = json.dumps(asdict(settings))
        uvicorn.run(
            "elmokit.serve.run:worker_app",
            factory=True,
            host=settings.host,
            port=port,
            workers=settings.workers,
            timeout_worker_healthcheck=LOAD_SECONDS,
            **options_of(settings),
        )


def worker_app() -> FastAPI:
    """Return the application of a worker; uvicorn calls it."""
    values = json.loads(os.environ[SETTINGS])
    values["limits"] = Limits(**values["limits"])
    log_json_lines()
    return Settings(**values).app()


class Together:
    """A transport that sends the headers of an answer together with the body that follows at once.

    Each call of the system lets the thread of a model run, which is slow to give way again.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._headers = transport, b""
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.abort = transport.abort

    def write(self, data: bytes) -> None:
        """Send data; headers, which uvicorn writes in one piece, a moment later."""
        if not self._headers and data.startswith(b"HTTP/1.1 "):
            self._headers = data
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._flush(data)

    def close(self) -> None:
        """Send what is kept, and end the connection."""
        self._flush()
        self._transport.close()

    def _flush(self, more: bytes = b"") -> None:
        data, self._headers = self._headers + more, b""
        self._transport.write(data)


class PatientProtocol(HttpToolsProtocol):
    """HTTP of uvicorn, but not with a client that never sends the headers of its request.

    The gate can end the connection to a client that does not read its answer.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to watch a new connection, and send what is written to it at once.

        asyncio only does that for sockets with the protocol TCP, not with the default 0. Without
        it the body waits until the client has confirmed the headers, which may take 40 ms.
        """
        super().connection_made(Together(transport))  # type: ignore[arg-type]
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.loop.call_later(HEADER_SECONDS, self._end_if_silent)

    def on_message_begin(self) -> None:
        """Start to read a request."""
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}

    def _end_if_silent(self) -> None:
        cycle: object | None = self.cycle  # uvicorn's type is without the None of the beginning
        if cycle is None and not self.transport.is_closing():
            self.transport.close()
