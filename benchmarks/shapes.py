"""Which shape makes the best small model? Several are trained with the same compute.

    python benchmarks/shapes.py --text wiki.txt novels.txt --folder shapes [--steps 1200]

Each shape of at most 25 MB in float16 is trained by `elmokit pretrain` as configs/tiny.yaml says.
The first takes `--steps` steps, the others as many as need the same floating point operations, so
that the speed of the machine does not matter; the learning rate decays fully in every run. The same
command resumes runs that were stopped. All have the same text, vocabulary and held-out part, and
are compared by its perplexity.
"""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import yaml
from parsers import described_parser
from peak import flops_per_token
from ptb import run_elmokit
from speed import machine

from elmokit.config import BiLMConfig
from elmokit.formats import native
from elmokit.pretrain.corpus import Corpus, prepare
from elmokit.pretrain.windows import Windows

HERE = Path(__file__).parent
RECIPE = HERE.parent / "configs" / "tiny.yaml"
SHAPES: dict[str, dict[str, int]] = {  # differences from the recipe, whose shape is the first
    "2 x 512 / 128": {},
    "2 x 1024 / 128": {"lstm_dim": 1024},
    "2 x 768 / 160": {"lstm_dim": 768, "projection_dim": 160},
    "2 x 384 / 192": {"lstm_dim": 384, "projection_dim": 192},
    "3 x 512 / 128": {"num_layers": 3},
}
MAX_MB = 25


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", nargs="+", required=True, help="files of running text")
    parser.add_argument("--folder", required=True, help="where the models are trained")
    parser.add_argument("--steps", type=int, default=1200, help="of the first shape")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", default=str(HERE / "results" / "shapes.json"))
    arguments = parser.parse_args()
    recipe = yaml.safe_load(RECIPE.read_text())
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = prepare(arguments.text, folder / "corpus")
    distinct = distinct_words(corpus, recipe)
    rows, budget = [], 0.0
    for name, fields in SHAPES.items():
        model = {**recipe["model"], **fields}
        words = {"vocabulary_size": recipe["vocab_size"]}
        config = BiLMConfig.from_dict({**BiLMConfig.preset("tiny").to_dict(), **model, **words})
        work = flops(config, recipe["samples"], distinct)
        budget = budget or arguments.steps * work
        out = folder / name.replace(" ", "").replace("/", "-")
        if not (out / "corpus").is_dir():
            shutil.copytree(folder / "corpus", out / "corpus")
        steps = round(budget / work)
        run_elmokit(
            "pretrain",
            config=str(RECIPE),
            corpus=arguments.text,
            out=str(out),
            model=model,
            softmax="sampled",
            max_steps=steps,
            threads=arguments.threads,
            eval_every=1_000_000,
        )
        rows.append(row(name, out, steps, work))
        result = {"machine": machine(), "first_steps": arguments.steps, "rows": rows}
        Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


def distinct_words(corpus: Corpus, recipe: dict[str, Any]) -> float:
    """Return the share of the tokens of a window that are distinct words."""
    windows = Windows(corpus.train, rows=recipe["batch_size"], unroll=recipe["unroll"], seed=1)
    counts = [len(windows.window(0, step).types) for step in range(0, windows.steps, 500)]
    return float(statistics.mean(counts) / (recipe["batch_size"] * recipe["unroll"]))


def flops(config: BiLMConfig, samples: int, distinct: float) -> float:
    """Return the FLOPs of a token in the forward pass; the backward pass takes twice as many."""
    parts = flops_per_token(config)
    softmax = 2 * 2 * config.projection_dim * samples
    return parts["LSTM stack"] + softmax + distinct * parts["highway and projection"]


def row(name: str, out: Path, steps: int, work: float) -> dict[str, Any]:
    """Return the result of one shape."""
    checkpoint = native.read(out)
    training = checkpoint.metadata["training"]
    parameters = sum(tensor.size for tensor in checkpoint.tensors.values())
    megabytes = 2 * parameters / 1e6  # Models ship in float16.
    assert megabytes <= MAX_MB, (name, megabytes)
    return {
        "shape": name,
        "million_parameters": round(parameters / 1e6, 2),
        "mb_as_float16": round(megabytes, 1),
        "steps": steps,
        "mflop_per_token": round(work / 1e6, 2),
        "hours": training["hours"],
        "perplexity": training["heldout_perplexity"],
    }


if __name__ == "__main__":
    main()
