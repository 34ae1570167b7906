"""TensorFlow's files with an ELMo inside, read without TensorFlow, two layouts of the same names.

    checkpoint, model.ckpt-N.index, .data-*, options.json, vocab.txt     training of bilm-tf
    saved_model.pb, variables/variables.index, .data-*                   TensorFlow Hub, google/elmo

`dataset_name` says which dataset of the bilm format a variable is, by the end of its name; shapes
and transposes are then those of `bilm.py`. Training checkpoints have the softmax too, Hub modules
the weights of the sum of the layers. The program in `saved_model.pb` is not looked at: what
`variables` do not tell is taken to be as published, unless there is an options.json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint, Tensors
from elmokit.formats.tensorflow.bundle import INDEX, Bundle, open_bundle
from elmokit.formats.weight_map import padded, read_rows
from elmokit.io.jsonfile import read_json

STATE, PROGRAM = "checkpoint", "saved_model.pb"
NAMES = (STATE, PROGRAM, "tfhub_module.pb")
VARIABLES = Path("variables") / "variables"
STEP = re.compile(r".*-(\d{1,18})")

# The ends of the names, below any scope ("lm/", "bilm/", "module/bilm/").
SAME = re.compile(
    r"(?:.*/)?(char_embed|embedding|CNN/[Wb]_cnn_\d+|CNN_high_\d+/[Wb]_(?:carry|transform)"
    r"|CNN_proj/[Wb]_proj|softmax/[Wb])"
)
# When training; when training one layer only; when predicting; and as the bilm format has it.
CELL = re.compile(
    r"(?:.*/)?RNN_(?P<way>[01])/(?:rnn/multi_rnn_cell/cell_(?P<trained>\d+)/lstm_cell|rnn/lstm_cell"
    r"|RNN/MultiRNNCell/Cell(?P<predicting>\d+)/(?:rnn/lstm_cell|LSTMCell))/"
    r"(?P<part>kernel|bias|projection/kernel|W_0|B|W_P_0)"
)
PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
AGGREGATION = re.compile(r"(?:.*/)?(?:aggregation/(weights|scaling)|\w*ELMo_(W|gamma))")
# Of the training, and the state that the program of bilm-tf carries from batch to batch.
LEFT_OUT = re.compile(r"(?:.*/)?(?:global_step|train_perplexity|beta[12]_power|Variable(?:_\d+)?)")

Shapes = Mapping[str, tuple[int, ...]]


def dataset_name(variable: str) -> str | None:
    """The dataset of the bilm format that a variable is, or None."""
    if found := SAME.fullmatch(variable):
        return found[1]
    if found := CELL.fullmatch(variable):
        layer = found["trained"] or found["predicting"] or "0"
        part = PARTS.get(found["part"], found["part"])
        return f"{bilm.CELL.format(found['way'], layer)}/{part}"
    return None


# ---------------------------------------------------------------------- training checkpoints
def find_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of a folder, without `.index`: the one that is named, else the last."""
    with_data = {path.name.partition(".data-")[0] for path in folder.glob("[!.]*.data-*-of-*")}
    indices = sorted(path.name for path in folder.glob(f"[!.]*{INDEX}"))
    found = [name.removesuffix(INDEX) for name in indices if name.removesuffix(INDEX) in with_data]
    named = _named(folder / STATE)
    if named in found:
        return folder / named
    steps = {name: int(match[1]) for name in found if (match := STEP.fullmatch(name))}
    if steps:
        return folder / max(steps, key=lambda name: steps[name])
    if len(found) > 1:
        names = ", ".join(name + INDEX for name in found)
        raise ElmokitError(f"{folder} has several checkpoints: name one of {names}")
    return folder / found[0] if found else None


def read_training(prefix: Path) -> Checkpoint:
    """Read a training checkpoint, given its path without `.index`, and the files beside it."""
    bundle = open_bundle(prefix)
    options_file = bilm.find_options(prefix.with_name(prefix.name + INDEX))
    options = read_json(options_file)
    variables = _variables(bundle)
    vocabulary = bilm.find_vocabulary(prefix.parent)
    if not vocabulary.is_file():  # nobody knows which words the rows are
        variables = {name: v for name, v in variables.items() if not name.startswith("softmax/")}
    elif "softmax/b" in variables and "softmax/W" not in variables and "embedding" in variables:
        variables["softmax/W"] = variables["embedding"]  # trained as one
    config = bilm.config_of(options, _shapes(bundle, variables), options_file)
    return Checkpoint(
        config=config,
        tensors=_tensors(bundle, variables, config),
        vocabulary=bilm.vocabulary_of(vocabulary, config),
        metadata={"options": options, "checkpoint": prefix.name},
        source=str(prefix),
        format="tensorflow",
    )


def _named(state: Path) -> str | None:
    """The checkpoint that the file `checkpoint` names, wherever it was when that was written."""
    try:
        text = state.read_bytes()[: 1 << 20].decode("utf-8", "replace")
    except OSError:
        return None
    found = re.search(r'^\s*model_checkpoint_path:\s*"([^"\n]*)"', text, re.M)
    return re.split(r"[/\\]", found[1])[-1] if found else None


# ---------------------------------------------------------------------- Hub modules
def read_module(folder: Path) -> Checkpoint:
    """Read a module: the biLM, and the weights of its sum of the layers as a fact."""
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
    """The options of `google/elmo`, its sizes as the variables have them."""
    first = bilm.CELL.format(0, 0)
    try:
        filters = _count(shapes, "CNN/W_cnn_{}")
        return {
            "lstm": {
                "dim": shapes[f"{first}/B"][0] // 4,
                "projection_dim": shapes[f"{first}/W_0"][0] // 2,
                "n_layers": _count(shapes, bilm.CELL.format(0, "{}") + "/W_0"),
                "cell_clip": 3,
                "proj_clip": 3,
                "use_skip_connections": True,
            },
            "char_cnn": {
                "activation": "relu",
                "embedding": {"dim": shapes["char_embed"][1]},
                "filters": [[shapes[f"CNN/W_cnn_{i}"][k] for k in (1, 3)] for i in range(filters)],
                "n_highway": _count(shapes, "CNN_high_{}/W_carry"),
                "max_characters_per_token": 50,
                "n_characters": bilm.CHARACTERS,
            },
        }
    except KeyError as error:
        raise ElmokitError(f"{bundle.prefix} lacks the variable {error.args[0]!r}") from None
    except IndexError:
        raise ElmokitError(f"{bundle.prefix}: a variable has too few axes") from None


def _count(shapes: Shapes, pattern: str) -> int:
    return next(i for i in range(len(shapes) + 1) if pattern.format(i) not in shapes)


def _aggregation(bundle: Bundle, config: BiLMConfig) -> dict[str, Any] | None:
    """The weights before their softmax, one a layer, and the scale."""
    found: dict[str, list[float]] = {}
    for name in bundle.entries:
        if match := AGGREGATION.fullmatch(name):
            kind = "weights" if match[1] == "weights" or match[2] == "W" else "scaling"
            size = config.num_layers + 1 if kind == "weights" else 1
            if math.prod(bundle.entries[name].shape) != size or kind in found:
                raise ElmokitError(f"{bundle.prefix}: the variable {name!r} does not fit the model")
            found[kind] = [float(value) for value in bundle.read(name).reshape(-1)]
            if not np.isfinite(found[kind]).all():
                raise ElmokitError(f"{bundle.prefix}: the variable {name!r} is not finite (NaN)")
    if not found:
        return None
    if len(found) == 1:
        raise ElmokitError(f"{bundle.prefix} has the {next(iter(found))} of its layers only")
    return {"weights": found["weights"], "scaling": found["scaling"][0]}


# ---------------------------------------------------------------------- both
def _variables(bundle: Bundle) -> dict[str, str]:
    """Each dataset of the bilm format, and the variable that it is."""
    if unknown := [name for name in bundle.entries if not _is_known(name)]:
        names = [f"{name!r} {list(bundle.entries[name].shape)}" for name in unknown[:5]]
        more = f" and {len(unknown) - 5:,} more" if len(unknown) > 5 else ""
        raise ElmokitError(
            f"{bundle.prefix} is not an ELMo that is known here; "
            f"not recognised: {', '.join(names)}{more}"
        )
    variables: dict[str, str] = {}
    for name in bundle.entries:
        dataset = dataset_name(name)
        if dataset is None:
            continue
        if dataset in variables:
            raise ElmokitError(
                f"{bundle.prefix} has {dataset!r} twice: {variables[dataset]!r} and {name!r}"
            )
        variables[dataset] = name
    return variables


def _shapes(bundle: Bundle, variables: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    return {dataset: bundle.entries[name].shape for dataset, name in variables.items()}


def _tensors(bundle: Bundle, variables: Mapping[str, str], config: BiLMConfig) -> Tensors:
    """All tensors by our names."""
    shapes = {name: bundle.entries[name].shape for name in variables.values()}
    table = []
    for row in bilm.rows(config):
        name = variables.get(row.theirs, row.theirs)
        if row.theirs == "char_embed" and shapes.get(name, ())[:1] == (row.shape[0] + 1,):
            row = padded(row)  # when predicting, row 0 is the padding of words
        table.append(row._replace(theirs=name))
    return read_rows(table, shapes, bundle.read, bundle.prefix, kind="variable")


def _is_known(name: str) -> bool:
    """Whether a variable is of the model, of its training, or an optimizer's for one of those."""
    patterns: Iterable[re.Pattern[str]] = (SAME, CELL, AGGREGATION, LEFT_OUT)
    owner = name.rpartition("/")[0]
    return any(p.fullmatch(name) or p.fullmatch(owner) for p in patterns)
