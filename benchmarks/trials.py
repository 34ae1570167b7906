"""Small inputs, and commands that run on them in processes of their own, for reliability.py.

One process imports torch and forks the others, so that a run takes a second or less.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))

import elmokit.embed  # noqa: E402
from elmokit.cli.main import main as elmokit_main  # noqa: E402

LIMIT = 300  # seconds of a run, after which it hangs, also on a busy machine
HANGS, CRASHED = 99, 70  # exit codes that no command has
SHAPE = [
    *("--model.lstm-dim", "16", "--model.projection-dim", "8", "--model.character-dim", "4"),
    *("--model.filters", "1", "4", "2", "8", "--model.max-characters", "12"),
]
RUN = ["--threads", "1", "--quiet"]
READ = ["--model", "model", "--tokenizer", "whitespace", *RUN]
TRAIN = [
    *("--tokenizer", "whitespace", "--batch-size", "4", "--unroll", "10", "--min-count", "1"),
    *("--max-steps", "12", "--save-every", "4", "--eval-every", "6", *RUN),
]
TASK = [
    *("--elmo", "model", "--hidden", "8", "--word-dim", "4", "--epochs", "2", "--batch-size", "8"),
    *("--dropout", "0", "--cache", "cache", *RUN),
]


# ---------------------------------------------------------------------- inputs
def make_inputs(folder: Path) -> None:
    """Write the small files that all commands read, in another process.

    So torch starts no threads in this one.
    """
    child = os.fork()
    if child == 0:
        write_inputs(folder)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the inputs could not be written")


def write_inputs(folder: Path) -> None:
    """Write a text, uses with senses, texts with labels, and a model with a softmax."""
    from small_text import NOUNS, make_sentences
    from tiny import softmax_elmo

    sentences = make_sentences(120)
    text = "".join(" ".join(words) + "\n" for words in sentences)
    (folder / "text.txt").write_text(text)
    uses = [
        f"{' '.join(words)}\t{i}\t{'front' if i < 4 else 'back'}\t{word}\n"
        for words in sentences[:60]
        for i, word in enumerate(words)
        if word in NOUNS
    ]
    (folder / "uses.tsv").write_text("".join(uses))
    for name, part in (("train", sentences[:60]), ("dev", sentences[60:100])):
        lines = [f"{'dog' if 'dog' in words else 'other'}\t{' '.join(words)}\n" for words in part]
        (folder / f"{name}.tsv").write_text("".join(lines))
    softmax_elmo(tokenizer="whitespace").save_pretrained(folder / "model")


# ---------------------------------------------------------------------- processes
def call(arguments: list[str], folder: Path, before: Callable[[], None] = lambda: None) -> int:
    """Start a command in a forked process, and return its id."""
    child = os.fork()
    if child:
        return child
    try:
        os.chdir(folder)
        log = os.open(log_of(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        elmokit.embed.WINDOW_BYTES = 0  # several parts
        before()
        code = elmokit_main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        code = CRASHED
    os._exit(code)


def wait(child: int, limit: float = LIMIT) -> int:
    """Return the exit code of a process; one that takes longer than the limit hangs."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HANGS


def log_of(folder: Path) -> Path:
    """Return the file that has what a command printed."""
    return folder.with_suffix(".log")


def printed(folder: Path) -> str:
    """Return what a command has printed."""
    log = log_of(folder)
    return log.read_text(errors="replace") if log.exists() else ""


def tail(folder: Path) -> str:
    """Return the end of what a command has printed, as one line."""
    return " ".join(printed(folder).split())[-300:]


def known(path: Path, part: str) -> dict[str, Any]:
    """Return the counts of a part that were written before."""
    return dict(json.loads(path.read_text()).get(part, {})) if path.exists() else {}


def write_counts(path: Path, counts: dict[str, Any]) -> None:
    """Add counts to those of other parts."""
    results = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(results | counts, indent=1) + "\n")
