"""The routes: their answers are those of the library, in the shapes that clients read."""

from __future__ import annotations

import asyncio
import base64
import io
import re
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from serving import CORPUS, INPUTS, client_of
from tiny import difference, word_elmo

from elmokit.analysis import find_neighbours, load_inventory, map_uses, open_index, tag_senses
from elmokit.analysis.geometry import cosine, unit
from elmokit.analysis.uses import Use, marked_use
from elmokit.embed import Embedder
from elmokit.serve import schemas
from elmokit.serve.app import create_app
from elmokit.serve.limits import Limits
from elmokit.serve.service import Service, load_service, named
from elmokit.tasks.folder import load_task

TEXTS = ["The river bank .", "he sat on it", "the boat", "A bank , a river and a naïve 中文 word !"]


def run(app: FastAPI, action: Callable[[httpx.AsyncClient], Awaitable[Any]], **client: Any) -> Any:
    """The result of an action with a client of the application."""

    async def main() -> Any:
        async with client_of(app, **client) as connected:
            return await action(connected)

    return asyncio.run(main())


def post(app: FastAPI, path: str, body: Any, **headers: str) -> httpx.Response:
    return run(app, lambda client: client.post(path, json=body, headers=headers))


def get(app: FastAPI, path: str) -> httpx.Response:
    return run(app, lambda client: client.get(path))


def ask(app: FastAPI, path: str, shape: type[BaseModel] | None = None, **body: Any) -> Any:
    """The answer to a request, which must have the shape that OpenAPI promises."""
    response = post(app, path, body)
    assert response.status_code == 200, response.text
    answer = response.json()
    if shape is not None:
        shape.model_validate(answer)
    return answer


def sentence_of(response: httpx.Response, status: int) -> str:
    """The message of an error of a route under /v1."""
    assert response.status_code == status, response.text
    schemas.OpenAIError.model_validate(response.json())
    return str(response.json()["error"]["message"])


@pytest.fixture(scope="session")
def elmo(service: Service) -> Embedder:
    return service.model().elmo


# ---------------------------------------------------------------------- OpenAI
def test_vectors_are_those_of_sentence_vectors(app: FastAPI, elmo: Embedder) -> None:
    for layers, pooling in (("average", "mean"), ("all", "max"), (1, "ends"), ([0.5, 0, 2], "sum")):
        options: dict[str, Any] = {"layers": layers, "pooling": pooling}
        expected = elmo.sentence_vectors(TEXTS, **options)
        body = {"input": TEXTS, "model": "tiny", **options}
        answer = ask(app, "/v1/embeddings", schemas.EmbeddingsAnswer, **body)
        assert [row["index"] for row in answer["data"]] == [0, 1, 2, 3]
        vectors = np.array([row["embedding"] for row in answer["data"]])
        assert difference(vectors, expected) < 1e-6
        encoded = ask(app, "/v1/embeddings", encoding_format="base64", **body)["data"]
        rows = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in encoded]
        assert difference(np.stack(rows), expected) < 1e-6
    tokens = sum(len(elmo.tokenize(text)) for text in TEXTS)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_the_way_around_fastapi_changes_no_answer(app: FastAPI) -> None:
    plain, other = "application/json", "application/json; charset=utf-8"  # FastAPI gets the other.
    model = {"model": "tiny"}
    bodies = [{"input": TEXTS, **model}, {"input": [], **model}, {"input": "a", "model": "none"}]
    for body in [*bodies, {"input": "a", **model, "layers": 99}, {}, [], 1]:
        first, second = (
            post(app, "/v1/embeddings", body, **{"content-type": t}) for t in (plain, other)
        )
        assert (first.status_code, first.content) == (second.status_code, second.content)
        assert first.headers == second.headers


def test_a_text_gets_the_same_vector_alone_and_among_others(app: FastAPI) -> None:
    async def all_at_once(client: httpx.AsyncClient) -> list[list[float]]:
        bodies = [{"inputs": text} for text in TEXTS * 10]
        answers = await asyncio.gather(*(client.post("/embed", json=body) for body in bodies))
        return [answer.json()[0] for answer in answers]

    together = run(app, all_at_once)
    alone = [ask(app, "/embed", inputs=text)[0] for text in TEXTS]
    assert difference(np.array(together), np.array(alone * 10)) < 1e-6


def test_everything_that_is_loaded_is_listed(app: FastAPI) -> None:
    response = get(app, "/v1/models")
    listed = schemas.ModelsAnswer.model_validate(response.json())
    assert [model.id for model in listed.data] == ["tiny"]
    assert listed.data[0].num_layers == 2
    assert listed.data[0].dimensions == 24
    assert [task.name for task in listed.tasks] == list(INPUTS)
    assert listed.senses is not None
    assert listed.senses.senses == 2
    assert listed.index is not None
    assert listed.index.sentences == len(CORPUS)


def test_models_are_chosen_by_name(elmo: Embedder) -> None:
    other = word_elmo()
    service = Service()
    service.add_model(elmo, "first")
    service.add_model(other, "second")
    app = create_app(service)
    for name, model in (("first", elmo), ("second", other)):
        answer = ask(app, "/v1/embeddings", input="the river", model=name)
        vector = np.array(answer["data"][0]["embedding"])
        assert answer["model"] == name
        assert difference(vector, model.sentence_vectors("the river")) < 1e-6
    message = sentence_of(post(app, "/v1/embeddings", {"input": "a", "model": "third"}), 404)
    assert message == "there is no model 'third': this service has first, second"


def test_names_of_models_come_from_paths_or_are_given(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    paths = [f"news={tmp_path}", str(tmp_path), str(tmp_path / "a=b"), "owner/name", "english"]
    assert [named(path)[0] for path in paths] == [
        "news", tmp_path.name, "a=b", "owner/name", "english",
    ]  # fmt: skip


# ---------------------------------------------------------------------- Text Embeddings Inference
def test_the_routes_of_tei_have_its_shapes(app: FastAPI, elmo: Embedder) -> None:
    expected = elmo.sentence_vectors(TEXTS)
    assert difference(np.array(ask(app, "/embed", inputs=TEXTS)), unit(expected)) < 1e-6
    plain = ask(app, "/embed", inputs=TEXTS[0], normalize=False)
    assert difference(np.array(plain), expected[:1]) < 1e-6
    for result, sentence in zip(
        ask(app, "/embed_all", inputs=TEXTS), elmo.embed(TEXTS, "average"), strict=True
    ):
        assert difference(np.array(result), sentence.vectors) < 1e-6
    body = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    cosines = np.array(ask(app, "/similarity", inputs=body))
    assert difference(cosines, cosine(expected[:1], expected[1:])) < 1e-6


def test_tokens_have_their_characters_in_the_text(app: FastAPI, elmo: Embedder) -> None:
    (tokens,) = ask(app, "/tokenize", inputs="the  bank, 中 x")
    assert [token["text"] for token in tokens] == ["<S>", "the", "bank", ",", "中", "x", "</S>"]
    assert [token["special"] for token in tokens] == [True, *[False] * 5, True]
    spans = [(token["start"], token["stop"]) for token in tokens[1:-1]]
    assert ["the  bank, 中 x"[start:stop] for start, stop in spans] == [
        "the", "bank", ",", "中", "x",
    ]  # fmt: skip
    assert elmo.vocabulary is not None
    assert tokens[2]["id"] == elmo.vocabulary.ids["bank"]
    (plain,) = ask(app, "/tokenize", inputs="the bank", add_special_tokens=False)
    assert len(plain) == 2


def test_texts_are_cut_only_if_asked_for(service: Service, elmo: Embedder) -> None:
    small = Service(models=service.models, limits=Limits(max_tokens=3))
    app = create_app(small)
    response = post(app, "/embed", {"inputs": "the river bank is wide"})
    assert response.status_code == 413
    assert schemas.TEIError.model_validate(response.json()).error_type == "Validation"
    for direction, kept in (("Right", "the river bank"), ("Left", "bank is wide")):
        body: dict[str, Any] = {
            "truncate": True,
            "truncation_direction": direction,
            "normalize": False,
        }
        result = ask(app, "/embed", inputs="the river bank is wide", **body)
        assert difference(np.array(result[0]), elmo.sentence_vectors(kept)) < 1e-6
        both = ask(app, "/embed_all", inputs="the river bank is wide", truncate=True)
        assert len(both[0]) == 3


def test_info_names_model_and_limits(app: FastAPI) -> None:
    response = get(app, "/info")
    info = schemas.InfoAnswer.model_validate(response.json())
    assert (info.model_id, info.max_client_batch_size) == ("tiny", 2048)


# ---------------------------------------------------------------------- layers
def test_layers_are_those_of_embed(app: FastAPI, elmo: Embedder) -> None:
    for layers in ("all", "top", 0, [1.0, 0.5, 0.25]):
        answer = ask(app, "/v1/layers", schemas.LayersAnswer, inputs=TEXTS, layers=layers)
        for result, expected in zip(answer["sentences"], elmo.embed(TEXTS, layers), strict=True):
            assert result["tokens"] == expected.tokens
            assert difference(np.array(result["layers"]), expected.layers) < 1e-6
    assert answer["names"] == ["mix"]
    framed = ask(app, "/v1/layers", inputs=[["the", "bank"]], boundaries=True)["sentences"][0]
    assert framed["tokens"] == ["<S>", "the", "bank", "</S>"]


def test_a_token_has_its_2l_plus_1_vectors(app: FastAPI, elmo: Embedder) -> None:
    body = {"inputs": TEXTS[0], "representations": True, "layers": "average"}
    answer = ask(app, "/v1/layers", schemas.LayersAnswer, **body)
    (result,) = answer["sentences"]
    sentence = elmo.embed(TEXTS[0])
    names = ["token", "forward_1", "backward_1", "forward_2", "backward_2"]
    assert list(result["representations"]) == names
    for name in names:
        vectors = np.array(result["representations"][name])
        assert difference(vectors, sentence.representation(name)) < 1e-6
    assert difference(np.array(result["layers"][0]), sentence.layers.mean(axis=0)) < 1e-6


def test_two_sentences_are_compared_token_by_token(app: FastAPI, elmo: Embedder) -> None:
    body = {"inputs": TEXTS[:2], "similarity": True, "vectors": False}
    answer = ask(app, "/v1/layers", schemas.LayersAnswer, **body)
    one, other = elmo.embed(TEXTS[:2])
    assert [table["name"] for table in answer["similarity"]] == [
        "layer 0", "layer 1", "layer 2", "average",
    ]  # fmt: skip
    for i, table in enumerate(answer["similarity"][:3]):
        expected = cosine(one.layers[i][:, None], other.layers[i][None])
        assert difference(np.array(table["cosines"]), expected) < 1e-6
    message = sentence_of(post(app, "/v1/layers", {"inputs": "a", "similarity": True}), 400)
    assert message == "similarity needs two texts"


def test_layers_come_as_npy_or_arrow(app: FastAPI, elmo: Embedder) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    sentences = elmo.embed(TEXTS)
    expected = np.concatenate([sentence.layers for sentence in sentences], axis=1)
    response = post(app, "/v1/layers", {"inputs": TEXTS}, accept="application/x-npy")
    assert difference(np.load(io.BytesIO(response.content)), expected) == 0
    lengths = [len(sentence.tokens) for sentence in sentences]
    assert response.headers["elmokit-lengths"] == ",".join(map(str, lengths))
    accept = "application/vnd.apache.arrow.stream"
    response = post(app, "/v1/layers", {"inputs": TEXTS}, accept=accept)
    assert response.headers["content-type"] == accept
    table = pyarrow.ipc.open_stream(response.content).read_all()
    assert table.column_names == ["sentence", "position", "token", "layer_0", "layer_1", "layer_2"]
    assert table["token"].to_pylist() == [t for sentence in sentences for t in sentence.tokens]
    result = np.array(table["layer_2"].to_pylist(), np.float32)
    assert difference(result, expected[2]) == 0


# ---------------------------------------------------------------------- language model
def test_surprisal_is_that_of_the_library(app: FastAPI, elmo: Embedder) -> None:
    answer = ask(app, "/v1/surprisal", schemas.SurprisalAnswer, inputs=TEXTS)
    for result, expected in zip(answer["sentences"], elmo.surprisal(TEXTS), strict=True):
        assert result["tokens"] == expected.tokens
        assert difference(np.array(result["forward"]), expected.forward) < 1e-6
        assert difference(np.array(result["backward"]), expected.backward) < 1e-6
        assert result["known"] == expected.known.tolist()


def test_a_gap_or_a_position_is_filled(app: FastAPI, elmo: Embedder) -> None:
    expected = elmo.fill("he sat on the ___ .", 3)
    for body in (
        {"input": "he sat on the ___ ."},
        {"input": ["he", "sat", "on", "the", "___", "."]},
        {"input": "he sat on the boat .", "position": 4},
        {"input": ["he", "sat", "on", "the", "boat", "."], "position": 4},
    ):
        answer = ask(app, "/v1/fill", schemas.FillAnswer, k=3, **body)
        assert [word["word"] for word in answer["words"]] == [word.word for word in expected]
        assert answer["position"] == 4
    for body, complaint in (
        ({"input": "no gap"}, "the text must have one gap ___, not 0"),
        ({"input": ["a"], "position": 1}, "the text has 1 token, none at 1"),
        ({"input": ["___"], "position": 0}, "give a position or a gap ___, not both"),
    ):
        assert sentence_of(post(app, "/v1/fill", body), 400) == complaint


def test_a_model_without_a_softmax_says_so() -> None:
    service = Service()
    service.add_model(word_elmo(), "words")
    message = sentence_of(post(create_app(service), "/v1/surprisal", {"inputs": "a"}), 400)
    assert "has no softmax and so cannot predict words" in message


# ---------------------------------------------------------------------- uses
def test_the_uses_of_a_word_are_mapped_as_in_a_figure(app: FastAPI, elmo: Embedder) -> None:
    senses = ["shore", "shore", "money", "money", ""]
    body: dict[str, Any] = {"sentences": CORPUS, "word": "Bank", "labels": senses}
    answer = ask(app, "/v1/uses", schemas.UsesAnswer, neighbours=2, vectors=True, **body)
    assert answer["word"] == "bank"
    assert [use["sentence"] for use in answer["uses"]] == [0, 1, 2, 3]
    assert answer["missing"] == [4]
    for use in answer["uses"]:
        assert use["tokens"][use["start"] : use["end"]] == ["bank"]
    tokens = [tuple(text.split()) for text in CORPUS[:4]]
    uses = [
        Use(own, own.index("bank"), own.index("bank") + 1, "bank", sense)
        for own, sense in zip(tokens, senses, strict=False)
    ]
    sentences = elmo.embed([text.split() for text in CORPUS])
    mean = np.concatenate([sentence.layers for sentence in sentences], axis=1).mean(axis=1)
    for i, layer in enumerate(answer["layers"][:3]):
        vectors = [sentences[k].layers[i, uses[k].start] - mean[i] for k in range(4)]
        assert difference(np.array(layer["vectors"]), np.stack(vectors)) < 1e-5
    # Without the sentence that has no use the mean is that of a figure.
    few = ask(app, "/v1/uses", **(body | {"sentences": CORPUS[:4], "labels": senses[:4]}))
    (expected,) = map_uses(elmo, uses)
    assert expected.purity is not None
    for layer, points, purity in zip(few["layers"], expected.points, expected.purity, strict=True):
        assert difference(np.abs(layer["points"]), np.abs(points)) < 2e-2  # its cache is float16
        assert layer["purity"] == pytest.approx(purity)
    assert few["layers"][0]["one_point"]
    assert few["static"] == [{"word": "bank", "point": [0.0, 0.0], "uses": 4}]


def test_neighbours_of_uses_are_the_nearest_by_cosine(app: FastAPI) -> None:
    answer = ask(app, "/v1/uses", sentences=CORPUS, word="bank", neighbours=2, vectors=True)
    for layer in answer["layers"][1:]:
        vectors = unit(np.array(layer["vectors"], np.float32))
        cosines = vectors @ vectors.T - 2 * np.eye(4)
        for i, near in enumerate(layer["neighbours"]):
            assert [one["use"] for one in near] == np.argsort(-cosines[i])[:2].tolist()
            assert near[0]["cosine"] == pytest.approx(cosines[i].max(), abs=1e-5)


def test_a_mix_of_one_layer_is_that_layer_times_gamma(app: FastAPI) -> None:
    body = {"weights": [0.0, 0.0, 1.0], "gamma": 3.0, "vectors": True}
    answer = ask(app, "/v1/uses", schemas.UsesAnswer, sentences=CORPUS, word="bank", **body)
    top, mix = answer["layers"][2], answer["mix"]
    assert difference(np.array(mix["vectors"]), 3 * np.array(top["vectors"])) < 1e-6
    assert difference(np.abs(mix["points"]), 3 * np.abs(top["points"])) < 1e-5
    assert mix["name"] == "mix"


def test_maps_of_layers_are_not_mirrored_against_each_other(app: FastAPI) -> None:
    answer = ask(app, "/v1/uses", sentences=CORPUS, word="bank", weights=[0.1, 0.2, 0.7])
    maps = [np.array(layer["points"]) for layer in [*answer["layers"], answer["mix"]]]
    for one, next_one in pairwise(maps):
        assert ((one * next_one).sum(axis=0) >= 0).all()


def test_positions_and_inflected_forms_are_found(app: FastAPI) -> None:
    sentences = ["the banks sat", "a Bank .", "he banked on the bank", "no"]
    body: dict[str, Any] = {"sentences": sentences, "word": "bank"}
    forms = ask(app, "/v1/uses", inflected=True, clusters=2, **body)
    assert [use["word"] for use in forms["uses"]] == ["banks", "Bank", "banked", "bank"]
    assert {use["cluster"] for use in forms["uses"]} == {0, 1}
    assert [point["word"] for point in forms["static"]] == ["banks", "Bank", "banked", "bank"]
    message = sentence_of(post(app, "/v1/uses", body), 400)
    assert message == "a map needs at least 3 uses of the word, and these sentences have 2"
    spans = [[1, 2], [1, 2], [1, 3], None]
    given = ask(app, "/v1/uses", sentences=sentences, positions=spans)
    assert [use["word"] for use in given["uses"]] == ["banks", "Bank", "banked on"]
    assert given["missing"] == [3]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({}, "give either a word or positions"),
        ({"word": "bank", "positions": [None] * 5}, "give either a word or positions"),
        ({"positions": [None]}, "there are 5 sentences and 1 positions"),
        ({"word": "bank", "labels": ["a"]}, "there are 5 sentences and 1 labels"),
        ({"word": " "}, "the word is empty"),
        ({"word": "nobody"}, "none of the sentences has the word"),
        ({"positions": [[5, 9]] * 5}, "the sentence has 8 tokens, none at 5 to 9"),
        ({"word": "bank", "clusters": 1}, "clusters must be 0, or from 2 to 4"),
    ],
)
def test_uses_that_cannot_be_mapped_are_one_sentence(
    app: FastAPI, body: dict[str, Any], complaint: str
) -> None:
    assert sentence_of(post(app, "/v1/uses", {"sentences": CORPUS, **body}), 400) == complaint


# ---------------------------------------------------------------------- tasks
@pytest.mark.parametrize("kind", INPUTS)
def test_predictions_are_those_of_the_task_model(
    app: FastAPI, folders: dict[str, Any], kind: str
) -> None:
    body: dict[str, Any] = {"inputs": [INPUTS[kind]]}
    answer = ask(app, f"/v1/predict/{kind}", schemas.PredictAnswer, **body)
    (result,) = answer["predictions"]
    folder = next(path for path in folders["tasks"] if Path(path).name == kind)
    trained = load_task(folder)
    if kind in ("classifier", "tagger"):
        (expected,) = trained.predict_texts([INPUTS[kind]])
        expected = {"tags": expected} if kind == "tagger" else expected
        for name, value in expected.items():
            assert result[name] == (pytest.approx(value, abs=1e-5) if name != "tags" else value)
    if "probabilities" in result:
        shares = [row["probability"] for row in result["probabilities"]]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert shares == sorted(shares, reverse=True)
        assert result["label"] == result["probabilities"][0]["label"]
    if kind == "question":
        passage = INPUTS[kind]["passage"]
        assert passage[result["start"] : result["end"]] == result["answer"]
    if kind == "coreference":
        assert result["tokens"] == INPUTS[kind]["text"].split()
    if kind == "tagger":
        for span in result["spans"]:
            assert " ".join(result["tokens"][span["start"] : span["end"]]) == span["text"]


def test_wrong_inputs_of_tasks_are_one_sentence(app: FastAPI) -> None:
    for kind, given, complaint in (
        ("pair", "text", "input 0: the pair pair needs first, second and no more"),
        ("classifier", " ", "input 0 is empty"),
        ("classifier", {"text": "a", "first": "b"},
         "input 0: the classifier classifier needs text and no more"),
        ("relation", "no marks", "input 0: the sentence has no entity between <e1> and </e1>"),
        ("coreference", INPUTS["coreference"] | {"a": [0, 99]},
         "input 0: a must be characters of the text, not 0 to 99"),
    ):  # fmt: skip
        response = post(app, f"/v1/predict/{kind}", {"inputs": [given]})
        assert sentence_of(response, 400) == complaint
    message = sentence_of(post(app, "/v1/predict/none", {"inputs": ["a"]}), 404)
    assert message.startswith("there is no task 'none': this service has classifier, tagger")


def test_tokens_can_be_given_to_a_task(app: FastAPI) -> None:
    tokens = ["the", "river", "bank", "."]
    answers = [
        ask(app, "/v1/predict/tagger", inputs=[given])["predictions"]
        for given in ({"tokens": tokens}, " ".join(tokens))
    ]
    assert answers[0] == answers[1]


# ---------------------------------------------------------------------- senses and neighbours
def test_senses_are_those_of_senses_tag(
    app: FastAPI, elmo: Embedder, folders: dict[str, Any]
) -> None:
    answer = ask(app, "/v1/senses", schemas.SensesAnswer, inputs=CORPUS)
    inventory = load_inventory(folders["senses"])
    tagged = tag_senses(elmo, inventory, [text.split() for text in CORPUS])
    for result, expected in zip(answer["sentences"], tagged, strict=True):
        assert result["tokens"] == list(expected.tokens)
        senses = [(tag["start"], tag["sense"]) for tag in result["senses"]]
        assert senses == [(tag.start, tag.sense) for tag in expected.tags]
    message = sentence_of(post(app, "/v1/senses", {"inputs": "a", "method": "guess"}), 400)
    assert message.startswith("method must be one of layer 0")


def test_neighbours_are_those_of_neighbours_find(
    app: FastAPI, elmo: Embedder, folders: dict[str, Any]
) -> None:
    text = "he sat on a *bank* ."
    (expected,) = find_neighbours(
        elmo, open_index(folders["index"]), [marked_use(text, elmo.tokenize)], k=3
    )
    tokens = ["he", "sat", "on", "a", "bank", "."]
    for body in (
        {"input": text},
        {"input": tokens, "position": 4},
        {"input": " ".join(tokens), "position": [4, 5]},
    ):
        answer = ask(app, "/v1/neighbours", schemas.NeighboursAnswer, k=3, **body)
        assert answer["query"] == {"tokens": tokens, "start": 4, "end": 5, "word": "bank"}
        result = [(one["tokens"], one["start"]) for one in answer["neighbours"]]
        assert result == [(list(one.use.tokens), one.use.start) for one in expected.neighbours]
        scores = np.array([one["score"] for one in answer["neighbours"]])
        assert difference(scores, np.array([one.score for one in expected.neighbours])) < 2e-2
        words = [word for word, _ in expected.static["layer 0"] or ()]
        assert [one["word"] for one in answer["static"]] == words
    message = sentence_of(post(app, "/v1/neighbours", {"input": ["a"]}), 400)
    assert message == "tokens need a position"


def test_what_is_not_loaded_is_said() -> None:
    service = Service()
    service.add_model(word_elmo(), "words")
    app = create_app(service)
    bodies = {"senses": {"inputs": "a"}, "neighbours": {"input": "*a*"}}
    options = {"senses": "--senses", "neighbours": "--index"}
    for route, body in bodies.items():
        message = sentence_of(post(app, f"/v1/{route}", body), 404)
        assert message.endswith(f"start elmokit serve with {options[route]} FOLDER")


def test_a_model_that_only_a_task_names_is_loaded_for_it(folders: dict[str, Any]) -> None:
    service = load_service(["english"], tasks=[f"mood={folders['tasks'][0]}"])
    assert list(service.models) == ["english", "tiny"]
    assert service.tasks["mood"].model == "tiny"
    service.close()


# ---------------------------------------------------------------------- errors, limits, pages
def test_errors_are_one_sentence_in_the_shape_of_the_client(app: FastAPI) -> None:
    for body, complaint in (
        ({"input": 3, "model": "tiny"}, "input should be a valid string or a valid list"),
        ({"model": "tiny"}, "input: field required"),
        ({"input": "a", "model": "tiny", "layrs": 1}, "layrs: extra inputs are not permitted"),
        ({"input": "a", "model": "tiny", "layers": 9},
         "there is no layer 9; this model has layers 0 to 2"),
        ({"input": "a", "model": "tiny", "dimensions": 7},
         "dimensions must be 24, the size of tiny"),
        ({"input": [1, 2], "model": "tiny"},
         "input should be texts: the models here do not know these token ids"),
        ({"input": [[1, 2], [3]], "model": "tiny"},
         "input should be texts: the models here do not know these token ids"),
        ({"input": ["a", True], "model": "tiny"}, "input should be a valid string"),
        ({"input": "", "model": "tiny"}, "input: string should have at least 1 character"),
    ):  # fmt: skip
        response = post(app, "/v1/embeddings", body)
        assert sentence_of(response, 400) == complaint
        tei = post(app, "/embed", {**body, "inputs": body.get("input")} | {})
        assert tei.status_code == 422
        schemas.TEIError.model_validate(tei.json())


def test_a_body_that_is_not_an_object_is_told_the_type_to_send(app: FastAPI) -> None:
    async def send(client: httpx.AsyncClient) -> list[httpx.Response]:
        text = {"content-type": "text/plain"}
        return [
            await client.post("/v1/embeddings", json=[]),
            await client.post("/v1/embeddings", content=b'{"input": "a"}', headers=text),
        ]

    for response in run(app, send):
        complaint = "the body should be an object, sent as Content-Type: application/json"
        assert sentence_of(response, 400) == complaint


def test_a_body_that_is_not_json_is_400(app: FastAPI) -> None:
    async def send(client: httpx.AsyncClient) -> list[httpx.Response]:
        headers = {"content-type": "application/json"}
        bodies = [b"{", b"\xff\xfe", b"[" * 100_000, b"", b'{"input": "\\ud800", "model": "tiny"}']
        return [
            await client.post("/v1/embeddings", content=body, headers=headers) for body in bodies
        ]

    for response in run(app, send):
        assert sentence_of(response, 400)


def test_unknown_routes_and_methods_are_told(app: FastAPI) -> None:
    response = get(app, "/v1/nothing")
    assert sentence_of(response, 404) == "there is no route /v1/nothing: /docs lists them"
    response = get(app, "/embed")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    schemas.TEIError.model_validate(response.json())


def test_requests_that_are_too_large_are_413(service: Service) -> None:
    limits = Limits(max_body=10_000, max_tokens=100, max_values=5_000)
    app = create_app(Service(models=service.models, limits=limits))
    for path, body, complaint in (
        ("/v1/embeddings", {"input": "a" * 20_000, "model": "tiny"},
         "the body is too large: send at most 10,000 bytes"),
        ("/v1/embeddings", {"input": "a " * 101, "model": "tiny"},
         "101 tokens are too many: send at most 100 in a request"),
        ("/v1/embeddings", {"input": ["a"] * 2049, "model": "tiny"},
         "2,049 texts are too many: send at most 2,048"),
        ("/v1/fill", {"input": "a ___"},
         "2 tokens are too many around a gap: send at most 0"),
        ("/v1/layers", {"inputs": "a " * 100},
         "the answer would have 7,200 numbers, and 5,000 are allowed: send fewer texts, or ask for "
         "one layer"),
        ("/v1/uses", {"sentences": ["a"] * 501, "word": "a"},
         "501 sentences are too many: send at most 500"),
    ):  # fmt: skip
        assert sentence_of(post(app, path, body), 413) == complaint


def test_answers_that_are_too_much_together_are_429(elmo: Embedder) -> None:
    service = Service(limits=Limits(max_values=20_000))
    model = service.add_model(elmo, "tiny")
    service.is_warm = True
    body = {"inputs": ["a " * 240]}  # 3 layers of 24 columns: 17,280 numbers
    free = threading.Event()

    async def ask(client: httpx.AsyncClient) -> list[int]:
        held = asyncio.ensure_future(model.batcher.call(lambda: free.wait(30), 1))
        asked = [asyncio.ensure_future(client.post("/v1/layers", json=body)) for _ in range(3)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        small = asyncio.ensure_future(client.post("/embed", json={"inputs": "a"}))
        assert service.answers.values == 2 * 17_280
        free.set()
        answers = await asyncio.gather(*asked, small)
        await held
        answers.append(await client.post("/v1/layers", json=body))  # There is room again.
        return [answer.status_code for answer in answers]

    assert run(create_app(service), ask) == [200, 200, 429, 200, 200]
    assert service.answers.values == 0
    service.close()


def test_a_bug_is_500_without_details(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("secret")

    broken = Service(models=service.models)
    monkeypatch.setattr(broken, "surprisal", fail)
    message = sentence_of(post(create_app(broken), "/v1/surprisal", {"inputs": "a"}), 500)
    assert message == "the service failed; its log has the reason"


def test_health_is_200_only_when_warm(service: Service) -> None:
    cold = Service(models=service.models)
    app = create_app(cold)
    for is_warm, status in ((False, 503), (True, 200)):
        cold.is_warm = is_warm
        assert get(app, "/health").status_code == status


def test_metrics_count_requests_and_batches(service: Service) -> None:
    app = create_app(service)
    ask(app, "/embed", inputs="a")
    post(app, "/embed", {"inputs": 1})
    response = get(app, "/metrics")
    text = response.text
    assert 'elmokit_requests_total{method="POST",route="/embed",status="200"} 1.0' in text
    assert 'elmokit_requests_total{method="POST",route="/embed",status="422"} 1.0' in text
    assert 'elmokit_batch_tokens_count{model="tiny"} 1.0' in text
    assert 'elmokit_waiting_tokens{model="tiny"} 0.0' in text
    assert "elmokit_requests_in_flight 1.0" in text  # this one
    assert response.headers["content-type"].startswith("text/plain; version=")


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_need_nothing_from_elsewhere(app: FastAPI, path: str) -> None:
    page = get(app, path)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
    assert not re.search(r"https?://|//cdn| on\w+=|<style|style=", page.text)
    assert not re.search(r"<script(?![^>]*src=)", page.text)
    assets = re.findall(r'(?:src|href)="/?(static/[^"]+)"', page.text)
    assert assets
    for asset in assets:
        assert get(app, f"/{asset}").status_code == 200


def test_openapi_declares_every_route_and_error(app: FastAPI) -> None:
    document = app.openapi()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["description"]
            statuses = set(operation["responses"])
            if path != "/health":
                assert {"200", "401", "413", "429", "500"} <= statuses
            assert ("422" in statuses) == ("requestBody" in operation and path[:4] != "/v1/")
    layers = document["components"]["schemas"]["LayersRequest"]["properties"]["layers"]["anyOf"]
    assert {"type": "integer", "minimum": -3, "maximum": 2} in layers
