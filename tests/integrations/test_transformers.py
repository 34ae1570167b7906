"""Hugging Face transformers, sentence-transformers and MTEB run on our folders, offline."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import ROOT
from many_langs_reference import make_many_langs
from safetensors.numpy import load_file, save_file
from tiny import complaint, difference, softmax_elmo, tiny_elmo, word_elmo

import elmokit
from elmokit import allennlp
from elmokit.embed import Embedder
from elmokit.formats.detect import SHIPPED
from elmokit.model.bilm import BiLM
from elmokit.text.readers import WINDOW_TOKENS

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'elmokit[transformers]'"
)
integration = importlib.import_module("elmokit.integrations.transformers")

TEXTS = ["He sat on the river bank.", "", "The naïve 中文 bank isn't <S> a<S>b !", "the"]
EXACT = 2e-6  # the largest difference from `Embedder.embed`
# With gradients another implementation computes the layers. The model of `softmax_elmo` has weights
# that are three times as large as usual, and so are its rounding errors.
ROUNDED = 5e-6


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of the network."""

    def refuse(*_: object) -> None:
        raise AssertionError("a test must not connect to anything")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def on_characters(folder: Path) -> Embedder:
    return tiny_elmo()


def on_words(folder: Path) -> Embedder:
    return word_elmo()


def with_softmax(folder: Path) -> Embedder:
    return softmax_elmo(metadata={"语料": ["新闻", None], "steps": 10})


def on_unicode(folder: Path) -> Embedder:
    make_many_langs().save(folder)
    return elmokit.load(folder)


def on_unicode_by_lstm(folder: Path) -> Embedder:
    make_many_langs(name="lstm").save(folder)
    return elmokit.load(folder)


KINDS = [on_characters, on_words, with_softmax, on_unicode, on_unicode_by_lstm]
Make = Callable[[Path], Embedder]


def save(make: Make, tmp_path: Path) -> tuple[Embedder, Path]:
    """A model in both forms: an Embedder and the native folder that it has written."""
    elmo = make(tmp_path / "source")
    elmo.save_pretrained(tmp_path / "native")
    return elmo, tmp_path / "native"


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Embedder, Path]:
    return save(on_characters, tmp_path)


def auto(folder: Path, kind: str = "AutoModel", **settings: Any) -> tuple[Any, Any]:
    """The tokenizer and the model that the Auto classes make of a folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer, getattr(transformers, kind).from_pretrained(folder, **settings).eval()


def layers_of(tokenizer: Any, model: Any, texts: list[str]) -> Any:
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    return torch.stack(model(**batch, output_hidden_states=True).hidden_states)


def distance(layers: torch.Tensor, elmo: Embedder, texts: list[str]) -> float:
    """How far padded layers (L + 1, texts, tokens, dim) are from those of `embed`; padding is 0."""
    result = layers.detach().numpy()
    expected = np.zeros_like(result)
    for i, sentence in enumerate(elmo.embed(texts)):
        expected[:, i, : len(sentence.tokens)] = sentence.layers
    return difference(result, expected)


# ---------------------------------------------------------------------- vectors
@pytest.mark.parametrize("make", KINDS)
def test_hidden_states_are_the_layers_of_embed(make: Make, tmp_path: Path) -> None:
    elmo, folder = save(make, tmp_path)
    tokenizer, model = auto(folder)
    limit = ROUNDED if make is with_softmax else EXACT
    assert distance(layers_of(tokenizer, model, TEXTS), elmo, TEXTS) <= limit
    with torch.no_grad():
        assert distance(layers_of(tokenizer, model, TEXTS), elmo, TEXTS) <= EXACT


def test_the_shipped_model_computes_in_float32_though_its_file_is_float16() -> None:
    elmo = elmokit.load()
    tokenizer, model = auto(SHIPPED["english"])
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    # Trained weights amplify rounding, and with gradients it is another one than in `embed`.
    assert distance(layers_of(tokenizer, model, TEXTS), elmo, TEXTS) <= ROUNDED
    with torch.no_grad():
        assert distance(layers_of(tokenizer, model, TEXTS), elmo, TEXTS) <= EXACT


OUTPUT_LAYERS = ["top", "average", 0, 1, -1, [0.5, 0.25, 0.25], "mix", None]


@pytest.mark.parametrize("output_layer", OUTPUT_LAYERS)
def test_the_output_layer_is_chosen_in_the_configuration(
    output_layer: Any, tiny: tuple[Embedder, Path], tmp_path: Path
) -> None:
    elmo, folder = tiny
    tokenizer, model = auto(folder, output_layer=output_layer)
    model.save_pretrained(tmp_path / "again")
    again = transformers.AutoModel.from_pretrained(tmp_path / "again")
    assert again.config.output_layer == output_layer
    layers = "average" if output_layer in ("mix", None) else output_layer  # A mix begins there.
    expected = elmo.embed(TEXTS[0], layers=layers).vectors
    for each in (model, again):
        with torch.no_grad():
            vectors = each(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0]
        assert difference(vectors.numpy(), expected) <= EXACT


def test_an_unknown_output_layer_is_refused(tiny: tuple[Embedder, Path]) -> None:
    for output_layer in ("all", "bottom", 3, [1.0]):
        config = transformers.AutoConfig.from_pretrained(tiny[1], output_layer=output_layer)
        with pytest.raises(elmokit.ElmokitError, match="layer"):
            transformers.AutoModel.from_config(config)


def test_a_text_that_embed_reads_in_pieces_is_read_in_the_same_pieces(
    tiny: tuple[Embedder, Path],
) -> None:
    elmo, folder = tiny
    texts = ["the river bank " * (WINDOW_TOKENS // 2), "the bank"]
    tokenizer, model = auto(folder)
    assert distance(layers_of(tokenizer, model, texts), elmo, texts) <= EXACT
    with torch.no_grad():
        assert distance(layers_of(tokenizer, model, texts), elmo, texts) <= EXACT


def test_without_gradients_or_when_frozen_the_fast_path_is_used(
    tiny: tuple[Embedder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, model = auto(tiny[1])
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    calls: list[bool] = []
    forward = BiLM.forward

    def watched(self: BiLM, *arguments: Any, **settings: Any) -> Any:
        calls.append(True)
        return forward(self, *arguments, **settings)

    monkeypatch.setattr(BiLM, "forward", watched)
    with torch.no_grad():
        model(**batch)
    model.requires_grad_(False).train()
    assert not model(**batch).last_hidden_state.requires_grad
    assert not calls
    model.requires_grad_(True).eval()
    model(**batch).last_hidden_state.sum().backward()
    assert calls
    assert model.token_encoder.characters.grad.abs().max() > 0


def test_changed_weights_change_the_vectors_of_the_fast_path(tiny: tuple[Embedder, Path]) -> None:
    tokenizer, model = auto(tiny[1])
    with torch.no_grad():
        before = layers_of(tokenizer, model, TEXTS)
        for parameter in model.parameters():
            parameter.mul_(1.5)
        after = layers_of(tokenizer, model, TEXTS)
        twin = layers_of(tokenizer, copy.deepcopy(model), TEXTS)
    assert (before - after).abs().max() > 1e-3
    torch.testing.assert_close(twin, after)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_dtype_can_be_asked_for(dtype: torch.dtype, tiny: tuple[Embedder, Path]) -> None:
    elmo, folder = tiny
    tokenizer, model = auto(folder, dtype=dtype)
    with torch.no_grad():
        layers = layers_of(tokenizer, model, TEXTS)
    assert layers.dtype == dtype
    limit = 1e-5 if dtype == torch.float64 else 0.05
    assert distance(layers.float(), elmo, TEXTS) <= limit


def test_left_padding_and_a_missing_mask_give_the_same_vectors(tiny: tuple[Embedder, Path]) -> None:
    tokenizer, model = auto(tiny[1])
    texts = [TEXTS[0], TEXTS[3]]
    with torch.no_grad():
        right = layers_of(tokenizer, model, texts)
        batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
        left = model(**batch).last_hidden_state
        del batch["attention_mask"]
        unmasked = model(**batch).last_hidden_state
    torch.testing.assert_close(left[1, -1], right.mean(0)[1, 0])
    torch.testing.assert_close(left, unmasked)


def test_a_batch_of_empty_texts_has_no_vectors(tiny: tuple[Embedder, Path]) -> None:
    tokenizer, model = auto(tiny[1])
    output = model(**tokenizer(["", ""], padding=True, return_tensors="pt"))
    assert output.last_hidden_state.shape == (2, 0, model.config.hidden_size)


def test_a_tuple_is_returned_on_request(tiny: tuple[Embedder, Path]) -> None:
    tokenizer, model = auto(tiny[1])
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    output = model(**batch, output_hidden_states=True, return_dict=False)
    assert isinstance(output, tuple)
    assert len(output[1]) == model.config.num_hidden_layers + 1


def test_missing_inputs_are_named(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    _, model = auto(save(on_characters, tmp_path / "a")[1])
    ids = torch.tensor([[1, 2]])
    assert complaint(lambda: model(input_ids=ids)) == (
        "this model needs character_ids, which its tokenizer returns"
    )
    _, model = auto(save(on_words, tmp_path / "b")[1])
    assert complaint(lambda: model(character_ids=ids)) == (
        "this model needs input_ids, which its tokenizer returns"
    )


# ---------------------------------------------------------------------- folders
@pytest.mark.parametrize("make", KINDS)
def test_elmokit_reads_what_save_pretrained_writes(make: Make, tmp_path: Path) -> None:
    elmo, folder = save(make, tmp_path)
    tokenizer, model = auto(folder)
    model.save_pretrained(tmp_path / "again")
    tokenizer.save_pretrained(tmp_path / "again")
    again = elmokit.load(tmp_path / "again")
    assert again.fingerprint() == elmo.fingerprint()
    assert again.metadata == elmo.metadata
    assert (again.vocabulary and again.vocabulary.words) == (
        elmo.vocabulary and elmo.vocabulary.words
    )
    tokenizer, model = auto(tmp_path / "again")
    with torch.no_grad():
        assert distance(layers_of(tokenizer, model, TEXTS), elmo, TEXTS) <= EXACT


def test_the_files_are_those_of_a_native_folder(
    tiny: tuple[Embedder, Path], tmp_path: Path
) -> None:
    tokenizer, model = auto(tiny[1])
    model.save_pretrained(tmp_path / "again")
    tokenizer.save_pretrained(tmp_path / "again")
    names = {path.name for path in (tmp_path / "again").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer_config.json"}


def test_a_missing_tensor_is_refused_not_made_up(tiny: tuple[Embedder, Path]) -> None:
    path = tiny[1] / "model.safetensors"
    tensors = load_file(path)
    del tensors["forward_layers.1.bias"]
    save_file(tensors, path, metadata={"format": "pt"})
    assert complaint(lambda: auto(tiny[1])).endswith("lacks the tensor 'forward_layers.1.bias'")


def test_elmokit_reads_the_elmo_below_a_classifier(
    tiny: tuple[Embedder, Path], tmp_path: Path
) -> None:
    elmo, folder = tiny
    tokenizer, model = auto(folder, "AutoModelForTokenClassification", num_labels=5)
    with torch.no_grad():
        model.elmo.mix.weights.copy_(torch.tensor([0.0, 1.0, 2.0]))
        model.elmo.mix.gamma.fill_(3.0)
    model.save_pretrained(tmp_path / "head")
    tokenizer.save_pretrained(tmp_path / "head")
    below = elmokit.load(tmp_path / "head")
    assert below.fingerprint() == elmo.fingerprint()
    (mix,) = allennlp.scalar_mixes(below)
    assert mix.weights.tolist() == [0.0, 1.0, 2.0]
    tokenizer, model = auto(tmp_path / "head")  # as an ElmoModel, with the mix
    vectors = model(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0]
    layers = torch.from_numpy(elmo.embed(TEXTS[0]).layers)
    torch.testing.assert_close(vectors, mix(layers), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make", [on_characters, on_words])
def test_a_repository_of_the_hub_is_loaded_from_its_cache(make: Make, tmp_path: Path) -> None:
    elmo, folder = save(make, tmp_path)
    repository = tmp_path / "hub" / "models--somebody--small-elmo"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(folder, repository / "snapshots" / commit)
    hub = str(tmp_path / "hub")
    model = transformers.AutoModel.from_pretrained("somebody/small-elmo", cache_dir=hub)
    tokenizer = transformers.AutoTokenizer.from_pretrained("somebody/small-elmo", cache_dir=hub)
    with torch.no_grad():
        assert distance(layers_of(tokenizer, model.eval(), TEXTS), elmo, TEXTS) <= EXACT


def run_fresh(code: str, folder: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that has not imported the integration."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    return subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


REMOTE = """
import sys
from transformers import AutoModel, AutoTokenizer
model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
batch = tokenizer("He sat on the river bank.", return_tensors="pt")
print(model(**batch).last_hidden_state.sum().item())
model.save_pretrained(sys.argv[1] + "-again")
tokenizer.save_pretrained(sys.argv[1] + "-again")
"""


@pytest.mark.slow
def test_a_folder_that_carries_its_code_is_loaded_by_trust(
    tiny: tuple[Embedder, Path], tmp_path: Path
) -> None:
    elmo, folder = tiny
    integration.carry_code(folder)
    assert elmokit.load(folder).fingerprint() == elmo.fingerprint()
    done = run_fresh(REMOTE, folder, tmp_path)
    assert done.returncode == 0, done.stderr
    expected = elmo.embed(TEXTS[0], layers="average").vectors.sum()
    assert float(done.stdout) == pytest.approx(expected, abs=1e-4)
    again = Path(f"{folder}-again")
    assert elmokit.load(again).fingerprint() == elmo.fingerprint()
    assert (again / "modeling_elmo.py").is_file()  # carried on
    assert not (again / "transformers.py").exists()
    distrusted = run_fresh(REMOTE.replace("trust_remote_code=True", ""), again, tmp_path)
    assert distrusted.returncode != 0
    assert "trust_remote_code" in distrusted.stderr


# ---------------------------------------------------------------------- text
def test_tokens_and_offsets_are_those_of_elmokit(tiny: tuple[Embedder, Path]) -> None:
    elmo, folder = tiny
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = TEXTS[2]
    assert tokenizer.tokenize(text) == elmo.tokenize(text)
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    assert [text[start:end] for start, end in offsets] == elmo.tokenize(text)


def test_split_words_are_taken_as_they_are(tmp_path: Path) -> None:
    elmo, folder = save(on_words, tmp_path)
    tokenizer, model = auto(folder)
    sentences = [["the", "river bank", "a<S>b", "."], ["bank"]]
    batch = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    assert batch.word_ids(0) == [0, 1, 2, 3]
    assert batch.word_ids(1) == [0, None, None, None]
    with torch.no_grad():
        vectors = model(**batch).last_hidden_state
    expected = elmo.embed(sentences, layers="average")
    assert difference(vectors[0].numpy(), expected[0].vectors) <= EXACT
    assert difference(vectors[1, :1].numpy(), expected[1].vectors) <= EXACT
    one = tokenizer(sentences[0], is_split_into_words=True)
    assert one["input_ids"] == batch["input_ids"][0].tolist()


def test_strange_words_have_a_vector_each(tiny: tuple[Embedder, Path]) -> None:
    elmo, folder = tiny
    tokenizer, model = auto(folder)
    words = ["", "the", "\udc80", "a b", "<S>", "</S>", "x" * 99, "x\u2028y", "\0"]
    batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    assert batch.word_ids() == list(range(len(words)))
    with torch.no_grad():
        layers = torch.stack(model(**batch, output_hidden_states=True).hidden_states)[:, 0]
    assert difference(layers.numpy(), elmo.embed_tokens(words).layers) <= EXACT


def test_truncation_with_overlap_keeps_words_and_characters_together(
    tiny: tuple[Embedder, Path],
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny[1])
    whole = tokenizer(TEXTS[0], return_offsets_mapping=True)
    parts = tokenizer(
        TEXTS[0],
        truncation=True,
        max_length=3,
        stride=1,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert parts["overflow_to_sample_mapping"] == [0, 0, 0]
    for part, start in enumerate((0, 2, 4)):
        for name in ("character_ids", "offset_mapping"):
            assert parts[name][part] == whole[name][start : start + 3]


def test_an_empty_list_of_texts_is_an_empty_batch(tiny: tuple[Embedder, Path]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny[1])
    assert dict(tokenizer([])) == {"input_ids": [], "attention_mask": [], "character_ids": []}
    one = tokenizer([], is_split_into_words=True)  # one text without words
    assert dict(one) == {"input_ids": [], "attention_mask": [], "character_ids": []}
    assert dict(tokenizer([[]], is_split_into_words=True))["input_ids"] == [[]]


def test_pairs_and_wrong_kinds_of_text_are_refused(tiny: tuple[Embedder, Path]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny[1])
    assert "one text at a time" in complaint(lambda: tokenizer("the", "bank"))
    assert "one text at a time" in complaint(lambda: tokenizer(["the"], ["bank"]))
    assert "must be a string" in complaint(lambda: tokenizer([("the", "bank")]))
    assert "a list of words" in complaint(lambda: tokenizer("the", is_split_into_words=True))


def test_a_collator_pads_what_the_tokenizer_returned(tiny: tuple[Embedder, Path]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny[1])
    expected = tokenizer(TEXTS, padding=True, return_tensors="pt")
    for each in (tokenizer, pickle.loads(pickle.dumps(tokenizer))):
        collate = transformers.DataCollatorWithPadding(each)
        batch = collate([each(text) for text in TEXTS])
        assert set(batch) == set(expected)
        assert all(torch.equal(batch[name], expected[name]) for name in expected)


def test_a_model_trained_on_chinese_text_is_tokenized_with_jieba(tmp_path: Path) -> None:
    elmo = tiny_elmo()
    elmo.metadata = {"training": {"tokenizer": "chinese"}}
    elmo.save_pretrained(tmp_path / "native")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "native")
    text = "他坐在河岸上。"
    assert tokenizer.tokenize(text) == elmokit.load(tmp_path / "native").tokenize(text)
    tokenizer.save_pretrained(tmp_path / "alone")
    again = integration.ElmoTokenizer.from_pretrained(tmp_path / "alone")
    assert again.tokenize(text) == tokenizer.tokenize(text) != list(text)
    assert again(text)["character_ids"] == tokenizer(text)["character_ids"]


def test_the_dictionary_of_a_model_comes_with_its_tokenizer(tmp_path: Path) -> None:
    elmo, text = tiny_elmo(), "石墨烯芯片很快。"
    elmo.metadata = {"training": {"tokenizer": "chinese\n石墨烯"}}
    elmo.save_pretrained(tmp_path / "native")
    folder = tmp_path / "native"
    for name in ("first", "second"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        assert tokenizer.tokenize(text) == ["石墨烯", "芯片", "很快", "。"]
        transformers.AutoModel.from_pretrained(folder).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        assert elmokit.load(tmp_path / name).tokenize(text) == tokenizer.tokenize(text)
        folder = tmp_path / name


# ---------------------------------------------------------------------- pipelines and training
def test_the_pipeline_of_features(tiny: tuple[Embedder, Path]) -> None:
    elmo, folder = tiny
    extract = transformers.pipeline("feature-extraction", model=str(folder), device="cpu")
    texts = [TEXTS[0], TEXTS[3], TEXTS[2]]
    for vectors, sentence in zip(
        extract(texts, batch_size=2), elmo.embed(texts, layers="average"), strict=True
    ):
        result = np.array(vectors[0], np.float32)[: len(sentence.tokens)]
        assert difference(result, sentence.vectors) <= EXACT


def read_names(name: str) -> list[tuple[list[str], list[str]]]:
    """The sentences of an example file: words and labels."""
    blocks = (ROOT / "examples" / name).read_text(encoding="utf-8").strip().split("\n\n")
    pairs = [[line.split() for line in block.splitlines()] for block in blocks]
    return [([p[0] for p in block], [p[1] for p in block]) for block in pairs]


def arguments(folder: Path, **settings: Any) -> Any:
    return transformers.TrainingArguments(
        output_dir=str(folder),
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
        dataloader_pin_memory=False,
        **{"save_strategy": "no", **settings},
    )


def test_a_tagger_learns_names_on_the_frozen_shipped_model(tmp_path: Path) -> None:
    train, dev = read_names("names.train.conll"), read_names("names.dev.conll")
    labels = sorted({label for _, row in train for label in row})
    tokenizer, model = auto(
        SHIPPED["english"],
        "AutoModelForTokenClassification",
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
        classifier_dropout=0.1,
    )
    model.elmo.requires_grad_(False)
    model.elmo.mix.requires_grad_(True)

    def encode(sentences: list[tuple[list[str], list[str]]]) -> list[dict[str, Any]]:
        return [
            {**tokenizer(words, is_split_into_words=True), "labels": [labels.index(x) for x in row]}
            for words, row in sentences
        ]

    trainer = transformers.Trainer(
        model,
        arguments(
            tmp_path / "run", num_train_epochs=4, per_device_train_batch_size=8, learning_rate=0.02
        ),
        train_dataset=encode(train),
        eval_dataset=encode(dev),
        data_collator=transformers.DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.3 * before
    trainer.save_model(tmp_path / "names")
    assert elmokit.load(tmp_path / "names").fingerprint() == elmokit.load().fingerprint()
    check_name_pipeline(tmp_path / "names", dev)


def check_name_pipeline(folder: Path, dev: list[tuple[list[str], list[str]]]) -> None:
    """Load a saved tagger as a pipeline; words outside the vocabulary keep their spelling."""
    tag = transformers.pipeline(
        "token-classification", model=str(folder), aggregation_strategy="simple", device="cpu"
    )
    text = "Yesterday Anna Bergqvistsson flew to Kiel ."
    for entities in (tag(text), *tag([text, "He went to London ."], batch_size=2)[:1]):
        persons = [e for e in entities if e["entity_group"] == "PER"]
        assert [text[e["start"] : e["end"]] for e in persons] == ["Anna Bergqvistsson"]
        assert persons[0]["word"] == "Anna Bergqvistsson"
    plain = transformers.pipeline(
        "token-classification", model=str(folder), ignore_labels=[], device="cpu"
    )
    right = total = 0
    for words, row in dev:
        (result,) = plain(words, is_split_into_words=True)
        right += sum(e["entity"] == label for e, label in zip(result, row, strict=True))
        total += len(row)
    assert right / total > 0.9


@pytest.mark.parametrize("make", KINDS)
def test_a_model_of_any_kind_takes_a_tagger_and_pipelines(make: Make, tmp_path: Path) -> None:
    elmo, folder = save(make, tmp_path)
    tokenizer, model = auto(folder, "AutoModelForTokenClassification", num_labels=3)
    sentences = [["the", "river", "bank"], ["naïve"]]
    collate = transformers.DataCollatorForTokenClassification(tokenizer)
    words = tokenizer(sentences, is_split_into_words=True)
    rows = [
        {**{name: words[name][i] for name in words}, "labels": [i] * len(sentence)}
        for i, sentence in enumerate(sentences)
    ]
    output = model(**collate(rows))
    output.loss.backward()
    assert model.elmo.mix.weights.grad.abs().max() > 0
    assert next(model.elmo.bilm.parameters()).grad is not None
    model.save_pretrained(tmp_path / "tagger")
    tokenizer.save_pretrained(tmp_path / "tagger")
    tag = transformers.pipeline(
        "token-classification", model=str(tmp_path / "tagger"), ignore_labels=[], device="cpu"
    )
    expected = [f"LABEL_{i}" for i in output.logits[0].argmax(dim=1).tolist()]
    (split,) = tag(sentences[0], is_split_into_words=True)
    for entities in (tag("the river bank"), split):
        assert [entity["entity"] for entity in entities] == expected
        assert [entity["word"] for entity in entities] == sentences[0]
    extract = transformers.pipeline("feature-extraction", model=str(folder), device="cpu")
    (vectors,) = extract("the river bank")
    assert difference(np.array(vectors), elmo.embed("the river bank", "average").vectors) <= EXACT


def test_a_classifier_trains_the_elmo_along(
    tiny: tuple[Embedder, Path], reviews: tuple[Path, Path], tmp_path: Path
) -> None:
    elmo, folder = tiny
    lines = [line.split(" ", 1) for line in reviews[0].read_text().splitlines()]
    tokenizer, model = auto(
        folder,
        "AutoModelForSequenceClassification",
        id2label={0: "good", 1: "poor"},
        label2id={"good": 0, "poor": 1},
        classifier_dropout=0.0,
    )
    examples = [{**tokenizer(text), "labels": int(label == "poor")} for label, text in lines]
    trainer = transformers.Trainer(
        model,
        arguments(
            tmp_path / "run", max_steps=60, per_device_train_batch_size=16, learning_rate=0.03
        ),
        train_dataset=examples,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(tmp_path / "reviews")
    trained = elmokit.load(tmp_path / "reviews")
    assert trained.fingerprint() != elmo.fingerprint()
    assert distance(layers_of(tokenizer, model.elmo.eval(), TEXTS), trained, TEXTS) <= EXACT
    classify = transformers.pipeline(
        "text-classification", model=str(tmp_path / "reviews"), device="cpu"
    )
    results = classify(["the film was lovely .", "the play was awful .", "dull ."], batch_size=2)
    assert [result["label"] for result in results] == ["good", "poor", "poor"]


def test_training_in_bfloat16_resumes_from_a_checkpoint_that_elmokit_reads(
    tiny: tuple[Embedder, Path], tmp_path: Path
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny[1])
    texts = [" ".join(["the", "river", "bank"][: 1 + i % 3]) for i in range(24)]
    examples = [{**tokenizer(text), "labels": i % 3 % 2} for i, text in enumerate(texts)]

    def train(folder: Path, resume: Path | None = None) -> Any:
        torch.manual_seed(1)
        _, model = auto(tiny[1], "AutoModelForSequenceClassification", num_labels=2)
        settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "bf16": True}
        trainer = transformers.Trainer(
            model,
            arguments(folder, per_device_train_batch_size=8, learning_rate=0.01, **settings),
            train_dataset=examples,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            processing_class=tokenizer,
        )
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        return model

    whole = train(tmp_path / "whole")
    middle = tmp_path / "whole" / "checkpoint-3"
    resumed = train(tmp_path / "resumed", resume=middle)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], tensor, atol=1e-6, rtol=1e-5)
    marks = {
        elmokit.load(path).fingerprint()
        for path in (tiny[1], middle, tmp_path / "whole" / "checkpoint-6")
    }
    assert len(marks) == 3


def test_a_number_for_each_text_is_a_regression(tiny: tuple[Embedder, Path]) -> None:
    tokenizer, model = auto(tiny[1], "AutoModelForSequenceClassification", num_labels=1)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    output = model(**batch, labels=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    expected = (output.logits[:, 0] - torch.tensor([1.0, 2.0, 3.0, 4.0])).square().mean()
    torch.testing.assert_close(output.loss, expected)


def test_a_data_set_is_mapped_with_the_tokenizer(tiny: tuple[Embedder, Path]) -> None:
    datasets = pytest.importorskip("datasets")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny[1])
    table = datasets.Dataset.from_dict({"text": TEXTS})
    rows = table.map(lambda batch: tokenizer(batch["text"]), batched=True)
    assert rows[0]["character_ids"] == tokenizer(TEXTS[0])["character_ids"]


# ---------------------------------------------------------------------- sentence vectors
@pytest.fixture(scope="module")
def sentence_transformers() -> Any:
    return pytest.importorskip(
        "sentence_transformers",
        reason="sentence-transformers is not installed: pip install "
        "'elmokit[sentence-transformers]'",
    )


@pytest.mark.slow
def test_a_sentence_transformer_gives_the_sentence_vectors(
    sentence_transformers: Any, tmp_path: Path
) -> None:
    elmo = elmokit.load()
    texts = [*TEXTS, "He sat down. Then he stood up."]
    model = sentence_transformers.SentenceTransformer(str(SHIPPED["english"]), device="cpu")
    assert difference(model.encode(texts), elmo.sentence_vectors(texts)) <= EXACT
    assert difference(model.encode(texts[0]), elmo.sentence_vectors(texts[0])) <= EXACT
    top = sentence_transformers.SentenceTransformer(
        str(SHIPPED["english"]), device="cpu", config_kwargs={"output_layer": "top"}
    )
    assert difference(top.encode(texts), elmo.sentence_vectors(texts, layers="top")) <= EXACT
    top.save(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.encode(texts), top.encode(texts))
    assert elmokit.load(tmp_path / "saved").fingerprint() == elmo.fingerprint()


def make_task(mteb: Any, rows: list[list[str]]) -> Any:
    """The pairs of examples/similarity.tsv as a task of MTEB; the public tasks are downloaded."""
    datasets = pytest.importorskip("datasets")

    class OwnSimilarity(mteb.abstasks.AbsTaskSTS):
        metadata = mteb.TaskMetadata(
            name="OwnSimilarity",
            dataset={"path": "none", "revision": "1"},
            description="Pairs of sentences and how similar they are, from 0 to 5.",
            reference=None,
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
            date=None,
            domains=None,
            task_subtypes=None,
            license=None,
            annotations_creators=None,
            dialect=None,
            sample_creation=None,
            bibtex_citation=None,
        )
        min_score, max_score = 0, 5

        def load_data(self, *_: Any, **__: Any) -> None:
            one, two, scores = zip(*rows, strict=True)
            columns = {"sentence1": one, "sentence2": two, "score": [float(s) for s in scores]}
            self.dataset = {"test": datasets.Dataset.from_dict(columns)}
            self.data_loaded = True

    return OwnSimilarity()


@pytest.mark.slow
# It calls deprecated functions of its own and of sentence-transformers.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_task_of_mteb_runs_on_our_own_data(sentence_transformers: Any) -> None:
    mteb = pytest.importorskip("mteb", reason="mteb is not installed: pip install mteb")
    stats = pytest.importorskip("scipy.stats")
    lines = (ROOT / "examples" / "similarity.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    model = sentence_transformers.SentenceTransformer(str(SHIPPED["english"]), device="cpu")
    result = mteb.evaluate(model, make_task(mteb, rows), cache=None, show_progress_bar=False)
    elmo = elmokit.load()
    one, two = (elmo.sentence_vectors([row[i] for row in rows]) for i in (0, 1))
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    expected = stats.spearmanr((one * two).sum(1) / norms, [float(row[2]) for row in rows])
    assert result[0].get_score() == pytest.approx(expected.statistic, abs=1e-3)
