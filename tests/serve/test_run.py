"""The server process: real clients, overload, and its end."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from children import HANGS
from serving import Server, running
from tiny import complaint, difference

import elmokit
from elmokit.cli.main import main
from elmokit.serve.run import Settings, is_loopback

KEY = "a-key-of-a-few-letters"


@pytest.fixture(scope="module")
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "keys").write_text(f"another-key-of-letters\n{KEY}\n")
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{folder / "opened"}"\n')
    browser.chmod(0o755)
    limits = ("--max-queue", "8", "--max-body", "20000", "--timeout", "3")
    options = ("--api-key-file", str(folder / "keys"), "--open", *limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROWSER", f"{browser} %s")
        with running(folder, str(model_folder), *options) as one:
            yield one


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when a condition holds; fail if it never does."""
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def headers(key: str = KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_the_client_of_openai_gets_the_vectors_of_embed(server: Server, model_folder: Path) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key=KEY, max_retries=0)
    texts = ["the river bank", "he sat"]
    elmo = elmokit.load(model_folder)
    for encoding in ({}, {"encoding_format": "float"}):  # Without it the client asks for base64.
        answer = client.embeddings.create(
            model="tiny", input=texts, extra_body={"layers": "top", "pooling": "max"}, **encoding
        )
        result = np.array([row.embedding for row in answer.data])
        expected = elmo.sentence_vectors(texts, "top", pooling="max")
        assert difference(result, expected) < 1e-6
    assert [model.id for model in client.models.list()] == ["tiny"]
    with pytest.raises(openai.BadRequestError, match="there is no layer 7"):
        client.embeddings.create(model="tiny", input="a", extra_body={"layers": 7})
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
        client.embeddings.create(model="gpt", input="a")
    with pytest.raises(openai.AuthenticationError, match="send the key of this service"):
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="wrong").models.list()


def test_open_starts_the_browser_with_the_address(server: Server) -> None:
    opened = server.log.parent / "opened"
    wait_for(lambda: opened.exists() and opened.read_text() == server.address)


def test_only_pages_and_health_need_no_key(server: Server) -> None:
    for path, status in (("/", 200), ("/docs", 200), ("/health", 200), ("/openapi.json", 200),
                         ("/metrics", 401), ("/info", 401), ("/v1/models", 401)):  # fmt: skip
        response = httpx.get(server.address + path)
        assert response.status_code == status, path
    assert response.headers["www-authenticate"] == "Bearer"
    both = httpx.get(f"{server.address}/info", headers=headers("another-key-of-letters"))
    assert both.status_code == 200


def address_of(server: Server) -> tuple[str, int]:
    host, _, port = server.address.removeprefix("http://").partition(":")
    return host, int(port)


def connect(server: Server) -> socket.socket:
    return socket.create_connection(address_of(server), timeout=HANGS)


def head(length: int, path: str = "/embed") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(100).split(b" ")[1])


def test_slow_bodies_and_readers_are_ended_and_large_bodies_refused(server: Server) -> None:
    body = json.dumps({"inputs": "a " * 9000}).encode()  # The answer is about 6 MB.
    with (
        socket.socket() as lazy,
        connect(server) as slow,
        connect(server) as large,
        connect(server) as chunked,
    ):
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(address_of(server))
        lazy.sendall(head(len(body), "/v1/layers") + body)
        slow.sendall(head(100) + b'{"inputs"')
        large.sendall(head(10**9))
        chunked.sendall(head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        chunked.sendall(b"4E20\r\n" + b" " * 20000 + b"\r\n" + b"10\r\n" + b" " * 16 + b"\r\n")
        assert status_of(large) == 413
        assert status_of(chunked) == 413
        assert status_of(slow) == 408
        wait_for(lambda: '"/v1/layers", "status": 499' in server.log.read_text())


async def flood(server: Server, seconds: float) -> Counter[int]:
    """Statuses of the answers to clients that never wait."""
    statuses: Counter[int] = Counter()
    body = {"inputs": ["the river bank and the boat sat on it"] * 20, "layers": "all"}
    end = time.monotonic() + seconds

    async def ask(client: httpx.AsyncClient) -> None:
        while time.monotonic() < end:
            response = await client.post("/v1/layers", json=body)
            statuses[response.status_code] += 1
            if response.status_code == 429:
                assert 1 <= int(response.headers["retry-after"]) <= 60
                assert response.json()["error"]["type"] == "rate_limit_error"
                await asyncio.sleep(0.01)

    async def leave(client: httpx.AsyncClient) -> None:
        while time.monotonic() < end:
            try:
                await client.post("/v1/layers", json=body, timeout=0.02)
            except httpx.TransportError:  # Leaving may break what is being read.
                await asyncio.sleep(0.01)

    limits = httpx.Limits(max_connections=60)
    settings: Any = {"base_url": server.address, "headers": headers(), "limits": limits}
    # Clients of their own: those who leave break connections, which the others must not share.
    async with (
        httpx.AsyncClient(timeout=HANGS, **settings) as client,
        httpx.AsyncClient(**settings) as leaving,
    ):
        asking = (ask(client) for _ in range(24))
        await asyncio.gather(*asking, *(leave(leaving) for _ in range(8)))
    return statuses


def test_overload_is_429_and_normal_answers_follow(server: Server) -> None:
    silent = [connect(server) for _ in range(10)]
    halves = [connect(server) for _ in range(3)]
    for connection in halves:
        connection.sendall(head(5000) + b"{")
    statuses = asyncio.run(flood(server, 3))
    for connection in [*silent, *halves]:
        connection.close()
    assert set(statuses) == {200, 429}, statuses

    def metrics() -> str:
        return httpx.get(f"{server.address}/metrics", headers=headers()).text

    wait_for(lambda: "elmokit_requests_in_flight 1.0" in metrics())  # which is this request
    for _ in range(10):
        response = httpx.post(f"{server.address}/embed", json={"inputs": "a"}, headers=headers())
        assert response.status_code == 200
    assert 'elmokit_waiting_tokens{model="tiny"} 0.0' in metrics()


def test_the_log_has_json_lines_without_texts(server: Server) -> None:
    secret = "unmistakable"
    body = json.dumps({"inputs": secret, "truncate": True}).encode()
    httpx.post(f"{server.address}/embed", content=body, headers=headers())
    wait_for(lambda: f'"bytes_in": {len(body)}' in server.log.read_text())
    first, *lines = server.log.read_text().splitlines()
    assert "only this machine can reach it (--host 0.0.0.0 opens it to others)" in first
    entries = [json.loads(line) for line in lines]
    assert secret not in server.log.read_text()
    assert KEY not in server.log.read_text()
    requests = [entry for entry in entries if entry["event"] == "request"]
    assert set(requests[-1]) == {
        "time", "level", "event", "method", "route", "status", "seconds", "bytes_in", "bytes_out",
    }  # fmt: skip
    assert not [entry for entry in entries if entry["level"] == "error"]


def test_sigterm_answers_what_is_under_way_and_ends_with_0(
    model_folder: Path, tmp_path: Path
) -> None:
    with running(tmp_path, str(model_folder), "--log-texts") as server:
        body = {"inputs": ["the river bank and the boat"] * 400, "layers": "all"}
        answers: list[int] = []

        def ask() -> None:
            response = httpx.post(f"{server.address}/v1/layers", json=body, timeout=HANGS)
            answers.append(len(response.json()["sentences"]))

        client = threading.Thread(target=ask)
        client.start()
        metrics = ""
        while "elmokit_batch_tokens_count" not in metrics:  # until its first batch is done
            metrics = httpx.get(f"{server.address}/metrics").text
        assert server.stop() == 0
        client.join()
        assert answers == [400]
        assert "the river bank and the boat" in server.log.read_text()


@pytest.mark.slow
def test_several_workers_answer_and_add_up_their_measurements(
    model_folder: Path, tmp_path: Path
) -> None:
    with running(tmp_path, str(model_folder), "--workers", "2") as server:
        httpx.get(f"{server.address}/health").raise_for_status()  # It is ready when it says so.
        for _ in range(20):
            with httpx.Client() as client:  # another connection, perhaps another worker
                answer = client.post(f"{server.address}/embed", json={"inputs": "a"})
                assert answer.status_code == 200
        text = httpx.get(f"{server.address}/metrics").text
        assert 'elmokit_requests_total{method="POST",route="/embed",status="200"} 20.0' in text
        assert server.stop() == 0


# ---------------------------------------------------------------------- settings
def test_wrong_settings_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short").write_text("key\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, sentence in (
            (["--port", port], f"cannot listen on 127.0.0.1:{port}: Address already in use"),
            (["--port", "70000"], "--port must be from 0 to 65535, not 70000"),
            (["--max-queue", "0"], "--max-queue must be above 0, not 0"),
            (["--workers", "0"], "--workers must be above 0, not 0"),
            (["--api-key-file", str(tmp_path / "short")], "must have a key of at least 16 ASCII"),
            (["--api-key-file", str(tmp_path / "none")], "none"),
            (["--port", "0", str(tmp_path / "none")], "there is no file or folder"),
            (["--port", "0", "english", "english"], "two models have the name english"),
            (["--port", "0", "--task", str(tmp_path)], "there is no task model in"),
            (["--port", "0", "--index", str(tmp_path)], "there is no index at"),
            (["--port", "0", "--senses", str(tmp_path)], "there are no senses in"),
        ):
            assert main(["serve", *arguments]) == 2
            assert sentence in capsys.readouterr().err


def test_elmokit_and_its_command_line_do_without_the_extra() -> None:
    code = """
import sys, elmokit, elmokit.cli.serve
elmokit.load
for name in ("elmokit.serve", "fastapi", "uvicorn", "orjson", "prometheus_client"):
    assert name not in sys.modules, name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_addresses_of_this_machine_are_known() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.0.1", "example.org"]))


def test_blank_lines_of_a_key_file_are_not_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"\n{KEY}\n\n")
    assert Settings(api_key_file=str(file)).keys() == [KEY]
    file.write_text("\n")
    assert complaint(Settings(api_key_file=str(file)).keys)


def test_what_is_loaded_is_not_looked_through_for_garbage(model_folder: Path) -> None:
    try:
        service = Settings(models=(str(model_folder),)).load()
        service.close()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
