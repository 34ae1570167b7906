"""Losses and perplexities against a slow model that reads one token at a time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from reference import Reference
from small_text import TINY, make_sentences

import elmokit
from elmokit.cli.main import main
from elmokit.config import BiLMConfig
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.formats import bilm, native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.io.jsonfile import read_json
from elmokit.model.bilm import BiLM, BiLMState, tensors_of
from elmokit.pretrain.corpus import Corpus, prepare
from elmokit.pretrain.evaluation import text_losses
from elmokit.pretrain.objective import Batcher, window_loss
from elmokit.pretrain.windows import Windows
from elmokit.text.indexers import make_indexer
from elmokit.text.vocabulary import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "dog", "river", "sees", "and", "."]
SENTENCES = make_sentences(30, seed=5)
Slow = Callable[[int], np.ndarray]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with random weights, too lively for its losses to be all alike."""
    config = BiLMConfig.from_dict(
        {**BiLMConfig.preset("tiny").to_dict(), **TINY, "vocabulary_size": len(WORDS)}
    )
    torch.manual_seed(3)
    model = BiLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    native.write(Checkpoint(config, tensors_of(model), WORDS), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def slow(folder: Path, tmp_path: Path) -> Slow:
    """Each sentence's losses, (2, sentences), when the text is read in so many stretches."""
    checkpoint = native.read(folder)
    bilm.write(checkpoint, tmp_path / "published")
    arrays: dict[str, np.ndarray] = {}
    with h5py.File(tmp_path / "published" / "weights.hdf5") as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[...]}) if hasattr(item, "shape") else None
        )
    reference = Reference(read_json(tmp_path / "published" / "options.json"), arrays)
    weight = checkpoint.tensors["softmax.weight"].astype(np.float64)
    bias = checkpoint.tensors["softmax.bias"].astype(np.float64)

    def losses(stretches: int) -> np.ndarray:
        sums = np.zeros((2, len(SENTENCES)))
        for direction in range(2):
            pairs = []
            for index, words in enumerate(SENTENCES):
                line = ["<S>", *words, "</S>"]
                line = line[::-1] if direction else line
                pairs += [(index, a, b) for a, b in pairwise(line)]
            for row in range(stretches):
                stretch = pairs[row * len(pairs) // stretches : (row + 1) * len(pairs) // stretches]
                vectors = [reference.token_vector(word) for _, word, _ in stretch]
                outputs, _ = reference.direction(direction, vectors, reference.zeros()[direction])
                for (index, _, target), top in zip(stretch, outputs[-1], strict=True):
                    logits = weight @ top + bias
                    expected = logits[WORDS.index(target if target in WORDS else "<UNK>")]
                    sums[direction, index] += np.log(np.exp(logits).sum()) - expected
        return sums

    return losses


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(words) + "\n" for words in SENTENCES))
    return path


@pytest.fixture
def corpus(text: Path, tmp_path: Path) -> Corpus:
    return prepare(
        str(text), tmp_path / "corpus", valid_fraction=0, tokenizer="whitespace", quiet=True
    )


@pytest.mark.parametrize("stretches", [1, 3])
def test_losses_are_those_of_one_token_at_a_time(
    folder: Path, slow: Slow, corpus: Corpus, stretches: int
) -> None:
    elmo = elmokit.load(folder)
    result, unknown = text_losses(elmo, corpus, carry=True, stretches=stretches)
    np.testing.assert_allclose(result, slow(stretches), rtol=2e-5)
    assert unknown == sum(word not in WORDS for words in SENTENCES for word in words) > 0


@pytest.mark.parametrize("rows", [1, 4])
def test_the_loss_that_is_trained_is_that_of_one_token_at_a_time(
    folder: Path, slow: Slow, corpus: Corpus, rows: int
) -> None:
    elmo = elmokit.load(folder)
    words = Vocabulary(WORDS)
    targets = corpus.types.ids_in(words)
    batcher = Batcher(corpus.types, targets, make_indexer(elmo.config, words), torch.device("cpu"))
    windows = Windows(corpus.train, rows=rows, unroll=6)
    state = BiLMState.zeros(elmo.config, rows, torch.device("cpu"))
    total = 0.0
    for step in range(windows.steps):
        loss, state = window_loss(elmo.model, batcher.batch(windows.window(0, step)), state)
        total += loss.item()
    assert total == pytest.approx(slow(rows).sum(), rel=1e-5)


def test_fresh_losses_are_those_of_each_sentence_alone(
    folder: Path, corpus: Corpus, text: Path
) -> None:
    elmo = elmokit.load(folder)
    result, _ = text_losses(elmo, corpus, carry=False)
    for index, words in enumerate(SENTENCES):
        (bits,) = elmo.surprisal([words])
        # a surprisal has every word, and leaves out the sentence's end and beginning
        assert (bits.forward.sum() * np.log(2), bits.backward.sum() * np.log(2)) < tuple(
            result[:, index]
        )
    average = elmo.perplexity(SENTENCES)
    tokens = sum(len(words) + 1 for words in SENTENCES)
    assert average.average == pytest.approx(np.exp(result.sum() / (2 * tokens)), rel=1e-6)
    assert average.tokens == tokens


def test_the_command_prints_and_writes_what_the_function_finds(
    folder: Path, slow: Slow, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "sentences.tsv"
    arguments = ["--tokenizer", "whitespace", "--stretches", "1", "--sentences", str(table)]
    assert main(["evaluate", str(folder), str(text), *arguments, "--quiet"]) == 0
    tokens = sum(len(words) + 1 for words in SENTENCES)
    forward, backward = np.exp(slow(1).sum(1) / tokens)
    printed = capsys.readouterr().out
    assert f"{forward:.2f}" in printed
    assert f"{backward:.2f}" in printed
    assert f"{np.sqrt(forward * backward):.2f}" in printed
    assert f"{tokens - len(SENTENCES)} words and {len(SENTENCES)} sentence ends" in printed
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    assert rows[0] == ["sentence", "tokens", "forward", "backward", "average", "text"]
    assert [row[5] for row in rows[1:]] == [" ".join(words) for words in SENTENCES]
    expected = np.exp(slow(1) / [len(words) + 1 for words in SENTENCES])
    np.testing.assert_allclose([float(row[2]) for row in rows[1:]], expected[0], rtol=1e-3)
    np.testing.assert_allclose([float(row[3]) for row in rows[1:]], expected[1], rtol=1e-3)


def bad_arguments(tmp_path: Path) -> dict[str, tuple[list[str], str]]:
    """Options that cannot work, and a part of what is said about them."""
    (tmp_path / "empty.txt").write_text("\n\n")
    return {
        "no such text": (["nothing.txt"], "there is no text at 'nothing.txt'"),
        "an empty text": (["empty.txt"], "no sentences"),
        "no stretches": (["text.txt", "--stretches", "0"], "stretches must be at least 1"),
        "no folder": (
            ["text.txt", "--sentences", "nowhere/a.tsv"],
            "nowhere to write nowhere/a.tsv",
        ),
    }


@pytest.mark.parametrize("case", ["no such text", "an empty text", "no stretches", "no folder"])
def test_what_cannot_be_evaluated_is_one_sentence(
    case: str,
    folder: Path,
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments, sentence = bad_arguments(tmp_path)[case]
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_a_model_without_a_softmax_says_so(folder: Path, corpus: Corpus) -> None:
    checkpoint = native.read(folder)
    tensors = {name: v for name, v in checkpoint.tensors.items() if "softmax" not in name}
    config = BiLMConfig.from_dict({**checkpoint.config.to_dict(), "vocabulary_size": 0})
    elmo = Embedder.from_pretrained(Checkpoint(config, tensors))
    with pytest.raises(ElmokitError, match="no softmax"):
        text_losses(elmo, corpus, carry=True)


def test_sentences_must_be_there(folder: Path) -> None:
    with pytest.raises(ElmokitError, match="no sentences"):
        elmokit.load(folder).perplexity([])
