"""TensorFlow Hub's google/elmo: its variables are found, and it is called as it was."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import module_tensors, save_module, write_bundle
from reference import Reference, make_options, make_reference
from tiny import complaint, difference

import elmokit
from elmokit.cli.main import main
from elmokit.formats.checkpoint import check_tensors
from elmokit.formats.detect import read_checkpoint
from elmokit.model.bilm import expected_shapes

STRINGS = ["the cat is on the mat", "dogs  are in the fog ", "naïve 中文"]
SPLIT = [["the", "cat", "is", "on", "the", "mat"], ["dogs", "are", "in", "the", "fog"]]
SPLIT += [["naïve", "中文"]]
WEIGHTS, SCALING = np.array([0.5, -1.0, 0.25]), 1.75
NAMES = ["default", "elmo", "lstm_outputs1", "lstm_outputs2", "word_emb"]
CLOSE = 1e-5


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference(make_options(highways=2))


@pytest.fixture(scope="module")
def folder(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "elmo_3"
    return save_module(reference, path, weights=WEIGHTS, scaling=SCALING)


@pytest.fixture(scope="module")
def module(folder: Path) -> elmokit.hub.Module:
    return elmokit.hub.load(folder)


def expected_outputs(
    reference: Reference, sentences: list[list[str]], weights: np.ndarray, scaling: float
) -> list[dict[str, np.ndarray]]:
    """Every output of each sentence, without padding, as the module's page describes them."""
    shares = np.exp(weights) / np.exp(weights).sum()
    result = []
    for sentence in sentences:
        layers = reference.embed(sentence)
        mixed = scaling * sum(share * layer for share, layer in zip(shares, layers, strict=True))
        result.append(
            {
                "word_emb": np.array([reference.token_vector(word) for word in sentence]),
                "lstm_outputs1": layers[1],
                "lstm_outputs2": layers[2],
                "elmo": mixed,
                "default": mixed.mean(axis=0),
            }
        )
    return result


def assert_outputs(actual: dict[str, np.ndarray], expected: list[dict[str, np.ndarray]]) -> None:
    """Equal where there are tokens, 0 behind them."""
    assert sorted(actual) == NAMES
    for name, arrays in actual.items():
        assert arrays.dtype == np.float32
        for row, target in zip(arrays, expected, strict=True):
            if name == "default":
                assert difference(row, target[name]) < CLOSE
            else:
                length = len(target[name])
                assert difference(row[:length], target[name]) < CLOSE
                assert not row[length:].any()


# ---------------------------------------------------------------------- calling
def test_strings_give_all_outputs(module: elmokit.hub.Module, reference: Reference) -> None:
    result = module(STRINGS)
    assert {name: array.shape for name, array in result.items()} == {
        "word_emb": (3, 6, 6),
        "lstm_outputs1": (3, 6, 12),
        "lstm_outputs2": (3, 6, 12),
        "elmo": (3, 6, 12),
        "default": (3, 12),
    }
    assert_outputs(result, expected_outputs(reference, SPLIT, WEIGHTS, SCALING))


def test_tokens_give_them_too(module: elmokit.hub.Module, reference: Reference) -> None:
    padded = [(row + [""] * 7)[:8] for row in SPLIT]
    inputs = {"tokens": padded, "sequence_len": [6, 5, 2]}
    result = module(inputs=inputs, signature="tokens", as_dict=True)
    assert result["elmo"].shape == (3, 8, 12)  # as long as what was given
    assert_outputs(result, expected_outputs(reference, SPLIT, WEIGHTS, SCALING))
    as_arrays = {"tokens": np.array(padded), "sequence_len": np.array([6, 5, 2], np.int32)}
    as_bytes = {
        "tokens": np.array([[token.encode() for token in row] for row in padded], object),
        "sequence_len": (6, 5, 2),
    }
    for other in (as_arrays, as_bytes):
        np.testing.assert_array_equal(module(other, signature="tokens")["elmo"], result["elmo"])


def test_only_the_tokens_within_the_length_count(
    module: elmokit.hub.Module, reference: Reference
) -> None:
    result = module({"tokens": SPLIT[:1], "sequence_len": [2]}, signature="tokens")
    assert result["elmo"].shape == (1, 6, 12)
    assert_outputs(result, expected_outputs(reference, [["the", "cat"]], WEIGHTS, SCALING))


def test_strings_are_split_at_spaces_alone(
    module: elmokit.hub.Module, reference: Reference
) -> None:
    result = module([" don't\tstop   now."])
    expected = expected_outputs(reference, [["don't\tstop", "now."]], WEIGHTS, SCALING)
    assert_outputs(result, expected)


def test_old_and_new_ways_of_calling_it(module: elmokit.hub.Module) -> None:
    expected = module(STRINGS)
    np.testing.assert_array_equal(module(STRINGS, as_dict=False), expected["default"])
    for result in (
        module.signatures["default"](STRINGS),
        module.signatures["default"](strings=np.array(STRINGS)),
        module({"strings": [text.encode() for text in STRINGS]}),
        module.signatures["tokens"](tokens=SPLIT, sequence_len=[6, 5, 2]),
    ):
        np.testing.assert_array_equal(result["elmo"], expected["elmo"])


def test_sentences_without_tokens_are_zeros(module: elmokit.hub.Module) -> None:
    result = module(["", "the"])
    assert result["elmo"].shape == (2, 1, 12)
    assert not result["elmo"][0].any()
    assert not result["default"][0].any()
    assert result["default"][1].any()
    assert module([])["elmo"].shape == (0, 0, 12)
    assert module(["", " "])["default"].shape == (2, 12)


def test_it_is_reached_without_an_import_of_its_own() -> None:
    code = "import elmokit; print(elmokit.hub.load.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "elmokit.compat.tf_hub\n"


@pytest.mark.parametrize(
    ("inputs", "signature", "sentence"),
    [
        ("the cat", "default", "takes a list of sentences, not a single string"),
        ([["the", "cat"]], "default", r"takes strings, not \['the', 'cat'\]"),
        (["the cat"], "words", "signature must be default or tokens, not 'words'"),
        (["the cat"], "tokens", "the signature tokens needs the inputs tokens and sequence_len"),
        ({"text": ["a"]}, "default", "the signature default needs the inputs strings"),
        ({"tokens": [["a"]], "sequence_len": [2]}, "tokens", r"is 2, but its tokens are \['a'\]"),
        ({"tokens": [["a"]], "sequence_len": [-1]}, "tokens", "a sequence_len is -1"),
        ({"tokens": [["a"]], "sequence_len": [1, 1]}, "tokens", "must be 1 integers"),
        ({"tokens": [["a"]], "sequence_len": [0.5]}, "tokens", "must be 1 integers"),
        ({"tokens": ["a"], "sequence_len": [1]}, "tokens", "a sequence_len is 1, but its tokens"),
        ({"tokens": [[3]], "sequence_len": [1]}, "tokens", "takes strings, not 3"),
    ],
)
def test_wrong_inputs_are_reported_in_one_sentence(
    module: elmokit.hub.Module, inputs: Any, signature: str, sentence: str
) -> None:
    with pytest.raises(elmokit.ElmokitError, match=sentence):
        module(inputs, signature=signature)


# ---------------------------------------------------------------------- the model
def test_the_module_is_a_model_like_any_other(folder: Path, reference: Reference) -> None:
    checkpoint = read_checkpoint(folder)
    check_tensors(checkpoint, expected_shapes(checkpoint.config))
    assert checkpoint.format == "tensorflow hub"
    assert checkpoint.metadata["options"] == reference.options
    assert checkpoint.metadata["aggregation"] == {"weights": WEIGHTS.tolist(), "scaling": SCALING}
    for path in (folder, folder / "saved_model.pb"):
        result = elmokit.load(path).embed_tokens(SPLIT[0]).layers
        assert difference(result, reference.embed(SPLIT[0])) < CLOSE
    assert "no softmax" in complaint(lambda: elmokit.load(folder).surprisal("the cat"))


def test_its_scalars_are_kept_by_our_own_format(
    folder: Path, module: elmokit.hub.Module, tmp_path: Path
) -> None:
    assert main(["convert", str(folder), str(tmp_path / "native")]) == 0
    again = elmokit.hub.load(tmp_path / "native")
    assert again.scaling == SCALING
    np.testing.assert_array_equal(again.weights, WEIGHTS)
    for name, array in module(STRINGS).items():
        np.testing.assert_array_equal(again(STRINGS)[name], array)


def test_any_model_can_be_called_so_with_its_layers_averaged(tmp_path: Path) -> None:
    reference = make_reference(seed=4)
    result = elmokit.hub.load(reference.save(tmp_path))(STRINGS)
    assert_outputs(result, expected_outputs(reference, SPLIT, np.zeros(3), 1.0))
    bare = elmokit.hub.load(save_module(reference, tmp_path / "bare"))(STRINGS)  # no aggregation
    np.testing.assert_array_equal(bare["elmo"], result["elmo"])


def test_a_module_of_more_layers_has_more_outputs(tmp_path: Path) -> None:
    reference = make_reference(make_options(layers=3))
    path = save_module(reference, tmp_path, weights=np.arange(4.0))
    result = elmokit.hub.load(path)(STRINGS)
    assert difference(result["lstm_outputs3"][0], reference.embed(SPLIT[0])[3]) < CLOSE


def test_options_beside_it_say_what_the_variables_cannot(tmp_path: Path) -> None:
    options = make_options(activation="tanh", cell_clip=0.1, skip=False)
    reference = make_reference(options)
    path = save_module(reference, tmp_path)
    wrong = elmokit.load(path).embed_tokens(SPLIT[0]).layers
    assert difference(wrong, reference.embed(SPLIT[0])) > 0.01
    reference.save(tmp_path)
    (tmp_path / "weights.hdf5").unlink()
    right = elmokit.load(path).embed_tokens(SPLIT[0]).layers
    assert difference(right, reference.embed(SPLIT[0])) < CLOSE


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module/{name}",
        lambda name: name.removeprefix("bilm/"),
        lambda name: name.replace("rnn/lstm_cell/projection/kernel", "LSTMCell/W_P_0"),
        lambda name: name.replace("aggregation/weights", "elmo_output_ELMo_W").replace(
            "aggregation/scaling", "elmo_output_ELMo_gamma"
        ),
    ],
)
def test_names_are_known_by_their_ends(
    reference: Reference,
    module: elmokit.hub.Module,
    tmp_path: Path,
    rename: Callable[[str], str],
) -> None:
    tensors = module_tensors(reference, WEIGHTS, SCALING)
    tensors["bilm/Variable_1"] = np.zeros((128, 6), np.float32)  # the state of bilm-tf's program
    renamed = {rename(name): array for name, array in tensors.items()}
    assert len(renamed) == len(tensors)
    write_bundle(tmp_path / "variables" / "variables", renamed)
    result = elmokit.hub.load(tmp_path)(STRINGS)
    np.testing.assert_array_equal(result["elmo"], module(STRINGS)["elmo"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda t: [t.pop(name) for name in list(t) if "bilm" in name],
            r"variables/variables lacks the variable 'RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B'$",
        ),
        (
            lambda t: t.update({"bilm/gate": t.pop("bilm/CNN_high_0/W_carry")}),
            r"known kind of ELMo; unknown variables: 'bilm/gate' \[15, 15\]$",
        ),
        (
            lambda t: t.update({"bilm/CNN_proj/W": t.pop("bilm/CNN_proj/W_proj")}),
            r"unknown variables: 'bilm/CNN_proj/W' \[15, 6\]",
        ),
        (lambda t: t.pop("aggregation/scaling"), "has weights or scaling of its layers, not both"),
        (
            lambda t: t.update({"aggregation/weights": np.zeros(2, np.float32)}),
            "'aggregation/weights' does not fit the model",
        ),
        (
            lambda t: t.update({"aggregation/scaling": np.array(np.nan, np.float32)}),
            "'aggregation/scaling' has values that are not finite",
        ),
        (
            lambda t: t.update({"bilm/char_embed": np.zeros((300, 4), np.float32)}),
            r"'bilm/char_embed' has the shape \[300, 4\]",
        ),
    ],
)
def test_what_was_not_recognised_is_listed(
    reference: Reference,
    tmp_path: Path,
    change: Callable[[dict[str, np.ndarray]], object],
    sentence: str,
) -> None:
    tensors = module_tensors(reference, WEIGHTS, SCALING)
    change(tensors)
    write_bundle(tmp_path / "variables" / "variables", tensors)
    with pytest.raises(elmokit.ElmokitError, match=sentence):
        elmokit.load(tmp_path)


def test_another_module_is_reported_with_its_variables(tmp_path: Path) -> None:
    encoder = {f"Encoder_en/block_{i}/dense/kernel": np.zeros((3, 2), np.float32) for i in range(7)}
    write_bundle(tmp_path / "variables" / "variables", encoder)
    assert "is not a known kind of ELMo; unknown variables: 'Encoder_en/block_0/dense/kernel' " \
        "[3, 2]," in complaint(lambda: elmokit.load(tmp_path))  # fmt: skip
    assert complaint(lambda: elmokit.load(tmp_path)).endswith("and 2 more")


# ---------------------------------------------------------------------- TensorFlow itself
EXPORT = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
sys.modules["tensorflow"] = tf  # bilm-tf was written for the first version
try:
    from bilm import Batcher, BidirectionalLanguageModel, weight_layers
except ModuleNotFoundError:
    sys.exit(3)
options, weights, vocabulary, folder, out = sys.argv[1:]
ids = tf.placeholder(tf.int32, (None, None, 50))
layers = BidirectionalLanguageModel(options, weights)(ids)
mixed = weight_layers("elmo_output", layers, l2_coef=0.0)["weighted_op"]
batcher = Batcher(vocabulary, 50)
with tf.Session() as session:
    arrays = {}
    for i, sentence in enumerate(json.load(sys.stdin)):
        session.run(tf.global_variables_initializer())  # forget the sentence before
        session.run([v.assign([1, -0.5, 0.25]) for v in tf.global_variables() if "_W" in v.name])
        session.run([v.assign([1.75]) for v in tf.global_variables() if "_gamma" in v.name])
        arrays[str(i)] = session.run(mixed, {ids: batcher.batch_sentences([sentence])})[0]
    tf.saved_model.simple_save(session, folder, {"ids": ids}, {"elmo": mixed})
np.savez(out, **arrays)
"""


@pytest.mark.slow
def test_a_saved_model_of_the_original_program_is_read(
    tmp_path: Path, tensorflow_python: str
) -> None:
    """bilm-tf builds such a graph and computes with it, TensorFlow saves it."""
    reference = make_reference(make_options(size=8, filters=[[1, 4], [2, 8], [3, 16]]))
    weights = reference.save(tmp_path / "bilm")
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    paths = (weights.with_name("options.json"), weights, tmp_path / "vocab.txt")
    outputs = (tmp_path / "module", tmp_path / "original.npz")
    done = subprocess.run(
        [tensorflow_python, "-c", EXPORT, *map(str, paths + outputs)],
        input=json.dumps(SPLIT), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 3:
        pytest.skip("bilm-tf is not installed beside TensorFlow")
    assert done.returncode == 0, done.stderr[-2000:]
    module = elmokit.hub.load(tmp_path / "module")
    result = module({"tokens": SPLIT, "sequence_len": list(map(len, SPLIT))}, signature="tokens")
    with np.load(tmp_path / "original.npz") as expected:
        for i, sentence in enumerate(SPLIT):
            row = result["elmo"][i, : len(sentence)]
            np.testing.assert_allclose(row, expected[str(i)], atol=CLOSE)


# ---------------------------------------------------------------------- addresses
@pytest.mark.parametrize("make", [elmokit.hub.load, elmokit.hub.Module])
@pytest.mark.parametrize(
    "address", ["https://tfhub.dev/google/elmo/2", "https://tfhub.dev/google/elmo/2/"]
)
def test_an_address_tells_what_to_download_and_then_means_that_file(
    make: Callable[..., elmokit.hub.Module],
    address: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    message = complaint(lambda: make(address))
    assert message.startswith(f"elmokit does not download {address}: save ")
    assert "https://tfhub.dev/google/elmo/2?tf-hub-format=compressed" in message
    assert f"as {tmp_path}/elmo_2.tar.gz" in message
    shutil.make_archive(str(tmp_path / "elmo_2"), "gztar", folder)
    outputs = make(address)(STRINGS)
    np.testing.assert_array_equal(outputs["elmo"], elmokit.hub.load(folder)(STRINGS)["elmo"])


def test_a_module_is_made_as_in_tensorflow(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = elmokit.hub.Module(str(folder), trainable=True)
    assert "trainable has no effect" in caplog.text
    expected = elmokit.hub.load(folder)(STRINGS, as_dict=False)
    np.testing.assert_array_equal(module(STRINGS, as_dict=False), expected)
