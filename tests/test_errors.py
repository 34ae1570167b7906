"""The exceptions: one sentence each, and standard exceptions as well."""

from __future__ import annotations

import pickle

import pytest

from elmokit.errors import (
    ElmokitError,
    InvalidInput,
    MissingExtra,
    MissingFile,
    UnsupportedFormat,
)

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
