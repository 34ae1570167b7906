"""Uses of words: how they are read, their vectors, and the numbers that compare them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT
from tiny import complaint, tiny_elmo

from elmokit.analysis.uses import (
    Use,
    embed_uses,
    layer_names,
    marked_use,
    principal_components,
    purity,
    read_uses,
    silhouette,
    similarities,
    unit,
)
from elmokit.embed import Embedder
from elmokit.store import LayerStore
from elmokit.text.tokenize import tokenize


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return tiny_elmo()


def clouds(seed: int = 0, spread: float = 0.8) -> tuple[np.ndarray, list[str]]:
    """Two layers of 30 vectors in three groups of different sizes."""
    rng = np.random.default_rng(seed)
    labels = ["a"] * 15 + ["b"] * 10 + ["c"] * 5
    middle = {label: rng.normal(size=(2, 1, 8)) for label in "abc"}
    vectors = np.concatenate([middle[label] for label in labels], axis=1)
    return (vectors + spread * rng.normal(size=vectors.shape)).astype(np.float32), labels


# ---------------------------------------------------------------------- reading
def test_a_table_gives_words_with_their_places_and_senses(tmp_path: Path) -> None:
    path = tmp_path / "uses.tsv"
    path.write_text(
        "sentence\tposition\tsense\tlemma\n"
        "We saw the Bank .\t3\tmoney\n"
        "\n"
        "They live in New York City .\t3-5\tplace\tnew york\r\n"
        "她 去 了 银行 。\t3\t钱\t\n",
        encoding="utf-8",
    )
    uses = list(read_uses(path))
    assert uses == [
        Use(("We", "saw", "the", "Bank", "."), 3, 4, "bank", "money"),
        Use(("They", "live", "in", "New", "York", "City", "."), 3, 6, "new york", "place"),
        Use(("她", "去", "了", "银行", "。"), 3, 4, "银行", "钱"),
    ]
    assert uses[1].marked() == "They live in [New York City] ."
    assert [use.lemma for use in read_uses(path, lemmas=["bank", "银行"])] == ["bank", "银行"]


def test_a_table_may_be_compressed_and_without_names(tmp_path: Path) -> None:
    path = tmp_path / "uses.tsv.gz"
    path.write_bytes(gzip.compress(b"the bank .\t1\tmoney\n"))
    assert list(read_uses(path)) == [Use(("the", "bank", "."), 1, 2, "bank", "money")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("the bank .\t1", "the line has 2 columns; there must be a sentence, a position, a sense"),
        ("the bank .\t1\tmoney\tbank\tmore", "the line has 5 columns"),
        ("the bank .\tone\tmoney", "'one' is no position"),
        ("the bank .\t1-x\tmoney", "'1-x' is no position"),
        ("the bank .\t3\tmoney", "the sentence has 3 tokens, none at 3"),
        ("the bank .\t-1\tmoney", "is no position"),
        ("the bank .\t2-1\tmoney", "the sentence has 3 tokens, none at 2-1"),
        ("\t0\tmoney", "the sentence has 0 tokens, none at 0"),
        ("the bank .\t1\t ", "the sense is empty"),
        ("the b\udcffnk .\t1\tmoney", "the line is not UTF-8"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "uses.tsv"
    path.write_bytes(f"the bank .\t1\tmoney\n{line}\n".encode(errors="surrogateescape"))
    said = complaint(lambda: list(read_uses(path)))
    assert said.startswith(f"{path}, line 2: ")
    assert reason in said


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    assert complaint(lambda: list(read_uses(tmp_path / "no.tsv"))).startswith("there is no file")
    (tmp_path / "binary.tsv").write_bytes(bytes(range(256)))
    assert "binary file" in complaint(lambda: list(read_uses(tmp_path / "binary.tsv")))
    (tmp_path / "empty.tsv").write_text("")
    assert list(read_uses(tmp_path / "empty.tsv")) == []


def test_a_sentence_marks_its_word_with_asterisks() -> None:
    use = marked_use("She sat on the river *bank*.", tokenize, "river")
    assert use == Use(("She", "sat", "on", "the", "river", "bank", "."), 5, 6, "bank", "river")
    two = marked_use("They live in *New York* now .", tokenize)
    assert (two.start, two.end, two.lemma, two.sense) == (3, 5, "new york", "")
    chinese = marked_use("她去了*银行*。", lambda text: list(text))
    assert chinese == Use(tuple("她去了银行。"), 3, 5, "银 行", "")
    for wrong in ("no mark", "one * mark", "a ** b", "a * * b", "*a* and *b*"):
        assert repr(wrong) in complaint(lambda wrong=wrong: marked_use(wrong, tokenize))


def test_the_examples_have_three_words_with_two_senses_in_14_sentences_each() -> None:
    uses = list(read_uses(ROOT / "examples" / "senses.tsv"))
    kinds = [(use.lemma, use.sense) for use in uses]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        ("bank", "river"): 14,
        ("bank", "money"): 14,
        ("play", "theatre"): 14,
        ("play", "sport"): 14,
        ("cell", "biology"): 14,
        ("cell", "prison"): 14,
    }
    assert len({use.tokens for use in uses}) == 84
    for use in uses:  # so that layer 0 has one vector for all
        assert use.tokens[use.start : use.end] == (use.lemma,)
        assert use.tokens.count(use.lemma) == 1


# ---------------------------------------------------------------------- vectors
def test_a_use_has_the_vectors_of_its_tokens_and_their_average(
    elmo: Embedder, tmp_path: Path
) -> None:
    uses = [
        Use(("the", "river", "bank", "."), 2, 3, "bank"),
        Use(("in", "New", "York", "City"), 1, 4, "new york city"),
    ]
    vectors, mean = embed_uses(LayerStore(elmo, folder=tmp_path), uses)
    assert vectors.shape == (4, 2, 12)
    assert mean.shape == (4, 1, 12)
    first, second = (elmo.embed_tokens(list(use.tokens)).layers for use in uses)  # (3, tokens, 12)
    near = {"rtol": 2e-3, "atol": 2e-3}  # float16
    np.testing.assert_allclose(vectors[:3, 0], first[:, 2], **near)
    np.testing.assert_allclose(vectors[:3, 1], second[:, 1:4].mean(axis=1), **near)
    np.testing.assert_allclose(vectors[3, 0], first[:, 2].mean(axis=0), **near)
    every = np.concatenate([first, second], axis=1)  # all 8 tokens
    np.testing.assert_allclose(mean[:3, 0], every.mean(axis=1), **near)
    np.testing.assert_allclose(mean[3, 0], every.mean(axis=(0, 1)), **near)
    assert layer_names(2) == ["layer 0", "layer 1", "layer 2", "average"]


# ---------------------------------------------------------------------- how alike they are
def test_cosines_are_those_of_scikit_learn() -> None:
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    vectors, _ = clouds()
    for layer, found in zip(vectors, similarities(vectors), strict=True):
        np.testing.assert_allclose(found, pairwise.cosine_similarity(layer), atol=1e-5)
    assert not unit(np.zeros((1, 3), np.float32)).any()  # and no warning


@pytest.mark.parametrize("spread", [0.1, 0.8, 3.0])
def test_the_silhouette_is_that_of_scikit_learn(spread: float) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    vectors, labels = clouds(spread=spread)
    found = silhouette(similarities(vectors), labels)
    expected = [metrics.silhouette_score(layer, labels, metric="cosine") for layer in vectors]
    np.testing.assert_allclose(found, expected, atol=2e-3 if spread == 0.1 else 1e-5)


def test_a_label_that_is_alone_has_silhouette_0_as_in_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    vectors, labels = clouds()
    labels = [*labels[:-1], "alone"]
    found = silhouette(similarities(vectors), labels)
    expected = [metrics.silhouette_score(layer, labels, metric="cosine") for layer in vectors]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_silhouette_of_a_case_made_by_hand() -> None:
    cosines = np.array([[[1, 0.9, 0.2], [0.9, 1, 0.4], [0.2, 0.4, 1]]], np.float32)
    # distances: own 0.1, other 0.8; own 0.1, other 0.6; and one that is alone
    expected = ((0.8 - 0.1) / 0.8 + (0.6 - 0.1) / 0.6 + 0) / 3
    assert silhouette(cosines, ["a", "a", "b"]) == pytest.approx([expected])
    assert complaint(lambda: silhouette(cosines, ["a", "a", "a"])) == (
        "a silhouette needs at least two labels"
    )


@pytest.mark.parametrize("spread", [0.1, 0.8, 3.0])
def test_purity_is_what_leaving_one_out_finds_with_scikit_learns_nearest_neighbour(
    spread: float,
) -> None:
    neighbors = pytest.importorskip("sklearn.neighbors")
    vectors, labels = clouds(spread=spread)
    found = purity(similarities(vectors), labels)
    for layer, share in zip(vectors, found, strict=True):
        nearest = neighbors.NearestNeighbors(n_neighbors=1, metric="cosine").fit(layer)
        (others,) = nearest.kneighbors(return_distance=False).T  # a point is not its own neighbour
        right = np.mean([labels[i] == labels[other] for i, other in enumerate(others)])
        assert share == pytest.approx(right, abs=0.04 if spread == 0.1 else 1e-6)


def test_where_all_uses_have_one_vector_the_numbers_are_those_of_guessing() -> None:
    one = np.random.default_rng(0).normal(size=(1, 1, 64)).astype(np.float32)
    vectors = np.repeat(one, 28, axis=1)
    labels = ["river"] * 14 + ["money"] * 14
    assert purity(similarities(vectors), labels) == pytest.approx([13 / 27])
    assert silhouette(similarities(vectors), labels) == pytest.approx([0])
    labels = ["river"] * 20 + ["money"] * 8
    guess = (20 * 19 + 8 * 7) / (28 * 27)
    assert purity(similarities(vectors), labels) == pytest.approx([guess])


def test_principal_components_are_those_of_scikit_learn() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    vectors, _ = clouds()
    points, shares = principal_components(vectors[0])
    reference = decomposition.PCA(2, svd_solver="full").fit(vectors[0])
    np.testing.assert_allclose(shares, reference.explained_variance_ratio_, rtol=1e-4)
    expected = reference.transform(vectors[0])
    signs = np.sign((points * expected).sum(axis=0))  # a component may point either way
    np.testing.assert_allclose(points * signs, expected, atol=1e-4)
