"""ELMoForManyLangs: the numbers of the original, every kind of its files, and none that harm."""

from __future__ import annotations

import json
import pickle
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from many_langs_reference import (
    CHARACTERS,
    EMBEDDER,
    ENCODER,
    MARKS,
    SENTENCES,
    WORDS,
    ManyLangs,
    make_many_langs,
)
from tiny import complaint, difference

import elmokit
from elmokit.cli.models import info
from elmokit.config import BiLMConfig
from elmokit.conversion import convert
from elmokit.errors import ElmokitError
from elmokit.formats import many_langs
from elmokit.formats.containers import hf_hub
from elmokit.formats.detect import read_checkpoint
from elmokit.model.bilm import expected_shapes
from elmokit.pretrain import adapt, pretrain

# At a value of 6 float32 has steps of 5e-7: there two of them are allowed on top.
CLOSE: dict[str, Any] = {"atol": 1e-6, "rtol": 2.4e-7}
KINDS: dict[str, dict[str, Any]] = {
    "characters and words": {},
    "tanh and no highway": {"activation": "tanh", "highways": 0, "layers": 3},
    "no words": {"words": None, "layers": 1},
    "no characters": {"characters": None},
    "no clips": {"clips": 0},
    "short": {"longest": 7},
    "lstm": {"name": "lstm"},
    "lstm without words": {"name": "lstm", "words": None},
    "lstm without characters": {"name": "lstm", "characters": None},
}


@pytest.fixture
def golden(shared: Path) -> Path:
    folder = shared / "golden" / "many_langs"
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_many_langs().save(tmp_path / "model")


# ---------------------------------------------------------------------- the numbers
def test_every_sentence_has_the_vectors_of_the_original(golden: Path) -> None:
    elmo = elmokit.load(golden)
    sentences = json.loads((golden / "sentences.json").read_text(encoding="utf-8"))
    result = [elmo.embed_tokens(sentence).layers for sentence in sentences]
    with np.load(golden / "expected.npz") as expected:
        assert len(expected.files) == len(sentences) == 5
        for i, layers in enumerate(result):
            np.testing.assert_allclose(layers, expected[f"layers_{i}"], **CLOSE)
    for one, batched in zip(result, elmo.embed(sentences), strict=True):
        np.testing.assert_allclose(batched.layers, one, **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_vectors_of_a_plain_reading(tmp_path: Path, kind: str) -> None:
    reference = make_many_langs(**KINDS[kind])
    elmo = elmokit.load(reference.save(tmp_path))
    for sentence, result in zip(SENTENCES, elmo.embed(SENTENCES), strict=True):
        assert difference(result.layers, reference.embed(sentence)) < 2e-6


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_again_every_weight_and_every_entry_is_the_same(
    tmp_path: Path, kind: str
) -> None:
    reference = make_many_langs(**KINDS[kind])
    first = convert(reference.save(tmp_path / "source"), tmp_path / "native")
    for again in (False, True):
        second = convert(tmp_path / "native", tmp_path / "back", to="many_langs", overwrite=again)
    assert first.source_format == "many_langs"
    assert first.max_difference == second.max_difference == 0
    for name, arrays in reference.stored.items():
        result = torch.load(tmp_path / "back" / name, weights_only=True)
        assert set(result) == set(arrays)
        for key, array in arrays.items():
            np.testing.assert_array_equal(result[key].numpy(), array)
    for name in ("char.dic", "word.dic"):
        lines = [
            sorted((tmp_path / where / name).read_bytes().split(b"\n"))
            if (tmp_path / where / name).exists()
            else None
            for where in ("source", "back")
        ]
        assert lines[0] == lines[1]
    elmo = elmokit.load(tmp_path / "native")
    for sentence, layers in zip(SENTENCES, elmo.embed(SENTENCES), strict=True):
        assert difference(layers.layers, reference.embed(sentence)) < 2e-6
    fingerprints = {
        read_checkpoint(tmp_path / name).fingerprint() for name in ("source", "native", "back")
    }
    assert len(fingerprints) == 1


def test_the_native_folder_has_the_dictionaries_as_lines_of_text(
    tmp_path: Path, folder: Path
) -> None:
    convert(str(folder), str(tmp_path / "native"))
    for name, entries in (("characters.txt", CHARACTERS), ("words.txt", WORDS)):
        lines = (tmp_path / "native" / name).read_text(encoding="utf-8").split("\n")
        assert lines.pop() == ""
        assert [lines[(7 * i + 3) % len(entries)] for i in range(len(entries))] == entries
        text = (tmp_path / "native" / name).read_text(encoding="utf-8")
        (tmp_path / "native" / name).write_text(text + "more\n", encoding="utf-8")
        with pytest.raises(ElmokitError, match=rf"has {len(lines) + 1} entries but the model"):
            elmokit.load(tmp_path / "native")
        (tmp_path / "native" / name).unlink()
        with pytest.raises(ElmokitError, match=rf"native lacks {name}, which its model needs"):
            elmokit.load(tmp_path / "native")
        (tmp_path / "native" / name).write_text(text, encoding="utf-8")


def test_another_dictionary_is_another_model(tmp_path: Path, folder: Path) -> None:
    before = read_checkpoint(folder)
    path = folder / "word.dic"
    path.write_text(path.read_text(encoding="utf-8").replace("水", "火"), encoding="utf-8")
    after = read_checkpoint(folder)
    assert before.config == after.config
    assert before.fingerprint() != after.fingerprint()


def test_the_published_configuration_is_carried_with_its_numbers() -> None:
    options = many_langs.PUBLISHED
    assert {key: options["encoder"][key] for key in ("projection_dim", "dim", "n_layers")} == {
        "projection_dim": 512,
        "dim": 4096,
        "n_layers": 2,
    }
    token = options["token_embedder"]
    assert (token["char_dim"], token["word_dim"], token["n_highway"]) == (50, 100, 2)
    assert token["max_characters_per_token"] == 50
    assert token["filters"] == [
        [1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]
    ]  # fmt: skip
    assert options["encoder"]["cell_clip"] == options["encoder"]["proj_clip"] == 3


# ---------------------------------------------------------------------- what names what
def test_the_configuration_is_found_inside_the_folder_and_nowhere_else(
    tmp_path: Path, folder: Path
) -> None:
    expected = read_checkpoint(folder).fingerprint()
    (tmp_path / "elsewhere").mkdir()
    shutil.move(folder / "tiny.json", tmp_path / "elsewhere" / "other.json")
    for named in (str(tmp_path / "elsewhere" / "other.json"), "../elsewhere/other.json"):
        (folder / "config.json").write_text(json.dumps({"config_path": named}))
        message = complaint(lambda: read_checkpoint(folder))
        assert message.startswith(f"{folder} names a file outside of it: put ")
    shutil.move(tmp_path / "elsewhere" / "other.json", folder / "other.json")
    for named in ("C:\\Users\\me\\other.json", "/Users/me/other.json", "configs/other.json"):
        (folder / "config.json").write_text(json.dumps({"config_path": named, "seed": 1}))
        assert read_checkpoint(folder).fingerprint() == expected
        assert read_checkpoint(folder).metadata["configuration"] == "other.json"


@pytest.mark.parametrize("kind", ["characters and words", "no words", "no characters"])
def test_without_a_configuration_it_is_the_published_one(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = make_many_langs(**{**KINDS[kind], "layers": 2})
    folder = reference.save(tmp_path)
    (folder / "tiny.json").unlink()
    assert "but its configuration and dictionaries need" in complaint(
        lambda: read_checkpoint(folder)
    )  # it is not of the published size
    published = make_many_langs().options
    monkeypatch.setattr(many_langs, "PUBLISHED", published)
    elmo = elmokit.load(folder)
    assert difference(elmo.embed_tokens(SENTENCES[0]).layers, reference.embed(SENTENCES[0])) < 2e-6
    assert "tiny.json" in elmo.metadata["configuration"]
    assert "published" in elmo.metadata["configuration"]


def test_a_line_with_an_id_alone_is_the_ideographic_space(tmp_path: Path) -> None:
    reference = make_many_langs()
    folder = reference.save(tmp_path)
    expected = reference.embed(["\u3000", "a\u3000"])
    for name in ("char.dic", "word.dic"):
        lines = (folder / name).read_text(encoding="utf-8")
        for change in ("\n", "\n\t"):
            (folder / name).write_text(
                lines.replace("\n\u3000\t", change), encoding="utf-8", newline=""
            )
            result = elmokit.load(folder).embed_tokens(["\u3000", "a\u3000"]).layers
            assert difference(result, expected) < 2e-6


def test_only_a_newline_ends_a_line_and_only_a_tab_a_column(tmp_path: Path) -> None:
    odd = ["\u00a0", "\u0085", "\u2028", "\x0b", "\x1c", "\u2003", "\u200b", " "]
    words = [*odd, "two words", "\u00a0x", "<oov>"]
    reference = make_many_langs(characters=[*odd, *MARKS, "x"], words=words)
    folder = reference.save(tmp_path / "source")
    convert(str(folder), str(tmp_path / "native"))
    sentence = [*odd, "two words", "\u00a0x", "x", "\u3000"]
    for model in (folder, tmp_path / "native"):
        elmo = elmokit.load(model)
        assert elmo.dictionaries is not None
        assert set(elmo.dictionaries.words or []) == set(words)
        assert difference(elmo.embed([sentence])[0].layers, reference.embed(sentence)) < 2e-6
    lines = (folder / "word.dic").read_bytes().replace(b"\n", b"\r\n")
    (folder / "word.dic").write_bytes(lines)
    assert read_checkpoint(folder).fingerprint() == elmo.fingerprint()


@pytest.mark.parametrize("old_layout", [False, True])
def test_folders_archives_and_files_of_both_layouts_are_the_same_model(
    tmp_path: Path, old_layout: bool
) -> None:
    folder = make_many_langs().save(tmp_path / "179", old_layout=old_layout)
    (folder / "meta.json").write_text("{}")
    expected = read_checkpoint(folder).fingerprint()
    shutil.make_archive(str(tmp_path / "179"), "zip", tmp_path, "179")
    shutil.make_archive(str(tmp_path / "flat"), "gztar", folder)
    for path in ("179.zip", "flat.tar.gz", f"179/{ENCODER}", f"179/{EMBEDDER}", "179/config.json"):
        result = read_checkpoint(tmp_path / path)
        assert result.fingerprint() == expected
        assert result.format == "many_langs"
    assert read_checkpoint(tmp_path / "179.zip").source == str(tmp_path / "179.zip")


def test_info_says_what_token_vectors_are_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info(str(make_many_langs().save(tmp_path / "cnn")))
    shown = capsys.readouterr().out
    assert "cnn (many_langs format)" in shown
    assert (
        "characters   17 of 4 columns, 20 per word; filters 1x4 2x5 3x6, relu; 2 highway" in shown
    )
    assert "words        10 of 3 columns" in shown
    assert 'configuration "tiny.json"' in shown
    info(str(make_many_langs(name="lstm", words=None).save(tmp_path / "lstm")))
    shown = capsys.readouterr().out
    assert "characters   17 of 4 columns, 500 per word; an LSTM in both directions" in shown
    assert "words  " not in shown
    assert f"character LSTM     {2 * 4 * 4 * (4 + 4 + 2):>12,}" in shown


def test_a_repository_on_the_hub_is_fetched_with_all_its_files() -> None:
    names = ["config.json", "cnn_50_100_512_4096_sample.json", "char.dic", "word.dic"]
    for name in (*names, ENCODER, EMBEDDER, f"zht/{ENCODER}"):
        assert any(fnmatch(name, pattern) for pattern in hf_hub.PATTERNS), name
    assert not any(fnmatch("other.pkl", pattern) for pattern in hf_hub.PATTERNS)


def test_other_formats_refuse_what_they_cannot_hold(tmp_path: Path, folder: Path) -> None:
    for source, to, sentence in (
        (
            folder,
            "bilm",
            "the bilm format cannot hold dictionaries of Unicode characters",
        ),
        ("english", "many_langs", "has token_encoder 'unicode', but this model has 'characters'"),
    ):
        with pytest.raises(ElmokitError, match=sentence):
            convert(str(source), str(tmp_path / "x"), to=to)  # type: ignore[arg-type]
    with pytest.raises(ElmokitError, match="the many_langs format stores float32"):
        convert(str(folder), str(tmp_path / "x"), to="many_langs", dtype="float16")
    assert not (tmp_path / "x").exists()


def test_training_says_that_it_is_for_other_models(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "text.txt").write_text("今 天\n" * 9, encoding="utf-8")
    text, out = str(tmp_path / "text.txt"), str(tmp_path / "out")
    with pytest.raises(ElmokitError, match="model cannot be adapted: its token encoder is"):
        adapt(str(folder), text, out)
    config = BiLMConfig(token_encoder="unicode", word_dim=4, n_words=9)
    with pytest.raises(ElmokitError, match="a new model has the token encoder 'characters' or"):
        pretrain(text, out, config=config)
    assert not Path(out).exists()


# ---------------------------------------------------------------------- what is refused
class Program:
    """A pickle of this writes a file when it is unpickled without care."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.write_text, (self.path, "executed")


def save(folder: Path, name: str, thing: object) -> None:
    torch.save(thing, folder / name)


def tensors_of(folder: Path, name: str) -> dict[str, torch.Tensor]:
    result: dict[str, torch.Tensor] = torch.load(folder / name, weights_only=True)
    return result


def change_tensor(name: str, key: str, change: Callable[[torch.Tensor], Any]) -> Any:
    def apply(folder: Path) -> None:
        tensors = tensors_of(folder, name)
        tensors[key] = change(tensors[key])
        save(folder, name, tensors)

    return apply


def rename_tensor(name: str, key: str, new: str) -> Any:
    def apply(folder: Path) -> None:
        tensors = tensors_of(folder, name)
        tensors[new] = tensors.pop(key)
        save(folder, name, tensors)

    return apply


def change_text(name: str, old: str, new: str) -> Any:
    def apply(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8", newline="")

    return apply


def change_options(*keys: str, to: object) -> Any:
    def apply(folder: Path) -> None:
        options = json.loads((folder / "tiny.json").read_text())
        section = options
        for key in keys[:-1]:
            section = section[key]
        if to is None:
            del section[keys[-1]]
        else:
            section[keys[-1]] = to
        (folder / "tiny.json").write_text(json.dumps(options))

    return apply


def remove(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def cut(name: str) -> Any:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-900])


BIAS = "forward_layer_0.state_linearity.bias"
NO_TENSORS = f"{ENCODER} is not a state dict: it has no tensors by name"
NOT_ALONE = "is damaged or has more than tensors in it; nothing in it was executed"
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no words": (remove("word.dic"), "word.dic, which the configuration of its model requires"),
    "no characters": (remove("char.dic"), "char.dic, which the configuration of its model req"),
    "no encoder": (remove(ENCODER), f"there is no file .*{ENCODER}"),
    "no embedder": (remove(EMBEDDER), f"there is no file .*{EMBEDDER}"),
    "no config": (remove("config.json"), "cannot read .*config.json: No such file"),
    "no path": (change_text("config.json", "config_path", "x"), "does not name a configuration"),
    "a long path": (
        change_text("config.json", "tiny", "x" * 5000),
        "but its configuration and dictionaries need",
    ),
    "fewer words": (
        change_text("word.dic", "<pad>\t9\n", ""),
        rf"{EMBEDDER}: the tensor 'word_emb_layer.embedding.weight' has the shape \[10, 3\] but "
        r"its configuration and dictionaries need \[9, 3\]",
    ),
    "an id twice": (change_text("word.dic", "<pad>\t9", "<pad>\t0"), "word.dic: the ids are not 0"),
    "no id": (change_text("word.dic", "<pad>\t9", "<pad>"), "word.dic: line 9 is not a token, a"),
    "a negative id": (change_text("word.dic", "\t9", "\t-9"), "word.dic: line 9 is not a token"),
    "an id of any length": (change_text("word.dic", "\t9", "\t" + "9" * 5000), "line 9 is not"),
    "three columns": (change_text("word.dic", "ab\t", "a\tb\t"), "word.dic: line 2 is not a token"),
    "a word twice": (change_text("word.dic", "ab\t", "B\t"), "dictionary of words has 'B' twice"),
    "no unknown word": (change_text("word.dic", "<oov>", "x"), "dictionary of words lacks <oov>"),
    "no marks": (
        change_text("char.dic", "<bow>", "y"),
        "the dictionary of characters lacks <bow>",
    ),
    "Latin-1": (
        lambda folder: (folder / "char.dic").write_bytes(b"\xe9\t0\n"),
        r"char.dic is not UTF-8 text \(byte 0\)",
    ),
    "another encoder": (change_options("encoder", "name", to="lstm"), "unsupported encoder 'lstm'"),
    "another embedder": (
        change_options("token_embedder", "name", to="gru"),
        "character_encoder must be one of 'cnn', 'lstm', not 'gru'",
    ),
    "no part": (change_options("token_embedder", to=None), "tiny.json lacks 'token_embedder'"),
    "no size": (change_options("encoder", "dim", to=None), "tiny.json lacks 'dim'"),
    "no layout": (change_options("encoder", to=[]), "does not have the layout of an ELMoForMany"),
    "a word as a size": (change_options("token_embedder", "char_dim", to="x"), "the layout of an"),
    "a gigantic size": (
        change_options("encoder", "dim", to=4194304),
        rf"{ENCODER}: the tensor 'forward_layer_0.input_linearity.weight' has the shape",
    ),
    "an impossible size": (change_options("encoder", "dim", to=10**30), "lstm_dim must be an int"),
    "other filters": (
        change_options("token_embedder", "filters", to=[[1, 4]]),
        rf"{EMBEDDER} has a tensor 'convolutions.1.bias' that its configuration and",
    ),
    "a missing tensor": (
        change_options("encoder", "n_layers", to=3),
        rf"{ENCODER} lacks the tensor 'forward_layer_2.input_linearity.weight'",
    ),
    "another name": (
        rename_tensor(ENCODER, BIAS, "bias"),
        rf"{ENCODER} has a tensor 'bias' that its configuration and dictionaries do not describe",
    ),
    "another shape": (
        change_tensor(ENCODER, BIAS, lambda tensor: tensor[:-1]),
        r"bias' has the shape \[39\] but its configuration and dictionaries need \[40\]",
    ),
    "no number": (
        change_tensor(ENCODER, BIAS, lambda tensor: tensor * float("nan")),
        rf"{ENCODER}: the tensor '{BIAS}' has values that are not finite",
    ),
    "whole numbers": (
        change_tensor(ENCODER, BIAS, lambda tensor: tensor.long()),
        rf"{ENCODER}: the tensor '{BIAS}' is not floating point",
    ),
    "a sparse tensor": (
        change_tensor(ENCODER, BIAS, lambda tensor: tensor.to_sparse()),
        rf"{ENCODER}: the tensor '{BIAS}' is not floating point",
    ),
    "a number for a tensor": (
        change_tensor(ENCODER, BIAS, lambda tensor: 5),
        f"{ENCODER} is not a state dict: it has more than tensors by name",
    ),
    "one value repeated": (
        change_tensor(ENCODER, BIAS, lambda tensor: tensor[:1].clone().expand(10**12)),
        rf"{ENCODER} declares 4,000,000,\d+,\d+ bytes of weights but has",
    ),
    "a list": (lambda folder: save(folder, ENCODER, [1]), NO_TENSORS),
    "nothing": (lambda folder: save(folder, ENCODER, {}), NO_TENSORS),
    "a module": (lambda folder: save(folder, ENCODER, torch.nn.Linear(2, 2)), NOT_ALONE),
    "a cut file": (cut(ENCODER), NOT_ALONE),
    "text": (lambda folder: (folder / ENCODER).write_text("version https://git-lfs"), NOT_ALONE),
    "empty": (lambda folder: (folder / ENCODER).write_bytes(b""), NOT_ALONE),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_one_sentence(case: str, folder: Path) -> None:
    change, sentence = REFUSED[case]
    change(folder)
    with pytest.raises(ElmokitError, match=sentence) as caught:
        elmokit.load(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("name", [ENCODER, EMBEDDER])
def test_a_pickle_with_a_program_in_it_is_refused_and_not_executed(folder: Path, name: str) -> None:
    mark = folder / "executed.txt"
    program = Program(mark)
    with zipfile.ZipFile(folder / "by_hand", "w") as archive:
        archive.writestr("encoder/data.pkl", pickle.dumps({"bias": program}))
        archive.writestr("encoder/version", "3\n")
    harmful = [(folder / "by_hand").read_bytes(), pickle.dumps(program)]
    for new in (True, False):
        torch.save({"bias": program}, folder / name, _use_new_zipfile_serialization=new)
        harmful.append((folder / name).read_bytes())
    for content in harmful:
        (folder / name).write_bytes(content)
        with pytest.raises(ElmokitError, match=NOT_ALONE):
            elmokit.load(folder)
    assert not mark.exists()
    pickle.loads(harmful[1])  # so it would have been
    assert mark.read_text() == "executed"


def test_a_flipped_bit_in_the_weights_is_noticed(folder: Path) -> None:
    path = folder / ENCODER
    content = bytearray(path.read_bytes())
    numbers = make_many_langs().stored[ENCODER][BIAS].tobytes()
    position = content.index(numbers)
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(ElmokitError, match=rf"{ENCODER} is damaged: the checksum of .* is wrong"):
        elmokit.load(folder)


def test_a_compressed_file_of_tensors_is_refused(folder: Path) -> None:
    content = (folder / ENCODER).read_bytes()
    (folder / "plain").write_bytes(content)
    with (
        zipfile.ZipFile(folder / "plain") as old,
        zipfile.ZipFile(folder / ENCODER, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for member in old.namelist():
            new.writestr(member, old.read(member))
    with pytest.raises(ElmokitError, match=rf"{ENCODER} is compressed"):
        elmokit.load(folder)


def test_memory_stays_bounded_whatever_sizes_are_declared(folder: Path) -> None:
    change_tensor(ENCODER, BIAS, lambda t: t[:1].clone().expand(2**28))(folder)
    change_options("encoder", "dim", to=2**22)(folder)
    tracemalloc.start()
    assert "declares" in complaint(lambda: elmokit.load(folder))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_the_tables_name_every_tensor_of_the_model(tmp_path: Path) -> None:
    for i, values in enumerate(KINDS.values()):
        reference: ManyLangs = make_many_langs(**values)
        config = read_checkpoint(reference.save(tmp_path / str(i))).config
        rows = [*many_langs.token_rows(config), *many_langs.layer_rows(config)]
        assert sorted(name for row in rows for name in row.ours) == sorted(expected_shapes(config))
