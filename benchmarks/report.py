"""Turn the JSON files in results/ into results/README.md and results/speed.png."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PLAYS = {  # the sentences of neighbours.py, as text
    "game": "The shortstop made a brilliant *play* on a hard ground ball.",
    "stage": "She wrote a *play* for a small theatre on Broadway.",
}
INTRODUCTION = """# Measurements

Written by `make bench`; each heading names the script that made the table. All systems of a table
ran in one session, in turns, each in its own process, with the same number of threads. The tables
give the median of the rounds' rates and of their ratios. Compare the ratios: absolute rates vary
from machine to machine and from hour to hour. For embedding, the weights are random, of the
published sizes, with activations like a trained model's; the text is English news (1 Billion Word
benchmark, held-out part). Scripts that train a model need hours and texts that are not in the
repository: run them one by one with the texts as options. Senses, n-grams, probes, static vectors,
tasks and adaptation were measured with the included models; neighbours, spaCy and Ray with an
English model of 2 x 512/128 that had read 15 M tokens, which is weaker than the included one.
"""


def main() -> None:
    """Write README.md from all results that exist, and draw the speed."""
    (RESULTS / "README.md").write_text(render(), encoding="utf-8")
    plot()


def render() -> str:
    """Return README.md: the introduction and a section for each result that exists."""
    sections = [INTRODUCTION]
    for section in SECTIONS:
        path = RESULTS / f"{result_name(section)}.json"
        if path.exists():
            sections.append(section(json.loads(path.read_text(encoding="utf-8"))))
    return "\n".join(sections)


def result_name(section: Callable[..., str]) -> str:
    """Return the name of the result that a section shows: `ngram.zh` for `ngram_zh`."""
    return section.__name__.replace("_zh", ".zh")


def speed(result: dict[str, Any]) -> str:
    lines = [
        *head("Embedding speed compared with older systems (`benchmarks/speed.py`)", result),
        "Tokens in, NumPy arrays of all layers out; imports and loading are not counted. The ratio",
        "is to the fastest older system that takes any word. *same batches*: batches in the given",
        "order, one call each, as for the older systems. *look-ahead*: all sentences in one call,",
        "sorted into batches of the same size by length, as `elmokit embed` does. *cold*: each",
        "round starts with an empty word cache; *warm*: the words were seen before.",
        "`allennlp-cached` has precomputed the vectors of exactly these words.",
        "",
    ]
    return "\n".join([*lines, *speed_tables(result)]) + "\n![tokens per second](speed.png)\n"


def speed_avx2(result: dict[str, Any]) -> str:
    lines = [
        *head("The same without AVX-512 (`benchmarks/speed.py --avx2`)", result),
        "torch, oneDNN and MKL, and with them all systems, kept to AVX2 on the same machine.",
        "",
    ]
    return "\n".join([*lines, *speed_tables(result)])


def speed_tables(result: dict[str, Any]) -> list[str]:
    """Return the lines of a table for each size and batch."""
    lines = []
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
    return lines


def precision(result: dict[str, Any]) -> str:
    lines = [
        *head("Vectors of float16 and int8 weights (`benchmarks/precision.py`)", result),
        "Cosine of the vector of each token with the float32 one, over all layers and tokens.",
        "",
        "| size | weights | mean | lowest |",
        "|---|---|---:|---:|",
    ]
    for row in result["rows"]:
        name = f"| `{row['size']}` | {row['precision']}"
        lines.append(f"{name} | {row['mean']:.6f} | {row['lowest']:.6f} |")
    return "\n".join(lines) + "\n"


def invariance(result: dict[str, Any]) -> str:
    lines = [
        *head("A sentence alone and in a batch (`benchmarks/invariance.py`)", result),
        f"Largest difference of any value of any layer of `{result['model'] or 'english'}` when "
        f"{result['sentences']} sentences are embedded",
        "alone and in one batch: *ordinary* are those of `examples/senses.tsv`, *odd* have 2 to 80",
        f"tokens of random characters ({result['seeds']} seeds).",
        "",
        "| weights | ordinary | odd |",
        "|---|---:|---:|",
    ]
    for name, row in result["difference"].items():
        lines.append(f"| {name} | {row['ordinary']:.1e} | {row['odd']:.1e} |")
    return "\n".join(lines) + "\n"


def latency(result: dict[str, Any]) -> str:
    lines = [
        *head("One sentence of 20 tokens (`benchmarks/latency.py`)", result),
        f"Milliseconds of a call with one sentence of 18 to 22 tokens, all layers, for "
        f"{result['sentences']} sentences: median",
        "and, in brackets, 99th percentile. *cold*: no vectors of words are kept; *warm*: all",
        "words were met before. *Python*: the time of a warm call of a model with as many layers",
        "but 4 cells, which runs the same lines and multiplies hardly anything, as a share.",
        "",
        "| model | threads | cold | warm | Python |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        times = (
            f"{row[f'{kind}_p50']:.2f} ({row[f'{kind}_p99']:.2f})" for kind in ("cold", "warm")
        )
        share = f"{row['python_share']:.0%}"
        lines.append(f"| `{row['model']}` | {row['threads']} | {' | '.join(times)} | {share} |")
    return "\n".join(lines) + "\n"


def peak(result: dict[str, Any]) -> str:
    lines = [
        *head("Share of the machine's peak (`benchmarks/peak.py`)", result),
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
        "Work per token in MFLOP (a multiply-add counts as two):",
        "",
        "| size | convolutions, at all positions | highway and projection | LSTM stack |",
        "|---|---:|---:|---:|",
    ]
    for size, parts in result["mflops_per_token"].items():
        lines.append(f"| `{size}` | " + " | ".join(f"{v:.1f}" for v in parts.values()) + " |")
    return "\n".join(lines) + "\n"


def startup(result: dict[str, Any]) -> str:
    seconds = result["seconds"]
    return "\n".join(
        [
            *head("From the command to the first vector (`benchmarks/startup.py`)", result),
            "| process | seconds |",
            "|---|---:|",
            *(f"| {name} | {value:.3f} |" for name, value in seconds.items()),
            f"| added by elmokit to the import of torch | {result['added']:.3f} |",
            "",
        ]
    )


def memory(result: dict[str, Any]) -> str:
    embedding, reading = result["embedding"], result["reading"]
    samples = ", ".join(str(mb) for mb in embedding["rss_mb_each_tenth"])
    lines = [
        *head("Memory while embedding a file of 1 GB (`benchmarks/memory.py`)", result),
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


def ray_engine(result: dict[str, Any]) -> str:
    lines = [
        *head("Embedding with processes and on Ray (`benchmarks/ray_engine.py`)", result),
        f"`elmokit embed` of {result['rows']:,} texts of {result['tokens_per_row']:g} words into "
        f"pooled vectors with",
        f"`{result['model']}`, {result['workers']} threads in all: in one process, with "
        f"`--workers {result['workers']}`, and with",
        f"`--engine ray` and as many actors. Medians of {result['rounds']} rounds, from the start "
        "of the command",
        "to its end.",
        "",
        "| command | seconds | of a tenth of the texts | texts/s without the start |",
        "|---|---:|---:|---:|",
    ]
    for name, row in result["results"].items():
        rate = row["rows_per_second_without_start"]
        times = f"{row['seconds']:.1f} | {row['seconds_of_a_tenth']:.1f}"
        lines.append(f"| {name} | {times} | {'' if rate is None else f'{rate:,.0f}'} |")
    return "\n".join(lines) + "\n"


def training_speed(result: dict[str, Any]) -> str:
    lines = [
        *head("Training speed (`benchmarks/training_speed.py`)", result),
        f"Tokens of one direction per second, {result['threads']} threads, preparing batches "
        f"included; medians of {result['rounds']} rounds for the first pair, of the first and last",
        "of them for the others; the ratios of all rounds are in brackets.",
        *([f"{result['note']}."] if "note" in result else []),
        "*as bilm-tf*: LSTMs of 512 cells with projection 128 in 2 layers, 256 filters, 10,000",
        f"words, windows of {result['training']['unroll']}, "
        f"{result['training']['samples']:,} samples, Adagrad. *2,048 filters*: the same with those",
        "of the published models. Work counts the matrix products of a step, forward and",
        f"backward. The share is of the float32 peak, {result['peak_gflops']:.0f} GFLOP/s.",
        "",
        "| system | model | softmax | batch | tokens/s | ratio | GFLOP a step | share of peak "
        "| peak memory |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    peers = {row["configuration"]: row for row in result["rows"] if row["system"] == "bilm-tf"}
    for row in result["rows"]:
        ratio, work, share = "", "", ""
        if row["ratio"]:
            turns = zip(row["all"], peers[row["configuration"]]["all"], strict=True)
            each = ", ".join(f"{ours / theirs:.2f}" for ours, theirs in turns)
            ratio = f"{row['ratio']:.2f} ({each})" if row["system"] != "bilm-tf" else "1"
        if "gflop_per_step" in row:
            work, share = f"{row['gflop_per_step']:.1f}", f"{row['share_of_peak']:.0%}"
        lines.append(
            f"| {row['system']} | {row['configuration']} | {row['softmax']} | {row['batch']} "
            f"| {row['tokens_per_s']:,.0f} | {ratio} | {work} | {share} "
            f"| {row['peak_rss_mb']:,} MB |"
        )
    return "\n".join(lines) + "\n"


def training_memory(result: dict[str, Any]) -> str:
    lines = [
        *head("Memory while pretraining (`benchmarks/training_memory.py`)", result),
        f"`elmokit pretrain` of `tiny`: the text is encoded, then {result['steps']} steps are "
        "trained. *resident*: with the pages of",
        "mapped files that happen to be in memory, which the system reclaims when it needs them;",
        "*own*: without these; *with workers*: own memory including the tokenizing processes",
        "(shared memory counts for each).",
        "",
        "| text | tokens | different words | encoding: resident | own | with workers "
        "| training: resident | own |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        encoding, training = row["encoding"], row["training"]
        lines.append(
            f"| {row['bytes'] / 1e6:,.0f} MB | {row['tokens']:,} | {row['types']:,} "
            f"| {encoding['resident_mb']:,} MB | {encoding['own_mb']:,} MB "
            f"| {encoding['with_workers_mb']:,} MB "
            f"| {training['resident_mb']:,} MB | {training['own_mb']:,} MB |"
        )
    return "\n".join(lines) + "\n"


DIRECTIONS = ("forward", "backward", "average")


def perplexity_cells(perplexity: dict[str, Any]) -> str:
    """Return the perplexities of both directions and their average as cells of a table."""
    return " | ".join(f"{perplexity[name]:.1f}" for name in DIRECTIONS)


def shapes(result: dict[str, Any]) -> str:
    curve, budgets = result["curve"], dict.fromkeys(row["tokens"] for row in result["rows"])
    sizes = list(dict.fromkeys(row["cells"] for row in result["rows"]))
    lines = [
        *head("The shape of the shipped model (`benchmarks/shapes.py`)", result),
        "Two layers of each size, trained on a sample of the text of the English model by its",
        "recipe; the rate decays to the end of every run. The average of both directions'",
        "perplexity on held-out text, for the best learning rate and batch size of each size (one",
        "seed), and the speed of training with both cores.",
        "",
        "| cells / projection | as float16 | best rate | best batch | tokens/s | "
        + " | ".join(f"{tokens / 1e6:g} M tokens" for tokens in budgets) + " |",
        "|---|---:|---:|---:|---:|" + "---:|" * len(budgets),
    ]  # fmt: skip
    for cells in sizes:
        best = {
            row["tokens"]: row
            for row in sorted(result["rows"], key=lambda row: -row["perplexity"]["average"])
            if row["cells"] == cells
        }
        row = best[next(iter(budgets))]
        perplexities = (
            f"{best[tokens]['perplexity']['average']:.1f}" if tokens in best else "–"
            for tokens in budgets
        )
        lines.append(
            f"| {cells} / {row['projection']} | {row['mb_as_float16']:.1f} MB "
            f"| {row['learning_rate']:g} | {row['batch']} "
            f"| {result['tokens_per_s'][str(cells)]:,} | " + " | ".join(perplexities) + " |"
        )
    lines += [
        "",
        f"The curve {curve['E']:.2f} + {curve['A']:.2f} / N^{curve['a']:.3f} + {curve['B']:.2f} / "
        f"D^{curve['b']:.2f} gives the loss in nats for N million weights of",
        "one direction's LSTMs and D million tokens; it misses no run by more than "
        f"{curve['largest_error']:.3f}. With the speed of each size",
        "it predicts these perplexities (million tokens in brackets):",
        "",
        "| hours | " + " | ".join(f"{cells} cells" for cells in sizes) + " |",
        "|---:|" + "---:|" * len(sizes),
    ]
    for entry in result["hours"]:
        predicted = (entry["sizes"][str(cells)] for cells in sizes)
        lines.append(
            f"| {entry['hours']} | "
            + " | ".join(f"{p['perplexity']:.1f} ({p['million_tokens']:.0f})" for p in predicted)
            + " |"
        )
    lines += [
        "",
        "**This does not settle the shape.** For equal tokens 2 x 768 / 192 has the lowest",
        "perplexity of all runs, but the curve, extended to hours, prefers the smallest and",
        "fastest size throughout. It is extended to up to 700 times the largest budget, and by so",
        "little text the exponent of N is hardly determined. The sizes did not get equal trials",
        "either: 1024 cells were trained with the smallest budget only, without the lowest rate,",
        "and the rate of 512 cells was chosen by a small margin. Larger budgets are needed.",
    ]
    return "\n".join(lines) + "\n\n![held-out perplexity over tokens](shapes.png)\n"


def progress(result: dict[str, Any]) -> str:
    aims, needed = result["aims"], result["million_tokens_for"]
    lines = [
        "## What more text brings (`benchmarks/progress.py`)\n",
        "The released English models of the present shape. *Purity*: how often the nearest other",
        "use of a word has the same sense, in the best layer of each word (`polysemy.py`); the",
        "nouns are bank, cell, crane, plant, bat, spring and mouse. Senses in running text are",
        "those of layer 2 (`senses.py`).",
        "",
        "| million tokens | hours | perplexity | purity, nouns | purity, ten words "
        "| senseval2 | semeval2007 |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['million_tokens']} | {row['hours']} | {row['perplexity']} "
            f"| {row['purity_nouns']:.2f} | {row['purity_all']:.2f} "
            f"| {row['senseval2']} | {row['semeval2007']} |"
        )
    lines += [
        "",
        "A straight line over the logarithm of the tokens would reach a purity of "
        f"{aims['purity_nouns']} for the nouns with",
        f"{needed['purity_nouns']:,.0f} million tokens, for the ten words with "
        f"{needed['purity_all']:,.0f}, and {aims['semeval2007']:g} on semeval2007 with "
        f"{needed['semeval2007']:,.0f}: an order of",
        "magnitude, from two models of one shape.",
    ]
    return "\n".join(lines) + "\n"


def ngram(result: dict[str, Any]) -> str:
    count = sum(result["forward"]["ngrams"])
    lines = [
        *head("Perplexity of an n-gram model (`benchmarks/ngram.py`)", result),
        f"Interpolated modified Kneser-Ney of order {result['order']}, trained on the text of the "
        f"English model ({result['train_tokens']:,} tokens, {result['words']:,} words,",
        f"{count:,} n-grams) in {result['minutes']:g} minutes with "
        f"{result['peak_rss_mb'] / 1000:.1f} GB. It predicts what the biLM predicts: words,",
        "including `<UNK>`, and sentence ends. The results of the biLM are in its model card.",
        "",
        *ngram_table(result),
    ]
    return "\n".join(lines) + "\n"


def ngram_zh(result: dict[str, Any]) -> str:
    lines = [
        *head("Perplexity of an n-gram model of Chinese (`benchmarks/ngram.py`)", result),
        f"The same on the text of the Chinese model ({result['train_tokens']:,} tokens, "
        f"{result['words']:,} words, {sum(result['forward']['ngrams']):,} n-grams).",
        "",
        *ngram_table(result),
    ]
    return "\n".join(lines) + "\n"


def ngram_table(result: dict[str, Any]) -> list[str]:
    """Return the perplexity of each text."""
    lines = ["| text | predictions | forward | backward | average |", "|---|---:|---:|---:|---:|"]
    for row in result["texts"]:
        lines.append(f"| {row['text']} | {row['tokens']:,} | {perplexity_cells(row)} |")
    return lines


def ptb(result: dict[str, Any]) -> str:
    sizes, events = result["parameters"], result["events"]["test"]
    perplexity = result["perplexity"]
    grams = result["ngram_perplexity"]
    size = f"{sizes['forward_with_softmax'] / 1e6:.1f} M"
    rows = [
        (f"{row['system']} (Kim et al. 2016)", f"{row['million_parameters']} M", "", row["test"])
        for row in result["published"]
    ]
    rows += [
        (f"{result['ngram_order']}-gram, modified Kneser-Ney", "", grams["valid"]["forward"],
         grams["test"]["forward"]),
        ("**elmokit, forward direction**", size, perplexity["valid"]["forward"],
         perplexity["test"]["forward"]),
    ]  # fmt: skip
    rows.sort(key=lambda row: -row[-1])
    lines = [
        *head("Penn Treebank (`benchmarks/ptb.py`)", result),
        f"A biLM on characters, {sizes['without_softmax'] / 1e6:.2f} M parameters and "
        f"{sizes['softmax'] / 1e6:.2f} M of the softmax; one direction alone (token encoder and",
        f"forward LSTMs) is {sizes['forward'] / 1e6:.2f} M, with the softmax {size}. Trained for "
        f"{result['training']['epochs']} epochs; the best step on the",
        f"validation text was reached after {result['hours']:.1f} hours. The standard task: "
        f"{events['vocabulary']:,} words, {events['predictions']:,} predictions in the",
        "test text including sentence ends, with the state carried through all of it. For the",
        "others all parameters are counted.",
        "",
        "| model | parameters | validation | test |",
        "|---|---:|---:|---:|",
    ]
    for name, size, valid, test in rows:
        shown = f"{valid:.1f}" if valid else ""
        lines.append(f"| {name} | {size} | {shown} | {test:.1f} |")
    lines += [
        "",
        f"The backward direction has {perplexity['valid']['backward']:.1f} and "
        f"{perplexity['test']['backward']:.1f}.",
    ]
    return "\n".join(lines) + "\n"


def movies(result: dict[str, Any]) -> str:
    perplexity, change = result["perplexity"], result["change"]
    changes = " | ".join(f"{change[name]:+.1%}" for name in DIRECTIONS)
    lines = [
        *head("Adapting to a domain (`benchmarks/movies.py`)", result),
        f"The {result['model']} model, `elmokit adapt` for one epoch on movie reviews "
        f"({result['train_tokens']:,} tokens, {result['hours'] * 60:.0f} minutes), and",
        f"{result['heldout_predictions']:,} predictions of held-out reviews, with the same "
        f"{result['words']:,} words. The aim was {result['aim']:+.0%}.",
        "",
        "| | forward | backward | average |",
        "|---|---:|---:|---:|",
        f"| before | {perplexity_cells(perplexity['before'])} |",
        f"| after | {perplexity_cells(perplexity['after'])} |",
        f"| change | {changes} |",
    ]
    return "\n".join(lines) + "\n"


def chinese(result: dict[str, Any]) -> str:
    example, settings = result["example"], result["settings"]
    lines = [
        *head("A Chinese model (`benchmarks/chinese.py`)", result),
        f"`tiny` on {result['train_tokens']:,} tokens of segmented newspaper text, "
        f"{settings['max_steps']:,} steps ({result['hours']:.1f} hours),",
        f"{result['words']:,} words.",
        f"Perplexity of a held-out text ({result['heldout_predictions']:,} predictions, "
        f"{result['heldout_unknown']:.1%} of the words outside the",
        f"vocabulary): forward {result['perplexity']['forward']:.1f}, backward "
        f"{result['perplexity']['backward']:.1f}, average {result['perplexity']['average']:.1f}.",
        "",
        f"`{' '.join(example['tokens'])}` becomes an array of the shape {example['shape']}. Words "
        "with two senses occur in",
        "four sentences per sense: how often does the nearest other use have the same sense?",
        "Layer 0 does not read the sentence and can only guess.",
        "",
        "| word | " + " | ".join(result["layers"]) + " |",
        "|---|" + "---:|" * len(result["layers"]),
    ]
    for word, shares in result["same_sense"].items():
        lines.append(f"| {word} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")
    return "\n".join(lines) + "\n"


def export(result: dict[str, Any]) -> str:
    first = result["rows"][0]
    lines = [
        *head("Exported files in older systems (`benchmarks/export.py`)", result),
        "AllenNLP and bilm-tf read what `elmokit convert --to bilm` wrote from a native folder:",
        f"the largest difference to elmokit's vectors of {first['sentences']} sentences "
        f"({first['tokens']} tokens), layer by",
        f"layer. More than {result['tolerance']:g} is an error.",
        "",
        "| model | system | largest value | layer 0 | layer 1 | layer 2 |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        layers = " | ".join(f"{value:.1e}" for value in row["largest_difference"])
        system = f"{row['system']} {row['version']}"
        lines.append(f"| `{row['model']}` | {system} | {row['largest_value']:g} | {layers} |")
    return "\n".join(lines) + "\n"


def serve(result: dict[str, Any]) -> str:
    rates, lone, flood = result["sentences_per_s"], result["lone_ms"], result["overload"]
    memory = flood["memory_mb"]
    lines = [
        *head("The service (`benchmarks/serve.py`)", result),
        f"`elmokit serve` with {result['threads']} thread(s) of torch, requests of one sentence, "
        f"{result['sentences']:,} sentences ({result['tokens']:,}",
        "tokens); the plain call gets all of them at once and sorts them by length, or 32 at a "
        "time, as many as there are clients.",
        "The clients run on the same machine.",
        "",
        "| | sentences/s |",
        "|---|---:|",
        *(f"| {name} | {value:,.0f} |" for name, value in rates.items()),
        "",
        f"32 clients get {result['many_to_one']:.1f} times the throughput of one, and "
        f"{result['many_to_plain']:.0%} of the plain call,",
        f"{result['many_to_as_many']:.0%} of it with 32 at a time. Median of a lone request: "
        f"{lone['client']:.1f} ms; of the plain call: {lone['plain']:.1f} ms. Largest",
        f"difference of vectors: {result['largest_difference']:.1e}.",
        "",
        f"{flood['seconds']:g} s of overload with {flood['clients']} clients: "
        + goodput(flood)
        + "answers by status "
        + ", ".join(f"{status}: {count:,}" for status, count in flood["statuses"].items()),
        f"; memory {memory['before']} MB before, at most "
        f"{', '.join(map(str, memory['largest_by_thirds']))} MB in each third of the time, "
        f"{memory['after']} MB after.",
    ]
    return "\n".join(lines) + "\n"


def goodput(flood: dict[str, Any]) -> str:
    waited = flood["answered_ms"]
    return (
        f"{flood['arriving_per_s']:,.0f} requests of one sentence arrive per second, and "
        f"{flood['answered_per_s']:,.0f} are\nanswered (median {waited['median']:.0f} ms, 95% "
        f"within {waited['p95']:.0f} ms), beside {flood['answers_of_all_layers']:,} answers "
        f"with all\nlayers of 10 sentences: {flood['goodput']:.0%} "
        f"of what 32 clients get, in sentences;\n"
    )


def first_map(result: dict[str, Any]) -> str:
    lines = [
        *head("The explorer without a server (`benchmarks/first_map.py`)", result),
        "Seconds from the request of the page to the first map, in Chromium "
        f"{result['chromium'].partition('.')[0]}, from a static",
        f"server on the same machine: median of {result['rounds']}. *slow*: the server sends "
        f"{result['megabits']:g} megabits a second.",
        "",
        "| model | fetched | first visit | first visit, slow | next visit |",
        "|---|---:|---:|---:|---:|",
    ]
    for model, row in result["rows"].items():
        cells = " | ".join(f"{row['seconds'][kind]:.1f}" for kind in ("first", "slow", "next"))
        lines.append(f"| {model} | {row['fetched_mb']:.1f} MB | {cells} |")
    return "\n".join(lines) + "\n"


def task_speed(result: dict[str, Any]) -> str:
    lines = [
        *head("An epoch of a task with and without ELMo (`benchmarks/task_speed.py`)", result),
        f"A tagger of names (CoNLL-2003, {result['train_examples']:,} training and "
        f"{result['dev_examples']:,} dev sentences,",
        f"LSTM of {result['hidden']}), one epoch, {result['threads']} threads, in turns. Computing "
        f"and storing the layers once takes",
        f"{result['seconds_to_keep']:.0f} s and {result['kept_mb']:,} MB of disk; all later epochs "
        "and runs read them.",
        "",
        "| | seconds | ratio | peak memory |",
        "|---|---:|---:|---:|",
    ]
    for name, row in result["rows"].items():
        memory = f"{row['peak_rss_mb']:,} MB"
        lines.append(f"| {name} | {row['seconds']:.1f} | {row['ratio']:.2f} | {memory} |")
    return "\n".join(lines) + "\n"


def polysemy(result: dict[str, Any]) -> str:
    lines = [
        "## Senses in the layers (`benchmarks/polysemy.py`)\n",
        f"The model is `{result['model']}`. The uses are those of `examples/senses.tsv`: "
        f"{polysemy_extent(result)}.",
        "*purity*: how often the nearest other use has the same sense; *silhouette* of "
        "the senses; both by cosine,",
        "with the mean of all tokens subtracted. *chance*: 95% of random permutations of the "
        f"senses over the same vectors give at most this ({result['deals']:,} permutations).",
        "Layer 0 sees only the form of a word, such as *banks*. *as drawn*: of the points drawn.",
        "",
        *polysemy_table(result),
    ]
    return "\n".join(lines) + "\n\n![uses of the words](polysemy.png)\n"


def polysemy_zh(result: dict[str, Any]) -> str:
    lines = [
        "## Senses in the layers of Chinese (`benchmarks/polysemy.py`)\n",
        f"The same with the model `{result['model']}` and the uses of `examples/senses.zh.tsv`: "
        f"{polysemy_extent(result)}.",
        "",
        *polysemy_table(result),
    ]
    return "\n".join(lines) + "\n\n![uses of the words](polysemy.zh.png)\n"


def polysemy_extent(result: dict[str, Any]) -> str:
    """Return how many words, senses and sentences were measured."""
    sizes = [size for own in result["words"].values() for size in own["senses"].values()]
    least, most = min(sizes), max(sizes)
    each = f"{least}" if least == most else f"{least} to {most}"
    return f"{len(result['words'])} words, {len(sizes)} senses, {each} sentences per sense"


def polysemy_table(result: dict[str, Any]) -> list[str]:
    """Return the measures of each word by layer."""
    lines = [
        f"| | {' | '.join(result['layers'])} | chance |",
        f"|---|{'---:|' * (len(result['layers']) + 1)}",
    ]
    for word, numbers in result["words"].items():
        for name in ("purity", "silhouette"):
            row = " | ".join(f"{value:.2f}" for value in numbers[name]["value"])
            chance = max(numbers[name]["chance_95"])
            lines.append(f"| {word}: {name} | {row} | {chance:.2f} |")
        drawn = " | ".join(f"{value:.2f}" for value in numbers["drawn"])
        lines.append(f"| {word}: purity as drawn | {drawn} | |")
    return lines


def senses(result: dict[str, Any]) -> str:
    (usual, first), (other, second) = result["vectors"].items()
    tests, paper = list(first["scores"]), result["paper"]
    extents = result["extents"]
    lines = [
        "## Word senses (`benchmarks/senses.py`)\n",
        f"The model is `{result['model']}`. A use gets the sense whose average over SemCor "
        f"({extents['semcor']['instances']:,} instances,",
        f"{first['senses']:,} senses) it is nearest to; words that are not in SemCor get "
        "WordNet's first sense. F1 in per cent as",
        "computed by Raganato's scorer, on "
        + " and ".join(f"{name} ({extents[name]['instances']:,} instances)" for name in tests)
        + ".",
        "*SemCor*: how often the sense of a use is found from SemCor's other uses, for "
        f"{first['choices']:,} uses with more than one choice. The mixes",
        f"are learned only there. Vectors are used {usual}; in brackets, {other}.",
        "*Paper*: the original model on five test sets together, of which these are two.",
        "",
        f"| | SemCor | {' | '.join(tests)} | paper |",
        f"|---|{'---:|' * (len(tests) + 2)}",
    ]
    for method in first["scores"][tests[0]]:
        cells = [_both(100 * one, 100 * two) for one, two in _score_pairs(first, second, method)]
        own = [] if method in first["leave_one_out"] else [""]
        lines.append(f"| {' | '.join([method, *own, *cells, str(paper.get(method, ''))])} |")
    mix = first["mixes"]["mix + frequency"]
    shares = ", ".join(f"{share:.2f}" for share in mix["shares"])
    lines += [
        "",
        f"`mix + frequency` gives layers 0, 1, … the shares {shares}, and a sense's log frequency "
        f"the weight {mix['frequency']:.2f}",
        f"and the cosine the weight {mix['scale']:.1f}.",
    ]
    return "\n".join(lines) + "\n"


def _score_pairs(
    first: dict[str, Any], second: dict[str, Any], method: str
) -> list[tuple[float, float]]:
    """Return the scores of a method for both kinds of vectors: on SemCor if measured, and F1."""
    pairs = []
    if method in first["leave_one_out"]:
        pairs.append((first["leave_one_out"][method], second["leave_one_out"][method]))
    for name in first["scores"]:
        one, two = (each["scores"][name][method]["all"]["f1"] for each in (first, second))
        pairs.append((one, two))
    return pairs


def _both(one: float, two: float) -> str:
    """Return both numbers, or one if they are shown alike."""
    return f"{one:.1f} ({two:.1f})" if f"{one:.1f}" != f"{two:.1f}" else f"{one:.1f}"


def neighbours(result: dict[str, Any]) -> str:
    process, times = result["find_process"], result["search_ms"]
    lines = [
        "## Neighbours in context among a million uses (`benchmarks/neighbours.py`)\n",
        machine_line(result["machine"]),
        *([f"Note: {result['note']}."] if result["note"] else []),
        "",
        f"{result['uses']:,} uses of {result['distinct_words']:,} words in {result['sentences']:,} "
        f"sentences of an encyclopedia, {result['columns']} columns, {result['threads']} "
        f"thread(s). The index takes {result['index_mb']:,} MB, its graphs {result['graphs_mb']:,} "
        f"MB more. The approximate search finds {result['recall_at_10']:.1%} of the 10 nearest "
        "uses (recall@10, "
        f"{result['queries']} queries from the text that follows).",
        "",
        "| process | seconds | peak memory |",
        "|---|---:|---:|",
    ]
    rows = {
        "`neighbours index`": result["indexing"],
        "building the graphs": result["building_graphs"],
        "`neighbours find`, approximate": process["approximate"],
        "`neighbours find --exact`": process["exact"],
        "`import torch` alone, which both need": process["import torch"],
    }
    for name, row in rows.items():
        lines.append(f"| {name} | {row['seconds']:,.2f} | {row['peak_rss_mb']:,} MB |")
    lines += ["", "| within a process | ms |", "|---|---:|"]
    lines += [f"| {name} | {value:,.1f} |" for name, value in times.items()]
    plays = result["plays"]
    lines += [
        "",
        f"As in table 4 of the ELMo paper: {plays['uses']:,} uses of *play* in the whole text, and "
        "the 10 that are nearest to two",
        "sentences, in layer 2. The meaning of the word in them was judged by hand.",
        "",
        "| sentence | about a game | about the stage | a pun | cosines |",
        "|---|---:|---:|---:|---|",
    ]
    for name, sentence in PLAYS.items():
        read, scores = plays["read"][name], plays[name]
        counts = " | ".join(str(read.count(kind)) for kind in ("game", "stage", "pun"))
        lines.append(f"| {sentence} | {counts} | {scores[-1]:.2f} to {scores[0]:.2f} |")
    lines += ["", "Without a sentence the nearest words are the same for both:", ""]
    for name, near in plays["static"].items():
        lines.append(f"- {name}: {', '.join(word for word, _ in near)}")
    return "\n".join(lines) + "\n"


def probe(result: dict[str, Any]) -> str:
    lines = [
        *head("Parts of speech by layer (`benchmarks/probe.py`)", result),
        "A linear classifier for the universal parts of speech on each layer of the shipped model,",
        f"trained on {result['train_tokens']:,} tokens of English EWT; accuracy on its "
        f"{result['dev_tokens']:,} dev tokens, of which",
        f"{result['unseen_tokens']:,} are words not seen in training. The paper reports "
        f"{result['paper']['layer 1']} for layer 1 and {result['paper']['layer 2']} for layer 2 of",
        "its model, on the Penn Treebank: the order can be compared, the scores cannot.",
        "",
        "| | accuracy | unseen words |",
        "|---|---:|---:|",
    ]
    static = [result["static"]] if result["static"] else []
    for row in [*result["guesses"], *static, *result["layers"]]:
        lines.append(f"| {row['name']} | {row['accuracy']:.1%} | {row['unseen']:.1%} |")
    shares = ", ".join(f"{share:.2f}" for share in result["mix"])
    lines += ["", f"Shares of the layers in the mix: {shares}.", "", "![accuracy](probe.png)"]
    return "\n".join(lines) + "\n"


def static(result: dict[str, Any]) -> str:
    rows = result["rows"]
    lines = [
        *head("Static vectors out of contextual ones (`benchmarks/static.py`)", result),
        f"The uses of each lower-cased word in {result['tokens']:,} tokens of Wikipedia, averaged",
        "by layer of the shipped model. *Accuracy*: a linear classifier for the universal parts of",
        "speech of English EWT on these vectors, on all dev tokens; *unseen*: on words that are",
        "not in its training part. *Coverage*: dev tokens with a vector; the others count as 0.",
        "The classifiers are trained for "
        f"{result['training']['epochs']} epochs in batches of {result['training']['batch_size']}, "
        "less than those of `probe.py`,",
        "where layer 0 in full coverage and GloVe are measured too.",
        "Nearest words are looked for among the "
        f"{result['among']:,} most frequent words of each file.",
        "",
        "| vectors | words | columns | coverage | accuracy | unseen |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        shares = " | ".join(f"{row[key]:.1f}%" for key in ("coverage", "accuracy", "unseen"))
        lines.append(f"| {name} | {row['words']:,} | {row['dim']} | {shares} |")
    lines += ["", "| | " + " | ".join(rows) + " |", "|---|" + "---|" * len(rows)]
    for word in next(iter(rows.values()))["nearest"]:
        cells = " | ".join(", ".join(row["nearest"][word]) for row in rows.values())
        lines.append(f"| *{word}* | {cells} |")
    return "\n".join(lines) + "\n"


def spacy_ner(result: dict[str, Any]) -> str:
    lines = [
        *head("Named entities in spaCy (`benchmarks/spacy_ner.py`)", result),
        f"spaCy {result['spacy']}, `tok2vec` and `ner` with the settings of",
        "`examples/spacy_ner.cfg`; only the layer of `tok2vec` differs.",
        f"{result['training_sentences']} sentences of `examples/names.train.conll`, "
        f"{result['epochs']} epochs, batches of {result['batch_size']},",
        f"learning rate {result['learn_rate']:g}, dropout {result['dropout']:g}. F1 on the "
        f"{result['dev_sentences']} sentences of",
        "`examples/names.dev.conll` after the last epoch, mean and standard deviation of "
        f"{result['seeds']} seeds.",
        "That a maxout layer follows the mix of ELMo, not a linear one, was decided by a run with",
        "seed 0 on the same sentences (88.7 and 85.7).",
        "",
        "| layer | F1 | deviation | CPU seconds of a training |",
        "|---|---:|---:|---:|",
        *(
            f"| `{row['system']}` | {row['f1']:.1f} | {row['deviation']:.1f} "
            f"| {row['cpu_seconds']:.1f} |"
            for row in result["rows"]
        ),
    ]
    return "\n".join(lines) + "\n"


def reliability(result: dict[str, Any]) -> str:
    """Return what was tried; a part that was not run is left out."""
    lines = ["## Attempts to lose data (`benchmarks/reliability.py`)\n"]
    if "kills" in result:
        columns = {"points": "steps of a run", "killed": "kills"}
        lines += [
            "Each command was killed before and after every `fsync`, `rename` and `replace` (at "
            f"most {result.get('max_points', 120)} of these",
            "moments, evenly spread) and at random ones, then run again to its end. The result has "
            "to be that of a run",
            "that was never killed, without temporary files, and the input has to be as it was.",
            "",
            *counts_table("command", columns, result["kills"]),
        ]
    for part, first, about in (
        ("mutants", "folder of", "Files of folders were damaged"),
        ("formats", "model", "Files of models were damaged (`pytest -m fuzz`)"),
    ):
        if part in result:
            columns = {"mutants": "damaged", "loaded": "loaded", "refused": "refused"}
            lines += [
                f"{about}; loading them gives a result or an error of one sentence.",
                "",
                *counts_table(first, columns, result[part]),
            ]
    if "misuse" in result:
        actual = result["misuse"].values()
        kinds = {
            "files": "bad files as inputs",
            "places": "bad places for outputs",
            "options": "bad options",
        }
        tried = (
            f"{sum(own[key] for own in actual if key in own):,} {name}"
            for key, name in kinds.items()
            if any(key in own for own in actual)
        )
        lines += [
            f"Misuse of {len(actual)} commands, {', '.join(tried) or 'of several kinds'}: "
            f"{sum(own.get('trials', 0) for own in actual):,} trials.",
            "A command has to refuse in one sentence, or to do what it was told, and to change "
            "nothing else.",
            "",
        ]
    every = [own for part in result.values() if isinstance(part, dict) for own in part.values()]
    lines += [f"Faults in all of this: {sum(len(own['faults']) for own in every)}.", ""]
    return "\n".join(lines)


def counts_table(first: str, columns: dict[str, str], rows: dict[str, Any]) -> list[str]:
    """Return a table of the counts that exist of each row."""
    lines = [f"| {first} | {' | '.join(columns.values())} |", "|---|" + "---:|" * len(columns)]
    for name, own in rows.items():
        cells = (f"{own[key]:,}" if key in own else "" for key in columns)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def head(title: str, result: dict[str, Any]) -> list[str]:
    """Return the beginning of most sections: title and machine."""
    return [f"## {title}\n", machine_line(result["machine"]), ""]


def machine_line(machine: dict[str, Any]) -> str:
    """Return the machine and the versions as one line."""
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['instructions']}; "
        f"Python {machine['python']}, torch {machine['torch']}."
    )


def plot() -> None:
    """Draw tokens/s of each system as bars, with one panel per case."""
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
        colors = ["#2a6f97" if "elmokit" in row["system"] else "#b0b0b0" for row in shown]
        names = [row["system"] for row in shown]
        bars = axis.barh(names, [row["tokens_per_s"] for row in shown], color=colors)
        axis.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=7)
        axis.set_title(f"{size}, batch {batch}: tokens/s", fontsize=9, loc="left")
        axis.tick_params(labelsize=7)
        axis.margins(x=0.12)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(RESULTS / "speed.png", dpi=130)


SECTIONS: list[Callable[[dict[str, Any]], str]] = [
    speed, speed_avx2, latency, precision, invariance, peak, startup, memory, ray_engine,
    training_speed, training_memory, shapes, ngram, ngram_zh, ptb, movies, chinese, export,
    task_speed, polysemy, polysemy_zh, senses, progress, neighbours, probe, static, spacy_ner,
    serve, first_map, reliability,
]  # fmt: skip


if __name__ == "__main__":
    main()
