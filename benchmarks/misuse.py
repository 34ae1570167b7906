"""Give every command bad files, bad places for its outputs, and bad options, for reliability.py.

A command must refuse them with exit code 2 and one sentence on standard error, in LIMIT seconds,
and leave the folder as it was. What it may accept instead is in `may_be_accepted`. The options and
their types are those of `elmokit COMMAND --help`, so that a new option is tried as well.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from trials import HANGS, READ, RUN, SHAPE, TASK, TRAIN, call, make_inputs, printed, tail, wait

from elmokit.cli.main import COMMANDS, TASKS, build_app

LIMIT = 120  # seconds of a trial, after which it hangs
MOST_LINES = 3  # a sentence, and notes before it
LONG_NAME = "n" * 300
FILES = [
    *("missing.txt", "empty.txt", "binary.bin", "utf16.txt", "broken.gz", "folder", "fifo", "loop"),
    *("", LONG_NAME),
]
PLACES = [
    *("no/such/folder/out", "text.txt", "model", "mine", "fifo", "loop", "/dev/null/x"),
    *("", LONG_NAME),
]
NUMBERS = {int: ["three", "1.5", "nan", "9" * 30, "-7"], float: ["three", "nan", "inf", "-7"]}
# Options whose value is a word of a small set, which is no Literal: other words are refused.
WORDS = {"--device", "--host", "--layer", "--layers", "--method", "--shard", "--tokenizer"}
RIGHT_FOR_SERVE = {  # which then serves until it is stopped
    "--config 'empty.txt'", "an argument is missing", "all arguments are missing"
}  # fmt: skip
EXTENSIONS = {"translate": ".tsv", "summarize": ".jsonl"}  # of tasks that look at it
# Folders that some commands write and others read.
MADE = {"train classifier": "task", "senses build": "senses", "neighbours index": "index"}
PRELOADED = (
    *("elmokit.embed_file", "elmokit.pretrain.train", "elmokit.tasks.compare", "elmokit.serve.run"),
    *("elmokit.integrations.onnx", "matplotlib.backends.backend_agg", "matplotlib.figure", "h5py"),
    *("pyarrow.parquet", "jieba", "torch._dynamo"),
)


@dataclass
class Tally:
    """How often a command was tried, and what was wrong."""

    trials: int = 0
    files: int = 0
    places: int = 0
    options: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, kind: Literal["files", "places", "options"], fault: str) -> None:
        """Count a trial and its fault, if it has one."""
        self.trials += 1
        setattr(self, kind, getattr(self, kind) + 1)
        if fault:
            self.faults.append(fault)


# ---------------------------------------------------------------------- commands
def command_lines() -> dict[str, list[list[str]]]:
    """Return lines that succeed, of every command, which together have all its files and outputs.

    Words that begin with `out` are outputs; those that are files of the folder are inputs.
    """
    json_file = ["--json", "out.json"]
    vectors = ["--vectors", "vectors.txt"]
    recorded = ["--model", "model", *RUN]
    lines = {
        "embed": [["embed", "text.txt", f"out.{kind}", *READ] for kind in ("h5", "npz", "npy")]
        + [["embed", "text.txt", "out.parquet", "--workers", "1", "--jieba-dict", "words.txt",
            "--model", "model", "--tokenizer", "chinese", *RUN]],
        "pretrain": [["pretrain", "--corpus", "text.txt", "--valid", "a.txt", "--out", "out",
                      *SHAPE, *TRAIN]],
        "adapt": [["adapt", "model", "--corpus", "text.txt", "--valid", "a.txt", "--out", "out",
                   *TRAIN]],
        "evaluate": [["evaluate", "model", "text.txt", "--sentences", "out.tsv", *READ[2:]]],
        "fill": [["fill", "the river ___ .", *READ[:-1]]],
        "predict": [["predict", "task", "dev.tsv", "out.txt", "--elmo", "model", *RUN]],
        "score": [["score", "task", "dev.tsv", "--elmo", "model", *json_file, *RUN]],
        "senses build": [["senses", "build", "uses.tsv", "out", *json_file, *READ]],
        "senses tag": [["senses", "tag", "senses", "text.txt", "--out", "out.tsv",
                        "--tokenizer", "whitespace", *recorded]],
        "senses score": [["senses", "score", "senses", "uses.tsv", *json_file, *recorded]],
        "senses induce": [["senses", "induce", "bank", "text.txt", "--out", "out.tsv", *json_file,
                           *READ]],
        "neighbours index": [["neighbours", "index", "text.txt", "out", *json_file, *READ]],
        "neighbours find": [
            ["neighbours", "find", "index", "the *dog* sees", *vectors, *json_file, *recorded],
            ["neighbours", "find", "index", "queries.txt", *recorded],
        ],
        "plot uses": [["plot", "uses", "uses.tsv", "out.png", *json_file, *READ]],
        "plot weights": [["plot", "weights", "task", "out.png", *json_file]],
        "plot pair": [["plot", "pair", "the cat", "the dog", "out.png", *json_file, *READ]],
        "plot surprisal": [["plot", "surprisal", "a.txt", "out.png", *json_file, *READ]],
        "static": [["static", "text.txt", "out.txt", "--vocabulary", "words.txt", "--min-count",
                    "1", *READ]],
        "probe": [["probe", "train.tagger", "dev.tagger", "--epochs", "1", "--figure", "out.png",
                   *vectors, *json_file, *READ]],
        "similarity": [
            ["similarity", "pairs.tsv", *vectors, *json_file, *READ],
            ["similarity", "wic.data.txt", "--gold", "wic.gold.txt", "--train", "wic.data.txt",
             "--train-gold", "wic.gold.txt", *READ],
        ],
        "drift": [["drift", "a.txt", "b.txt", "--skip-words", "0", *json_file, *READ]],
        "models": [["models", "--language", "english", *json_file]],
        "info": [["info", "model"]],
        "convert": [["convert", "model", "out"]],
        "export": [["export", "model", "out.onnx"]],
        "serve": [["serve", "model", "--task", "task", "--senses", "senses", "--index", "index",
                   "--api-key-file", "keys.txt", "--port", "0", "--threads", "1"]],
    }  # fmt: skip
    for task in TASKS:
        train, dev = (f"{part}.{task}{EXTENSIONS.get(task, '')}" for part in ("train", "dev"))
        data = ["--train", train, "--dev", dev, "--out", "out", *TASK]
        lines[f"train {task}"] = [["train", task, *data, *vectors]]
        lines[f"compare {task}"] = [
            ["compare", task, "--vary", "elmo", "--seeds", "1", *data, *vectors]
        ]
    return lines


def write_more_inputs(folder: Path) -> None:
    """Write what the commands read that are not killed: data of all tasks, and other texts."""
    from small_text import NOUNS, make_sentences

    sentences = make_sentences(100)
    for name, part in (("train", sentences[:60]), ("dev", sentences[60:])):
        for task, lines in task_data(part, NOUNS).items():
            (folder / f"{name}.{task}{EXTENSIONS.get(task, '')}").write_text("".join(lines))
        shutil.copy(folder / f"{name}.tsv", folder / f"{name}.classifier")
    text = [" ".join(words) + "\n" for words in sentences]
    (folder / "a.txt").write_text("".join(text[:50]))
    (folder / "b.txt").write_text("".join(text[50:]))
    (folder / "words.txt").write_text("the\ncat\ndog\nbank\n")
    (folder / "keys.txt").write_text("0123456789" * 4 + "\n")
    (folder / "vectors.txt").write_text("the 1 2 3\ncat 1 0 2\ndog 2 0 1\nbank 0 3 1\n")
    (folder / "queries.txt").write_text("the *dog* sees the cat .\n")
    pairs = [f"{a.strip()}\t{b.strip()}\t{i % 5}\n" for i, (a, b) in enumerate(pairwise(text))]
    (folder / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(pairs[:20]))
    both = [(own.split().index("the"), own.strip()) for own in text[:20]]
    wic = [f"the\tN\t{i}-{j}\t{a}\t{b}\n" for (i, a), (j, b) in pairwise(both)]
    (folder / "wic.data.txt").write_text("".join(wic))
    (folder / "wic.gold.txt").write_text("".join("TF"[i % 2] + "\n" for i in range(len(wic))))
    commands = command_lines()
    for name, out in MADE.items():
        line = without(commands[name][0], "--json")
        line = [out if word == "out" else word for word in line]
        if wait(call(line, folder)):
            raise SystemExit(f"{' '.join(line)} fails: {tail(folder)}")


def task_data(sentences: list[list[str]], nouns: list[str]) -> dict[str, list[str]]:
    """Return lines in the format of each task but the classifier."""
    data: dict[str, list[str]] = {task: [] for task in TASKS if task != "classifier"}
    names = "id text pronoun pronoun_offset a a_offset a_coref b b_offset b_coref".split()
    data["coreference"].append("\t".join(names) + "\n")
    paragraphs = []
    for i, words in enumerate(sentences):
        text, has_dog = " ".join(words), "dog" in words
        first, second = [j for j, word in enumerate(words) if word in nouns][:2]
        data["tagger"] += [f"{word} {'N' if word in nouns else 'O'}\n" for word in words] + ["\n"]
        label = "entailment" if has_dog else "neutral"
        data["pair"].append(f"{label}\t{text}\tthe {words[first]} is here .\n")
        marked = [*words]
        marked[first], marked[second] = f"<e1>{words[first]}</e1>", f"<e2>{words[second]}</e2>"
        relation = "Cause-Effect(e1,e2)" if has_dog else "Other"
        data["relation"].append(f'{i}\t"{" ".join(marked)}"\n{relation}\n\n')
        answers = [{"text": words[first], "answer_start": text.index(words[first])}]
        question = {"id": str(i), "question": "who sees it ?", "answers": answers}
        paragraphs.append({"context": text, "qas": [question]})
        passage = f"Anna met Bea . She likes {text}"
        cells = [f"x-{i}", passage, "She", 15, "Anna", 0, has_dog, "Bea", 9, not has_dog]
        data["coreference"].append("\t".join(map(str, cells)).replace("True", "TRUE") + "\n")
        data["translate"].append(f"{text}\t{text.upper()}\n")
        data["summarize"].append(json.dumps({"text": text, "summary": words[first]}) + "\n")
    squad = {"version": "1.1", "data": [{"title": "x", "paragraphs": paragraphs}]}
    data["question"] = [json.dumps(squad) + "\n"]
    return data


def make_place(inputs: Path, folder: Path) -> None:
    """Copy the inputs, and add what cannot be copied or what no command can use."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(inputs, folder)
    (folder / "empty.txt").touch()
    (folder / "binary.bin").write_bytes(bytes(range(256)) * 10)
    (folder / "utf16.txt").write_text("text", encoding="utf-16")
    (folder / "broken.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    (folder / "folder").mkdir()
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.tex").write_text("mine")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")


def snapshot(folder: Path) -> dict[str, str]:
    """Return what is in a folder: the hashes of files, and the kind of everything else.

    Every command may write into the cache of hidden states.
    """
    result = {}
    for path in sorted(folder.rglob("*")):
        if path.relative_to(folder).parts[0] == "cache":
            continue
        if path.is_symlink():
            kind = f"link to {os.readlink(path)}"  # noqa: PTH115
        elif path.is_file():
            kind = hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()
        else:
            kind = "folder" if path.is_dir() else "special"
        result[str(path.relative_to(folder))] = kind
    return result


# ---------------------------------------------------------------------- trials
def try_misuse(work: Path, only: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Misuse every command, or those whose name begins with `only`; yield what was found."""
    inputs, folder = work / "inputs", work / "trial"
    inputs.mkdir()
    for name in {module.partition(":")[0] for module, _ in COMMANDS.values()} | {*PRELOADED}:
        importlib.import_module(name)
    make_inputs(inputs)
    write_more_inputs(inputs)
    make_place(inputs, folder)
    before = snapshot(folder)
    tried: set[str] = set()  # options of families
    for name, lines in sorted(command_lines().items()):
        if not name.startswith(only):
            continue
        tally = Tally()
        for line in lines if name != "serve" else []:
            if code := wait(call(line, folder)):
                tally.faults.append(f"{' '.join(line)}: exit code {code}: {tail(folder)}")
            make_place(inputs, folder)
        for kind, arguments, wrong in misuses(name, lines, before, tried):
            if name == "serve" and wrong in RIGHT_FOR_SERVE:
                continue
            code = wait(call(arguments, folder), LIMIT)
            after = snapshot(folder)
            fault = fault_of(code, printed(folder), before, after)
            if code == 0 and may_be_accepted(name, kind, wrong):
                kept = {path: value for path, value in after.items() if path in before}
                fault = "" if kept == before else "an input was changed"
            tally.add(kind, fault and f"{name} with {wrong[:60]}: {fault}: {tail(folder)}")
            if after != before:
                make_place(inputs, folder)
        yield name, vars(tally)


def fault_of(code: int, said: str, before: dict[str, str], after: dict[str, str]) -> str:
    """Return what is wrong with a refusal, or an empty string."""
    if code == HANGS:
        return "it hangs"
    if code != 2:
        return f"exit code {code}"
    if after != before:
        changed = [name for name in after | before if after.get(name) != before.get(name)]
        return f"it refuses and changes {', '.join(sorted(changed)[:3])}"
    lines = [line for line in said.splitlines() if line.strip() and not is_progress(line)]
    sentences = [line for line in lines if line.startswith("elmokit: error: ")]
    if "Traceback" in said or sentences != lines[-1:] or len(lines) > MOST_LINES:
        return "not one sentence"
    return ""


def is_progress(line: str) -> bool:
    """Tell whether a line is of a progress bar."""
    return bool(re.search(r"/s\]|\?it|%\|", line))


def may_be_accepted(name: str, kind: str, wrong: str) -> bool:
    """Tell whether a command may do what it is told, if it changes no input."""
    if kind == "files":
        is_empty = wrong == "--config 'empty.txt'"  # A file without options is not wrong.
        is_text = name == "plot surprisal" and LONG_NAME in wrong  # one long word
        return is_empty or is_text
    if wrong == "--model.forget-bias=-7":
        return True  # Any finite number is a bias.
    return kind == "places" and wrong.startswith("'no/such/folder/out'")  # It may create folders.


def misuses(
    name: str, lines: list[list[str]], files: dict[str, str], tried: set[str]
) -> Iterator[tuple[Literal["files", "places", "options"], list[str], str]]:
    """Yield kinds of misuse of a command, its arguments, and what is wrong with them."""
    for line in lines:
        for i, word in enumerate(line):
            if i < len(name.split()):
                continue
            for bad in FILES if word in files else ():
                yield "files", [*line[:i], bad, *line[i + 1 :]], f"{bad!r} for {word}"
            for bad in PLACES if word.startswith("out") else ():
                yield "places", [*line[:i], bad, *line[i + 1 :]], f"{bad!r} for {word}"
    line = lines[0]
    for bad in FILES:
        yield "files", [*line, "--config", bad], f"--config {bad!r}"
    for arguments, wrong in bad_options(name, line, tried):
        yield "options", arguments, wrong


def bad_options(name: str, line: list[str], tried: set[str]) -> Iterator[tuple[list[str], str]]:
    """Yield arguments with an option that is unknown, missing, or has a value that it cannot have.

    The tasks of `train` and `compare` share options: each is tried with the first of them.
    """
    words = name.split()
    yield [*line, "--no-such-option"], "--no-such-option"
    yield [*words[:-1], words[-1] + "x", *line[len(words) :]], f"{name}x"
    app = build_app()
    for word in words:
        app = app[word]
    for argument in app.assemble_argument_collection():
        option = argument.name
        if argument.children or argument.parameter.parse is False:
            continue
        if not option.startswith("--"):
            continue
        rest = without(line, option)
        if argument.required:
            yield rest, f"no {option}"
        key = f"{words[0]} {option}" if words[0] in ("train", "compare") else f"{name} {option}"
        if key in tried:
            continue
        tried.add(key)
        yield [*rest, f"{option}x"], f"{option}x"
        for bad in bad_values(option, argument.hint):
            yield [*rest, f"{option}={bad}"], f"{option}={bad}"
    positional = [i for i in range(len(words), len(line)) if not line[i].startswith("--")]
    first_option = next((i for i, w in enumerate(line) if w.startswith("--")), len(line))
    positional = [i for i in positional if i < first_option]
    if positional:
        i = positional[-1]
        yield [*line[:i], *line[i + 1 :]], "an argument is missing"
        yield [*words, *line[first_option:]], "all arguments are missing"


def without(line: list[str], option: str) -> list[str]:
    """Return a line without an option and its values."""
    if option not in line:
        return line
    i = line.index(option)
    end = next((j for j in range(i + 1, len(line)) if line[j].startswith("--")), len(line))
    return [*line[:i], *line[end:]]


def bad_values(option: str, hint: Any) -> list[str]:
    """Return values that an option of a type cannot have."""
    types = set(leaf_types(hint))
    if bool in types:
        return ["perhaps"]
    for number, values in NUMBERS.items():
        if number in types:
            return values
    if str not in types:  # a Literal
        return ["no-such-choice", ""]
    return ["no-such-thing"] if option in WORDS else []


def leaf_types(hint: Any) -> Iterator[type]:
    """Yield the types of which another one is made."""
    parts = () if typing.get_origin(hint) is Literal else typing.get_args(hint)
    for part in parts:
        yield from leaf_types(part)
    if not parts and isinstance(hint, type):
        yield hint
