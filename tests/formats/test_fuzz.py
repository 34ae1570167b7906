"""Files of every format, damaged in many ways: a model or a sentence comes out, and nothing else.

`ELMOKIT_FUZZ=2000 pytest -m fuzz` tries 2,000 damages of each format; without it there are a few.
What may come out, and of what the damages are, is in fuzz.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundles import save_module, save_training, with_softmax
from many_langs_reference import EMBEDDER, ENCODER, make_many_langs
from published import save_nlpl, save_token_vectors
from reference import make_options, make_reference
from task_models import pack, save_task_model
from tiny import WORDS

from elmokit.formats import native
from elmokit.formats.detect import read_checkpoint

resource = pytest.importorskip("resource", reason="there is no limit to set")

NUMBER = int(os.environ.get("ELMOKIT_FUZZ", "60"))  # damages of each format
CHUNK = 250  # of them for each process
SCRIPT = Path(__file__).parents[1] / "helpers" / "fuzz.py"


# ---------------------------------------------------------------------- models
FEW = make_options(layers=1, filters=[[1, 2], [2, 3]])  # few tensors: each of them takes its time


def as_native(folder: Path) -> str:
    """What lies in the folder, as a native model."""
    checkpoint = read_checkpoint(folder)
    shutil.rmtree(folder)
    native.write(checkpoint, folder)
    return "."


def native_with_softmax(folder: Path) -> str:
    with_softmax(make_reference(FEW)).save(folder)
    return as_native(folder)


def native_on_unicode(folder: Path) -> str:
    make_many_langs(layers=1).save(folder)
    return as_native(folder)


def bilm(folder: Path) -> str:
    with_softmax(make_reference(FEW)).save(folder)
    return "weights.hdf5"


def on_words(folder: Path) -> str:
    make_reference(make_options(layers=1, words=len(WORDS)), vocabulary=WORDS).save(folder)
    return "."


def token_vectors(folder: Path) -> str:
    return save_token_vectors(make_reference(FEW), folder, padding=True).name


def nlpl(folder: Path) -> str:
    on_words(folder / "source")
    save_nlpl(folder / "217.zip", folder / "source")
    shutil.rmtree(folder / "source")
    return "217.zip"


def many_langs(folder: Path) -> str:
    make_many_langs(layers=1).save(folder)
    return "."


def many_langs_before_torch_1_6(folder: Path) -> str:
    make_many_langs(layers=1).save(folder)
    for name in (ENCODER, EMBEDDER):
        tensors = torch.load(folder / name, weights_only=True)
        torch.save(tensors, folder / name, _use_new_zipfile_serialization=False)
    return "."


def many_langs_zip(folder: Path) -> str:
    make_many_langs(layers=1).save(folder / "source")
    shutil.make_archive(str(folder / "179"), "zip", folder / "source")
    shutil.rmtree(folder / "source")
    return "179.zip"


def tensorflow_checkpoint(folder: Path) -> str:
    save_training(with_softmax(make_reference(FEW)), folder)
    return "."


def tensorflow_hub(folder: Path) -> str:
    save_module(make_reference(FEW), folder, weights=np.array([0.2, -0.1]))
    return "."


def allennlp(folder: Path) -> str:
    save_task_model(make_reference(), folder)
    return "."


def allennlp_archive(folder: Path) -> str:
    source = save_task_model(make_reference(), folder / "source")
    pack(source, folder / "model.tar.gz")
    shutil.rmtree(source)
    return "model.tar.gz"


FORMATS: dict[str, Callable[[Path], str]] = {
    "native": native_with_softmax,
    "native on Unicode": native_on_unicode,
    "bilm": bilm,
    "words": on_words,
    "token vectors": token_vectors,
    "NLPL zip": nlpl,
    "many_langs": many_langs,
    "many_langs, old layout": many_langs_before_torch_1_6,
    "many_langs zip": many_langs_zip,
    "TensorFlow checkpoint": tensorflow_checkpoint,
    "TensorFlow Hub": tensorflow_hub,
    "AllenNLP": allennlp,
    "AllenNLP tar.gz": allennlp_archive,
}
GOLDEN = {  # of the original systems: the files of a model, and the one to load
    "bilm": (["lm_weights.hdf5", "options.json"], "lm_weights.hdf5"),
    "bilm with token vectors": (
        ["elmo_token_embeddings.hdf5", "vocab_test.txt", "lm_weights.hdf5", "options.json"],
        "elmo_token_embeddings.hdf5",
    ),
    "many_langs": (
        ["config.json", "cnn_tiny.json", "char.dic", "word.dic", EMBEDDER, ENCODER],
        ".",
    ),
    "tf_checkpoint": (
        ["checkpoint", "model.ckpt-117.index", "model.ckpt-117.data-00000-of-00001",
         "options.json", "vocab.txt"],
        ".",
    ),
}  # fmt: skip


# ---------------------------------------------------------------------- trying
@pytest.fixture(scope="module")
def fuzzer() -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """Hands jobs to fuzz.py, which is started once."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT)]
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout

        def ask(job: dict[str, Any]) -> dict[str, Any]:
            print(json.dumps(job), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())  # type: ignore[union-attr]

        yield ask
        process.stdin.close()


def assert_no_faults(ask: Callable[..., dict[str, Any]], model: Path, name: str) -> None:
    """Try all damages of a model; some of them have to be noticed, and in different words."""
    counts: Counter[str] = Counter()
    kinds: set[str] = set()
    faults = []
    job = {"model": str(model), "name": name, "work": str(model.parent / "work" / "fuzz")}
    (model.parent / "work").mkdir()
    for first in range(0, NUMBER, CHUNK):
        result = ask(job | {"first": first, "last": min(NUMBER, first + CHUNK)})
        counts.update(loaded=result["loaded"], refused=result["refused"])
        kinds.update(result["kinds"])
        faults += result["faults"]
    print(f"{dict(counts)}, {len(kinds)} kinds of sentences, {len(faults)} faults")
    for fault in faults:
        print(fault)
    assert not faults, f"{len(faults)} faults; the number of the first is {faults[0]['seed']}"
    assert counts["loaded"] + counts["refused"] == NUMBER
    assert counts["refused"] > NUMBER / 5
    assert len(kinds) > 5


@pytest.mark.fuzz
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_loaded_or_refused_in_a_sentence(
    tmp_path: Path, fuzzer: Callable[..., dict[str, Any]], name: str
) -> None:
    (tmp_path / "model").mkdir()
    target = FORMATS[name](tmp_path / "model")
    assert_no_faults(fuzzer, tmp_path / "model", target)


@pytest.mark.fuzz
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", GOLDEN)
def test_damaged_files_of_the_original_systems_are_too(
    tmp_path: Path, shared: Path, fuzzer: Callable[..., dict[str, Any]], name: str
) -> None:
    names, target = GOLDEN[name]
    (tmp_path / "model").mkdir()
    for file in names:
        content = (shared / "golden" / name.split()[0] / file).read_bytes()
        (tmp_path / "model" / file).write_bytes(content)
    assert_no_faults(fuzzer, tmp_path / "model", target)
