"""The published format, both ways, and what it refuses."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference, make_options, make_reference, make_shapes
from tiny import WORDS, complaint

import elmokit
from elmokit.config import BiLMConfig
from elmokit.engine import build_model
from elmokit.errors import ElmokitError
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint, check_tensors
from elmokit.formats.detect import read_checkpoint
from elmokit.model.bilm import expected_shapes

CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"


def with_softmax() -> Reference:
    reference = make_reference(vocabulary=WORDS)
    random = np.random.default_rng(1)
    reference.stored["softmax/W"] = random.normal(size=(len(WORDS), 6)).astype(np.float32)
    reference.stored["softmax/b"] = random.normal(size=len(WORDS)).astype(np.float32)
    return reference


VARIANTS: dict[str, Callable[[], Reference]] = {
    "as published": make_reference,
    "one layer": lambda: make_reference(make_options(layers=1)),
    "three layers": lambda: make_reference(make_options(layers=3, skip=False)),
    "no highway": lambda: make_reference(make_options(highways=0)),
    "two highways, tanh": lambda: make_reference(make_options(highways=2, activation="tanh")),
    "no token projection": lambda: make_reference(make_options(size=15), project_tokens=False),
    "no state projection": lambda: make_reference(make_options(cells=6), project_state=False),
    "short words, wide filter": lambda: make_reference(
        make_options(max_characters=9, filters=[[9, 4], [1, 2]])
    ),
    "no clips": lambda: make_reference(make_options(cell_clip=0, proj_clip=0)),
    "words": lambda: make_reference(make_options(words=len(WORDS)), vocabulary=WORDS),
    "softmax": with_softmax,
}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Reference:
    return VARIANTS[request.param]()


def datasets(path: Path) -> dict[str, np.ndarray]:
    result = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: (
                result.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None
            )
        )
    return result


# ---------------------------------------------------------------------- both ways
def test_what_is_read_and_written_again_is_the_same_to_the_bit(
    tmp_path: Path, variant: Reference
) -> None:
    weights = variant.save(tmp_path / "source")
    first = read_checkpoint(weights)
    check_tensors(first, expected_shapes(first.config))
    bilm.write(first, tmp_path / "copy")
    result = datasets(tmp_path / "copy" / "weights.hdf5")
    assert sorted(result) == sorted(variant.stored)
    for name, array in variant.stored.items():
        assert result[name].dtype == np.float32, name
        np.testing.assert_array_equal(result[name], array, err_msg=name)
    second = read_checkpoint(tmp_path / "copy")
    assert second.config == first.config
    assert second.vocabulary == first.vocabulary
    assert second.fingerprint() == first.fingerprint()
    bilm.write(second, tmp_path / "again")
    for name in ("options.json", "vocab.txt"):
        one, two = tmp_path / "copy" / name, tmp_path / "again" / name
        assert one.exists() == two.exists()
        assert not one.exists() or one.read_bytes() == two.read_bytes()
    for name, array in datasets(tmp_path / "again" / "weights.hdf5").items():
        np.testing.assert_array_equal(array, variant.stored[name])


def test_written_options_say_what_was_read(tmp_path: Path, variant: Reference) -> None:
    bilm.write(read_checkpoint(variant.save(tmp_path / "source")), tmp_path / "copy")
    result = json.loads((tmp_path / "copy" / "options.json").read_text())
    clips = {name: variant.options["lstm"][name] or None for name in ("cell_clip", "proj_clip")}
    assert result["lstm"] == {**variant.options["lstm"], **clips}  # a clip at 0 leaves nothing
    assert result.get("char_cnn") == variant.options.get("char_cnn")
    words = 0 if variant.vocabulary is None else len(variant.vocabulary)
    assert result.get("n_tokens_vocab", 0) == words


def test_every_option_becomes_its_field(tmp_path: Path) -> None:
    options = make_options(
        layers=3, cells=7, size=5, cell_clip=2, proj_clip=0.5, skip=False, char_dim=3,
        filters=[[2, 4]], highways=2, activation="tanh", max_characters=9,
    )  # fmt: skip
    config = read_checkpoint(make_reference(options | {"dropout": 0.25}).save(tmp_path)).config
    assert config == BiLMConfig(
        character_dim=3, max_characters=9, filters=((2, 4),), activation="tanh",
        highway_layers=2, lstm_dim=7, projection_dim=5, num_layers=3, cell_clip=2.0,
        projection_clip=0.5, skip_connections=False, dropout=0.25,
    )  # fmt: skip


def test_a_softmax_comes_with_its_vocabulary(tmp_path: Path) -> None:
    reference = with_softmax()
    result = read_checkpoint(reference.save(tmp_path))
    assert result.config.vocabulary_size == len(WORDS)
    assert result.vocabulary == WORDS
    np.testing.assert_array_equal(result.tensors["softmax.weight"], reference.stored["softmax/W"])


def test_a_word_list_that_no_tensor_refers_to_is_left_out(tmp_path: Path) -> None:
    weights = make_reference().save(tmp_path)
    (tmp_path / "vocab.txt").write_text("anything\nat all\n")
    assert read_checkpoint(weights).vocabulary is None


def test_other_kinds_of_floating_numbers_are_read(tmp_path: Path) -> None:
    reference = make_reference()
    expected = {name: array.astype(np.float16) for name, array in reference.stored.items()}
    for kind in ("float16", "float64", ">f4"):
        reference.stored = {name: array.astype(kind) for name, array in expected.items()}
        result = read_checkpoint(reference.save(tmp_path / kind)).tensors
        table = result["token_encoder.characters"]
        assert table.dtype == np.float32
        np.testing.assert_array_equal(table, expected["char_embed"].astype(np.float32))


# ---------------------------------------------------------------------- options
def change_options(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    weights = make_reference().save(folder)
    options = json.loads((folder / "options.json").read_text())
    change(options)
    (folder / "options.json").write_text(json.dumps(options))
    return weights


@pytest.mark.parametrize("count", [261, 262, None])
def test_both_numbers_of_characters_mean_the_same_table(tmp_path: Path, count: int | None) -> None:
    def change(options: dict[str, Any]) -> None:
        del options["char_cnn"]["n_characters"]
        if count is not None:
            options["char_cnn"]["n_characters"] = count

    result = read_checkpoint(change_options(tmp_path, change))
    assert result.config.n_characters == 261
    np.testing.assert_array_equal(
        result.tensors["token_encoder.characters"], make_reference().stored["char_embed"]
    )


NONE_IF_MISSING = [
    ("lstm", "cell_clip"),
    ("lstm", "proj_clip"),
    ("lstm", "use_skip_connections"),
    ("char_cnn", "n_highway"),
]


def test_null_and_missing_clips_and_highways_mean_none(tmp_path: Path) -> None:
    reference = make_reference(make_options(highways=0, cell_clip=0, proj_clip=0, skip=False))
    weights = reference.save(tmp_path)
    for value in (None, "missing"):
        options = json.loads(json.dumps(reference.options))
        for part, name in NONE_IF_MISSING:
            options[part][name] = value
            if value == "missing":
                del options[part][name]
        (tmp_path / "options.json").write_text(json.dumps(options))
        config = read_checkpoint(weights).config
        assert (config.cell_clip, config.projection_clip, config.highway_layers) == (0, 0, 0)
        assert not config.skip_connections


def test_published_names_of_files_belong_together(tmp_path: Path) -> None:
    """elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5 and its _options.json."""
    for name, dropout in (("small", 0.1), ("medium", 0.2)):
        folder = tmp_path / "download"
        weights = make_reference(make_options() | {"dropout": dropout}).save(folder)
        weights.rename(folder / f"elmo_{name}_weights.hdf5")
        (folder / "options.json").rename(folder / f"elmo_{name}_options.json")
    shutil.copy(folder / "elmo_small_options.json", folder / "options.json")
    assert read_checkpoint(folder / "elmo_small_weights.hdf5").config.dropout == 0.1
    assert read_checkpoint(folder / "elmo_medium_weights.hdf5").config.dropout == 0.2


def test_options_of_another_name_are_taken_only_if_there_is_no_choice(tmp_path: Path) -> None:
    weights = make_reference().save(tmp_path)
    (tmp_path / "options.json").rename(tmp_path / "seqvec_options_v1.json")
    assert read_checkpoint(weights).config.num_layers == 2
    shutil.copy(tmp_path / "seqvec_options_v1.json", tmp_path / "my_options.json")
    with pytest.raises(ElmokitError, match=r"my_options\.json, seqvec_options_v1\.json: rename"):
        read_checkpoint(weights)


def test_missing_options_are_reported(tmp_path: Path) -> None:
    weights = make_reference().save(tmp_path)
    (tmp_path / "options.json").unlink()
    with pytest.raises(ElmokitError, match=r"no options\.json beside .*weights\.hdf5"):
        read_checkpoint(weights)


WRONG_OPTIONS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no lstm": (lambda o: o.pop("lstm"), "lacks 'lstm'"),
    "lstm is a list": (lambda o: o.update(lstm=[1]), "does not have the layout"),
    "lstm is a number": (lambda o: o.update(lstm=5), "does not have the layout"),
    "no dim": (lambda o: o["lstm"].pop("dim"), "lacks 'dim'"),
    "dim is text": (lambda o: o["lstm"].update(dim="10"), "lstm_dim must be an integer"),
    "a huge dim": (lambda o: o["lstm"].update(dim=10**15), "lstm_dim must be an integer"),
    "no layers": (lambda o: o["lstm"].update(n_layers=0), "layers must be an integer"),
    "skip is text": (lambda o: o["lstm"].update(use_skip_connections="false"), "true or false"),
    "a clip of text": (lambda o: o["lstm"].update(cell_clip="3"), "cell_clip must be a number"),
    "300 characters": (
        lambda o: o["char_cnn"].update(n_characters=300), "must be 261 or 262, not 300"),
    "char_cnn is null": (lambda o: o.update(char_cnn=None), "does not have the layout"),
    "no filters": (lambda o: o["char_cnn"].pop("filters"), "lacks 'filters'"),
    "filters of three": (lambda o: o["char_cnn"].update(filters=[[1, 2, 3]]), "filters must be"),
    "no char_cnn": (lambda o: o.pop("char_cnn"), "lacks 'embedding'"),
    "gelu": (lambda o: o["char_cnn"].update(activation="gelu"), "must be one of 'relu', 'tanh'"),
    "many filters": (
        lambda o: o["char_cnn"].update(filters=[[1, 1]] * 5000), "filters must be a list"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG_OPTIONS)
def test_wrong_options_are_refused_with_their_files_name(tmp_path: Path, kind: str) -> None:
    change, sentence = WRONG_OPTIONS[kind]
    weights = change_options(tmp_path, change)
    with pytest.raises(ElmokitError, match=sentence) as caught:
        read_checkpoint(weights)
    assert "options.json" in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "\xff\xfe", "[" * 10**5, "{'a': 1}"])
def test_options_that_are_not_a_json_object_are_refused(tmp_path: Path, text: str) -> None:
    weights = make_reference().save(tmp_path)
    (tmp_path / "options.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(
        ElmokitError, match=r"options\.json (is not valid JSON|is not a JSON object)"
    ):
        read_checkpoint(weights)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.data())
def test_any_value_anywhere_in_the_options_is_read_or_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any options"
    weights = folder / "weights.hdf5"
    if not weights.exists():
        make_reference().save(folder)
    options = make_options()
    section: dict[str, Any] = data.draw(
        st.sampled_from([options, options["lstm"], options["char_cnn"],
                         options["char_cnn"]["embedding"]])
    )  # fmt: skip
    section[data.draw(st.sampled_from(sorted(section)))] = data.draw(JSON)
    (folder / "options.json").write_text(json.dumps(options))
    sentence = complaint(lambda: build_model(read_checkpoint(weights)))
    assert sentence == "" or "options.json" in sentence or "weights.hdf5" in sentence


# ---------------------------------------------------------------------- damaged and foreign files
def put(file: h5py.File, name: str, data: object) -> None:
    del file[name]
    file.create_dataset(name, data=data)


def external_link(file: h5py.File) -> None:
    del file["char_embed"]
    file["char_embed"] = h5py.ExternalLink("/etc/passwd", "/x")


def soft_link(file: h5py.File) -> None:
    del file["CNN/b_cnn_0"]
    file["CNN/b_cnn_0"] = h5py.SoftLink("/CNN/b_cnn_1")


def external_storage(file: h5py.File) -> None:
    del file["char_embed"]
    raw = Path(file.filename).with_name("raw.bin")
    raw.write_bytes(bytes(261 * 4 * 4))
    file.create_dataset("char_embed", (261, 4), "f4", external=[(str(raw), 0, 261 * 4 * 4)])


def virtual(file: h5py.File) -> None:
    del file["char_embed"]
    other = Path(file.filename).with_name("other.bin")
    with h5py.File(other, "w") as source:
        source["x"] = np.ones((261, 4), np.float32)
    layout = h5py.VirtualLayout((261, 4), "f4")
    layout[:] = h5py.VirtualSource(other, "x", (261, 4))
    file.create_virtual_dataset("char_embed", layout)


def circle(file: h5py.File) -> None:
    for name in "abcd":
        file[name] = file["/"]


def thicket(file: h5py.File) -> None:
    inner = file.create_group("g0")
    for level in range(1, 8):
        outer = file.create_group(f"g{level}")
        for i in range(20):
            outer[str(i)] = inner
        inner = outer


def nan(file: h5py.File) -> None:
    file[f"{CELL}/B"][3] = np.nan


def infinite(file: h5py.File) -> None:
    file["CNN_proj/b_proj"][:2] = [np.inf, -np.inf]


def too_large_for_float32(file: h5py.File) -> None:
    put(file, "char_embed", np.full((261, 4), 1e300))


FOREIGN: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "extra": (lambda f: f.create_dataset("more/x", data=[1.0]), "has a dataset 'more/x' that"),
    "missing": (lambda f: f.pop("CNN/b_cnn_1"), "lacks the dataset 'CNN/b_cnn_1'"),
    "no layer": (lambda f: f.pop("RNN_1"), "lacks the dataset 'RNN_1/RNN/MultiRNNCell/Cell0/"),
    "shape": (lambda f: put(f, "char_embed", np.zeros((262, 4), "f4")),
              r"'char_embed' has the shape \[262, 4\] but its options need \[261, 4\]"),
    "scalar": (lambda f: put(f, "char_embed", np.float32(1)), r"has the shape \[\] but"),
    "integers": (lambda f: put(f, "char_embed", np.zeros((261, 4), int)),
                 "'char_embed' is not floating point"),
    "text": (lambda f: put(f, "char_embed", "hello"), "'char_embed' is not floating point"),
    "nothing": (lambda f: put(f, "char_embed", h5py.Empty("f4")), "'char_embed' is not floating"),
    "a group": (lambda f: (f.pop("char_embed"), f.create_group("char_embed")), "'char_embed'"),
    "external link": (external_link, "'char_embed' is a link"),
    "soft link": (soft_link, "'CNN/b_cnn_0' is a link"),
    "external storage": (external_storage, "'char_embed' is not a plain dataset"),
    "virtual": (virtual, "'char_embed' is not a plain dataset"),
    "a type": (lambda f: f.__setitem__("t", np.dtype("f4")), "'t' is not a plain dataset"),
    "circle": (circle, "nested too deeply"),
    "thicket": (thicket, "more datasets and groups than a model has"),
    "nan": (nan, f"the dataset '{CELL}/B' has values that are not finite"),
    "infinite": (infinite, "the dataset 'CNN_proj/b_proj' has values that are not finite"),
    "too large": (too_large_for_float32, "the dataset 'char_embed' has values that are not"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_refused_with_its_name_and_the_tensors(tmp_path: Path, kind: str) -> None:
    change, sentence = FOREIGN[kind]
    weights = make_reference().save(tmp_path)
    with h5py.File(weights, "a") as file:
        change(file)
    with pytest.raises(ElmokitError, match=sentence) as caught:
        elmokit.load(weights)
    assert str(weights) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04" * 9])
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes) -> None:
    weights = make_reference().save(tmp_path)
    weights.write_bytes(content)
    with pytest.raises(ElmokitError, match=r"weights\.hdf5 is not an HDF5 file that can be read"):
        read_checkpoint(weights)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    weights = make_reference().save(tmp_path)
    whole = weights.read_bytes()
    for part in range(1, 20):
        weights.write_bytes(whole[: len(whole) * part // 20])
        with pytest.raises(ElmokitError, match=r"weights\.hdf5 .*(truncated|damaged)"):
            read_checkpoint(weights)


@pytest.mark.parametrize("packed", [{}, {"chunks": True}, {"chunks": True, "compression": 9}])
def test_gigantic_dimensions_in_a_small_file_take_no_memory(
    tmp_path: Path, packed: dict[str, Any]
) -> None:
    options = make_options(cells=1 << 20, size=1024, filters=[[1, 4]])
    (tmp_path / "options.json").write_text(json.dumps(options))
    weights = tmp_path / "weights.hdf5"
    with h5py.File(weights, "w") as file:
        for name, shape in make_shapes(options).items():
            file.create_dataset(name, shape, "f4", **packed)  # declared, never written
    assert weights.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ElmokitError, match=r"weights\.hdf5 declares 154,685,956,416 bytes"):
            read_checkpoint(weights)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_gigantic_dimensions_in_the_options_take_no_memory(tmp_path: Path) -> None:
    def change(options: dict[str, Any]) -> None:
        options["lstm"].update(dim=1 << 22, projection_dim=1 << 22, n_layers=100)
        options["char_cnn"].update(filters=[[50, 1 << 22]], n_highway=100)

    weights = change_options(tmp_path, change)
    tracemalloc.start()
    try:
        with pytest.raises(ElmokitError, match=r"weights\.hdf5: the dataset 'CNN/W_cnn_0' has the|"
                           r"has a dataset 'CNN/W_cnn_1' that"):  # fmt: skip
            read_checkpoint(weights)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_a_compressed_file_of_a_real_model_is_read(tmp_path: Path) -> None:
    reference = make_reference()
    weights = reference.save(tmp_path)
    with h5py.File(weights, "w") as file:
        for name, array in reference.stored.items():
            file.create_dataset(name, data=array, compression="gzip", shuffle=True)
    result = read_checkpoint(weights).tensors["token_encoder.characters"]
    np.testing.assert_array_equal(result, reference.stored["char_embed"])


# ---------------------------------------------------------------------- words
@pytest.mark.parametrize("words", [5, len(WORDS) + 1])
def test_a_vocabulary_of_another_length_than_its_table_is_refused(
    tmp_path: Path, words: int
) -> None:
    make_reference(make_options(words=words), vocabulary=WORDS).save(tmp_path)
    sentence = f"vocabulary has {len(WORDS)} words but the table of word vectors has {words}"
    with pytest.raises(ElmokitError, match=sentence):
        elmokit.load(tmp_path)


def test_a_vocabulary_of_another_length_than_its_softmax_is_refused(tmp_path: Path) -> None:
    reference = with_softmax()
    reference.vocabulary = [*WORDS, "more"]
    reference.save(tmp_path)
    with pytest.raises(ElmokitError, match="vocabulary has 10 words but the softmax has 9"):
        elmokit.load(tmp_path)


def test_a_model_on_words_without_its_vocabulary_is_refused(tmp_path: Path) -> None:
    make_reference(make_options(words=9), vocabulary=WORDS).save(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(ElmokitError, match=r"needs its vocabulary: there is no .*vocab\.txt"):
        read_checkpoint(tmp_path)


# ---------------------------------------------------------------------- writing
def test_what_the_format_cannot_say_is_not_written(tmp_path: Path) -> None:
    values: dict[str, Any] = {"lstm_dim": 4, "projection_dim": 3, "filters": ((1, 2),)}
    for change, sentence in (
        ({"forget_bias": 0.5}, "has forget_bias 1.0, but this model has 0.5"),
        ({"n_characters": 300}, "has n_characters 261, but this model has 300"),
    ):
        checkpoint = Checkpoint(BiLMConfig(**values, **change), {})
        with pytest.raises(ElmokitError, match=sentence):
            bilm.write(checkpoint, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_replaced_only_if_allowed(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(make_reference(seed=1).save(tmp_path / "new"))
    make_reference(seed=2).save(tmp_path / "old")
    with pytest.raises(ElmokitError, match="old already exists"):
        bilm.write(checkpoint, tmp_path / "old")
    np.testing.assert_array_equal(
        datasets(tmp_path / "old" / "weights.hdf5")["char_embed"],
        make_reference(seed=2).stored["char_embed"],
    )
    bilm.write(checkpoint, tmp_path / "old", overwrite=True)
    assert read_checkpoint(tmp_path / "old").fingerprint() == checkpoint.fingerprint()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]
