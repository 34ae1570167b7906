"""AllenNLP's names give what they gave there."""

from __future__ import annotations

import copy
import inspect
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from reference import Reference, character_ids, make_options, make_reference
from task_models import elmo_tensors, mix_tensors
from tiny import complaint, difference

import elmokit
from elmokit.allennlp import Elmo, ElmoEmbedder, ElmoTokenEmbedder, ScalarMix, batch_to_ids

BATCH = [["He", "sat", "by", "the", "bank", "."], ["Why", "?"], ["naïve", "中文" * 20, "x" * 60]]
LATER = [["The", "bank"], ["<S>", "a", "b", "c"]]
LARGER = [["one"], ["two", "three"], ["four"], ["five", "six", "seven"]]
LENGTHS = [6, 2, 3]

Files = tuple[str, str]


@pytest.fixture
def reference() -> Reference:
    return make_reference(make_options(highways=2))


@pytest.fixture
def files(tmp_path: Path, reference: Reference) -> Files:
    """Options and weights that nothing but their arguments says to belong together."""
    weights = reference.save(tmp_path)
    (tmp_path / "options.json").rename(tmp_path / "sizes.txt")
    return str(tmp_path / "sizes.txt"), str(weights)


def padded(arrays: list[np.ndarray]) -> np.ndarray:
    """Sentences of (tokens, dim) side by side, 0 where one has ended."""
    result = np.zeros((len(arrays), max(map(len, arrays)), arrays[0].shape[1]))
    for row, array in zip(result, arrays, strict=True):
        row[: len(array)] = array
    return result


def averages(reference: Reference, batch: list[list[str]], **settings: Any) -> np.ndarray:
    """What a mix gives at its start."""
    return padded([reference.embed(sentence, **settings).mean(0) for sentence in batch])


def output(elmo: Elmo, batch: list[list[str]], index: int = 0) -> np.ndarray:
    result = elmo(batch_to_ids(batch))["elmo_representations"][index]
    return np.asarray(result.detach().numpy())


# ---------------------------------------------------------------------- character ids
def test_character_ids_are_shifted_by_one_and_0_where_padded() -> None:
    batch = [["a", "", "naïve", "x" * 60], ["<S>", "</S>", "\ud800q"]]
    ids = batch_to_ids(batch)
    assert ids.dtype == torch.int64
    assert ids.shape == (2, 4, 50)
    for row, sentence in zip(ids.tolist(), batch, strict=True):
        for result, word in zip(row, sentence, strict=False):
            assert result == [i + 1 for i in character_ids(word, 50)]
    assert ids[0, 0].tolist() == [259, 98, 260] + [261] * 47
    assert ids[1, 0].tolist() == [259, 257, 260] + [261] * 47
    assert not ids[1, 3].any()
    assert batch_to_ids([[]]).shape == (1, 0, 50)
    assert "list of tokens" in complaint(lambda: batch_to_ids(["a string"]))


# ---------------------------------------------------------------------- the module
def test_outputs_have_the_names_and_shapes_of_allennlp(files: Files, reference: Reference) -> None:
    elmo = Elmo(*files, 2, dropout=0.0)
    result = elmo(batch_to_ids(BATCH))
    assert list(result) == ["elmo_representations", "mask"]
    assert [tuple(one.shape) for one in result["elmo_representations"]] == [(3, 6, 12)] * 2
    assert result["elmo_representations"][0].dtype == torch.float32
    assert result["mask"].dtype == torch.bool
    assert result["mask"].sum(1).tolist() == LENGTHS
    expected = averages(reference, BATCH)
    for i in (0, 1):
        assert difference(output(elmo, BATCH, i), expected) < 2e-6
    assert elmo.get_output_dim() == 12


def test_every_call_starts_from_zero_states_unless_stateful(
    files: Files, reference: Reference
) -> None:
    batches = [BATCH, LATER, LARGER]
    carried = reference.embed_batches(batches, rows=4)
    afresh = Elmo(*files, 1, dropout=0.0)
    for requires_grad in (False, True):
        going_on = Elmo(*files, 1, requires_grad, dropout=0.0, stateful=True)
        for batch, layers in zip(batches, carried, strict=True):
            assert difference(output(afresh, batch), averages(reference, batch)) < 2e-6
            expected = padded([array.mean(0) for array in layers])
            assert difference(output(going_on, batch), expected) < 2e-6
    going_on.reset_states()
    assert difference(output(going_on, LATER), averages(reference, LATER)) < 2e-6


def test_boundaries_are_kept_on_request(files: Files, reference: Reference) -> None:
    elmo = Elmo(*files, 1, dropout=0.0, keep_sentence_boundaries=True)
    assert difference(output(elmo, BATCH), averages(reference, BATCH, boundaries=True)) < 2e-6
    assert elmo(batch_to_ids(BATCH))["mask"].sum(1).tolist() == [8, 4, 5]


def test_layers_are_normalised_with_their_boundaries(files: Files, reference: Reference) -> None:
    elmo = Elmo(*files, 1, do_layer_norm=True, dropout=0.0)
    framed = [reference.embed(sentence, boundaries=True) for sentence in BATCH]
    expected = []
    for layer in range(3):
        numbers = np.concatenate([array[layer] for array in framed])
        mean, deviation = numbers.mean(), numbers.std()
        expected.append([(array[layer, 1:-1] - mean) / deviation for array in framed])
    mixed = [np.mean(layers, axis=0) for layers in zip(*expected, strict=True)]
    assert difference(output(elmo, BATCH), padded(mixed)) < 1e-5


def test_given_weights_are_kept(files: Files, reference: Reference) -> None:
    elmo = Elmo(*files, 1, dropout=0.0, scalar_mix_parameters=[-9e10, 1, -9e10])
    expected = padded([reference.embed(sentence)[1] for sentence in BATCH])
    assert difference(output(elmo, BATCH), expected) < 2e-6
    assert not any(parameter.requires_grad for parameter in elmo.parameters())
    message = complaint(lambda: Elmo(*files, 1, scalar_mix_parameters=[1.0, 2.0]))
    assert message == "3 layers need as many weights, not 2"


def test_the_mixes_learn_and_the_bilm_only_where_asked(files: Files) -> None:
    for requires_grad in (False, True):
        elmo = Elmo(*files, 1, requires_grad=requires_grad, dropout=0.0)
        elmo(batch_to_ids(BATCH))["elmo_representations"][0].square().sum().backward()
        learned = {n for n, p in elmo.named_parameters() if p.grad is not None and p.grad.any()}
        of_bilm = {n for n, _ in elmo.named_parameters() if n.startswith("_elmo_lstm.")}
        assert "scalar_mix_0.gamma" in learned
        assert learned & of_bilm == (of_bilm if requires_grad else set())


def test_changed_weights_change_the_vectors(files: Files) -> None:
    elmo = Elmo(*files, 1, dropout=0.0)
    before = output(elmo, BATCH)
    with torch.no_grad():
        for name, parameter in elmo.named_parameters():
            if name.startswith("_elmo_lstm."):
                parameter.mul_(0.5)
    assert difference(output(elmo, BATCH), before) > 1e-3
    assert difference(output(copy.deepcopy(elmo), BATCH), output(elmo, BATCH)) < 2e-6


def test_dropout_is_of_the_outputs_and_of_nothing_inside(files: Files) -> None:
    for requires_grad in (False, True):
        elmo = Elmo(*files, 1, requires_grad, dropout=0.5)
        whole = output(elmo.eval(), BATCH)
        dropped = output(elmo.train(), BATCH)
        kept = dropped != 0
        assert 0.3 < kept.sum() / (whole != 0).sum() < 0.7
        assert difference(dropped[kept], 2 * whole[kept]) < 2e-6


def test_more_dimensions_stay_as_they_are(files: Files, reference: Reference) -> None:
    elmo = Elmo(*files, 1, dropout=0.0)
    ids = torch.stack([batch_to_ids(BATCH), batch_to_ids(BATCH).flip(0)])
    result = elmo(ids)
    assert result["mask"].shape == (2, 3, 6)
    expected = averages(reference, BATCH)
    outputs = result["elmo_representations"][0].detach().numpy()
    assert difference(outputs, np.stack([expected, expected[::-1]])) < 2e-6


def test_numbers_of_cached_words_stand_for_their_characters(
    files: Files, reference: Reference
) -> None:
    words = ["@@PADDING@@", *sorted({word for sentence in BATCH for word in sentence})]
    elmo = Elmo(*files, 1, dropout=0.0, vocab_to_cache=words)
    numbers = torch.zeros(3, 6, dtype=torch.long)
    for row, sentence in enumerate(BATCH):
        numbers[row, : len(sentence)] = torch.tensor([words.index(word) for word in sentence])
    nothing = torch.zeros(3, 6, 50, dtype=torch.long)
    result = elmo(nothing, numbers)
    assert result["mask"].sum(1).tolist() == LENGTHS
    outputs = result["elmo_representations"][0].detach().numpy()
    assert difference(outputs, averages(reference, BATCH)) < 2e-6
    numbers[0, 0] = len(words)  # a word that is not there: the characters are read
    outputs = elmo(batch_to_ids(BATCH), numbers)["elmo_representations"][0].detach().numpy()
    assert difference(outputs, averages(reference, BATCH)) < 2e-6
    with pytest.warns(UserWarning, match="not used without vocab_to_cache"):
        Elmo(*files, 1)(batch_to_ids(BATCH), numbers)


def test_a_custom_module_replaces_the_bilm() -> None:
    class Fixed(torch.nn.Module):
        num_layers = 2

        def forward(self, inputs: torch.Tensor, words: torch.Tensor | None) -> dict[str, Any]:
            layer = torch.arange(5.0).reshape(1, 5, 1).expand(len(inputs), 5, 4)
            return {"activations": [layer, 3 * layer], "mask": torch.ones(len(inputs), 5).bool()}

    elmo = Elmo(None, None, 1, dropout=0.0, module=Fixed())
    result = elmo(torch.ones(2, 3, 50, dtype=torch.long))["elmo_representations"][0]
    assert result[0, :, 0].tolist() == [2.0, 4.0, 6.0]
    message = complaint(lambda: Elmo("a", "b", 1, module=Fixed()))
    assert message == "give options_file and weight_file, or a module, but not both"


def test_a_state_dict_has_the_names_and_numbers_of_allennlp(
    files: Files, reference: Reference
) -> None:
    arrays = elmo_tensors(reference) | mix_tensors()
    result = Elmo(*files, 2).state_dict()
    assert set(result) == set(arrays)
    for name, array in arrays.items():
        assert result[name].shape == array.shape
        if name.startswith("_elmo_lstm."):
            np.testing.assert_allclose(result[name], array, atol=1e-7, rtol=0)


def test_a_state_dict_of_allennlp_is_loaded(files: Files, reference: Reference) -> None:
    other = make_reference(reference.options, seed=5)
    arrays = elmo_tensors(other) | mix_tensors()
    state = {f"elmo.{name}": torch.from_numpy(array) for name, array in arrays.items()}
    task = torch.nn.ModuleDict({"elmo": Elmo(*files, 2, dropout=0.0)})
    task.load_state_dict(state | {"elmo._elmo_lstm._word_embedding.weight": torch.ones(3, 6)})
    layers = [other.embed(sentence) for sentence in BATCH]
    shares = np.exp([-1.0, 0.0, 2.0]) / np.exp([-1.0, 0.0, 2.0]).sum()
    expected = padded([1.5 * np.einsum("l,ltd->td", shares, one) for one in layers])
    elmo = task["elmo"]
    assert isinstance(elmo, Elmo)
    assert difference(output(elmo, BATCH, 1), expected) < 2e-6
    name = "elmo._elmo_lstm._token_embedder._projection.weight"
    with pytest.raises(
        RuntimeError, match=r"_projection.weight has the shape \[5\], not \[6, 15\]"
    ):
        task.load_state_dict(state | {name: torch.ones(5)})
    state["elmo._elmo_lstm.other"] = torch.ones(1)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*_elmo_lstm\.other"):
        task.load_state_dict(state)


def test_the_arguments_have_the_names_and_defaults_of_allennlp() -> None:
    made = inspect.signature(Elmo).parameters
    assert list(made)[:10] == [
        "options_file", "weight_file", "num_output_representations", "requires_grad",
        "do_layer_norm", "dropout", "vocab_to_cache", "keep_sentence_boundaries",
        "scalar_mix_parameters", "module",
    ]  # fmt: skip
    assert made["dropout"].default == 0.5
    assert made["requires_grad"].default is False
    assert list(inspect.signature(Elmo.forward).parameters) == ["self", "inputs", "word_inputs"]
    assert list(inspect.signature(ElmoEmbedder).parameters)[:3] == [
        "options_file", "weight_file", "cuda_device",
    ]  # fmt: skip
    assert list(inspect.signature(ElmoEmbedder.embed_file).parameters)[1:] == [
        "input_file", "output_file_path", "output_format", "batch_size", "forget_sentences",
        "use_sentence_keys",
    ]  # fmt: skip
    assert inspect.signature(ElmoEmbedder.embed_sentences).parameters["batch_size"].default == 64
    assert list(inspect.signature(ScalarMix).parameters) == [
        "mixture_size", "do_layer_norm", "initial_scalar_parameters", "trainable",
    ]  # fmt: skip


def test_a_mix_with_equal_weights_is_the_scaled_average() -> None:
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.gamma.fill_(2.0)
    result = mix([torch.full((2, 4), float(i)) for i in (1, 2, 6)])
    assert torch.allclose(result, torch.full((2, 4), 6.0))
    assert "needs 3 layers, not 1" in complaint(lambda: mix([torch.ones(2, 4)]))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.ones(2, 3, 49, dtype=torch.long), "character ids of shape (sentences, tokens, 50)"),
        (torch.ones(2, 3, 50), "character ids of shape (sentences, tokens, 50)"),
        (torch.full((2, 3, 50), 262), "character ids must be 0 to 261"),
        (torch.full((2, 3, 50), -1), "character ids must be 0 to 261"),
        (batch_to_ids([["a", "b"]]).flip(1).roll(1, 1) * torch.tensor([[[0], [1]]]),
         "padding (character ids of 0) before its end"),
    ],
)  # fmt: skip
def test_other_inputs_are_refused(files: Files, inputs: torch.Tensor, message: str) -> None:
    assert message in complaint(lambda: Elmo(*files, 1)(inputs))


def test_sentences_without_tokens_have_no_vectors(files: Files) -> None:
    elmo = Elmo(*files, 1, dropout=0.0)
    for ids, shape in (
        (torch.zeros(2, 3, 50, dtype=torch.long), (2, 3, 12)),
        (torch.zeros(2, 0, 50, dtype=torch.long), (2, 0, 12)),
    ):
        result = elmo(ids)
        assert tuple(result["elmo_representations"][0].shape) == shape
        assert not result["elmo_representations"][0].any()
        assert not result["mask"].any()


def test_files_that_do_not_fit_are_reported(files: Files, tmp_path: Path) -> None:
    options, weights = files
    address = "https://allennlp.s3.amazonaws.com/elmo_options.json"
    message = complaint(lambda: Elmo(address, weights, 1))
    assert message == f"elmokit does not download URLs: fetch {address} and give its path"
    assert "needs its weight_file" in complaint(lambda: ElmoEmbedder(options))
    assert "cannot read" in complaint(lambda: ElmoEmbedder("no.json", weights))
    assert "there is no file" in complaint(lambda: ElmoEmbedder(options, "no.hdf5"))
    words = make_reference(make_options(words=3), vocabulary=["<S>", "</S>", "<UNK>"])
    path = words.save(tmp_path / "words")
    message = complaint(lambda: Elmo(path.with_name("options.json"), path, 1))
    assert message == f"Elmo needs a model on characters, but {path} is on words"


def test_any_model_on_characters_is_taken_and_the_shipped_one_without_files() -> None:
    elmo = Elmo(None, None, 1, dropout=0.0)
    expected = elmokit.load().embed([BATCH[1]], layers="average")[0].vectors
    assert difference(output(elmo, BATCH[1:2])[0], expected) < 1e-5
    assert ElmoEmbedder().embed_sentence(BATCH[1]).shape == (3, 2, 384)


# ---------------------------------------------------------------------- the embedder
def test_sentences_become_all_layers(files: Files, reference: Reference) -> None:
    embedder = ElmoEmbedder(*files)
    sentences = [*BATCH, [], *LATER]
    expected = [reference.embed(sentence) for sentence in BATCH] + [np.zeros((3, 0, 12))]
    expected += [reference.embed(sentence) for sentence in LATER]
    one_by_one = [embedder.embed_sentence(sentence) for sentence in sentences]
    assert inspect.isgenerator(embedder.embed_sentences(iter(sentences)))
    streamed = list(embedder.embed_sentences(iter(sentences), batch_size=2))
    for result in (one_by_one, embedder.embed_batch(sentences), streamed):
        assert [array.shape for array in result] == [(3, len(s), 12) for s in sentences]
        for array, target in zip(result, expected, strict=True):
            assert isinstance(array, np.ndarray)
            assert array.dtype == np.float32
            assert difference(array, target) < 2e-6
    assert "list of tokens" in complaint(lambda: embedder.embed_sentence("a string"))
    assert "batch_size" in complaint(lambda: list(embedder.embed_sentences(BATCH, 0)))


def test_the_embedder_carries_its_state_on_request(files: Files, reference: Reference) -> None:
    batches = [BATCH, LATER, LARGER]
    embedder = ElmoEmbedder(*files, stateful=True)
    for batch, layers in zip(batches, reference.embed_batches(batches, rows=4), strict=True):
        for result, target in zip(embedder.embed_batch(batch), layers, strict=True):
            assert difference(result, target) < 2e-6
    assert embedder.embed_batch([[]])[0].shape == (3, 0, 12)


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_a_file_becomes_datasets_by_number(
    files: Files, reference: Reference, tmp_path: Path, output_format: str
) -> None:
    lines = ["The river bank .", "Why ?", "The river bank ."]
    target = tmp_path / "vectors.hdf5"
    target.write_text("what was there before")
    text = io.StringIO("".join(f"{line} \n" for line in lines))
    ElmoEmbedder(*files).embed_file(text, str(target), output_format, batch_size=2)
    with h5py.File(target) as file:
        assert set(file) == {"0", "1", "2", "sentence_to_index"}
        index = json.loads(file["sentence_to_index"].asstr()[0])
        assert file["sentence_to_index"].shape == (1,)
        assert index == {"The river bank .": "2", "Why ?": "1"}
        for i, line in enumerate(lines):
            layers = reference.embed(line.split())
            correct = {"all": layers, "top": layers[-1], "average": layers.mean(0)}[output_format]
            assert file[str(i)].dtype == np.float32
            assert difference(file[str(i)][...], correct) < 2e-6
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "sizes.txt", "vectors.hdf5", "weights.hdf5",
    ]  # fmt: skip


def test_a_file_may_have_sentences_as_keys_or_none(files: Files, tmp_path: Path) -> None:
    embedder, target = ElmoEmbedder(*files), tmp_path / "vectors.hdf5"
    embedder.embed_file(io.StringIO("a b\nc\n"), target, use_sentence_keys=True)
    with h5py.File(target) as file:
        assert {name: file[name].shape for name in file} == {"a b": (3, 2, 12), "c": (3, 1, 12)}
    embedder.embed_file(io.StringIO("a b\nc\n"), target, forget_sentences=True)
    with h5py.File(target) as file:
        assert set(file) == {"0", "1"}


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a\na\n", {"use_sentence_keys": True}, "'a' occurs twice"),
        ("a\na/b\n", {"use_sentence_keys": True}, "'a/b' cannot be a key in HDF5"),
        ("a\n\nb\n", {}, "line 2 of the input is empty"),
        ("a\n", {"output_format": "last"}, "output_format must be one of all, top, average"),
    ],
)
def test_a_file_that_cannot_be_embedded_leaves_what_was_there(
    files: Files, tmp_path: Path, text: str, settings: dict[str, Any], message: str
) -> None:
    embedder, target = ElmoEmbedder(*files), tmp_path / "vectors.hdf5"
    target.write_text("before")
    result = complaint(lambda: embedder.embed_file(io.StringIO(text), target, **settings))
    assert message in result
    assert target.read_text() == "before"


def test_a_path_that_cannot_be_written_is_reported(files: Files, tmp_path: Path) -> None:
    embedder, target = ElmoEmbedder(*files), tmp_path / "no" / "x.h5"
    assert "cannot write" in complaint(lambda: embedder.embed_file(io.StringIO("a\n"), target))


# ---------------------------------------------------------------------- AllenNLP itself
def test_everything_is_as_allennlp_has_it(
    tmp_path: Path, reference: Reference, allennlp_python: str
) -> None:
    reference.save(tmp_path)
    batches = [BATCH, LATER, LARGER]
    (tmp_path / "batches.json").write_text(json.dumps(batches))
    script = Path(__file__).parents[1] / "helpers" / "allennlp_peer.py"
    subprocess.run([allennlp_python, script, tmp_path], check=True, capture_output=True)
    expected = np.load(tmp_path / "expected.npz")
    state = torch.load(tmp_path / "elmo.th", weights_only=True)
    files = tmp_path / "options.json", tmp_path / "weights.hdf5"
    modes: dict[str, dict[str, Any]] = {
        "plain": {},
        "normed": {"do_layer_norm": True},
        "framed": {"keep_sentence_boundaries": True},
    }
    for mode, settings in modes.items():
        elmo = Elmo(*files, 2, dropout=0.0, stateful=True, **settings)
        elmo.load_state_dict(state)
        for i, batch in enumerate(batches):
            ids = batch_to_ids(batch)
            np.testing.assert_array_equal(ids, expected[f"ids_{i}"])
            result = elmo(ids)
            np.testing.assert_array_equal(result["mask"], expected[f"{mode}_{i}_mask"])
            for k, one in enumerate(result["elmo_representations"]):
                target = expected[f"{mode}_{i}_{k}"]
                assert difference(one.detach().numpy(), target) < 2e-6
    own = elmo.state_dict()
    assert {n: t.shape for n, t in own.items()} == {n: t.shape for n, t in state.items()}
    assert max(float((own[name] - state[name]).abs().max()) for name in state) < 1e-7
    elmo = Elmo(*files, 1, dropout=0.0, vocab_to_cache=expected["words"].tolist())
    result = elmo(torch.zeros(expected["ids_0"].shape).long(), torch.tensor(expected["numbers"]))
    outputs = result["elmo_representations"][0].detach().numpy()
    assert difference(outputs, expected["cached"]) < 2e-6


# ---------------------------------------------------------------------- the other names
def test_embeddings_of_a_batch_are_padded_tensors_with_their_mask(
    files: Files, reference: Reference
) -> None:
    embedder = ElmoEmbedder(*files)
    layers, mask = embedder.batch_to_embeddings(BATCH)
    assert layers.shape == (3, 3, 6, 12)
    assert mask.tolist() == [[1] * n + [0] * (6 - n) for n in LENGTHS]
    for row, sentence in zip(layers.numpy(), BATCH, strict=True):
        expected = reference.embed(sentence)
        assert difference(row[:, : len(sentence)], expected) < 2e-6
        assert not row[:, len(sentence) :].any()
    assert [tuple(t.shape) for t in embedder.batch_to_embeddings([[]])] == [(1, 3, 0, 12), (1, 0)]
    assert "list of tokens" in complaint(lambda: embedder.batch_to_embeddings(["a string"]))


def test_a_token_embedder_is_an_elmo_with_one_mix(files: Files, reference: Reference) -> None:
    embedder = ElmoTokenEmbedder(*files, dropout=0.0)
    assert list(inspect.signature(ElmoTokenEmbedder).parameters) == [
        "options_file", "weight_file", "do_layer_norm", "dropout", "requires_grad",
        "projection_dim", "vocab_to_cache", "scalar_mix_parameters",
    ]  # fmt: skip
    vectors = embedder(batch_to_ids(BATCH)).detach().numpy()
    assert difference(vectors, averages(reference, BATCH)) < 2e-6
    assert embedder.get_output_dim() == 12
    projected = ElmoTokenEmbedder(*files, False, 0.0, projection_dim=5)
    assert projected.get_output_dim() == 5
    state = projected.state_dict()
    assert state["_projection.weight"].shape == (5, 12)
    assert "_elmo.scalar_mix_0.gamma" in state
    expected = vectors @ state["_projection.weight"].numpy().T + state["_projection.bias"].numpy()
    assert difference(projected(batch_to_ids(BATCH)).detach().numpy(), expected) < 1e-5
    projected(batch_to_ids(BATCH)).sum().backward()
    assert projected._projection is not None
    assert projected._projection.weight.grad is not None


def test_wrong_arguments_are_sentences(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    elmo = Elmo(*files, 1)
    assert "pass batch_to_ids(sentences)" in complaint(lambda: elmo([["a"]]))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    message = complaint(lambda: ElmoEmbedder(*files, cuda_device=0))
    assert message == "cuda_device is 0, but torch finds 0 GPUs here: use -1 for the CPU"
