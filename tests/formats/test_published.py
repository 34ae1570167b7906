"""Forms in which others published models: word tables, token vectors, NLPL, SeqVec."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from bundles import save_training, with_softmax
from many_langs_reference import make_many_langs
from published import META, save_nlpl, save_token_vectors
from reference import Reference, make_options, make_reference
from tiny import WORDS, complaint, difference

import elmokit
from elmokit.cli.main import main
from elmokit.formats import native
from elmokit.formats.detect import read_checkpoint

SENTENCE = ["the", "river", "bank", "xyz", "中文"]
CLOSE = 1e-5


@pytest.fixture
def on_words() -> Reference:
    return make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)


def put_table(path: Path, table: np.ndarray) -> None:
    """Another table in place of a file's."""
    with h5py.File(path, "a") as file:
        del file["embedding"]
        file["embedding"] = table.astype(np.float32)


def assert_same(path: Path, reference: Reference) -> None:
    result = elmokit.load(path).embed_tokens(SENTENCE).layers
    assert difference(result, reference.embed(SENTENCE)) < CLOSE


# ---------------------------------------------------------------------- models on words
@pytest.mark.parametrize(
    "name", ["vocab.txt", "vocab.txt.gz", "vocab_test.txt", "my-vocabulary.txt", "a.vocab.txt.gz"]
)
def test_a_vocabulary_is_found_by_its_name(tmp_path: Path, on_words: Reference, name: str) -> None:
    on_words.save(tmp_path)
    content = (tmp_path / "vocab.txt").read_bytes()
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "README.txt").write_text("not a list of words")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert_same(tmp_path, on_words)


def test_a_vocabulary_has_to_be_there_and_to_be_the_only_one(
    tmp_path: Path, on_words: Reference
) -> None:
    on_words.save(tmp_path)
    content = (tmp_path / "vocab.txt").read_bytes()
    (tmp_path / "old_vocab.txt").write_bytes(b"other\n")
    assert_same(tmp_path, on_words)  # vocab.txt comes first
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "new_vocab.txt").write_bytes(content)
    sentence = complaint(lambda: elmokit.load(tmp_path))
    assert "needs its vocabulary" in sentence
    assert "new_vocab.txt, old_vocab.txt" in sentence
    for path in tmp_path.glob("*vocab*"):
        path.unlink()
    sentence = complaint(lambda: elmokit.load(tmp_path))
    assert sentence.endswith(f"needs its vocabulary: there is no {tmp_path / 'vocab.txt'}")


@pytest.mark.parametrize("padding", ["zeros", "numbers"])
def test_a_table_may_begin_with_a_row_for_padding(
    tmp_path: Path, on_words: Reference, padding: str
) -> None:
    weights = on_words.save(tmp_path)
    table = on_words.stored["embedding"]
    row = np.zeros((1, table.shape[1])) if padding == "zeros" else np.ones((1, table.shape[1]))
    put_table(weights, np.concatenate([row, table]))
    assert_same(tmp_path, on_words)
    assert read_checkpoint(tmp_path).config.n_words == len(WORDS)


def test_a_vocabulary_that_lacks_a_word_is_not_padding(tmp_path: Path, on_words: Reference) -> None:
    on_words.save(tmp_path)
    text = (tmp_path / "vocab.txt").read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(text.replace("river\n", ""), encoding="utf-8")
    sentence = complaint(lambda: elmokit.load(tmp_path))
    assert "vocabulary has 8 words but the table of word vectors has 9" in sentence


@pytest.mark.parametrize("more", [-2, -1, 2])
def test_any_other_number_of_rows_is_refused(
    tmp_path: Path, on_words: Reference, more: int
) -> None:
    weights = on_words.save(tmp_path)
    put_table(weights, np.ones((len(WORDS) + more, 6)))
    sentence = complaint(lambda: elmokit.load(tmp_path))
    assert f"9 words but the table of word vectors has {len(WORDS) + more}" in sentence


def test_a_damaged_packed_vocabulary_is_refused(tmp_path: Path, on_words: Reference) -> None:
    on_words.save(tmp_path)
    packed = gzip.compress((tmp_path / "vocab.txt").read_bytes())
    (tmp_path / "vocab.txt").unlink()
    for content in (b"", packed[:-9], packed[:12] + b"\xff\xff" + packed[14:], b"plain text"):
        (tmp_path / "vocab.txt.gz").write_bytes(content)
        assert "vocab.txt.gz" in complaint(lambda: elmokit.load(tmp_path))


def test_a_checkpoint_takes_its_words_from_a_packed_list(tmp_path: Path) -> None:
    save_training(with_softmax(make_reference()), tmp_path)
    (tmp_path / "vocab.txt.gz").write_bytes(gzip.compress((tmp_path / "vocab.txt").read_bytes()))
    (tmp_path / "vocab.txt").unlink()
    result = read_checkpoint(tmp_path)
    assert result.vocabulary == WORDS
    assert result.config.vocabulary_size == len(WORDS)


# ---------------------------------------------------------------------- token vectors
@pytest.mark.parametrize("padding", [False, True])
def test_token_vectors_and_the_layers_beside_them_are_a_model_on_words(
    tmp_path: Path, padding: bool
) -> None:
    reference = make_reference()
    path = save_token_vectors(reference, tmp_path, padding=padding)
    elmo = elmokit.load(path)
    assert elmo.config.token_encoder == "words"
    assert elmo.config.n_words == len(WORDS)
    known = ["the", "中文", "bank"]
    assert difference(elmo.embed_tokens(known).layers, reference.embed(known)) < CLOSE
    unknown = elmo.embed_tokens(["the", "xyz"]).layers
    assert difference(unknown, reference.embed(["the", "<UNK>"])) < CLOSE
    assert elmo.metadata["layers_from"] == "weights.hdf5"
    with_characters = elmokit.load(tmp_path / "weights.hdf5")  # the weights are what they were
    assert with_characters.config.token_encoder == "characters"


def test_token_vectors_become_a_folder_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_token_vectors(make_reference(), tmp_path / "cached")
    for to in ("native", "bilm"):
        assert main(["convert", str(path), str(tmp_path / to), "--to", to]) == 0
        result = read_checkpoint(tmp_path / to)
        assert result.vocabulary == WORDS
        assert result.fingerprint() == read_checkpoint(path).fingerprint()
    assert "on 9 words, no softmax" in capsys.readouterr().out


def test_token_vectors_of_the_original_give_its_layers(shared: Path) -> None:
    golden = shared / "golden" / "bilm"
    elmo = elmokit.load(golden / "elmo_token_embeddings.hdf5", tokenizer="whitespace")
    assert elmo.config.n_words == 458
    lines = (golden / "sentences.txt").read_text(encoding="utf-8").splitlines()[:10]
    compared = 0
    with h5py.File(golden / "expected_embeddings.hdf5") as file:
        for i, line in enumerate(lines):
            if all(word in elmo.vocabulary for word in line.split()):  # type: ignore[operator]
                result, expected = elmo.embed(line).layers, file[str(i)][...]
                np.testing.assert_allclose(result, expected, atol=1e-6, rtol=2.4e-7)
                compared += 1
    assert compared


def test_token_vectors_need_weights_and_a_vocabulary(tmp_path: Path) -> None:
    path = save_token_vectors(make_reference(), tmp_path)
    (tmp_path / "vocab.txt").rename(tmp_path / "aside")
    assert "needs its vocabulary" in complaint(lambda: elmokit.load(path))
    (tmp_path / "aside").rename(tmp_path / "vocab.txt")
    (tmp_path / "more.hdf5").write_bytes((tmp_path / "weights.hdf5").read_bytes())
    sentence = complaint(lambda: elmokit.load(path))
    assert "several files beside it have layers: more.hdf5, weights.hdf5; " in sentence
    for name in ("more.hdf5", "weights.hdf5"):
        (tmp_path / name).unlink()
    assert "put the weights file of its model beside it" in complaint(lambda: elmokit.load(path))


def test_token_vectors_of_another_model_are_refused(tmp_path: Path) -> None:
    path = save_token_vectors(make_reference(), tmp_path)
    put_table(path, np.ones((len(WORDS), 7)))
    sentence = complaint(lambda: elmokit.load(path))
    assert "'embedding' has the shape [9, 7] but its options need [9, 6]" in sentence


# ---------------------------------------------------------------------- NLPL
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("on", ["characters", "words"])
def test_a_numbered_archive_is_loaded(
    tmp_path: Path, on_words: Reference, on: str, packed: bool
) -> None:
    reference = on_words if on == "words" else make_reference()
    reference.save(tmp_path / "model")
    assert_same(save_nlpl(tmp_path / "217.zip", tmp_path / "model", packed=packed), reference)


def test_what_the_archive_says_of_the_model_is_kept_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_reference().save(tmp_path / "model")
    path = save_nlpl(tmp_path / "217.zip", tmp_path / "model")
    assert elmokit.load(path).metadata["meta"] == META
    assert main(["convert", str(path), str(tmp_path / "native")]) == 0
    assert read_checkpoint(tmp_path / "native").metadata["meta"] == META
    for model in (path, tmp_path / "native"):
        capsys.readouterr()
        assert main(["info", str(model)]) == 0
        shown = capsys.readouterr().out
        assert 'meta         language: "Norwegian Bokmål"\n' in shown
        assert "1000" in shown
    assert main(["info", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["meta"] == META


def test_a_damaged_archive_is_refused_in_one_line(tmp_path: Path) -> None:
    make_reference().save(tmp_path / "model")
    path = save_nlpl(tmp_path / "217.zip", tmp_path / "model")
    content = path.read_bytes()
    for damaged in (b"", content[:-30], content[:1000], bytes(1000), content[5:]):
        path.write_bytes(damaged)
        sentence = complaint(lambda: read_checkpoint(path))
        assert "217.zip" in sentence
        assert "\n" not in sentence


def test_a_folder_of_many_languages_keeps_it_too(tmp_path: Path) -> None:
    folder = make_many_langs().save(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps(META), encoding="utf-8")
    assert read_checkpoint(folder).metadata["meta"] == META


@pytest.mark.parametrize("content", ["", "[1, 2]", "{", "\x00"])
def test_another_meta_json_is_ignored(tmp_path: Path, content: str) -> None:
    make_reference().save(tmp_path)
    (tmp_path / "meta.json").write_text(content)
    assert "meta" not in read_checkpoint(tmp_path).metadata


def test_metadata_of_any_kind_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = read_checkpoint(make_reference().save(tmp_path / "model"))
    result.metadata["meta"] = "only a word"
    native.write(result, tmp_path / "native")
    assert main(["info", str(tmp_path / "native")]) == 0
    assert 'meta         "only a word"' in capsys.readouterr().out


# ---------------------------------------------------------------------- SeqVec
def test_residues_of_a_protein_are_words(tmp_path: Path) -> None:
    reference = make_reference()
    elmo = elmokit.load(reference.save(tmp_path))
    protein = "SEQWENCEX"
    result = elmo.embed_tokens(list(protein), layers=[1, 1, 1])  # the sum of the layers
    expected = reference.embed(list(protein)).sum(axis=0)
    assert difference(result.vectors, expected) < CLOSE
    [whole] = elmo.sentence_vectors([list(protein)], layers=[1, 1, 1])
    assert difference(whole, expected.mean(axis=0)) < CLOSE
