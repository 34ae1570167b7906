"""The pipe `elmo` and the layer `elmokit.ElmoTok2Vec.v1` inside spaCy itself."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import ROOT
from fake_hub import FakeHub
from reference import make_reference
from tiny import difference

from elmokit.errors import ElmokitError

pytest.importorskip("spacy", reason="spaCy is not installed: elmokit[spacy]")

import spacy
from spacy.cli.train import train
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import load_config, registry

from elmokit.integrations.spacy import build_tok2vec, set_hooks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:spacy.*")

REFERENCE = make_reference()
WORDS = ["The", "naïve", "bank", "\n ", "closed", ".", "Why", "?"]
SENTENCES = [[0, 1, 2, 4, 5], [6, 7]]  # positions; the line break is not read


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a tiny model."""
    return str(REFERENCE.save(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def nlp(model: str) -> Any:
    """A pipeline with the pipe, which keeps the average of the layers."""
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": model})
    return nlp


def make_doc(nlp: Any) -> Doc:
    return Doc(nlp.vocab, words=WORDS)


def expected_layers() -> np.ndarray:
    """The layers of WORDS, sentence by sentence: (layers, tokens, dim)."""
    layers = np.zeros((3, len(WORDS), 12))
    for positions in SENTENCES:
        layers[:, positions] = REFERENCE.embed([WORDS[i] for i in positions])
    return layers


def test_vectors_are_those_of_the_reference_sentence_by_sentence(nlp: Any, model: str) -> None:
    doc = nlp(make_doc(nlp))
    assert difference(doc.tensor, expected_layers().mean(axis=0)) < 1e-5
    assert difference(doc._.elmo, expected_layers().mean(axis=0)[None]) < 1e-5
    assert not doc.tensor[3].any()
    other = spacy.blank("en")
    other.add_pipe("elmo", config={"model": model, "layers": "top", "keep_layers": True})
    doc = other(make_doc(other))  # No sentences are known: the document is one.
    words = [word for word in WORDS if word.strip()]
    layers = REFERENCE.embed(words)
    assert difference(np.delete(doc._.elmo, 3, axis=1), layers) < 1e-5
    assert difference(np.delete(doc.tensor, 3, axis=0), layers[-1]) < 1e-5


def test_tokens_spans_and_documents_have_vectors(nlp: Any) -> None:
    doc, vectors = nlp(make_doc(nlp)), expected_layers().mean(axis=0)
    rows = np.delete(vectors, 3, axis=0)
    for item, expected in (
        (doc[2], vectors[2]),
        (doc[0:2], vectors[0:2].mean(axis=0)),
        (doc[2:5], vectors[[2, 4]].mean(axis=0)),
        (doc, rows.mean(axis=0)),
    ):
        assert difference(item.vector, expected) < 1e-5
        assert abs(item.vector_norm - np.linalg.norm(expected)) < 1e-5
        assert item.has_vector
    for empty in (doc[3], doc[3:4], doc[2:2], nlp("")):
        assert not empty.has_vector
        assert empty.similarity(doc[2]) == 0
        assert empty.vector.shape == (12,)


def test_similarity_depends_on_the_context(nlp: Any) -> None:
    one, two = nlp("The bank closed."), nlp("He sat on the bank.")
    for item, other in ((one[1], two[4]), (one[0:2], two[3:5]), (one, two), (one[1], two)):
        a, b = item.vector, other.vector
        expected = a @ b / np.sqrt((a @ a) * (b @ b))
        assert item.similarity(other) == pytest.approx(expected, abs=1e-6)
        assert item.similarity(item) == pytest.approx(1)
    assert one[1].text == two[4].text
    assert one[1].similarity(two[4]) < 0.9999
    with pytest.raises(ElmokitError, match="'bank' has no ELMo vector to compare with"):
        one[1].similarity(nlp.vocab["bank"])


def test_a_stream_gives_the_same_as_single_documents(nlp: Any) -> None:
    texts = ["The bank closed.", "", "Why? He sat.", "naïve 中文"] * 3
    for doc, text in zip(nlp.pipe(texts, batch_size=5), texts, strict=True):
        assert doc.text == text
        assert difference(doc.tensor, nlp(text).tensor) < 1e-6


def test_parts_and_copies_of_a_document_keep_their_vectors(nlp: Any) -> None:
    doc = nlp(make_doc(nlp))
    part = doc[4:6].as_doc()
    assert np.array_equal(part[0].vector, doc[4].vector)
    assert part[1].similarity(doc[5]) == pytest.approx(1)
    (stored,) = DocBin(docs=[doc], store_user_data=True).get_docs(nlp.vocab)
    assert np.array_equal(stored._.elmo, doc._.elmo)


@pytest.mark.filterwarnings("ignore:.*W109")
def test_documents_of_other_processes_keep_their_tensor(nlp: Any) -> None:
    texts = ["The bank closed.", "Why?"]
    for doc, text in zip(nlp.pipe(texts, n_process=2, batch_size=1), texts, strict=True):
        same = nlp(text)
        assert difference(doc.tensor, same.tensor) < 1e-6
        assert difference(doc._.elmo, same._.elmo) < 1e-6
        assert not doc.user_hooks  # spaCy does not send them.
        set_hooks(doc)
        assert doc[0].similarity(same[0]) == pytest.approx(1)


def test_a_saved_pipeline_is_found_by_entry_points_and_loads_in_another_process(
    nlp: Any, tmp_path: Path
) -> None:
    nlp.to_disk(tmp_path / "nlp")
    size = sum(path.stat().st_size for path in (tmp_path / "nlp" / "elmo").iterdir())
    assert size < 200
    code = (
        "import spacy, sys\n"
        "doc = spacy.load(sys.argv[1])('The bank closed.')\n"
        "print(doc[1].similarity(doc[1]), doc.tensor.shape, float(doc.tensor.sum()))\n"
        "from spacy.util import registry\n"
        "print(registry.architectures.get('elmokit.ElmoTok2Vec.v1').__name__)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "nlp")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    tensor = nlp("The bank closed.").tensor
    assert first.startswith("1.0") or first.startswith("0.99999")
    assert float(first.split()[-1]) == pytest.approx(float(tensor.sum()), abs=1e-4)
    assert second == "build_tok2vec"


def test_a_pipeline_rejects_a_model_that_has_changed(tmp_path: Path) -> None:
    model = REFERENCE.save(tmp_path / "model")
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": str(model)})
    nlp.to_disk(tmp_path / "nlp")
    content = nlp.to_bytes()
    make_reference(seed=1).save(tmp_path / "model")
    with pytest.raises(ElmokitError, match="is not the one that this object was made with"):
        spacy.load(tmp_path / "nlp")
    with pytest.raises(ElmokitError, match="is not the one that this object was made with"):
        nlp("A text.")
    REFERENCE.save(tmp_path / "model")
    again = spacy.blank("en")
    again.add_pipe("elmo", config={"model": str(model)})
    assert again.from_bytes(content)("A text.").tensor.shape == (3, 12)


def test_wrong_settings_are_one_sentence(model: str) -> None:
    for settings, message in (
        ({"layers": "all"}, "a token has one vector"),
        ({"layers": 5}, "there is no layer 5"),
        ({"model": "./no-such-model"}, "no-such-model"),
    ):
        with pytest.raises(ElmokitError, match=message):
            spacy.blank("en").add_pipe("elmo", config={"model": model, **settings})


def test_the_hub_is_asked_for_a_pipe_of_the_users_but_never_for_a_stored_one(
    hub: FakeHub, tmp_path: Path
) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": "bank/river"})
    assert hub.asked == []
    tensor = nlp("The bank closed.").tensor
    assert difference(tensor, REFERENCE.embed("The bank closed .".split()).mean(axis=0)) < 1e-5
    assert hub.asked == ["bank/river"]
    nlp.to_disk(tmp_path / "nlp")
    content, pickled = nlp.to_bytes(), pickle.dumps(nlp.get_pipe("elmo"))

    def stored() -> Iterator[Any]:
        yield lambda: spacy.load(tmp_path / "nlp")("The bank closed.")
        yield (
            lambda: (
                spacy.blank("en").from_config(nlp.config).from_bytes(content)("The bank closed.")
            )
        )
        yield lambda: pickle.loads(pickled)(nlp.make_doc("The bank closed."))

    for use in stored():
        hub.forget()
        with pytest.raises(ElmokitError, match="a model that only a file names is not downloaded"):
            use()
        hub.has_cached = True
        assert np.array_equal(use().tensor, tensor)
        assert hub.asked == []


@pytest.mark.parametrize(
    "content", ['{"fingerprint": null}', '{"fingerprint": 3}', "{}", "[", None]
)
def test_a_damaged_pipe_does_not_make_its_user_download_a_model(
    hub: FakeHub, tmp_path: Path, content: str | None
) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": "bank/river"})
    nlp.to_disk(tmp_path / "nlp")
    (tmp_path / "nlp" / "elmo" / "elmo.json").unlink()
    if content is not None:
        (tmp_path / "nlp" / "elmo" / "elmo.json").write_text(content)
    hub.forget()
    with pytest.raises(ElmokitError, match=r"not downloaded|the stored pipe elmo is damaged"):
        spacy.load(tmp_path / "nlp")
    assert hub.asked == []


# ---- the trainable layer


def test_the_hub_is_never_asked_for_the_model_of_a_layer(hub: FakeHub) -> None:
    layer = {"@architectures": "elmokit.ElmoTok2Vec.v1", "width": 5, "model": "bank/river"}
    nlp = spacy.blank("en")
    with pytest.raises(ElmokitError, match="a model that only a file names is not downloaded"):
        nlp.add_pipe("tok2vec", config={"model": layer})
    hub.has_cached = True
    nlp.add_pipe("tok2vec", config={"model": layer}).model.initialize(X=[nlp.make_doc("A text.")])
    assert nlp("A text.").tensor.shape == (3, 5)
    content = nlp.to_bytes()
    hub.forget()
    with pytest.raises(ElmokitError, match="a model that only a file names is not downloaded"):
        nlp("A text.")
    with pytest.raises(ElmokitError, match="a model that only a file names is not downloaded"):
        spacy.blank("en").from_config(nlp.config)
    hub.has_cached = True
    again = spacy.blank("en").from_config(nlp.config).from_bytes(content)
    assert np.array_equal(again("A text.").tensor, nlp("A text.").tensor)
    assert hub.asked == []


def test_the_layer_is_a_mix_and_its_gradients_are_right(model: str, nlp: Any) -> None:
    layer = build_tok2vec(width=5, model=model)
    mix = layer.layers[0]
    docs = [nlp(make_doc(nlp)), nlp("The bank closed."), nlp("")]
    layer.initialize(X=docs)
    weights, gamma = np.array([0.3, -0.5, 0.1], np.float32), np.array([1.7], np.float32)
    mix.set_param("weights", weights)
    mix.set_param("gamma", gamma)
    shares = np.exp(weights) / np.exp(weights).sum()
    outputs, backprop = mix.begin_update(docs)
    expected = gamma * np.einsum("l,ltd->td", shares, expected_layers())
    assert difference(outputs[0], expected) < 1e-5
    randoms = np.random.default_rng(0)
    slopes = [randoms.normal(size=y.shape).astype(np.float32) for y in outputs]

    def loss() -> float:
        return sum(
            float((y.astype(np.float64) * s).sum())
            for y, s in zip(mix.predict(docs), slopes, strict=True)
        )

    backprop(slopes)
    for name in ("weights", "gamma"):
        values = mix.get_param(name).copy()
        for i in range(len(values)):
            both = []
            for step in (0.01, -0.01):
                changed = values.copy()
                changed[i] += step
                mix.set_param(name, changed)
                both.append(loss())
            mix.set_param(name, values)
            assert mix.get_grad(name)[i] == pytest.approx((both[0] - both[1]) / 0.02, rel=1e-2)
    assert [y.shape for y in layer.predict(docs)] == [(8, 5), (4, 5), (0, 5)]


def test_the_layer_is_stored_without_the_model_and_rejects_another(
    tmp_path: Path, nlp: Any
) -> None:
    model = str(REFERENCE.save(tmp_path / "model"))
    layer, doc = build_tok2vec(width=5, model=model), nlp("The bank closed.")
    layer.initialize(X=[doc])
    layer.layers[0].set_param("weights", np.array([1, 2, 3], np.float32))
    content = layer.to_bytes()
    assert len(content) < 5000
    again = build_tok2vec(width=5, model=model).from_bytes(content)
    assert np.array_equal(again.predict([doc])[0], layer.predict([doc])[0])
    make_reference(seed=1).save(tmp_path / "model")
    other = build_tok2vec(width=5, model=model).from_bytes(content)
    with pytest.raises(ElmokitError, match="is not the one that this object was made with"):
        other.predict([doc])


PEOPLE, PLACES = ("Anna", "Bo", "Carl", "Dora", "Emil"), ("Lund", "Oslo", "Turku", "Riga", "Kiel")


def annotated(nlp: Any, count: int, seed: int) -> Iterator[Doc]:
    """Sentences with names, tags, a tree and a category."""
    chosen = random.Random(seed)
    for _ in range(count):
        calm = chosen.random() < 0.5
        words = [chosen.choice(PEOPLE), "lives" if calm else "runs", "in", chosen.choice(PLACES)]
        doc = Doc(
            nlp.vocab,
            words=[*words, "."],
            tags=["N", "V", "P", "N", "."],
            heads=[1, 1, 1, 2, 1],
            deps=["nsubj", "ROOT", "prep", "pobj", "punct"],
            ents=["B-PER", "O", "O", "B-LOC", "O"],
            sent_starts=[True, False, False, False, False],
        )
        doc.cats = {"calm": float(calm), "fast": float(not calm)}
        yield doc


LISTENING = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32}


def test_a_config_file_trains_all_components_on_the_layer(model: str, tmp_path: Path) -> None:
    config = load_config(ROOT / "examples" / "spacy_ner.cfg")
    config["components"]["tok2vec"]["model"] |= {"width": 32, "model": model}
    for name in ("tagger", "parser", "textcat"):
        config["components"][name] = {"factory": name}
    config["components"]["tagger"]["model"] = {
        "@architectures": "spacy.Tagger.v2",
        "tok2vec": LISTENING,
    }
    config["components"]["parser"]["model"] = {
        **config["components"]["ner"]["model"],
        "state_type": "parser",
        "tok2vec": LISTENING,
    }
    config["components"]["textcat"]["model"] = {
        "@architectures": "spacy.TextCatCNN.v2",
        "exclusive_classes": True,
        "tok2vec": LISTENING,
    }
    config["nlp"]["pipeline"] = list(config["components"])
    config["training"] |= {"max_epochs": 30, "eval_frequency": 390}
    config["training"]["optimizer"]["learn_rate"] = 0.01
    config.to_disk(tmp_path / "config.cfg")
    blank = spacy.blank("en")
    for name, count, seed in (("train", 100, 1), ("dev", 15, 2)):
        DocBin(docs=annotated(blank, count, seed)).to_disk(tmp_path / f"{name}.spacy")
    paths = {f"paths.{name}": str(tmp_path / f"{name}.spacy") for name in ("train", "dev")}
    train(tmp_path / "config.cfg", tmp_path / "out", overrides=paths)
    nlp = spacy.load(tmp_path / "out" / "model-last")
    gold = list(annotated(nlp, 15, 3))
    examples = [Example(Doc(nlp.vocab, words=[t.text for t in doc]), doc) for doc in gold]
    scores = nlp.evaluate(examples)
    for score in ("ents_f", "tag_acc", "dep_uas", "cats_macro_f"):
        assert scores[score] > 0.8, (score, scores[score])
    mix = next(node for node in nlp.get_pipe("tok2vec").model.walk() if node.name == "elmo_mix")
    assert np.abs(mix.get_param("weights")).max() > 0.001


def test_the_example_is_a_config_with_the_layer() -> None:
    config = load_config(ROOT / "examples" / "spacy_ner.cfg")
    name = config["components"]["tok2vec"]["model"]["@architectures"]
    assert registry.architectures.get(name) is build_tok2vec
