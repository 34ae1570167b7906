"""A service with everything loaded, from tiny models that were never trained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from children import HANGS
from fastapi import FastAPI
from tiny import softmax_elmo

import elmokit
from elmokit.analysis import TaggedCorpus, build_senses, index_uses
from elmokit.tasks.folder import TrainedTask
from elmokit.tasks.task import find_task

LABELS = ["no", "yes"]
LEARNED: dict[str, dict[str, Any]] = {
    "classifier": {"labels": LABELS},
    "tagger": {"tags": ["B-LOC", "I-LOC", "O"], "predicates": False},
    "pair": {"labels": LABELS},
    "relation": {"labels": ["Cause(e1,e2)", "Other"]},
    "question": {},
    "coreference": {"labels": ["A", "B", "NEITHER"]},
    "translate": {"words": ["the", "bank", "."], "case": "mixed"},
}
INPUTS: dict[str, Any] = {
    "classifier": "the river bank .",
    "tagger": "the river bank .",
    "pair": {"first": "the river .", "second": "the bank ."},
    "relation": {"text": "the <e1>river</e1> and its <e2>bank</e2> ."},
    "question": {"question": "who sat ?", "passage": "the boat  sat ."},
    "coreference": {
        "text": "Anna saw Bo . She left .",
        "pronoun": [14, 17],
        "a": [0, 4],
        "b": [9, 11],
    },
    "translate": "the river bank .",
}
CORPUS = [
    "the boat sat on the river bank .",
    "he sat on the bank .",
    "the bank lent him money .",
    "the bank and the boat .",
    "the river sat .",
]
SENSES = ["shore", "shore", "money", "money"]


def make_folders(folder: Path) -> dict[str, Any]:
    """Write a model, a task model of each kind, senses and an index; return what loads them."""
    softmax_elmo().save_pretrained(folder / "tiny")
    elmo = elmokit.load(folder / "tiny")
    name = str(folder / "tiny")
    for kind, learned in LEARNED.items():
        task = find_task(kind)
        settings = task.settings.from_options({"word_dim": 4, "hidden": 8})
        (folder / kind).mkdir()
        TrainedTask(task, settings, learned, ["the"], elmo, name, None).save(folder / kind, {})
    rows = [
        f"{text}\t{text.split().index('bank')}\t{sense}\n"
        for text, sense in zip(CORPUS, SENSES, strict=False)
    ]
    (folder / "uses.tsv").write_text("".join(rows))
    corpus = TaggedCorpus(folder / "uses.tsv")
    build_senses(elmo, corpus, model_name=name).save(folder / "senses")
    sentences = [text.split() for text in CORPUS]
    settings_of_index = {"model": name, "tokenizer": "elmokit"}
    index_uses(elmo, sentences, folder / "index", settings=settings_of_index)
    return {
        "models": [name],
        "tasks": [str(folder / kind) for kind in LEARNED],
        "senses": str(folder / "senses"),
        "index": str(folder / "index"),
    }


def client_of(app: FastAPI, **settings: Any) -> httpx.AsyncClient:
    """A client that calls the application without a network."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test", **settings)


@dataclass
class Server:
    """A running `elmokit serve`."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    @property
    def memory(self) -> int:
        """Bytes of memory that it has in use."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return 1024 * int(line.split()[1])


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Server]:
    """Start `elmokit serve` on a free port, and wait until it is ready."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "elmokit", "serve", *arguments, "--port", "0"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + HANGS
        while "ready at " not in (text := log.read_text()):
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        address = text.partition("ready at ")[2].split(": ")[0]
        yield Server(address, process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
