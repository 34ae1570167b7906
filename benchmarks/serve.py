"""What does the service cost beside a plain call, and does it survive overload?

    python benchmarks/serve.py --text news.txt

`elmokit serve` runs in a process of its own with the shipped model; this process is its clients,
each with one connection, each request with one sentence. In turns, so that a slow moment of the
machine affects all: the plain call `sentence_vectors` for all sentences at once, which it sorts by
length into large batches, and for 32 at a time, all that a service with 32 clients can know; one
client, 32 clients; and for the median time of a lone request the plain call for one sentence and
one client.
Then --overload seconds in which 10 times as many such requests arrive as 32 clients were answered,
whatever becomes of those before, together with clients that want all layers of 10 sentences, and
others that want those of 100 but leave or do not read them, send half a body, nothing, nonsense
or far too much.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from parsers import described_parser
from speed import machine, read_sentences, stand_in_text

import elmokit

HERE = Path(__file__).parent
MANY = 32
TOLERANCE = 1e-6
QUEUE = 64  # requests that the service takes at once
TIMES = 10  # requests that arrive in overload, as a multiple of those that can be answered
ORDINARY = TIMES * QUEUE  # clients that send them
OTHERS = 20  # clients of each other kind
PAUSE = 2  # seconds, after which they come again
FEW = 10  # sentences of which some want all layers


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", help="tokenized sentences, one per line (default: Python's help)")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lone", type=int, default=300, help="requests of a lone client")
    parser.add_argument("--overload", type=float, default=60, help="seconds")
    parser.add_argument("--threads", type=int, default=1, help="of torch, in both processes")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "serve.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = arguments.text or stand_in_text(folder)
        sentences = [" ".join(own) for own in read_sentences(text, arguments.sentences)]
        result = measure(arguments, folder, sentences)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def measure(arguments: argparse.Namespace, folder: Path, sentences: list[str]) -> dict[str, Any]:
    """Run all measurements."""
    import torch

    torch.set_num_threads(arguments.threads)
    elmo = elmokit.load()
    tokens = sum(len(elmo.tokenize(text)) for text in sentences)
    requests = [request(text) for text in sentences]
    with server(folder, arguments.threads) as (port, process):
        few = sentences[:200]
        expected = elmo.sentence_vectors(few)
        vectors = np.stack([vector_of(body) for body in ask_all(port, requests[: len(few)], MANY)])
        largest = float(np.abs(vectors - expected).max())
        if largest > TOLERANCE:
            raise SystemExit(f"the vectors differ by {largest:g}")
        elmo.sentence_vectors(sentences)  # The words of all are in the cache,
        ask_all(port, requests, MANY)  # here and there.
        one = min(len(sentences), max(200, len(sentences) // 8))
        ways: dict[str, Callable[[], Any]] = {
            "plain": lambda: elmo.sentence_vectors(sentences),
            f"plain, {MANY} at a time": lambda: [
                elmo.sentence_vectors(sentences[i : i + MANY])
                for i in range(0, len(sentences), MANY)
            ],
            "1 client": lambda: ask_all(port, requests[:one], 1),
            f"{MANY} clients": lambda: ask_all(port, requests, MANY),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, action in ways.items():
                begin = time.perf_counter()
                action()
                asked = one if name == "1 client" else len(sentences)
                rates[name].append(asked / (time.perf_counter() - begin))
        lone = latencies(elmo, port, sentences[: arguments.lone])
        capacity = statistics.median(rates[f"{MANY} clients"])
        overload = asyncio.run(flood(port, process, sentences, capacity, arguments.overload))
        overload["after"] = latencies(elmo, port, sentences[:50])
        process.send_signal(signal.SIGTERM)
        code = process.wait(120)
    middle = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    many = middle[f"{MANY} clients"]
    return {
        "machine": machine(), "threads": arguments.threads, "sentences": len(sentences),
        "tokens": tokens, "largest_difference": largest, "sentences_per_s": middle,
        "many_to_one": round(many / middle["1 client"], 2),
        "many_to_plain": round(many / middle["plain"], 2),
        "many_to_as_many": round(many / middle[f"plain, {MANY} at a time"], 2), "lone_ms": lone,
        "overload": overload, "exit_code": code,
    }  # fmt: skip


def latencies(elmo: Any, port: int, sentences: Sequence[str]) -> dict[str, float]:
    """Return the median milliseconds of the plain call and of a lone client, in turns."""

    async def both() -> tuple[list[float], list[float]]:
        plain, asked = [], []
        client = await Client.open(port)
        for text in sentences:
            begin = time.perf_counter()
            elmo.sentence_vectors(text)
            plain.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            await client.ask(request(text))
            asked.append(time.perf_counter() - begin)
        client.close()
        return plain, asked

    plain, asked = asyncio.run(both())
    medians = {"plain": statistics.median(plain), "client": statistics.median(asked)}
    limit = 1.3 * medians["plain"] + 0.003
    return {name: round(1000 * value, 2) for name, value in {**medians, "limit": limit}.items()}


# ---------------------------------------------------------------------- server and clients
@contextmanager
def server(folder: Path, threads: int) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start the service; yield its port and process."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "elmokit", "serve", "--port", "0", "--threads", str(threads)]
    limits = ["--max-queue", str(QUEUE), "--timeout", "20"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with log.open("wb") as file:
        process = subprocess.Popen([*command, *limits], stderr=file, env=environment)
    try:
        while (address := re.search(r"ready at http://[^:]+:(\d+)", log.read_text())) is None:
            if process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.1)
        yield int(address[1]), process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def request(text: str | list[str], path: str = "/v1/embeddings") -> bytes:
    """Return the bytes of a request."""
    name = "input" if path == "/v1/embeddings" else "inputs"
    extra = {"encoding_format": "base64", "model": "english"} if name == "input" else {}
    body = json.dumps({name: text, **extra}).encode()
    return head(len(body), path) + body


def head(length: int, path: str = "/v1/embeddings") -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: here", "Content-Type: application/json")
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def vector_of(body: bytes) -> Any:
    return np.frombuffer(base64.b64decode(json.loads(body)["data"][0]["embedding"]), "<f4")


class Client:
    """A connection that does as little as possible, so that the service is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))

    async def ask(self, content: bytes) -> tuple[int, bytes]:
        """Send a request; return status and body."""
        self.writer.write(content)
        top = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", top)
        body = await self.reader.readexactly(int(length[1]) if length else 0)
        return int(top.split(b" ", 2)[1]), body

    def close(self) -> None:
        self.writer.close()


def ask_all(port: int, requests: Sequence[bytes], clients: int) -> list[bytes]:
    """Send all requests with so many clients; return the bodies of the answers in order.

    Without asyncio, which would need as much time for a request as the service does: they share
    the cores.
    """
    waiting = iter(enumerate(requests))
    answers = [b""] * len(requests)
    asked: dict[Any, int] = {}  # the request whose answer a connection waits for

    def ask_next(sock: Any) -> None:
        asked[sock], content = next(waiting, (-1, b""))
        if asked[sock] < 0:
            selector.unregister(sock)
            sock.close()
        else:
            sock.sendall(content)

    with selectors.DefaultSelector() as selector:
        for _ in range(clients):
            sock: Any = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(sock, selectors.EVENT_READ)
            ask_next(sock)
        while selector.get_map():
            for key, _ in selector.select():
                sock = key.fileobj
                part = sock.recv(1 << 16)
                answers[asked[sock]] += part
                if not part or is_complete(answers[asked[sock]]):
                    ask_next(sock)
    if lines := Counter(answer.partition(b"\r\n")[0] for answer in answers) - Counter(
        {b"HTTP/1.1 200 OK": len(answers)}
    ):
        raise SystemExit(f"answers: {lines}")
    return [answer.partition(b"\r\n\r\n")[2] for answer in answers]


def is_complete(answer: bytes) -> bool:
    """Return whether an answer has all of its body."""
    top, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", top)
    return length is not None and len(body) == int(length[1])


# ---------------------------------------------------------------------- overload
async def flood(
    port: int,
    process: subprocess.Popen[bytes],
    sentences: list[str],
    capacity: float,
    seconds: float,
) -> dict[str, Any]:
    """Send far more than the service can answer; return answers, and its memory in MB."""
    before = memory(process)
    crowd = Crowd(port, sentences, TIMES * capacity, time.monotonic() + seconds)
    others = [crowd.ask_for_layers, crowd.leave, crowd.do_not_read, crowd.wait]
    others += [crowd.send_half, crowd.send_far_too_much, crowd.send_nonsense]
    kinds = [crowd.ask] * ORDINARY + others * OTHERS
    workers = [asyncio.create_task(crowd.repeat(kind)) for kind in kinds]
    seen: list[int] = []
    while time.monotonic() < crowd.end:
        seen.append(memory(process))
        await asyncio.sleep(0.25)
    for worker in workers:
        worker.cancel()
    for worker in workers:
        with suppress(asyncio.CancelledError):
            await worker
    thirds = [max(part) for part in np.array_split(np.array(seen), 3)]
    await asyncio.sleep(1)
    statuses = sum(crowd.statuses.values(), Counter[int]())
    ordinary, layers = len(crowd.seconds), crowd.statuses["ask_for_layers"][200]
    milliseconds = 1000 * np.quantile(crowd.seconds or [np.nan], (0.5, 0.95))
    return {
        "seconds": seconds, "clients": ORDINARY + OTHERS * len(others),
        "arriving_per_s": round(crowd.statuses["ask"].total() / seconds, 1),
        "answered_per_s": round(ordinary / seconds, 1), "answers_of_all_layers": layers,
        "goodput": round((ordinary + FEW * layers) / seconds / capacity, 2),  # in sentences
        "answered_ms": dict(zip(("median", "p95"), milliseconds.round().tolist(), strict=True)),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "only_2xx_and_4xx": all(status // 100 in (2, 4) for status in statuses),
        "memory_mb": {
            "before": before, "largest_by_thirds": list(map(int, thirds)), "after": memory(process),
        },
    }  # fmt: skip


class Crowd:
    """Clients that come again and again until the end, and the answers that they got."""

    def __init__(self, port: int, sentences: list[str], rate: float, end: float) -> None:
        self.port, self.end = port, end
        self.pause = ORDINARY / rate  # between the requests of an ordinary client
        self.ordinary = cycle([request(text) for text in sentences])
        self.layers = request(sentences[:FEW], "/v1/layers")
        self.large = request(sentences[:100], "/v1/layers")
        self.statuses: dict[str, Counter[int]] = defaultdict(Counter)
        self.seconds: list[float] = []  # of the ordinary requests that were answered

    async def repeat(self, work: Callable[[Client], Awaitable[None]]) -> None:
        await asyncio.sleep(random.random() * self.pause)
        while time.monotonic() < self.end:
            with suppress(OSError, EOFError, asyncio.TimeoutError):
                client = await Client.open(self.port)
                try:
                    await asyncio.wait_for(work(client), 30)
                finally:
                    client.close()
            await asyncio.sleep(self.pause if work == self.ask else PAUSE)

    async def ask(self, client: Client) -> None:
        """Send ordinary requests at a steady pace, refused or not, while the connection lasts."""
        while (begin := time.monotonic()) < self.end:
            status, _ = await client.ask(next(self.ordinary))
            now = time.monotonic()
            if status == 200 and now < self.end:
                self.seconds.append(now - begin)
            self.statuses["ask"][status] += 1
            await asyncio.sleep(max(begin + self.pause - now, 0))

    async def ask_for_layers(self, client: Client) -> None:
        status, _ = await client.ask(self.layers)
        self.statuses["ask_for_layers"][status] += 1

    async def leave(self, client: Client) -> None:
        client.writer.write(self.large)
        await asyncio.sleep(0.05)

    async def do_not_read(self, client: Client) -> None:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(self.large)
        await asyncio.sleep(30)

    async def send_half(self, client: Client) -> None:
        await self.send(client, head(100_000) + b"{")

    async def send_far_too_much(self, client: Client) -> None:
        await self.send(client, head(10**9) + b" " * 1_000_000)

    async def send_nonsense(self, client: Client) -> None:
        await self.send(client, b"\x00\xff not http\r\n\r\n")

    async def wait(self, client: Client) -> None:
        await client.reader.read(1)

    async def send(self, client: Client, content: bytes) -> None:
        client.writer.write(content)
        line = await client.reader.readuntil(b"\r\n")
        self.statuses["send"][int(line.split(b" ", 2)[1])] += 1


def memory(process: subprocess.Popen[bytes]) -> int:
    """Return the megabytes of memory that a process has in use."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) >> 10


if __name__ == "__main__":
    main()
