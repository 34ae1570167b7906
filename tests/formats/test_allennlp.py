"""Task models of AllenNLP give their ELMo and its trained mixes."""

from __future__ import annotations

import json
import pickle
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub.utils._paths import filter_repo_objects
from reference import Reference, make_options, make_reference
from task_models import MIXES, PREFIX, pack, save_task_model, settings_of, state_of
from tiny import complaint, difference

import elmokit
from elmokit.allennlp import scalar_mixes, trained_layer
from elmokit.conversion import convert
from elmokit.formats.containers import hf_hub
from elmokit.formats.detect import read_checkpoint

SENTENCE = ["naïve", "river", "bank", "中文", "."]
FTA = "fta/model.text_field_embedder.token_embedders.elmo.options_file"
FACTS = [{"weights": weights, "gamma": gamma, "layer_norm": False} for weights, gamma in MIXES]


@pytest.fixture
def reference() -> Reference:
    return make_reference(make_options(highways=2))


@pytest.fixture
def folder(tmp_path: Path, reference: Reference) -> Path:
    return save_task_model(reference, tmp_path / "task")


def test_an_archive_gives_the_vectors_of_its_elmo(folder: Path, reference: Reference) -> None:
    for path in (folder, pack(folder, folder.parent / "model.tar.gz"), folder / "weights.th"):
        elmo = elmokit.load(path)
        assert difference(elmo.embed_tokens(SENTENCE).layers, reference.embed(SENTENCE)) < 2e-6
        assert elmo.source == str(folder if path.suffix == ".th" else path)


def test_a_run_that_was_not_packed_has_its_best_weights(folder: Path, reference: Reference) -> None:
    (folder / "weights.th").rename(folder / "best.th")
    result = elmokit.load(folder).embed_tokens(SENTENCE).layers
    assert difference(result, reference.embed(SENTENCE)) < 2e-6


@pytest.mark.parametrize("prefix", ["_elmo.", "", "model.encoder.token_embedder_x._elmo."])
def test_the_elmo_may_be_anywhere_in_the_model(
    tmp_path: Path, reference: Reference, prefix: str
) -> None:
    folder = save_task_model(reference, tmp_path / "task", state=state_of(reference, prefix))
    checkpoint = read_checkpoint(folder)
    assert checkpoint.metadata["scalar_mixes"] == FACTS
    result = elmokit.load(folder).embed_tokens(SENTENCE).layers
    assert difference(result, reference.embed(SENTENCE)) < 2e-6


@pytest.mark.parametrize("location", [FTA, "elmo_options.json", "sub/elmo_options.json"])
def test_options_are_found_where_they_are(tmp_path: Path, location: str) -> None:
    # no published model has these, so that nothing but the file can say them
    options = make_options(activation="tanh", cell_clip=0.25, proj_clip=0.125)
    reference = make_reference(options, scale=2.0)
    named = location if "sub/" in location else "/nowhere/elmo_options.json"
    files = {location: options}
    path = save_task_model(reference, tmp_path / "task", settings=settings_of(named), files=files)
    elmo = elmokit.load(pack(path, tmp_path / "model.tar.gz"))
    assert elmo.metadata["configuration"] == "elmo_options.json"
    assert elmo.config.activation == "tanh"
    assert difference(elmo.embed_tokens(SENTENCE).layers, reference.embed(SENTENCE)) < 2e-6


@pytest.mark.parametrize("named", ["../elmo_options.json", "absolute", "link/elmo_options.json"])
def test_no_file_outside_the_folder_is_read(
    tmp_path: Path, reference: Reference, named: str
) -> None:
    (tmp_path / "elmo_options.json").write_text(json.dumps(reference.options))
    named = str(tmp_path / "elmo_options.json") if named == "absolute" else named
    folder = save_task_model(reference, tmp_path / "task", settings=settings_of(named))
    (folder / "link").symlink_to(tmp_path)
    message = complaint(lambda: read_checkpoint(folder))
    assert message.startswith(f"{folder} names a file outside of it: put ")
    (folder / "elmo_options.json").write_text(json.dumps(reference.options))
    assert read_checkpoint(folder).metadata["configuration"] == "elmo_options.json"


def test_a_key_of_the_configuration_leads_nowhere(tmp_path: Path, reference: Reference) -> None:
    outside = tmp_path / "x.options_file"
    outside.write_text(json.dumps(reference.options))
    settings = {"a/../../../x": {"options_file": "/nowhere/options.json"}}
    folder = save_task_model(reference, tmp_path / "task", settings=settings)
    (folder / "fta" / "a").mkdir(parents=True)
    assert "names a file outside of it" in complaint(lambda: read_checkpoint(folder))


def test_options_that_are_nowhere_are_read_off_the_weights(
    folder: Path, reference: Reference
) -> None:
    checkpoint = read_checkpoint(folder)
    assert checkpoint.metadata["options"] == reference.options
    assert "inferred from the weights" in checkpoint.metadata["configuration"]


def test_the_mixes_are_in_the_metadata_also_after_a_conversion(
    folder: Path, tmp_path: Path
) -> None:
    assert read_checkpoint(folder).metadata["scalar_mixes"] == FACTS
    assert convert(folder, tmp_path / "native").source_format == "allennlp"
    converted = elmokit.load(tmp_path / "native")
    assert converted.metadata["converted_from"] == "allennlp"
    assert converted.metadata["scalar_mixes"] == FACTS
    assert [mix.gamma.item() for mix in scalar_mixes(converted)] == [0.75, 1.5]


def test_it_becomes_the_files_of_bilm_again(
    folder: Path, tmp_path: Path, reference: Reference
) -> None:
    convert(str(folder), str(tmp_path / "bilm"), to="bilm")
    result = elmokit.load(tmp_path / "bilm").checkpoint()
    expected = elmokit.load(reference.save(tmp_path / "published")).checkpoint()
    assert result.config == expected.config
    for name, tensor in expected.tensors.items():
        np.testing.assert_allclose(result.tensors[name], tensor, atol=2.4e-7, rtol=0)


def test_a_layer_starts_with_the_trained_mixes(folder: Path, reference: Reference) -> None:
    elmo = elmokit.load(folder)
    layer = trained_layer(elmo, dropout=0.0)
    result = layer([SENTENCE, ["bank"]])
    layers = reference.embed(SENTENCE)
    for output, (weights, gamma) in zip(result.outputs, MIXES, strict=True):
        shares = np.exp(weights) / np.exp(weights).sum()
        mixed = gamma * np.einsum("l,ltd->td", shares, layers)
        assert difference(output[0].detach().numpy(), mixed) < 2e-6
        assert output.requires_grad
    assert not any(
        p.requires_grad for mix in scalar_mixes(elmo, trainable=False) for p in mix.parameters()
    )


def test_layer_norm_is_taken_over_from_the_configuration(
    tmp_path: Path, reference: Reference
) -> None:
    settings = settings_of(do_layer_norm=True)
    folder = save_task_model(reference, tmp_path / "task", settings=settings)
    assert [mix.layer_norm for mix in scalar_mixes(elmokit.load(folder))] == [True, True]


def test_a_model_without_mixes_says_so() -> None:
    elmo = elmokit.load()
    for action in (scalar_mixes, trained_layer):
        assert "has no trained scalar mixes" in complaint(partial(action, elmo))


def test_words_that_were_cached_do_not_matter(tmp_path: Path, reference: Reference) -> None:
    state = state_of(reference) | {PREFIX + "_elmo_lstm._word_embedding.weight": torch.ones(7, 6)}
    folder = save_task_model(reference, tmp_path / "task", state=state)
    result = elmokit.load(folder).embed_tokens(SENTENCE).layers
    assert difference(result, reference.embed(SENTENCE)) < 2e-6


def test_what_a_task_model_needs_is_fetched_from_the_hub_and_not_more() -> None:
    needed = ["config.json", "weights.th", FTA]
    others = ["model.tar.gz", "training_state.th", FTA.replace("options", "weight")]
    assert list(filter_repo_objects([*needed, *others], allow_patterns=hf_hub.PATTERNS)) == needed


# ---------------------------------------------------------------------- what is refused
CONVOLUTION = PREFIX + "_elmo_lstm._token_embedder.char_conv_1.weight"
BIAS = PREFIX + "_elmo_lstm._elmo_lstm.backward_layer_1.state_linearity.bias"
TABLE = PREFIX + "_elmo_lstm._token_embedder._char_embedding_weights"
WEIGHT = PREFIX + "scalar_mix_0.scalar_parameters.1"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({TABLE: None}, "weights.th is a task model without an ELMo on characters"),
        ({"b._elmo_lstm._token_embedder._char_embedding_weights": torch.ones(262, 4)},
         "contains 2 ELMos instead of one: "
         "'text_field_embedder.token_embedder_elmo._elmo', 'b'"),
        ({BIAS: None}, f"lacks the tensor {BIAS!r}"),
        ({BIAS: torch.zeros(39)}, f"the tensor {BIAS!r} has the shape [39]"),
        ({TABLE: torch.ones(261, 4)}, f"the tensor {TABLE!r} has the shape [261, 4]"),
        ({CONVOLUTION: torch.zeros(5, 4)}, "with 3 dimensions"),
        ({CONVOLUTION: torch.zeros(5, 4, 2, dtype=torch.long)}, "is not floating point"),
        ({BIAS: torch.full((40,), torch.nan)}, f"weights.th: the tensor {BIAS!r} has values that"),
        ({PREFIX + "_elmo_lstm.extra": torch.ones(1)}, "_elmo_lstm.extra' that the ELMo's options"),
        ({WEIGHT: None}, "a scalar mix needs 3 weights and a gamma"),
        ({WEIGHT: torch.ones(2)}, f"the tensor {WEIGHT!r} is not one finite number"),
        ({WEIGHT: torch.tensor([torch.inf])}, f"the tensor {WEIGHT!r} is not one finite number"),
        ({TABLE: torch.ones(1, 1).expand(1 << 20, 1 << 20)}, "bytes of weights but has"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    tmp_path: Path, reference: Reference, changed: dict[str, Any], said: str
) -> None:
    state = {n: t for n, t in (state_of(reference) | changed).items() if t is not None}
    folder = save_task_model(reference, tmp_path / "task", state=state)
    assert said in complaint(lambda: elmokit.load(folder))


def test_the_archive_is_named_and_not_the_folder_it_was_unpacked_to(
    tmp_path: Path, reference: Reference
) -> None:
    path = save_task_model(reference, tmp_path / "task", state={"a.weight": torch.ones(3)})
    message = complaint(lambda: elmokit.load(pack(path, tmp_path / "model.tar.gz")))
    assert message == (
        f"{tmp_path}/model.tar.gz/weights.th is a task model without an ELMo on characters"
    )


def test_a_program_in_the_weights_is_not_run(folder: Path) -> None:
    class Program:
        def __reduce__(self) -> Any:
            return Path.touch, (folder / "was-run",)

    (folder / "weights.th").write_bytes(pickle.dumps({TABLE: Program()}))
    assert "nothing in it was executed" in complaint(lambda: elmokit.load(folder))
    assert not (folder / "was-run").exists()


@pytest.mark.parametrize(
    "named", ["", "https://host/elmo_options.json", "x" * 5000, "\0", "C:\\models\\options.json", 7]
)
def test_any_name_of_options_is_only_a_name(
    tmp_path: Path, reference: Reference, named: str
) -> None:
    folder = save_task_model(reference, tmp_path / "task", settings=settings_of(named))
    assert read_checkpoint(folder).metadata["options"] == reference.options


def test_a_configuration_that_is_missing_or_damaged_is_reported(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    assert "config.json is not valid JSON" in complaint(lambda: elmokit.load(folder))
    (folder / "config.json").unlink()
    assert "config.json" in complaint(lambda: elmokit.load(folder))


# ---------------------------------------------------------------------- AllenNLP itself
def test_an_archive_of_allennlp_gives_the_weights_it_was_made_from(
    tmp_path: Path, reference: Reference, allennlp_python: str
) -> None:
    reference.save(tmp_path)
    (tmp_path / "batches.json").write_text(json.dumps([[SENTENCE]]))
    script = Path(__file__).parents[1] / "helpers" / "allennlp_peer.py"
    subprocess.run([allennlp_python, script, tmp_path], check=True, capture_output=True)
    elmo = elmokit.load(tmp_path / "model.tar.gz")
    expected = [{"weights": [0.5, -0.5, -1.5], "gamma": 0.75, "layer_norm": False}]
    assert elmo.metadata["scalar_mixes"] == expected
    assert difference(elmo.embed_tokens(SENTENCE).layers, reference.embed(SENTENCE)) < 2e-6
