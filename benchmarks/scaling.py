"""What do a million, a billion and a trillion tokens cost, from a laptop to a cluster?

    python benchmarks/scaling.py [--write]

Computes FLOPs per token from the shape of a model, takes the rates that other scripts have measured
(`results/speed.json`, `results/training_speed.json`) and prints the tables of
docs/explanation/scaling.md; `--write` puts them into the page in both languages.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from peak import flops_per_token

from elmokit.config import BiLMConfig
from elmokit.formats.detect import SHIPPED
from elmokit.io.jsonfile import read_json
from elmokit.model.bilm import expected_shapes

HERE = Path(__file__).parent
PAGES = [HERE.parent / "docs" / "explanation" / f"scaling{end}.md" for end in ("", ".zh-CN")]
SHAPES = {
    "tiny": BiLMConfig.preset("tiny"),
    "small": BiLMConfig.preset("small"),
    "english": BiLMConfig.from_dict(read_json(SHIPPED["english"] / "config.json")["model"]),
    "2x1024/256": replace(BiLMConfig.preset("tiny"), lstm_dim=1024, projection_dim=256),
    "original": BiLMConfig.preset("original"),
}
TOKENS = {"1 M": 1e6, "1 G": 1e9, "1 T": 1e12}
SAMPLES, VOCABULARY = 8192, 100_000  # of the softmax in pretraining
BATCH_TOKENS = 128 * 20  # tokens of a step of pretraining
ROWS = 100  # sentences of a batch in embedding: 2,048 tokens, 20 in each
WORD_POSITIONS = 8  # bytes of a word and its two marks
NETWORK_BYTES = 1.25e9  # per second: 10 Gbit/s


def result(name: str) -> dict[str, Any]:
    """Return the results of another script."""
    return dict(json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8")))


def encoder_flops(config: BiLMConfig) -> float:
    """Return the FLOPs of a distinct word in the character encoder."""
    filters = sum(2 * width * config.character_dim * count for width, count in config.filters)
    return WORD_POSITIONS * filters + flops_per_token(config)["highway and projection"]


def embedding_flops(config: BiLMConfig) -> float:
    """Return the FLOPs of a token whose words are in the cache: those of the LSTMs."""
    return flops_per_token(config)["LSTM stack"]


def pretraining_flops(config: BiLMConfig, samples: int, distinct: float) -> float:
    """Return the FLOPs of a token, forward and backward.

    `distinct` is the number of distinct words in a step for each of its tokens.
    """
    softmax = 2 * 2 * config.projection_dim * (samples + 1)
    return 3 * (embedding_flops(config) + softmax + distinct * encoder_flops(config))


def embedding_rates() -> dict[str, float]:
    """Return the measured tokens per second of plain embedding in float32, by size."""
    rows = result("speed")["rows"]
    system = "elmokit float32, look-ahead, warm"
    return {row["size"]: row["tokens_per_s"] for row in rows if row["system"] == system}


def training_row() -> dict[str, Any]:
    """Return the measured pretraining run that is nearest to the defaults."""
    rows = result("training_speed")["rows"]
    return next(
        row
        for row in rows
        if (row["system"], row["configuration"], row["softmax"], row["batch"])
        == ("elmokit", "tiny", "sampled", 128)
    )


def distinct_share() -> float:
    """Return the distinct words per token of the measured run, from its FLOPs."""
    config, row = SHAPES["tiny"], training_row()
    forward = (
        row["gflop_per_step"]
        * 1e9
        / (row["batch"] * result("training_speed")["training"]["unroll"])
        / 3
    )
    samples = result("training_speed")["training"]["samples"]
    rest = pretraining_flops(config, samples, 0.0) / 3
    return float((forward - rest) / encoder_flops(config))


def embedding_rate(name: str) -> tuple[float, bool]:
    """Return tokens per second of the measured machine, and whether they are measured."""
    measured = embedding_rates()
    if name in measured:
        return measured[name], True
    # A larger model computes faster per FLOP, so that the rate of "small" is cautious.
    flops_per_s = measured["small"] * embedding_flops(SHAPES["small"])
    return flops_per_s / embedding_flops(SHAPES[name]), False


def pretraining_rate(name: str) -> float:
    """Return tokens per second, extrapolated from the FLOPs per second of the measured run."""
    flops = pretraining_flops(SHAPES[name], SAMPLES, distinct_share())
    return float(training_row()["gflops"] * 1e9 / flops)


def rounded(number: float) -> str:
    """Return a number with two significant digits."""
    if number == 0:
        return "0"
    digits = 1 - math.floor(math.log10(abs(number)))
    return f"{round(number, digits):,.{max(0, digits)}f}"


def cost_cells(rate: float) -> list[str]:
    """Return the hours of one machine, and the machines for a day, of each number of tokens."""
    cells = []
    for tokens in TOKENS.values():
        hours = tokens / rate / 3600
        machines = math.ceil(hours / 24)
        cells.append(f"{rounded(hours)} h" + (f" ({machines:,})" if machines > 1 else ""))
    return cells


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table with numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def embedding_table() -> str:
    """Return the cost of embedding; figures with ~ are extrapolated."""
    rows = []
    for name, config in SHAPES.items():
        rate, is_measured = embedding_rate(name)
        mark = "" if is_measured else "~"
        work = f"{embedding_flops(config) / 1e6:.1f}"
        rows.append([name, work, f"{mark}{rate:,.0f}", *(mark + c for c in cost_cells(rate))])
    return table(["model", "MFLOP / token", "tokens/s", *TOKENS], rows)


def pretraining_table() -> str:
    """Return the cost of pretraining, all extrapolated."""
    rows = []
    for name, config in SHAPES.items():
        rate = pretraining_rate(name)
        work = pretraining_flops(config, SAMPLES, distinct_share()) / 1e6
        rows.append([name, f"{work:.0f}", f"~{rate:,.0f}", *("~" + c for c in cost_cells(rate))])
    return table(["model", "MFLOP / token", "tokens/s", *TOKENS], rows)


def limits_table() -> str:
    """Return what memory and network have to carry."""
    rows = []
    for name, config in SHAPES.items():
        size, cells = config.projection_dim, config.lstm_dim
        # Weights that each time step reads again: the recurrent ones and the projection.
        weights = 4 * 2 * config.num_layers * (4 * cells * size + cells * size)
        shapes = expected_shapes(replace(config, vocabulary_size=VOCABULARY))
        gradients = 4 * sum(math.prod(shape) for shape in shapes.values())
        compute = BATCH_TOKENS / pretraining_rate(name)
        rows.append([
            name,
            f"{weights / 1e6:,.1f} MB",
            f"{embedding_rate(name)[0] * weights / ROWS / 1e9:.2f} GB/s",
            f"{gradients / 1e6:,.0f} MB",
            f"{compute:.1f} s",
            f"{2 * gradients / NETWORK_BYTES:.2f} s",
        ])  # fmt: skip
    header = ["model", "weights / time step", "read / s", "gradients / step", "compute", "network"]
    return table(header, rows)


TABLES = {
    "embedding": embedding_table,
    "pretraining": pretraining_table,
    "limits": limits_table,
}


def filled(page: str) -> str:
    """Return the text of a page with its tables computed again."""
    for name, make in TABLES.items():
        block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
        assert block.search(page), f"the page has no table {name!r}"
        page = block.sub(rf"\g<1>\n{make()}\n\n\g<2>", page)
    return page


def main() -> None:
    """Print the tables, and write them into the pages on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    for name, make in TABLES.items():
        print(f"{name}\n{make()}\n")
    print(f"distinct words per token of a step: {distinct_share():.2f}")
    for page in PAGES if arguments.write else ():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
