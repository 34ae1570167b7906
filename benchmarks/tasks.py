"""Does ELMo help? Eleven tasks and one in Chinese, with and without it, for several seeds.

    python benchmarks/tasks.py --data data --folder runs [--only ner sst5] [--keep-baseline]

Each task is one `elmokit compare TASK --vary elmo`: the shipped model, frozen, and the same static
vectors on both sides. The same command resumes runs that were stopped. results/tasks.md has all
complete tasks, also those of earlier runs; `--only` without names writes it and trains nothing.
With `--keep-baseline` only the side with ELMo is trained, by `elmokit train`, and the other side
keeps the scores in --out: for another biLM and the same code of the tasks.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parsers import described_parser
from ptb import run_elmokit
from speed import machine

import elmokit
from elmokit.tasks.compare.summary import gain, spread, statistics_of

HERE = Path(__file__).parent
GLOVE = "vectors/glove.50d.100k.txt.xz"
WRITING = {"hidden": 128, "target_vocab_size": 5000, "patience": 2, "beam": 4}


@dataclass(frozen=True)
class Dataset:
    """One row of the table."""

    title: str
    task: str
    train: str
    dev: str | None
    """If None, a tenth of the training data is held out."""
    options: dict[str, Any] = field(default_factory=dict)
    vectors: str | None = GLOVE
    elmo: str = "english"
    sample_efficiency: tuple[float, ...] = ()
    """Percentages of the training data to compare on too."""
    note: str = ""


DATASETS = {
    "ner": Dataset(
        "names (CoNLL-2003)",
        "tagger",
        "tag/conll2003.train.conll.xz",
        "tag/conll2003.dev.conll.xz",
        {"hidden": 128, "epochs": 12, "patience": 3},
    ),
    "pos": Dataset(
        "parts of speech (UD English EWT)",
        "tagger",
        "tag/en_ewt.train.conllu.xz",
        "tag/en_ewt.dev.conllu.xz",
        {"label_column": "UPOS", "hidden": 128, "epochs": 10, "patience": 2, "crf": False},
    ),
    "sst5": Dataset(
        "sentiment, 5 classes (SST-5)",
        "classifier",
        "classify/sst5.train.txt.xz",
        "classify/sst5.dev.txt.xz",
        {"tokenizer": "whitespace", "hidden": 128, "epochs": 12, "patience": 3},
    ),
    "sst2": Dataset(
        "sentiment, 2 classes (SST-2)",
        "classifier",
        "classify/sst2.train.txt.xz",
        "classify/sst2.dev.txt.xz",
        {"tokenizer": "whitespace", "hidden": 128, "epochs": 12, "patience": 3},
    ),
    "trec": Dataset(
        "kinds of questions (TREC-6)",
        "classifier",
        "classify/trec.train.txt.xz",
        None,
        {"tokenizer": "whitespace", "hidden": 128, "epochs": 15, "patience": 4},
    ),
    "sick": Dataset(
        "entailment (SICK)",
        "pair",
        "pair/sick.train.tsv.xz",
        "pair/sick.dev.tsv.xz",
        {"hidden": 100, "epochs": 15, "patience": 4},
        note=(
            "no gain, wherever ELMo stands. A run of `elmokit compare pair` with the same "
            "settings, `--vary placement`, three seeds and an earlier English model, of half the "
            "size: without 84.87 ± 0.12, at the input 83.80 ± 0.53, at the output of the LSTM "
            "84.13 ± 0.50, at both 83.00 ± 0.72. "
            "`elmokit train pair --layers`, at the input: layer 0 alone, which does not read "
            "the sentence, 83.93 ± 1.10; the top layer alone 82.67 ± 0.31. So it seems that "
            "context costs most here, where words of the one sentence are sought in the other: "
            "in half of the pairs at least three quarters of the shorter sentence's words stand "
            "in both, and with context they get two vectors. But there are only 4,500 pairs to "
            "learn from and 500 to measure by, and one of these is 0.2"
        ),
    ),
    "squad": Dataset(
        "questions (SQuAD, 38 articles)",
        "question",
        "qa/squad.train.json.xz",
        "qa/squad.dev.json.xz",
        {"hidden": 64, "epochs": 8, "patience": 2},
    ),
    "semeval": Dataset(
        "relations (SemEval-2010 task 8)",
        "relation",
        "relation/semeval2010.train.txt.xz",
        None,
        {"hidden": 100, "epochs": 12, "patience": 3},
    ),
    "gap": Dataset(
        "pronouns (GAP)",
        "coreference",
        "coref/gap.development.tsv.xz",
        "coref/gap.validation.tsv.xz",
        {"epochs": 20, "patience": 5},
    ),
    "multi30k": Dataset(
        "translation, English to German (Multi30k)",
        "translate",
        "seq2seq/multi30k.train.en.xz,seq2seq/multi30k.train.de.xz",
        "seq2seq/multi30k.val.en.xz,seq2seq/multi30k.val.de.xz",
        {"tokenizer": "whitespace", **WRITING, "epochs": 5},
    ),
    "headlines": Dataset(
        "headlines (Reuters)",
        "summarize",
        "seq2seq/headlines.train.jsonl.xz",
        "seq2seq/headlines.dev.jsonl.xz",
        {"max_tokens": 60, **WRITING, "epochs": 4},
    ),
    "chinese": Dataset(
        "sentiment in Chinese (ChnSentiCorp)",
        "classifier",
        "classify/zh.chnsenticorp.train.tsv.xz",
        "classify/zh.chnsenticorp.dev.tsv.xz",
        {
            "tokenizer": "chinese",
            "max_tokens": 100,
            "hidden": 64,
            "epochs": 20,
            "patience": 4,
            "skip_bad": True,
        },
        vectors=None,
        elmo="chinese",
        sample_efficiency=(10,),
        note="the biLM is the Chinese one; word vectors are learned with the task",
    ),
}


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--data", required=True, help="the folder that has the data sets")
    parser.add_argument("--folder", required=True, help="where the runs go")
    parser.add_argument("--only", nargs="*", default=list(DATASETS), metavar="TASK")
    parser.add_argument("--keep-baseline", action="store_true", help="train with ELMo only")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", default=str(HERE / "results" / "tasks.json"))
    arguments = parser.parse_args()
    data, folder, results = (Path(arguments.data), Path(arguments.folder), Path(arguments.out))
    if unknown := set(arguments.only) - set(DATASETS):
        parser.error(f"no task {', '.join(unknown)}: there are {', '.join(DATASETS)}")
    for name in arguments.only:
        dataset, out = DATASETS[name], folder / name
        out.parent.mkdir(parents=True, exist_ok=True)
        seeds, options = arguments.seeds.split(","), compare_options(dataset, data)
        if arguments.keep_baseline:
            train_with_elmo(dataset.task, out, seeds, options, known(results)[name])
        else:
            percents = list(dataset.sample_efficiency) or None
            compared = {"vary": "elmo", "seeds": seeds, "sample_efficiency": percents}
            run_elmokit("compare", dataset.task, out=str(out), **compared, **options)
        write(folder, results, arguments.seeds)
    write(folder, results, arguments.seeds)


def compare_options(dataset: Dataset, data: Path) -> dict[str, object]:
    """Return the options of `elmokit compare`, without what is compared and the output folder."""
    return {
        "train": in_folder(dataset.train, data),
        "dev": None if dataset.dev is None else in_folder(dataset.dev, data),
        "vectors": None if dataset.vectors is None else str(data / dataset.vectors),
        "elmo": dataset.elmo if dataset.elmo != "english" else None,
        **dataset.options,
    }


def train_with_elmo(
    task: str, out: Path, seeds: list[str], options: dict[str, object], before: dict[str, Any]
) -> None:
    """Train the side with ELMo alone, and write results.json as `elmokit compare` does."""
    reports = []
    for seed in seeds:
        run = out / f"seed{seed}"
        run_elmokit("train", task, out=str(run), seed=seed, **options)
        reports.append({"seed": int(seed), **json.loads((run / "report.json").read_text())})
    for report in reports:
        report["scores"] = report["dev"]
    without = before["rows"][0]
    line = {**before["rows"][1], **statistics_of(reports)}
    mixes = [report["mixes"]["input"] for report in reports]
    layers = zip(*(mix["weights"] for mix in mixes), strict=True)
    result = {
        "complete": True,
        "metric": before["metric"],
        "train_examples": reports[0]["train_examples"],
        "dev_examples": reports[0]["dev_examples"],
        "tables": {"elmo": [without, {**line, **gain(without, line)}]},
        "weights": [
            {
                "weights": [spread(values) for values in layers],
                "scale": spread([mix["scale"] for mix in mixes]),
            }
        ],
        "runs": reports,
        "settings": reports[0]["settings"],
        "fingerprints": reports[0]["fingerprints"],
        "sample_efficiency": [],
    }
    (out / "results.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def known(out: Path) -> dict[str, Any]:
    """Return the tasks of an earlier result."""
    tasks: dict[str, Any] = json.loads(out.read_text())["tasks"] if out.is_file() else {}
    return tasks


def in_folder(paths: str, data: Path) -> str:
    """Return the paths, separated by commas, below a folder."""
    return ",".join(str(data / path) for path in paths.split(","))


def write(folder: Path, out: Path, seeds: str) -> None:
    """Gather all comparisons that are complete into tasks.json and tasks.md."""
    before = known(out)
    rows = {}
    for name, dataset in DATASETS.items():
        path = folder / name / "results.json"
        results: dict[str, Any] = {"complete": False}
        if path.is_file():
            results = json.loads(path.read_text())
        if name in before and not results["complete"]:
            command = shown_command(dataset, seeds)  # with the names that options have now
            rows[name] = {**before[name], "command": command, "note": dataset.note}
        if results["complete"]:
            rows[name] = {
                "title": dataset.title,
                "task": dataset.task,
                "metric": results["metric"],
                "train_examples": results["train_examples"],
                "dev_examples": results["dev_examples"],
                "rows": results["tables"]["elmo"],
                "weights": results["weights"],
                "sample_efficiency": results["sample_efficiency"],
                "machine": machine(),
                "minutes": round(sum(run["seconds"] for run in results["runs"]) / 60, 1),
                "settings": results["settings"],
                "elmo_fingerprint": results["fingerprints"]["biLM"],
                "command": shown_command(dataset, seeds),
                "note": dataset.note,
            }
    result = {"seeds": seeds, "tasks": rows}
    out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    out.with_suffix(".md").write_text(as_markdown(result))


def shown_command(dataset: Dataset, seeds: str) -> str:
    """Return the command without the folders of one machine."""
    options = compare_options(dataset, Path("data"))
    percents = [f"{percent:g}" for percent in dataset.sample_efficiency] or None
    options |= {"vary": "elmo", "seeds": seeds.split(","), "sample_efficiency": percents}
    options["out"] = "runs"
    words = ["elmokit", "compare", dataset.task]
    for name, value in options.items():
        if value is None or value is False:
            continue
        dashed = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [str(value)]
        words += [dashed] if value is True else [dashed, *values]
    if dataset.options.get("crf") is False:
        words.append("--no-crf")
    return shlex.join(words)


HEAD = """# Tasks with and without ELMo

Dev scores in per cent, mean and standard deviation over the seeds {seeds}, each run at its best
epoch. The biLM is the included one, frozen{earlier}; both columns have the same static word vectors
(the first 100,000 words of GloVe, 50 columns), the same model and the same settings. Where there is
no dev file, a tenth of the training data was set apart. "Fewer errors" is the gain as a share of
what was left to gain. The dev score also chose the epoch, on both sides.

| task | score | examples | without ELMo | with ELMo | gain | fewer errors |
|---|---|---:|---:|---:|---:|---:|
"""


EARLIER = "; in rows marked \\*, an earlier one\nof 2 x 512/128, which has read less text"


def as_markdown(result: dict[str, Any]) -> str:
    """Return the page of results."""
    rows = result["tasks"].values()
    included = {elmokit.load(dataset.elmo).fingerprint() for dataset in DATASETS.values()}
    earlier = EARLIER if any(row["elmo_fingerprint"] not in included for row in rows) else ""
    lines = [HEAD.format(seeds=result["seeds"].replace(",", ", "), earlier=earlier)]
    for row in rows:
        mark = "" if row["elmo_fingerprint"] in included else " \\*"
        without, with_elmo = row["rows"]
        cells = [cell(line["scores"][row["metric"]]) for line in (without, with_elmo)]
        lines.append(
            f"| {row['title']}{mark} | {row['metric']} | {row['train_examples']:,} | {cells[0]} | "
            f"{cells[1]} | {100 * with_elmo['gain']:+.2f} | "
            f"{100 * with_elmo['fewer_errors']:.0f} % |\n"
        )
    for row in rows:
        for point in row.get("sample_efficiency", ()):
            metric = row["metric"]
            cells = [cell(side["scores"][metric]) for side in point["rows"].values()]
            lines.append(
                f"\n{row['title']}, with {point['examples']:,} training examples: {cells[0]} "
                f"without ELMo, {cells[1]} with it.\n"
            )
    lines.append("\nWhat the tasks made of the layers (0 is the token, 1 and 2 have context):\n\n")
    lines.append("| task | layer 0 | layer 1 | layer 2 | scale |\n|---|---:|---:|---:|---:|\n")
    for row in rows:
        for line in row["weights"]:
            shares = " | ".join(f"{weight['mean']:.2f}" for weight in line["weights"])
            lines.append(f"| {row['title']} | {shares} | {line['scale']['mean']:.2f} |\n")
    lines.append(
        "\n## Commands\n\n`benchmarks/tasks.py` runs them one after the other:\n\n```text\n"
    )
    for row in rows:
        lines.append(row["command"] + "\n")
    lines.append("```\n")
    for row in rows:
        if row["note"]:
            lines.append(f"\n{row['title']}: {row['note']}.\n")
    return "".join(lines)


def cell(score: dict[str, Any]) -> str:
    """Return mean and standard deviation in per cent."""
    spread = "" if score["spread"] is None else f" ± {100 * score['spread']:.2f}"
    return f"{100 * score['mean']:.2f}{spread}"


if __name__ == "__main__":
    main()
