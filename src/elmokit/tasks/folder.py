"""A trained task model as one folder, which `predict` loads anywhere; no pickles.

MODEL/config.json         task, settings, labels, name and fingerprint of the biLM, dev scores
MODEL/model.safetensors   what was trained: not the frozen biLM
MODEL/words.json          words that have learned vectors
MODEL/vectors/            static word vectors, if there are any
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from tqdm.auto import tqdm

from elmokit.data.examples import Labeled, Tagged
from elmokit.data.labeled import BadLines
from elmokit.embed import Embedder, check_device
from elmokit.errors import ElmokitError, explained
from elmokit.formats.detect import PACKED, recorded_model
from elmokit.io.atomic import write_file
from elmokit.io.jsonfile import as_json, read_json, read_text
from elmokit.io.marker import read_marker
from elmokit.io.paths import is_file, is_folder
from elmokit.loading import load
from elmokit.progress import logger
from elmokit.store import LayerStore
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.settings import TrainSettings
from elmokit.tasks.splits import with_known_answers
from elmokit.tasks.task import Task, find_task
from elmokit.vectors.static import table as static

FORMAT = "elmokit task model 1"
CONFIG, WEIGHTS, WORDS, VECTORS = "config.json", "model.safetensors", "words.json", "vectors"


@dataclass
class TrainedTask:
    """A task model and what belongs to it."""

    task: Task
    settings: TrainSettings
    learned: dict[str, Any]
    """What the training examples determined, such as the labels."""
    words: list[str]
    """Words that have learned vectors."""
    elmo: Embedder | None
    elmo_name: str | None
    vectors: static.StaticVectors | None
    store: LayerStore | None = None
    """Cache of the layers of a frozen biLM."""

    def __post_init__(self) -> None:
        self.elmo_fingerprint = None if self.elmo is None else self.elmo.fingerprint()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            inputs = Inputs(self.settings, self.words, self.vectors, self.elmo, self.store)
            self.model = self.task.model(inputs, self.settings, self.learned)

    def predict(self, examples: Sequence[Any], *, quiet: bool = True) -> list[Any]:
        """Return a prediction for each example."""
        self.model.eval()
        count, size = len(examples), self.settings.batch_size
        result: dict[int, Any] = {}
        bar = tqdm(total=count, desc="predicting", unit=" texts", disable=quiet, leave=False)
        with bar, torch.inference_mode():
            for indices in _by_length(examples, size):
                predicted = self.model.predict([examples[i] for i in indices])
                result |= zip(indices, predicted, strict=True)
                bar.update(len(indices))
        return [result[i] for i in range(count)]

    def predict_texts(self, texts: Sequence[str | Sequence[str]]) -> list[Any]:
        """Return what a classifier or a tagger predicts for texts: strings, or lists of tokens."""
        if self.task.name not in ("classifier", "tagger"):
            raise ElmokitError(f"{self.task.name} needs more than a text: use predict()")
        split, examples = self.settings.tokenize, []
        kind = Labeled if self.task.name == "classifier" else Tagged
        for i, text in enumerate(texts, start=1):
            tokens = tuple(split(text) if isinstance(text, str) else text)
            if not tokens:
                raise ElmokitError(f"text {i} is empty")
            examples.append(kind((tokens,), f"text {i}", None))
        return self.predict(examples)

    def score(self, examples: Sequence[Any], *, quiet: bool = True) -> dict[str, float]:
        """Return the scores of the task on examples with known answers."""
        return self.task.score(examples, self.predict(examples, quiet=quiet))

    def read(self, path: str, *, labeled: bool, skip_bad: bool = False) -> list[Any]:
        """Read the examples of a file, which must have the answers if `labeled`."""
        bad = BadLines(skip=skip_bad)
        examples = list(self.task.read(path, self.settings, bad, labeled))
        if labeled:
            examples = with_known_answers(examples, self.learned, bad)
        if skipped := bad.summary():
            logger.info(skipped)
        if not examples:
            raise ElmokitError(f"{path} has no examples")
        return examples

    def save(self, folder: Path, report: dict[str, Any]) -> None:
        """Write the model, file by file, each whole or not at all."""
        config = {
            "format": FORMAT,
            "task": self.task.name,
            "settings": asdict(self.settings),
            "learned": self.learned,
            "elmo": self.elmo_name,
            "elmo_fingerprint": self.elmo_fingerprint,
            "vectors": None if self.vectors is None else self.vectors.source,
            "report": report,
        }
        tensors = {k: v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
        write_file(folder / WORDS, json.dumps(self.words, ensure_ascii=False).encode())
        write_file(folder / WEIGHTS, save(tensors))
        write_file(folder / CONFIG, [as_json(config)])


def mean_loss(model: Any, examples: Sequence[Any], batch_size: int) -> float:
    """Return the mean loss of examples with known answers."""
    model.eval()
    with torch.inference_mode():
        batches = [[examples[i] for i in part] for part in _by_length(examples, batch_size)]
        return sum(len(batch) * float(model.loss(batch)) for batch in batches) / len(examples)


def _by_length(examples: Sequence[Any], batch_size: int) -> Iterator[list[int]]:
    order = sorted(range(len(examples)), key=lambda i: longest_text(examples[i]))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def longest_text(example: Any) -> int:
    """Return the number of tokens of the longest text of an example."""
    return max(map(len, example.texts))


def load_task(
    folder: str | Path, *, elmo: str | Embedder | None = None, device: str = "cpu"
) -> TrainedTask:
    """Load a task model from its folder.

    Args:
        folder: Folder that `elmokit train` wrote.
        elmo: biLM, if it has moved since training; it must be the same one.
        device: Device to compute on, such as cpu or cuda.
    """
    check_device(device)
    folder = Path(folder).expanduser()
    config = read_config(folder)
    file = WORDS
    try:
        words = json.loads(read_text(folder / WORDS))
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise TypeError("it is not a list of words")
        file = CONFIG
        trained = _from_config(folder, config, words, elmo, device)
        file = WEIGHTS
        trained.model.load_state_dict(load_file(folder / WEIGHTS))
    except ElmokitError:
        raise
    except Exception as error:  # Anything can be in these files.
        reason = " ".join(str(error).split())[:500]
        if file == CONFIG and isinstance(error, RuntimeError | AssertionError):
            # torch has not as much memory.
            raise ElmokitError(f"cannot build the model of {folder}: {reason}") from error
        raise ElmokitError(f"{folder / file} is damaged: {reason}") from error
    trained.model.to(device).eval()
    return trained


def _from_config(
    folder: Path, config: dict[str, Any], words: list[str], elmo: str | Embedder | None, device: str
) -> TrainedTask:
    task = find_task(config["task"])
    settings = task.settings.from_options(config["settings"])
    vectors = static.load(folder / VECTORS) if config["vectors"] is not None else None
    own, bilm = config["elmo"], None
    try:
        if own is not None:
            bilm = load_elmo(recorded_model(own) if elmo is None else elmo, device)
    except ElmokitError as error:
        if elmo is not None:
            raise
        raise ElmokitError(
            f"{error}; {folder} was trained with that biLM: name it with --elmo if it has moved"
        ) from None
    trained = TrainedTask(task, settings, config["learned"], words, bilm, own, vectors)
    if trained.elmo_fingerprint != config["elmo_fingerprint"]:
        raise ElmokitError(
            f"{folder} was trained with another biLM than {own if elmo is None else elmo}: "
            "name the right one with --elmo"
        )
    return trained


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config.json of a task model; raise if there is none of this version."""
    config = read_json(folder / CONFIG) if is_file(folder / CONFIG) else {}
    if config.get("format") != FORMAT:
        raise ElmokitError(f"there is no task model in {folder}: {describe_folder(folder)}")
    return config


def describe_folder(folder: Path) -> str:
    """Say what a folder without a task model is, and which command takes it."""
    if not is_folder(folder):
        return f"it is {'a file' if is_file(folder) else 'missing'}"
    command = read_marker(folder)
    if command == "compare":
        return f"it is a comparison, whose task models are in {folder / 'runs'}"
    if command == "train":
        return "it is a training that has not saved a model yet; the same command resumes it"
    if any(any(folder.glob(name)) for name in PACKED):
        return (
            "it is a biLM, for elmokit embed and others; elmokit train TASK --elmo "
            f"{folder} trains a task model with it"
        )
    if command is not None:
        return f"it is an unfinished biLM; the same elmokit {command} command resumes its training"
    return f"it has no {CONFIG} of a task model that this version can read"


@dataclass(frozen=True)
class LearnedMixes:
    """The layer weights that a task model has learned."""

    task: str
    weights: dict[str, list[float]]
    """Weights of layers 0..L in the mix of each placement, input or output or both."""
    scales: dict[str, float]
    """Factor of each mix."""


def read_mixes(folder: str | Path) -> LearnedMixes | None:
    """Return the mixes of a task model's folder; None if it has not learned any."""
    config = read_config(Path(folder).expanduser())
    kinds = (KeyError, TypeError, AttributeError)
    with explained(f"the report in {folder}/{CONFIG} cannot be read", *kinds, reason=False):
        mixes = config["report"]["mixes"] if config["settings"]["layers"] == "all" else {}
        weights = {placement: mix["weights"] for placement, mix in mixes.items()}
        scales = {placement: mix["scale"] for placement, mix in mixes.items()}
        return LearnedMixes(config["task"], weights, scales) if weights else None


def load_elmo(name: str | Embedder, device: str) -> Embedder:
    """Load a biLM by its name, or take one that is loaded already."""
    return (name if isinstance(name, Embedder) else load(name)).to(device)
