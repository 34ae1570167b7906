"""The exceptions: one sentence each, and standard exceptions as well."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import softmax_elmo

import elmokit
from elmokit import ScalarMix
from elmokit.errors import (
    ElmokitError,
    InvalidInput,
    MissingExtra,
    MissingFile,
    UnsupportedFormat,
)
from elmokit.text.readers import read_sentences

STANDARD = {
    InvalidInput: ValueError,
    MissingFile: FileNotFoundError,
    UnsupportedFormat: ValueError,
    MissingExtra: ImportError,
}


@pytest.mark.parametrize("kind", STANDARD)
def test_each_kind_is_also_a_standard_exception(kind: type[ElmokitError]) -> None:
    for caught in (ElmokitError, STANDARD[kind]):
        with pytest.raises(caught):
            raise kind("a sentence")


@pytest.mark.parametrize("kind", [ElmokitError, *STANDARD])
def test_its_text_is_the_sentence_alone(kind: type[ElmokitError]) -> None:
    sentence = "there is no file 'a: b' [Errno 2]; give another"
    error = kind(sentence)
    assert str(error) == sentence
    copy = pickle.loads(pickle.dumps(error))  # As it comes back from a worker process.
    assert (type(copy), str(copy)) == (kind, sentence)


@pytest.mark.parametrize(
    ("standard", "call"),
    [
        (FileNotFoundError, lambda _: elmokit.load("/nowhere")),
        (FileNotFoundError, lambda _: list(read_sentences("nothing.txt"))),
        (FileNotFoundError, lambda _: list(elmokit.analysis.read_uses("nothing.tsv"))),
        (FileNotFoundError, lambda elmo: elmo.save_pretrained("nowhere/model")),
        (ValueError, lambda elmo: elmo.embed("a", layers=9)),
        (ValueError, lambda elmo: elmo.sentence_vectors("a", pooling="least")),
        (ValueError, lambda elmo: elmo.fill("no gap")),
        (ValueError, lambda _: ScalarMix(3, initial=[1.0])),
        (ValueError, lambda elmo: elmo.embed_batch([["a"]], state="keep")),
    ],
)
def test_callers_catch_what_they_would_expect(
    standard: type[Exception],
    call: Callable[[elmokit.Embedder], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(standard) as caught:
        call(softmax_elmo())
    assert isinstance(caught.value, ElmokitError)
