"""Try to lose data: kill every command that writes, damage every folder, misuse every command.

    python benchmarks/reliability.py                         # all of it
    python benchmarks/reliability.py --only kills --kills 100
    python benchmarks/reliability.py --only mutants --mutants 2000
    python benchmarks/reliability.py --only misuse

kills     Each command is killed before and after each fsync, rename and replace, and at random
          moments, then run again to its end. The result must be that of a run that was never
          killed, without temporary files, and the input must be as it was.
mutants   Files of task models, indexes and inventories are damaged; loading one must give a result
          or one sentence. Damaged models of all formats: `ELMOKIT_FUZZ=2000 pytest -m fuzz`.
misuse    Every command gets every kind of bad file as each of its files, and every kind of bad
          place as each of its outputs: exit code 2 and one sentence, nothing else changed.

One process imports torch and forks the others, so that a run takes a second. Results, with the
number of trials, are in benchmarks/results/reliability.json, where --only replaces its own part;
faults end it with exit code 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from parsers import described_parser

os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

import elmokit.embed  # noqa: E402
from elmokit.cli.main import main as elmokit_main  # noqa: E402

STEPS = ("fsync", "rename", "replace")  # functions of `os` to kill before and after
VOLATILE = {"seconds", "hours", "tokens_per_second", "changed", "elmokit", "started"}
LIMIT = 90  # seconds of a run, after which it hangs


# ---------------------------------------------------------------------- commands
@dataclass(frozen=True)
class Case:
    """A command that writes `out` in its folder."""

    name: str
    arguments: list[str]
    out: str
    again: list[str] = field(default_factory=list)
    """Options to add when it runs again after a kill."""


SHAPE = [
    *("--model.lstm-dim", "16", "--model.projection-dim", "8", "--model.character-dim", "4"),
    *("--model.filters", "1", "4", "2", "8", "--model.max-characters", "12"),
]
RUN = ["--threads", "1", "--quiet"]
TRAIN = [
    *("--tokenizer", "whitespace", "--batch-size", "4", "--unroll", "10", "--min-count", "1"),
    *("--max-steps", "12", "--save-every", "4", "--eval-every", "6", *RUN),
]
TASK = [
    *("--elmo", "model", "--hidden", "8", "--word-dim", "4", "--epochs", "2", "--batch-size", "8"),
    *("--dropout", "0", "--cache", "cache", *RUN),
]


def cases() -> list[Case]:
    """Return every command that writes more than a single small file."""
    read = ["--model", "model", "--tokenizer", "whitespace", *RUN]
    data = ["--train", "train.tsv", "--dev", "dev.tsv", "--out", "out", *TASK]
    result = [
        Case(
            f"embed {kind}",
            ["embed", "text.txt", f"out.{kind}", "--resume", "--batch-tokens", "40", *read],
            f"out.{kind}",
        )
        for kind in ("h5", "npz", "parquet", "npy")
    ]
    commands = {
        "neighbours index": ["neighbours", "index", "text.txt", "out", "--resume", *read],
        "pretrain": ["pretrain", "--corpus", "text.txt", "--out", "out", *SHAPE, *TRAIN],
        "adapt": ["adapt", "model", "--corpus", "text.txt", "--out", "out", *TRAIN],
        "train": ["train", "classifier", *data],
        "compare": ["compare", "classifier", "--vary", "elmo", "--seeds", "1", *data],
        "senses build": ["senses", "build", "uses.tsv", "out", *read],
        "convert": ["convert", "model", "out"],
    }
    return result + [
        Case(name, words, "out", ["--overwrite"] if name in ("senses build", "convert") else [])
        for name, words in commands.items()
    ]


def make_inputs(folder: Path) -> None:
    """Write the small files that all commands read."""
    from small_text import NOUNS, make_sentences
    from tiny import softmax_elmo

    sentences = make_sentences(120)
    text = "".join(" ".join(words) + "\n" for words in sentences)
    (folder / "text.txt").write_text(text)
    uses = [
        f"{' '.join(words)}\t{i}\t{'front' if i < 4 else 'back'}\t{word}\n"
        for words in sentences[:60]
        for i, word in enumerate(words)
        if word in NOUNS
    ]
    (folder / "uses.tsv").write_text("".join(uses))
    for name, part in (("train", sentences[:60]), ("dev", sentences[60:100])):
        lines = [f"{'dog' if 'dog' in words else 'other'}\t{' '.join(words)}\n" for words in part]
        (folder / f"{name}.tsv").write_text("".join(lines))
    softmax_elmo(tokenizer="whitespace").save_pretrained(folder / "model")


# ---------------------------------------------------------------------- processes
def call(arguments: list[str], folder: Path, before: Callable[[], None] = lambda: None) -> int:
    """Start a command in a forked process, and return its id."""
    child = os.fork()
    if child:
        return child
    try:
        os.chdir(folder)
        log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        elmokit.embed.WINDOW_BYTES = 0  # several parts
        before()
        code = elmokit_main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    os._exit(code)


def wait(child: int) -> int:
    """Return the exit code of a process; that of one that hangs is 99."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 99


def count_steps(report: Path) -> None:
    """Write to a file how many steps this process takes that can be interrupted."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            report.write_text(str(count))
            return function(*arguments, **options)

        return wrapper

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))


def kill_at(step: int, *, after: bool) -> None:
    """Kill this process before or after a step."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == step and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*arguments, **options)
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapper

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))


# ---------------------------------------------------------------------- what is compared
def content_of(path: Path) -> dict[str, str]:
    """Return a hash of each file below a path, without times."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(file.relative_to(path)): digest(file) for file in files}


def digest(file: Path) -> str:
    """Return a hash of a file; of JSON without times, of pictures nothing."""
    if file.suffix == ".png":
        return "picture"
    content = file.read_bytes()
    if file.suffix in (".json", ".jsonl"):
        lines = content.decode().splitlines() if file.suffix == ".jsonl" else [content.decode()]
        content = json.dumps([without_times(json.loads(line)) for line in lines]).encode()
    if file.name in ("table.md", "manifest.json"):
        return "times"
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def without_times(value: Any) -> Any:
    """Return JSON without the values that depend on the clock."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in VOLATILE}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def leftovers(folder: Path) -> list[str]:
    """Return the names of temporary files."""
    names = [str(p.relative_to(folder)) for p in folder.rglob("*") if "cache" not in p.parts]
    return [name for name in names if ".elmokit" in name or name.endswith((".tmp", ".parts"))]


# ---------------------------------------------------------------------- kills
def try_kills(
    work: Path, kills: int, max_points: int, dice: random.Random
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kill each command in many ways; yield its name and what was found."""
    inputs = work / "inputs"
    inputs.mkdir()
    make_inputs_in_child(inputs)
    before = content_of(inputs)
    for case in cases():
        whole = work / "trial"  # The same folder as below: some results name absolute paths.
        shutil.copytree(inputs, whole)
        report = work / "steps"
        started = time.monotonic()
        code = wait(call(case.arguments, whole, partial(count_steps, report)))
        seconds = time.monotonic() - started
        if code:
            yield case.name, {"faults": [f"exit code {code}: {tail(whole)}"]}
            shutil.rmtree(whole)
            continue
        expected, points = content_of(whole / case.out), int(report.read_text())
        moments = [(step, after) for step in range(1, points + 1) for after in (False, True)]
        moments = moments[:: max(1, -(-len(moments) // max_points))]
        faults: list[str] = []
        trials, killed = 0, 0
        shutil.rmtree(whole)
        while trials < len(moments) + kills // 4 or killed < kills:
            trial: Any = moments[trials] if trials < len(moments) else "random"
            trials += 1
            place = work / "trial"
            shutil.copytree(inputs, place)
            killed += kill(case, place, trial, seconds, dice)
            fault = finish(case, place, expected, before)
            if fault:
                faults.append(f"{trial}: {fault}")
            shutil.rmtree(place)
            if trials > 5 * kills + len(moments):
                faults.append(f"only {killed} of {trials} runs could be killed")
                break
        found = {"points": points, "trials": trials, "killed": killed, "faults": faults}
        yield case.name, found


def make_inputs_in_child(folder: Path) -> None:
    """Write the inputs in another process, so that torch starts no threads in this one."""
    child = os.fork()
    if child == 0:
        make_inputs(folder)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the inputs could not be written")


def kill(case: Case, place: Path, trial: Any, seconds: float, dice: random.Random) -> bool:
    """Run a command and kill it at a step or at a random moment; return whether it was killed."""
    if trial == "random":
        child = call(case.arguments, place)
        time.sleep(dice.random() * seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    else:
        step, after = trial
        child = call(case.arguments, place, lambda: kill_at(step, after=after))
    return wait(child) == -signal.SIGKILL


def finish(case: Case, place: Path, expected: dict[str, str], before: dict[str, str]) -> str:
    """Run a command again to its end; return what is wrong with the result."""
    code = wait(call([*case.arguments, *case.again], place))
    complete = code == 2 and "nothing to resume" in tail(place)
    if code and not complete:
        return f"exit code {code}: {tail(place)}"
    actual = content_of(place / case.out)
    if actual != expected:
        changed = [
            name
            for name in actual.keys() | expected.keys()
            if actual.get(name) != expected.get(name)
        ]
        return f"another result: {', '.join(sorted(changed)[:5])}"
    inputs = {name: value for name, value in content_of(place).items() if name in before}
    if inputs != before:
        return "the input has changed"
    left = leftovers(place)
    return f"left over: {', '.join(left[:3])}" if left else ""


def tail(folder: Path) -> str:
    """Return the end of what a command has printed."""
    log = folder.with_suffix(".log")
    return " ".join(log.read_text(errors="replace").split())[-300:] if log.exists() else ""


# ---------------------------------------------------------------------- mutants
def try_mutants(work: Path, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Damage folders that commands write and load; yield what came out."""
    from fuzz import damaged_files

    inputs = work / "inputs"
    inputs.mkdir()
    make_inputs_in_child(inputs)
    loaders = {
        "train": load_task_model,
        "neighbours index": load_index,
        "senses build": load_senses,
    }
    for case in [case for case in cases() if case.name in loaders]:
        if wait(call(case.arguments, inputs)):
            yield case.name, {"faults": [tail(inputs)]}
            continue
        out = inputs / case.out
        whole = {
            str(p.relative_to(out)): p.read_bytes()
            for p in sorted(out.rglob("*"))
            if p.is_file() and "training" not in p.parts and p.suffix != ".png"
        }
        outcomes, faults = {"loaded": 0, "refused": 0}, []
        for first in range(0, count, 100):
            result = work / "result.json"
            child = os.fork()
            if child == 0:
                os.chdir(inputs)
                seeds = range(first, min(first + 100, count))
                result.write_text(
                    json.dumps(load_damaged(whole, seeds, loaders[case.name], damaged_files))
                )
                os._exit(0)
            code = wait(child)
            if code:
                faults.append(f"mutants from {first}: the process ended with {code}")
                continue
            answer = json.loads(result.read_text())
            for name in outcomes:
                outcomes[name] += answer[name]
            faults += answer["faults"]
        shutil.rmtree(out)
        yield case.name, {"mutants": count, **outcomes, "faults": faults}


def load_damaged(
    whole: dict[str, bytes],
    seeds: range,
    load: Callable[[Path], object],
    damage: Callable[..., Any],
) -> dict[str, Any]:
    """Load damaged versions of a folder; count results and sentences."""
    from elmokit.errors import ElmokitError

    answer: dict[str, Any] = {"loaded": 0, "refused": 0, "faults": []}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in damage(whole, random.Random(seed)).items():
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            try:
                load(Path(folder))
                answer["loaded"] += 1
            except ElmokitError as error:
                answer["refused"] += 1
                if "\n" in str(error) or len(str(error)) > 700:
                    answer["faults"].append(f"{seed}: not one sentence: {str(error)[:200]!r}")
            except Exception as error:
                answer["faults"].append(f"{seed}: {type(error).__name__}: {error}"[:300])
    return answer


def load_task_model(folder: Path) -> object:
    """Load a task model and predict."""
    from elmokit.tasks import load_task

    return load_task(folder, elmo="model").predict_texts(["the old dog sees the cat ."])


def load_index(folder: Path) -> object:
    """Open an index and search it."""
    from elmokit.analysis.neighbours.index import open_index
    from elmokit.analysis.neighbours.nearest import find_neighbours
    from elmokit.analysis.uses import marked_use

    elmo = elmokit.load("model", tokenizer="whitespace")
    use = marked_use("the old *dog* sees the cat .", elmo.tokenize)
    return find_neighbours(elmo, open_index(folder), [use], k=3)


def load_senses(folder: Path) -> object:
    """Load an inventory."""
    from elmokit.analysis.senses.inventory import load_inventory

    return load_inventory(folder)


# ---------------------------------------------------------------------- misuse
def try_misuse(work: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give every command bad files, and bad places for its outputs."""
    inputs = work / "inputs"
    inputs.mkdir()
    make_inputs_in_child(inputs)
    make_bad_files(inputs)
    bad = [
        "missing.txt",
        "empty.txt",
        "binary.bin",
        "utf16.txt",
        "broken.gz",
        "folder",
        "fifo",
        "n" * 300,
    ]
    places = ["no/such/folder/out", "text.txt", "model", "mine", "n" * 300, "/dev/null/x"]
    for case in cases():
        faults: list[str] = []
        trials = 0
        files = [i for i, word in enumerate(case.arguments) if (inputs / word).exists()]
        outs = [i for i, word in enumerate(case.arguments) if word == case.out]
        variants = [(i, name) for i in files for name in bad] + [
            (i, name) for i in outs for name in places
        ]
        for position, word in variants:
            place = work / "trial"
            shutil.copytree(inputs, place)
            before = content_of(place)
            arguments = [*case.arguments[:position], word, *case.arguments[position + 1 :]]
            trials += 1
            code = wait(call(arguments, place))
            after = {k: v for k, v in content_of(place).items() if k in before}
            said = place.with_suffix(".log").read_text(errors="replace")
            wrong = f"{' '.join(arguments[:2])} with {word[:30]!r}"
            if after != before:
                faults.append(f"{wrong}: a file was changed")
            elif code not in (0, 2):
                faults.append(f"{wrong}: exit code {code}: {tail(place)}")
            elif code == 2 and ("Traceback" in said or len(said.strip().splitlines()) > 3):
                faults.append(f"{wrong}: not one sentence: {tail(place)}")
            shutil.rmtree(place)
        yield case.name, {"trials": trials, "faults": faults}


def make_bad_files(folder: Path) -> None:
    """Write files that no command can use, and a folder of a user's."""
    (folder / "empty.txt").touch()
    (folder / "binary.bin").write_bytes(bytes(range(256)) * 10)
    (folder / "utf16.txt").write_text("text", encoding="utf-16")
    (folder / "broken.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    (folder / "folder").mkdir()
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.tex").write_text("mine")


# ---------------------------------------------------------------------- all together
def main() -> int:
    """Run the chosen parts, print and write the results."""
    parser = described_parser(__doc__)
    parser.add_argument("--only", choices=["kills", "mutants", "misuse"])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--points", type=int, default=120, help="most steps to kill at")
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=str(HERE / "results" / "reliability.json"))
    options = parser.parse_args()
    out = Path(options.out)
    parts = {
        "kills": lambda work: try_kills(
            work, options.kills, options.points, random.Random(options.seed)
        ),
        "mutants": lambda work: try_mutants(work, options.mutants),
        "misuse": try_misuse,
    }
    faults = 0
    for part, run in parts.items():
        if options.only in (None, part):
            counts: dict[str, Any] = {}
            with tempfile.TemporaryDirectory() as folder:
                for name, found in run(Path(folder)):
                    counts[name] = found
                    faults += len(found["faults"])
                    print(part, name, json.dumps(found), flush=True)
            results = json.loads(out.read_text()) if out.exists() else {}
            results |= {"seed": options.seed, part: counts}
            out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
