"""ELMo models in TensorFlow's files, read without TensorFlow: two layouts of the same variables.

    checkpoint, model.ckpt-N.index, .data-*, options.json, vocab.txt     training of bilm-tf
    saved_model.pb, variables/variables.index, .data-*                   TensorFlow Hub, google/elmo

`dataset_name` maps the end of a variable's name to a dataset of the bilm format. Training
checkpoints also have the softmax, Hub modules the weights of the sum of the layers. The program in
`saved_model.pb` is not read: without an options.json, settings are those of the published module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError, UnsupportedFormat
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint, Shapes, Tensors
from elmokit.formats.tensorflow.bundle import INDEX, Bundle, open_bundle
from elmokit.formats.weight_map import padded, read_rows
from elmokit.io.jsonfile import read_json, read_text

STATE = "checkpoint"
VARIABLES = Path("variables") / "variables"
STEP = re.compile(r".*-(\d{1,18})")

# Names that are the same in the bilm format, after any scope ("lm/", "bilm/", "module/bilm/").
SAME = re.compile(
    r"(?:.*/)?(char_embed|embedding|CNN/[Wb]_cnn_\d+|CNN_high_\d+/[Wb]_(?:carry|transform)"
    r"|CNN_proj/[Wb]_proj|softmax/[Wb])"
)
# LSTM cells in training, in training of a single layer, in prediction, and in the bilm format.
CELL = re.compile(
    r"(?:.*/)?RNN_(?P<direction>[01])/"
    r"(?:rnn/multi_rnn_cell/cell_(?P<trained>\d+)/lstm_cell|rnn/lstm_cell"
    r"|RNN/MultiRNNCell/Cell(?P<predicting>\d+)/(?:rnn/lstm_cell|LSTMCell))/"
    r"(?P<part>kernel|bias|projection/kernel|W_0|B|W_P_0)"
)
PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
AGGREGATION = re.compile(r"(?:.*/)?(?:aggregation/(weights|scaling)|\w*ELMo_(W|gamma))")
# Variables of the training, and the LSTM state that bilm-tf carries from batch to batch.
IGNORED = re.compile(r"(?:.*/)?(?:global_step|train_perplexity|beta[12]_power|Variable(?:_\d+)?)")


def dataset_name(variable: str) -> str | None:
    """Return the dataset of the bilm format that a variable corresponds to, or None."""
    if match := SAME.fullmatch(variable):
        return match[1]
    if match := CELL.fullmatch(variable):
        layer = match["trained"] or match["predicting"] or "0"
        part = PARTS.get(match["part"], match["part"])
        return f"{bilm.CELL.format(match['direction'], layer)}/{part}"
    return None


# ---------------------------------------------------------------------- training checkpoints
def find_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint that a folder names, or that of the last step, without `.index`."""
    with_data = {path.name.partition(".data-")[0] for path in folder.glob("[!.]*.data-*-of-*")}
    indices = sorted(path.name.removesuffix(INDEX) for path in folder.glob(f"[!.]*{INDEX}"))
    prefixes = [prefix for prefix in indices if prefix in with_data]
    with suppress(ElmokitError):  # There is no such file, or it is of another kind.
        text = read_text(folder / STATE)
        match = re.search(r'^\s*model_checkpoint_path:\s*"([^"\n]*)"', text, re.M)
        if match and (named := re.split(r"[/\\]", match[1])[-1]) in prefixes:
            return folder / named
    steps = {prefix: int(match[1]) for prefix in prefixes if (match := STEP.fullmatch(prefix))}
    if steps:
        return folder / max(steps, key=lambda prefix: steps[prefix])
    if len(prefixes) > 1:
        names = ", ".join(prefix + INDEX for prefix in prefixes)
        raise UnsupportedFormat(f"{folder} has several checkpoints: name one of {names}")
    return folder / prefixes[0] if prefixes else None


def read_training(prefix: Path) -> Checkpoint:
    """Read a training checkpoint, given its path without `.index`, and the files beside it."""
    bundle = open_bundle(prefix)
    options_file = bilm.find_options(prefix.with_name(prefix.name + INDEX))
    options = read_json(options_file)
    variables = _variables(bundle)
    vocabulary = bilm.find_vocabulary(prefix.parent)
    if not vocabulary.is_file():  # The words of the softmax are unknown.
        variables = {name: v for name, v in variables.items() if not name.startswith("softmax/")}
    elif "softmax/b" in variables and "softmax/W" not in variables and "embedding" in variables:
        variables["softmax/W"] = variables["embedding"]  # shared weights
    config = bilm.config_of(options, _shapes(bundle, variables), options_file)
    tensors, words = _tensors(bundle, variables, config), bilm.vocabulary_of(vocabulary, config)
    metadata = {"options": options, "checkpoint": prefix.name}
    return Checkpoint(config, tensors, words, metadata, str(prefix), "tensorflow")


# ---------------------------------------------------------------------- Hub modules
def read_module(folder: Path) -> Checkpoint:
    """Read a module: the biLM, and the weights of its sum of the layers as metadata."""
    bundle = open_bundle(folder / VARIABLES)
    variables = _variables(bundle)
    shapes = _shapes(bundle, variables)
    options_file = folder / bilm.OPTIONS
    known = options_file.is_file()
    options = read_json(options_file) if known else _published_options(bundle, shapes)
    config = bilm.config_of(options, shapes, options_file if known else bundle.prefix)
    tensors = _tensors(bundle, variables, config)
    metadata: dict[str, Any] = {"options": options}
    if aggregation := _aggregation(bundle, config):
        metadata["aggregation"] = aggregation
    return Checkpoint(config, tensors, None, metadata, str(folder), "tensorflow hub")


def _published_options(bundle: Bundle, shapes: Shapes) -> dict[str, Any]:
    """Return the options of `google/elmo`, with the sizes of the variables."""
    first = bilm.CELL.format(0, 0)
    try:
        lstm: dict[str, Any] = {"dim": shapes[f"{first}/B"][0] // 4}
        lstm["projection_dim"] = shapes[f"{first}/W_0"][0] // 2
        lstm["n_layers"] = _count(shapes, bilm.CELL.format(0, "{}") + "/W_0")
        kernels = [shapes[f"CNN/W_cnn_{i}"] for i in range(_count(shapes, "CNN/W_cnn_{}"))]
        cnn: dict[str, Any] = {"embedding": {"dim": shapes["char_embed"][1]}}
        cnn["filters"] = [[kernel[k] for k in (1, 3)] for kernel in kernels]
        cnn["n_highway"] = _count(shapes, "CNN_high_{}/W_carry")
        return bilm.published_options(lstm, cnn)
    except KeyError as error:
        raise UnsupportedFormat(f"{bundle.prefix} lacks the variable {error.args[0]!r}") from None
    except IndexError:
        raise UnsupportedFormat(f"{bundle.prefix}: a variable has too few dimensions") from None


def _count(shapes: Shapes, pattern: str) -> int:
    return next(i for i in range(len(shapes) + 1) if pattern.format(i) not in shapes)


def _aggregation(bundle: Bundle, config: BiLMConfig) -> dict[str, Any] | None:
    """Return the weight of each layer before the softmax, and the scale; None if there are none."""
    values: dict[str, list[float]] = {}
    for name, entry in bundle.entries.items():
        if match := AGGREGATION.fullmatch(name):
            kind = "weights" if match[1] == "weights" or match[2] == "W" else "scaling"
            size = config.num_layers + 1 if kind == "weights" else 1
            variable = f"{bundle.prefix}: the variable {name!r}"
            if math.prod(entry.shape) != size or kind in values:
                raise UnsupportedFormat(f"{variable} does not fit the model")
            values[kind] = [float(value) for value in bundle.read(name).reshape(-1)]
            if not np.isfinite(values[kind]).all():
                raise UnsupportedFormat(f"{variable} has values that are not finite")
    if not values:
        return None
    if len(values) == 1:
        raise UnsupportedFormat(f"{bundle.prefix} has weights or scaling of its layers, not both")
    return {"weights": values["weights"], "scaling": values["scaling"][0]}


# ---------------------------------------------------------------------- both
def _variables(bundle: Bundle) -> dict[str, str]:
    """Return the variable of each dataset of the bilm format."""
    variables: dict[str, str] = {}
    unknown = []
    for name, entry in bundle.entries.items():
        own_names = (name, name.rpartition("/")[0])  # The second if it is of an optimizer.
        if not any(p.fullmatch(n) for p in (SAME, CELL, AGGREGATION, IGNORED) for n in own_names):
            unknown.append(f"{name!r} {list(entry.shape)}")
        if dataset := dataset_name(name):
            if first := variables.get(dataset):
                raise UnsupportedFormat(f"{bundle.prefix} has {dataset} twice: {first!r}, {name!r}")
            variables[dataset] = name
    if unknown:
        more = f" and {len(unknown) - 5:,} more" if len(unknown) > 5 else ""
        names = f"unknown variables: {', '.join(unknown[:5])}{more}"
        raise UnsupportedFormat(f"{bundle.prefix} is not a known kind of ELMo; {names}")
    return variables


def _shapes(bundle: Bundle, variables: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    return {dataset: bundle.entries[name].shape for dataset, name in variables.items()}


def _tensors(bundle: Bundle, variables: Mapping[str, str], config: BiLMConfig) -> Tensors:
    shapes = {name: bundle.entries[name].shape for name in variables.values()}
    table = []
    for row in bilm.rows(config):
        name = variables.get(row.theirs, row.theirs)
        if row.theirs == "char_embed" and shapes.get(name, ())[:1] == (row.shape[0] + 1,):
            row = padded(row)  # In prediction, row 0 is for padding.
        table.append(row._replace(theirs=name))
    return read_rows(table, shapes, bundle.read, bundle.prefix, kind="variable")
