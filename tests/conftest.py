"""What every test can ask for."""

from __future__ import annotations

import os
import random
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from programs import find_program

# Threads that wait for each other sleep instead of spinning: tests often share their cores with
# processes that they start, and spinning makes both many times slower. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")  # elmokit.pretrain would set another

# In the background of a shell Ctrl-C is ignored, and children inherit that: the tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


# A limit of time says nothing on a busy machine.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Libraries whose tests skip where they are not installed, but never in CI. Those of the scripts in
# examples/ may be missing there too: flair needs another transformers, Spark needs Java.
LIBRARIES = [
    "accelerate",
    "axe_playwright_python",
    "codespell_lib",
    "datasets",
    "duckdb",
    "faiss",
    "fastapi",
    "fsspec",
    "gensim",
    "h5py",
    "httptools",
    "ipykernel",
    "jieba",
    "material",
    "latex2mathml",
    "matplotlib",
    "nbclient",
    "nbformat",
    "onnx",
    "onnxruntime",
    "openai",
    "orjson",
    "pandas",
    "playwright",
    "prometheus_client",
    "pyarrow",
    "ray",
    "rouge_score",
    "sacrebleu",
    "schemathesis",
    "scipy",
    "sentence_transformers",
    "seqeval",
    "sklearn",
    "sklearn_crfsuite",
    "spacy",
    "tensorboard",
    "transformers",
    "usearch",
    "zstandard",
]
LIBRARIES += ["mteb"] if sys.version_info >= (3, 11) else []
PROGRAMS = ["hadolint", "node"]  # likewise


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make outputs` write into README and docs what their code prints."""
    parser.addoption("--rewrite", action="store_true", help="write the outputs of pages into them")


def pytest_configure() -> None:
    """Stop if CI would skip tests because something is not installed."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    missing += [name for name in PROGRAMS if find_program(name) is None]
    if os.environ.get("CI") and missing:
        raise pytest.UsageError(f"not installed, but CI runs their tests: {missing}")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip helper modules: `--doctest-modules` would import them, whatever they need."""
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return is_helper or None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with checkpoints and data that are too big for the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("ELMOKIT_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}: name another with ELMOKIT_SHARED")
    return folder


@pytest.fixture(scope="session")
def allennlp_python() -> str:
    """An interpreter that has AllenNLP, which elmokit itself never needs."""
    path = os.environ.get("ELMOKIT_ALLENNLP_PYTHON")
    if not path:
        pytest.skip("no interpreter with AllenNLP is named by ELMOKIT_ALLENNLP_PYTHON")
    return path


@pytest.fixture(scope="session")
def tensorflow_python() -> str:
    """An interpreter that has TensorFlow, which elmokit itself never needs."""
    path = os.environ.get("ELMOKIT_TENSORFLOW_PYTHON")
    if not path:
        pytest.skip("no interpreter with TensorFlow is named by ELMOKIT_TENSORFLOW_PYTHON")
    return path


PEOPLE = ("Anna", "Bo", "Carl", "Dora", "Emil")
PLACES = ("Lund", "Oslo", "Turku", "Riga", "Kiel")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept vectors go to a folder of the tests' own."""
    if "ELMOKIT_CACHE" not in os.environ:
        monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut would show the difference; child processes do sync."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def curves() -> None:
    """For a test that looks at the picture of a training run, or needs all that a run does."""


@pytest.fixture(autouse=True)
def no_curves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the picture of a training run, a third of the time of a tiny one."""
    if "curves" not in request.fixturenames:
        monkeypatch.setattr("elmokit.tasks.run.draw_curves", lambda *_: False)
        monkeypatch.setattr("elmokit.pretrain.trainer.draw_training_curves", lambda *_: False)


def tagged_lines(count: int, seed: int) -> str:
    """Sentences in columns where a name's kind is decided by its neighbours and by itself."""
    rng = random.Random(seed)
    sentences = []
    for _ in range(count):
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        words = [(person, "B-PER")]
        if rng.random() < 0.5:
            words.append(("Berg", "I-PER"))
        words += [("lives", "O"), ("in", "O"), (place, "B-LOC"), (".", "O")]
        sentences.append("".join(f"{word} {tag}\n" for word, tag in words))
    return "\n".join(sentences)


@pytest.fixture
def conll(tmp_path: Path) -> tuple[Path, Path]:
    """Training and dev data of a tagger."""
    train, dev = tmp_path / "train.conll", tmp_path / "dev.conll"
    train.write_text(tagged_lines(60, 1))
    dev.write_text(tagged_lines(20, 2))
    return train, dev


@pytest.fixture
def reviews(tmp_path: Path) -> tuple[Path, Path]:
    """Training and dev data of a classifier: `label text`."""
    rng = random.Random(3)
    good, poor = ("fine", "great", "lovely"), ("bad", "awful", "dull")

    def lines(count: int) -> str:
        made = []
        for _ in range(count):
            label = rng.choice(("good", "poor"))
            word = rng.choice(good if label == "good" else poor)
            made.append(f"{label} the {rng.choice(('film', 'book', 'play'))} was {word} .\n")
        return "".join(made)

    train, dev = tmp_path / "train.txt", tmp_path / "dev.txt"
    train.write_text(lines(80))
    dev.write_text(lines(30))
    return train, dev
