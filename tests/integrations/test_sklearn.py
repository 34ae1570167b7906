"""`ElmoVectorizer` and `ElmoTokenFeatures` inside scikit-learn itself."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_hub import FakeHub
from reference import make_reference

import elmokit
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.loading import load

pytest.importorskip("sklearn", reason="scikit-learn is not installed: elmokit[sklearn]")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.utils.estimator_checks import check_estimator

from elmokit.integrations.sklearn import ElmoTokenFeatures, ElmoVectorizer

TEXTS = ["the river bank", "a bank of money", "naïve 中文", "", "the river", "money money"] * 3
LABELS = [1, 0, 0, 0, 1, 0] * 3


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The path of a tiny model."""
    return str(make_reference().save(tmp_path / "model"))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that are loaded from now on."""
    names: list[str] = []

    def noted(model: str, **settings: Any) -> Embedder:
        names.append(model)
        return load(model, **settings)

    monkeypatch.setattr("elmokit.integrations.models.load", noted)
    return names


@pytest.mark.parametrize("layers", ["average", "top", 0, "all", [0.5, 0.5, 0.0]])
@pytest.mark.parametrize("pooling", ["mean", "ends"])
def test_vectors_are_those_of_the_embedder(model: str, layers: Any, pooling: Any) -> None:
    expected = elmokit.load(model).sentence_vectors(TEXTS, layers, pooling=pooling)
    vectorizer = ElmoVectorizer(model, layers=layers, pooling=pooling)
    result = vectorizer.fit_transform(TEXTS)
    assert np.array_equal(result, expected)
    assert len(vectorizer.get_feature_names_out()) == expected.shape[1]


def test_the_mean_vector_is_that_of_the_reference(model: str) -> None:
    layers = make_reference().embed(["the", "river"])
    result = ElmoVectorizer(model).fit(TEXTS).transform(["the river"])
    assert np.abs(result[0] - layers.mean(axis=(0, 1))).max() < 1e-5


def test_tokens_arrays_and_series_give_the_same_vectors(model: str) -> None:
    pandas = pytest.importorskip("pandas")
    texts = ["the river bank", "money"]
    vectorizer = ElmoVectorizer(model).fit(texts)
    expected = vectorizer.transform(texts)
    for same in (
        tuple(texts),
        np.array(texts),
        np.array(texts, object),
        pandas.Series(texts, index=[7, 3]),
        [["the", "river", "bank"], ["money"]],
        iter(texts),
    ):
        assert np.array_equal(vectorizer.transform(same), expected)
    assert vectorizer.transform([]).shape == (0, 12)


@pytest.mark.parametrize("kind", [ElmoVectorizer, ElmoTokenFeatures])
def test_what_is_not_a_list_of_texts_is_refused(model: str, kind: Any) -> None:
    pandas = pytest.importorskip("pandas")
    fitted = kind(model).fit([["a"]])
    for wrong in ("one string", b"bytes", 3, np.array([["a"]]), pandas.DataFrame({"a": ["b"]})):
        for method in (fitted.transform, kind(model).fit):
            with pytest.raises(ValueError, match="texts must be a list, an array or a Series"):
                method(wrong)
    with pytest.raises(ValueError, match="a text is a string or a list of tokens, not nan"):
        ElmoVectorizer(model).fit_transform(pandas.Series(["a", float("nan")]))


def test_wrong_settings_are_reported_by_fit(model: str) -> None:
    for settings, message in (
        ({"pooling": "median"}, "pooling must be one of"),
        ({"layers": 3}, "there is no layer 3"),
        ({"precision": "float8"}, "precision must be one of"),
        ({"tokenizer": "words"}, "tokenizer must be one of"),
    ):
        with pytest.raises(ElmokitError, match=message):
            ElmoVectorizer(model, **settings).fit(TEXTS)
    with pytest.raises(ElmokitError, match="no-such-model"):
        ElmoVectorizer("./no-such-model").fit(TEXTS)
    with pytest.raises(NotFittedError):
        ElmoVectorizer(model).transform(TEXTS)


def test_clones_share_one_loaded_model(model: str, loads: list[str]) -> None:
    vectorizer = ElmoVectorizer(model, layers="top").fit(TEXTS)
    copy = clone(vectorizer)
    assert copy.get_params() == vectorizer.get_params()
    assert not hasattr(copy, "fingerprint_")
    assert np.array_equal(copy.fit_transform(TEXTS), vectorizer.transform(TEXTS))
    ElmoTokenFeatures(model).fit([["a"]])
    assert loads == [model]


def test_a_grid_search_over_layers_and_pooling_loads_the_model_once(
    model: str, loads: list[str]
) -> None:
    pipeline = make_pipeline(ElmoVectorizer(model), LogisticRegression(C=1000))
    grid = {"elmovectorizer__layers": [0, "top"], "elmovectorizer__pooling": ["mean", "max"]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(TEXTS, LABELS)
    assert search.best_score_ > 0.9
    assert np.array_equal(search.predict(TEXTS), LABELS)
    assert loads == [model]


@pytest.mark.slow  # Each process imports torch.
def test_a_grid_search_in_two_processes_finds_the_same(model: str) -> None:
    pipeline = make_pipeline(ElmoVectorizer(model), LogisticRegression(C=1000))
    grid = {"elmovectorizer__layers": [0, "top"]}
    results = [
        GridSearchCV(pipeline, grid, cv=3, n_jobs=jobs).fit(TEXTS, LABELS).cv_results_
        for jobs in (1, 2)
    ]
    scores = [result["mean_test_score"] for result in results]
    assert np.allclose(*scores)


def test_a_fitted_pipeline_is_a_pickle_of_kilobytes_that_other_processes_load(
    model: str, tmp_path: Path
) -> None:
    pipeline = make_pipeline(ElmoVectorizer(model), LogisticRegression(C=1000)).fit(TEXTS, LABELS)
    content = pickle.dumps(pipeline)
    assert len(content) < 4096
    (tmp_path / "pipeline.pickle").write_bytes(content)
    code = (
        "import pickle, sys; from pathlib import Path\n"
        "print(pickle.loads(Path(sys.argv[1]).read_bytes()).predict(sys.argv[2:]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "pipeline.pickle"), *TEXTS[:3]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1 0 0]"


@pytest.mark.parametrize("kind", [ElmoVectorizer, ElmoTokenFeatures])
def test_fit_asks_the_hub_once_and_an_unpickled_transformer_never(hub: FakeHub, kind: Any) -> None:
    fitted = kind("bank/river").fit([["the", "river"]])
    expected = fitted.transform([["the", "river"]])
    clone(fitted).fit([["the", "river"]])
    assert hub.asked == ["bank/river"]
    content = pickle.dumps(fitted)
    hub.forget()
    again = pickle.loads(content)
    with pytest.raises(ElmokitError, match="a model that only a file names is not downloaded"):
        again.transform([["the", "river"]])
    hub.has_cached = True
    assert np.array_equal(again.transform([["the", "river"]]), expected)
    assert hub.asked == []


def test_a_changed_model_is_loaded_again_and_rejected_until_it_is_fitted(model: str) -> None:
    fitted = ElmoVectorizer(model).fit(TEXTS)
    before = fitted.transform(TEXTS)
    make_reference(seed=1).save(Path(model).parent)
    with pytest.raises(ElmokitError, match="is not the one that this object was made with"):
        fitted.transform(TEXTS)
    after = fitted.fit(TEXTS).transform(TEXTS)
    assert np.abs(after - before).max() > 0.01


def test_output_can_be_a_table_with_names(model: str) -> None:
    pytest.importorskip("pandas")
    vectorizer = ElmoVectorizer(model).set_output(transform="pandas")
    table = vectorizer.fit_transform(TEXTS)
    assert list(table.columns) == [f"elmovectorizer{column}" for column in range(12)]
    assert (table.dtypes == "float32").all()
    assert np.array_equal(table.to_numpy(), ElmoVectorizer(model).fit_transform(TEXTS))


def test_vectors_stand_beside_other_features(model: str) -> None:
    union = make_union(ElmoVectorizer(model), TfidfVectorizer())
    features = union.fit_transform(TEXTS)
    names = list(union.get_feature_names_out())
    assert features.shape == (len(TEXTS), len(names))
    assert {"elmovectorizer__elmovectorizer0", "tfidfvectorizer__river"} <= set(names)


def test_a_pipeline_with_memory_embeds_once(model: str, tmp_path: Path) -> None:
    def make() -> Any:
        steps = (ElmoVectorizer(model), LogisticRegression(C=1000))
        return make_pipeline(*steps, memory=str(tmp_path / "memory"))

    first = make().fit(TEXTS, LABELS)
    files = sorted((tmp_path / "memory").rglob("output.pkl"))
    assert np.array_equal(make().fit(TEXTS, LABELS).predict(TEXTS), first.predict(TEXTS))
    assert sorted((tmp_path / "memory").rglob("output.pkl")) == files
    assert len(files) == 1


def test_scikit_learn_accepts_the_estimators() -> None:
    for estimator in (ElmoVectorizer(), ElmoTokenFeatures()):
        with pytest.warns(Warning, match="Can't test estimator"):
            check_estimator(estimator)


def test_token_features_are_a_dict_for_each_token(model: str) -> None:
    sentences = [["the", "river", "bank"], [], ["中文"]]
    result = ElmoTokenFeatures(model, layers="top").fit_transform(sentences)
    assert [len(sentence) for sentence in result] == [3, 0, 1]
    expected = make_reference().embed(sentences[0])[-1]
    for features, vector in zip(result[0], expected, strict=True):
        assert list(features) == [f"elmo_{column}" for column in range(12)]
        assert all(type(value) is float for value in features.values())
        assert np.abs(np.array(list(features.values())) - vector).max() < 1e-5
    both = ElmoTokenFeatures(model, layers="all").fit_transform(sentences)
    layers = make_reference().embed(sentences[0])  # (layers, tokens, dim)
    assert np.abs(np.array(list(both[0][1].values())) - layers[:, 1].reshape(-1)).max() < 1e-5


def test_a_sentence_that_is_a_string_is_refused(model: str) -> None:
    with pytest.raises(ElmokitError, match="give a sentence as a list of tokens"):
        ElmoTokenFeatures(model).fit(["the river"])
    with pytest.raises(ElmokitError, match="give a sentence as a list of tokens"):
        ElmoTokenFeatures(model).fit([["a"]]).transform(["the river"])


def test_a_classifier_of_tokens_learns_from_the_dicts(model: str) -> None:
    sentences, tags = [["the", "river"], ["a", "bank"], ["the", "bank"]], [[0, 1]] * 3
    features = ElmoTokenFeatures(model).fit_transform(sentences)
    rows = [token for sentence in features for token in sentence]
    classifier = make_pipeline(DictVectorizer(), LogisticRegression(C=100))
    flat = [tag for sentence in tags for tag in sentence]
    assert classifier.fit(rows, flat).score(rows, flat) == 1


def test_a_crf_learns_from_the_dicts(model: str) -> None:
    crfsuite = pytest.importorskip("sklearn_crfsuite", reason="sklearn-crfsuite is not installed")
    sentences, tags = [["the", "river"], ["a", "bank"], ["the", "bank"]], [["O", "B"]] * 3
    features = ElmoTokenFeatures(model).fit_transform(sentences)
    crf = crfsuite.CRF(c1=0.0, c2=0.01, max_iterations=50).fit(features, tags)
    assert [list(row) for row in crf.predict(features)] == tags
