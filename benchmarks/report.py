"""Turn the JSON files in results/ into results/README.md and results/speed.png."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
INTRODUCTION = """# Measurements

Written by `make bench`; the script that made a table is named above it. All systems of a table
ran in one session, in turns, each in a process of its own, with the same number of threads. The
tables give the median of the rounds' rates and of their ratios. Read the ratios: absolute rates
vary from machine to machine and from hour to hour. Weights are random, of the published sizes,
with activations like a trained model's; the text is English news (1 Billion Word benchmark,
held-out part).
"""


def main() -> None:
    sections = [INTRODUCTION]
    for name, section in (
        ("speed", speed), ("precision", precision), ("peak", peak), ("startup", startup),
        ("memory", memory),
    ):  # fmt: skip
        path = RESULTS / f"{name}.json"
        if path.exists():
            sections.append(section(json.loads(path.read_text())))
    (RESULTS / "README.md").write_text("\n".join(sections))
    plot()


def speed(result: dict) -> str:
    lines = [
        "## Embedding speed beside the older systems (`benchmarks/speed.py`)\n",
        machine_line(result["machine"]),
        "",
        "Tokens in, NumPy arrays of all layers out; imports and loading are not counted. The ratio",
        "is to the fastest older system that takes any word. *same batches*: batches in the order",
        "given, one call each, as the older systems get them. *look-ahead*: all sentences in one",
        "call, batches of the same size formed by length, as `elmokit embed` does. *cold*: each",
        "round starts with an empty word cache; *warm*: the words were met before.",
        "`allennlp-cached` has the vectors of exactly these words prepared beforehand.",
        "",
    ]
    for size, batch in dict.fromkeys((row["size"], row["batch"]) for row in result["rows"]):
        rows = [r for r in result["rows"] if (r["size"], r["batch"]) == (size, batch)]
        lines += [
            f"### `{size}`, batch {batch} ({rows[0]['tokens']:,} tokens)\n",
            "| system | tokens/s | ratio | peak memory |",
            "|---|---:|---:|---:|",
        ]
        for row in rows:
            ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
            rate, memory = f"{row['tokens_per_s']:,.0f}", f"{row['peak_rss_mb']:,} MB"
            lines.append(f"| {row['system']} | {rate} | {ratio} | {memory} |")
        lines.append("")
    return "\n".join(lines) + "\n![tokens per second](speed.png)\n"


def precision(result: dict) -> str:
    lines = [
        "## Vectors of float16 and int8 weights (`benchmarks/precision.py`)\n",
        machine_line(result["machine"]),
        "",
        "Cosine of each token's vector to the float32 one, over all layers and tokens.",
        "",
        "| size | weights | mean | lowest |",
        "|---|---|---:|---:|",
    ]
    for row in result["rows"]:
        name = f"| `{row['size']}` | {row['precision']}"
        lines.append(f"{name} | {row['mean']:.6f} | {row['lowest']:.6f} |")
    return "\n".join(lines) + "\n"


def peak(result: dict) -> str:
    lines = [
        "## Share of the machine's peak (`benchmarks/peak.py`)\n",
        machine_line(result["machine"]),
        "",
        "| | GFLOP/s | share |",
        "|---|---:|---:|",
        f"| float32 peak, multiply-adds in registers, {result['threads']} threads "
        f"| {result['peak_gflops']:.0f} | 100% |",
        f"| large matrix product of torch | {result['matrix_product_gflops']:.0f} "
        f"| {result['matrix_product_gflops'] / result['peak_gflops']:.0%} |",
        f"| LSTM stack of `{result['size']}`, batch {result['batch']}, float32 "
        f"({result['positions_per_s']:,} tokens/s) | {result['lstm_gflops']:.0f} "
        f"| {result['share_of_peak']:.0%} |",
        "",
        "Work for a token, in MFLOP (a multiply-add counts two):",
        "",
        "| size | convolutions, at all positions | highway and projection | LSTM stack |",
        "|---|---:|---:|---:|",
    ]
    for size, parts in result["mflops_per_token"].items():
        lines.append(f"| `{size}` | " + " | ".join(f"{v:.1f}" for v in parts.values()) + " |")
    return "\n".join(lines) + "\n"


def startup(result: dict) -> str:
    seconds = result["seconds"]
    return "\n".join(
        [
            "## From the command to the first vector (`benchmarks/startup.py`)\n",
            machine_line(result["machine"]),
            "",
            "| process | seconds |",
            "|---|---:|",
            *(f"| {name} | {value:.3f} |" for name, value in seconds.items()),
            f"| what elmokit adds to torch's import | {result['added']:.3f} |",
            "",
        ]
    )


def memory(result: dict) -> str:
    embedding, reading = result["embedding"], result["reading"]
    samples = ", ".join(str(mb) for mb in embedding["rss_mb_each_tenth"])
    lines = [
        "## Memory while embedding a file of 1 GB (`benchmarks/memory.py`)\n",
        machine_line(result["machine"]),
        "",
        f"`elmokit embed` with `small` on {result['bytes'] / 1e9:.2f} GB of running text, one "
        f"pooled vector a sentence, stopped after {embedding['minutes']:g} minutes "
        f"({embedding['tokens']:,} tokens): peak {embedding['peak_rss_mb']:,} MB resident; "
        f"at each tenth of the time {samples} MB.",
        "",
    ]
    if reading:
        lines += [
            "Reading, splitting, tokenizing and windowing the whole file, without the LSTMs: peak "
            f"{reading['peak_rss_mb']:,} MB ({reading['sentences']:,} sentences, "
            f"{reading['tokens']:,} tokens in {reading['seconds']} s).",
            "",
        ]
    return "\n".join(lines)


def machine_line(machine: dict) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['instructions']}; "
        f"Python {machine['python']}, torch {machine['torch']}."
    )


def plot() -> None:
    """Bars of tokens/s by system, a panel for each case."""
    path = RESULTS / "speed.json"
    if not path.exists():
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = json.loads(path.read_text())["rows"]
    cases = list(dict.fromkeys((row["size"], row["batch"]) for row in rows))
    figure, axes = pyplot.subplots(len(cases), 1, figsize=(9, 2.6 * len(cases)), squeeze=False)
    for axis, (size, batch) in zip(axes[:, 0], cases, strict=True):
        shown = [r for r in rows if (r["size"], r["batch"]) == (size, batch)]
        shown.sort(key=lambda row: row["tokens_per_s"])
        colours = ["#2a6f97" if "elmokit" in row["system"] else "#b0b0b0" for row in shown]
        names = [row["system"] for row in shown]
        bars = axis.barh(names, [row["tokens_per_s"] for row in shown], color=colours)
        axis.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=7)
        axis.set_title(f"{size}, batch {batch}: tokens/s", fontsize=9, loc="left")
        axis.tick_params(labelsize=7)
        axis.margins(x=0.12)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(RESULTS / "speed.png", dpi=130)


if __name__ == "__main__":
    main()
