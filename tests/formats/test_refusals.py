"""What every format refuses, each time in one sentence that names the file and the tensor."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from bundles import (
    module_tensors,
    save_module,
    save_training,
    trained_tensors,
    with_softmax,
    write_bundle,
)
from many_langs_reference import ENCODER, make_many_langs
from published import save_token_vectors
from reference import make_options, make_reference
from safetensors.numpy import load_file, save_file
from task_models import PREFIX, save_task_model, state_of
from tiny import WORDS, complaint

import elmokit
from elmokit.formats import native
from elmokit.formats.detect import read_checkpoint

Tensors = dict[str, np.ndarray]
CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"


@dataclass
class Saved:
    """A model on the disk, and how to write other tensors in place of its own."""

    path: Path
    """What to load."""
    file: str
    """How a sentence names the file with the tensors."""
    name: str
    """Of a tensor, in the file."""
    tensors: Tensors
    save: Callable[[Tensors], object]
    scope: str = ""
    """What stands before the names of tensors that count."""

    def refused(self) -> str:
        """What is said of it: one sentence with the name of the file."""
        said = complaint(lambda: elmokit.load(self.path))
        assert self.file in said
        assert "\n" not in said
        return said


# ---------------------------------------------------------------------- each format
def save_datasets(path: Path) -> Callable[[Tensors], None]:
    def save(tensors: Tensors) -> None:
        with h5py.File(path, "w") as file:
            for name, array in tensors.items():
                file.create_dataset(name, data=array)

    return save


def save_state(path: Path) -> Callable[[Tensors], None]:
    def save(tensors: Tensors) -> None:
        torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, path)

    return save


def of_native(folder: Path) -> Saved:
    native.write(read_checkpoint(make_reference().save(folder / "source")), folder / "model")
    path = folder / "model" / "model.safetensors"
    name = "forward_layers.0.bias"
    return Saved(folder / "model", str(path), name, load_file(path), lambda t: save_file(t, path))


def of_bilm(folder: Path) -> Saved:
    reference = with_softmax(make_reference())
    path = reference.save(folder)
    return Saved(path, str(path), f"{CELL}/B", reference.stored, save_datasets(path))


def of_words(folder: Path) -> Saved:
    reference = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    path = reference.save(folder)
    return Saved(folder, str(path), f"{CELL}/W_0", reference.stored, save_datasets(path))


def of_token_vectors(folder: Path) -> Saved:
    reference = make_reference()
    path = save_token_vectors(reference, folder)
    layers = {name: array for name, array in reference.stored.items() if name.startswith("RNN_")}
    save = save_datasets(folder / "weights.hdf5")
    return Saved(path, "weights.hdf5", f"{CELL}/W_P_0", layers, save, "RNN_")


def of_many_langs(folder: Path) -> Saved:
    model = make_many_langs()
    path = model.save(folder) / ENCODER
    name = "forward_layer_0.state_linearity.bias"
    return Saved(folder, str(path), name, model.stored[ENCODER], save_state(path))


def of_allennlp(folder: Path) -> Saved:
    path = save_task_model(make_reference(), folder / "task") / "weights.th"
    tensors = {name: tensor.numpy() for name, tensor in state_of(make_reference()).items()}
    name = f"{PREFIX}_elmo_lstm._elmo_lstm.forward_layer_0.state_linearity.bias"
    save = save_state(path)
    return Saved(path.parent, str(path), name, tensors, save, f"{PREFIX}_elmo_lstm.")


def of_training(folder: Path) -> Saved:
    reference = with_softmax(make_reference())
    save_training(reference, folder)
    prefix, tensors = folder / "model.ckpt-117", trained_tensors(reference)
    name = "lm/CNN/b_cnn_1"
    return Saved(folder, str(prefix), name, tensors, lambda t: write_bundle(prefix, t), "lm/")


def of_module(folder: Path) -> Saved:
    reference = make_reference()
    save_module(reference, folder)
    prefix, tensors = folder / "variables" / "variables", module_tensors(reference, None, 1.0)
    name = "bilm/CNN/b_cnn_1"
    return Saved(folder, str(prefix), name, tensors, lambda t: write_bundle(prefix, t), "bilm/")


FORMATS: dict[str, Callable[[Path], Saved]] = {
    "native": of_native,
    "bilm": of_bilm,
    "words": of_words,
    "token vectors": of_token_vectors,
    "many_langs": of_many_langs,
    "allennlp": of_allennlp,
    "training": of_training,
    "module": of_module,
}


@pytest.fixture(params=FORMATS)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Saved:
    return FORMATS[request.param](tmp_path)


# ---------------------------------------------------------------------- tensors
def test_it_is_loaded_as_it_is(saved: Saved) -> None:
    saved.save(saved.tensors)
    assert elmokit.load(saved.path).embed_tokens(["the", "bank"]).layers.shape == (3, 2, 12)


def test_a_missing_tensor_is_named(saved: Saved) -> None:
    saved.save({name: array for name, array in saved.tensors.items() if name != saved.name})
    said = saved.refused()
    assert re.search(r"lacks the \w+ '", said)
    assert re.sub("^(lm|bilm)/", "", saved.name) in said


def test_an_extra_tensor_is_named(saved: Saved) -> None:
    saved.save({**saved.tensors, f"{saved.scope}extra": np.zeros(3, np.float32)})
    assert f"{saved.scope}extra'" in saved.refused()


@pytest.mark.parametrize("shape", [(), (1,), (41,), (2, 3), (0,), (1, 40)])
def test_a_wrong_shape_is_named(saved: Saved, shape: tuple[int, ...]) -> None:
    saved.save({**saved.tensors, saved.name: np.zeros(shape, np.float32)})
    said = saved.refused()
    assert f"{saved.name!r} has the shape {list(shape)}" in said
    assert str(list(saved.tensors[saved.name].shape)) in said


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_named(saved: Saved, value: float) -> None:
    array = saved.tensors[saved.name].copy()
    array.flat[3] = value
    saved.save({**saved.tensors, saved.name: array})
    assert f"{saved.name!r} has values that are not finite (NaN)" in saved.refused()


def test_whole_numbers_are_not_taken_for_weights(saved: Saved) -> None:
    saved.save({**saved.tensors, saved.name: saved.tensors[saved.name].astype(np.int64)})
    said = saved.refused()
    assert repr(saved.name) in said
    assert "floating" in said or "float32" in said


# ---------------------------------------------------------------------- files
def files_of(saved: Saved) -> list[Path]:
    """The files with tensors in them."""
    suffixes = (".safetensors", ".hdf5", ".pkl", ".th", ".index")
    folder = saved.path if saved.path.is_dir() else saved.path.parent
    found = [path for path in folder.rglob("*") if path.suffix in suffixes or ".data-" in path.name]
    assert found
    return found


def test_a_file_that_is_shorter_than_it_says_is_named(saved: Saved) -> None:
    for path in files_of(saved):
        whole = path.read_bytes()
        for part in (0, 1, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:part])
            said = complaint(lambda: elmokit.load(saved.path))
            assert str(path.parent) in said
            assert path.name.partition(".data-")[0].removesuffix(".index") in said
            assert "\n" not in said
        path.write_bytes(whole)
    assert elmokit.load(saved.path).config.num_layers == 2


def test_a_program_is_not_run_wherever_it_stands(saved: Saved, tmp_path: Path) -> None:
    class Program:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "was-run",)

    plain = pickle.dumps({saved.name: Program()})
    with zipfile.ZipFile(tmp_path / "zipped", "w") as file:  # as torch packs it
        file.writestr("archive/data.pkl", plain)
        file.writestr("archive/version", "3\n")
    zipped = (tmp_path / "zipped").read_bytes()
    for path in files_of(saved):
        whole = path.read_bytes()
        for program in (plain, zipped):
            path.write_bytes(program)
            assert path.name.partition(".data-")[0] in complaint(lambda: elmokit.load(saved.path))
        path.write_bytes(whole)
    assert not (tmp_path / "was-run").exists()
    pickle.loads(plain)  # so it would have been
    assert (tmp_path / "was-run").exists()


# ---------------------------------------------------------------------- sizes
HUGE = 1 << 33  # numbers; 32 GB of float32


def declare_native(saved: Saved) -> None:
    path = saved.path / "model.safetensors"
    header = b'{"%s":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}'
    header %= (saved.name.encode(), HUGE, 4 * HUGE)
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(100))


def declare_dataset(saved: Saved) -> None:
    folder = saved.path if saved.path.is_dir() else saved.path.parent
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file[saved.name]
        file.create_dataset(saved.name, (HUGE,), "f4", chunks=(1 << 20,))  # never written


def declare_state(saved: Saved) -> None:
    tensors = {name: torch.from_numpy(array) for name, array in saved.tensors.items()}
    tensors[saved.name] = torch.zeros(1).expand(HUGE)
    torch.save(tensors, saved.file)


def declare_variable(saved: Saved) -> None:
    first = min(saved.tensors, key=str.encode)  # the one about which the index can lie
    saved.name = first
    write_bundle(Path(saved.file), saved.tensors, shape=(HUGE,), size=4 * HUGE)


DECLARED: dict[str, Callable[[Saved], object]] = {
    "native": declare_native,
    "bilm": declare_dataset,
    "words": declare_dataset,
    "token vectors": declare_dataset,
    "many_langs": declare_state,
    "allennlp": declare_state,
    "training": declare_variable,
    "module": declare_variable,
}


@contextmanager
def memory_stays_small() -> Iterator[None]:
    """Linux tells the most memory that was used since somebody asked it to forget."""
    status, forget = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not forget.exists():
        yield
        return
    forget.write_text("5")
    before = peak(status)
    yield
    assert peak(status) - before < 64 << 20


def peak(status: Path) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    assert found
    return int(found[1]) << 10


@pytest.mark.parametrize("form", DECLARED)
def test_gigantic_sizes_are_refused_and_take_no_memory(tmp_path: Path, form: str) -> None:
    saved = FORMATS[form](tmp_path)
    elmokit.load(saved.path)  # with all that is imported
    DECLARED[form](saved)
    with memory_stays_small():
        said = saved.refused()
    assert re.search(r"declares [\d,]+ bytes|truncated|safetensors file that can be read", said)


OPTIONS: dict[str, tuple[str, str]] = {  # the file with the sizes, and one of them
    "native": ("model/config.json", '"lstm_dim": 10'),
    "bilm": ("options.json", '"dim": 10'),
    "words": ("options.json", '"dim": 10'),
    "token vectors": ("options.json", '"dim": 10'),
    "many_langs": ("tiny.json", '"dim": 10'),
    "training": ("options.json", '"dim": 10'),
}


@pytest.mark.parametrize("form", OPTIONS)
@pytest.mark.parametrize("size", [1 << 22, 1 << 40])
def test_gigantic_sizes_in_the_options_take_no_memory(tmp_path: Path, form: str, size: int) -> None:
    saved = FORMATS[form](tmp_path)
    elmokit.load(saved.path)
    name, old = OPTIONS[form]
    text = (tmp_path / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, old.replace("10", str(size))))
    with memory_stays_small():
        said = complaint(lambda: elmokit.load(saved.path))
    if size > 1 << 22:
        assert str(tmp_path / name) in said or f"{tmp_path}: the model configuration's" in said
        assert "lstm_dim must be an integer from 1 to 4194304" in said
    else:
        assert saved.file in said
        assert re.search(rf"has the shape \[.*\] but .* needs? \[.*{4 * size}", said)
