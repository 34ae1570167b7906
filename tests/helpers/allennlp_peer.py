"""Run by an interpreter that has AllenNLP: what its own ELMo gives for the files of a model.

    python allennlp_peer.py FOLDER

FOLDER has options.json, weights.hdf5 and batches.json, a list of batches of tokenized sentences.
Written into it are arrays in expected.npz, a state dict in elmo.th and a task model's archive,
model.tar.gz. Nothing here is of elmokit.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import sys
import tarfile
import types
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

UNUSED = {  # what AllenNLP imports and its ELMo never uses, and the parts that it names
    "torchvision": (".io", ".transforms", ".ops", ".ops.boxes", ".models"),
}


def do_without(package: str, parts: tuple[str, ...]) -> None:
    """Put empty modules where a package is missing."""
    try:
        importlib.import_module(package)
    except Exception:
        for name in (package, *(package + part for part in parts)):
            module = types.ModuleType(name)
            module.__path__ = []
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            sys.modules[name] = module


for unused in UNUSED.items():
    do_without(*unused)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from allennlp.modules.elmo import Elmo, batch_to_ids  # noqa: E402


def change(elmo: torch.nn.Module) -> None:
    """Mixes as a task might have trained them."""
    with torch.no_grad():
        for k in range(2):
            mix = getattr(elmo, f"scalar_mix_{k}")
            mix.gamma.fill_(1.5 + k)
            for j, parameter in enumerate(mix.scalar_parameters):
                parameter.fill_(0.3 * j - 0.4 * k)


def representations(folder: Path, batches: list[Any], **settings: Any) -> dict[str, np.ndarray]:
    """Both outputs and the mask of every batch, the state carried from one to the next."""
    files = str(folder / "options.json"), str(folder / "weights.hdf5")
    elmo = Elmo(*files, 2, dropout=0.0, **settings).eval()
    change(elmo)
    arrays = {}
    with torch.no_grad():
        for index, batch in enumerate(batches):
            result = elmo(batch_to_ids(batch))
            arrays[f"{index}_mask"] = result["mask"].numpy()
            for k, output in enumerate(result["elmo_representations"]):
                arrays[f"{index}_{k}"] = output.numpy()
    return arrays


def save_task(folder: Path) -> None:
    """A task model with AllenNLP's ELMo where its taggers have it, packed as AllenNLP packs."""
    files = {"options_file": folder / "options.json", "weight_file": folder / "weights.hdf5"}
    entry = {"type": "elmo_token_embedder", **{name: str(path) for name, path in files.items()}}
    elmo = Elmo(entry["options_file"], entry["weight_file"], 1, dropout=0.0)
    with torch.no_grad():
        elmo.scalar_mix_0.gamma.fill_(0.75)
        for j, parameter in enumerate(elmo.scalar_mix_0.scalar_parameters):
            parameter.fill_(0.5 - j)
    module = torch.nn.ModuleDict
    embedder = module({"token_embedder_elmo": module({"_elmo": elmo})})
    task = module({"text_field_embedder": embedder, "norm": torch.nn.BatchNorm1d(3)})
    model = {"text_field_embedder": {"token_embedders": {"elmo": entry}}}
    (folder / "config.json").write_text(json.dumps({"model": model}))
    (folder / "labels.txt").write_text("N\nV\n")
    torch.save(task.state_dict(), folder / "best.th")
    with tarfile.open(folder / "model.tar.gz", "w:gz") as archive:
        archive.add(folder / "config.json", "config.json")
        archive.add(folder / "best.th", "weights.th")
        archive.add(folder / "labels.txt", "vocabulary/labels.txt")


def main(folder: Path) -> None:
    batches = json.loads((folder / "batches.json").read_text(encoding="utf-8"))
    arrays = {f"ids_{i}": batch_to_ids(batch).numpy() for i, batch in enumerate(batches)}
    ways = {
        "plain": {},
        "normed": {"do_layer_norm": True},
        "framed": {"keep_sentence_boundaries": True},
    }
    for way, settings in ways.items():
        result = representations(folder, batches, **settings)
        arrays |= {f"{way}_{name}": array for name, array in result.items()}
    words = ["", *sorted({word for batch in batches for s in batch for word in s})]
    elmo = Elmo(
        str(folder / "options.json"), str(folder / "weights.hdf5"), 1, dropout=0.0,
        vocab_to_cache=words,
    )  # fmt: skip
    numbers = torch.zeros(batch_to_ids(batches[0]).shape[:2], dtype=torch.long)
    for row, sentence in enumerate(batches[0]):
        numbers[row, : len(sentence)] = torch.tensor([words.index(word) for word in sentence])
    with torch.no_grad():
        cached = elmo(batch_to_ids(batches[0]), numbers)
    arrays |= {"numbers": numbers.numpy(), "words": np.array(words)}
    arrays["cached"] = cached["elmo_representations"][0].numpy()
    np.savez(folder / "expected.npz", **arrays)
    changed = Elmo(str(folder / "options.json"), str(folder / "weights.hdf5"), 2)
    change(changed)
    torch.save(changed.state_dict(), folder / "elmo.th")
    save_task(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
