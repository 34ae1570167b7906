"""Try to lose data: kill every command that writes, damage every folder, misuse every command.

    python benchmarks/reliability.py                         # all of it
    python benchmarks/reliability.py --only kills --kills 100
    python benchmarks/reliability.py --only mutants --mutants 2000
    python benchmarks/reliability.py --only formats --mutants 2000
    python benchmarks/reliability.py --only misuse

kills     Each command is killed before and after each fsync, rename and replace, and at random
          moments, then run again to its end. The result must be that of a run that was never
          killed, without temporary files, and the input must be as it was.
mutants   Files of task models, indexes and inventories are damaged; loading one must give a result
          or one sentence.
formats   The same for the models of all formats, by `pytest -m fuzz`.
misuse    Every command gets bad files, bad places for its outputs, and bad options: see misuse.py.

Results, with the number of trials, are in benchmarks/results/reliability.json, where --only
replaces its own part; faults end it with exit code 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from misuse import try_misuse
from parsers import described_parser
from trials import (
    HERE,
    READ,
    SHAPE,
    TASK,
    TRAIN,
    call,
    known,
    make_inputs,
    tail,
    wait,
    write_counts,
)  # fmt: skip

import elmokit

STEPS = ("fsync", "rename", "replace")  # functions of `os` to kill before and after
VOLATILE = {"seconds", "hours", "tokens_per_second", "changed", "elmokit", "started"}


# ---------------------------------------------------------------------- commands
@dataclass(frozen=True)
class Case:
    """A command that writes `out` in its folder."""

    name: str
    arguments: list[str]
    out: str
    again: list[str] = field(default_factory=list)
    """Options to add when it runs again after a kill."""


def cases() -> list[Case]:
    """Return every command that writes more than a single small file."""
    data = ["--train", "train.tsv", "--dev", "dev.tsv", "--out", "out", *TASK]
    embed = ["--resume", "--batch-tokens", "40", *READ]
    result = [
        Case(f"embed {kind}", ["embed", "text.txt", f"out.{kind}", *embed], f"out.{kind}")
        for kind in ("h5", "npz", "parquet", "npy")
    ]
    result += [
        Case(f"embed {' '.join(words)}", ["embed", "text.txt", "out.h5", *words, *embed], "out.h5")
        for words in (["--shard", "1/2"], ["--workers", "2"])
    ]
    commands = {
        "neighbours index": ["neighbours", "index", "text.txt", "out", "--resume", *READ],
        "pretrain": ["pretrain", "--corpus", "text.txt", "--out", "out", *SHAPE, *TRAIN],
        "adapt": ["adapt", "model", "--corpus", "text.txt", "--out", "out", *TRAIN],
        "train": ["train", "classifier", *data],
        "compare": ["compare", "classifier", "--vary", "elmo", "--seeds", "1", *data],
        "senses build": ["senses", "build", "uses.tsv", "out", *READ],
        "convert": ["convert", "model", "out"],
        "static": ["static", "text.txt", "out", "--resume", "--min-count", "1", *READ],
    }
    return result + [
        Case(name, words, "out", ["--overwrite"] if name in ("senses build", "convert") else [])
        for name, words in commands.items()
    ]


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
    work: Path, only: str, kills: int, max_points: int, dice: random.Random
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kill each command, or those that begin with `only`, in many ways; yield what was found."""
    inputs = work / "inputs"
    inputs.mkdir()
    make_inputs(inputs)
    before = content_of(inputs)
    for case in (case for case in cases() if case.name.startswith(only)):
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
            folder = work / "trial"
            shutil.copytree(inputs, folder)
            killed += kill(case, folder, trial, seconds, dice)
            fault = finish(case, folder, expected, before)
            if fault:
                faults.append(f"{trial}: {fault}")
            shutil.rmtree(folder)
            if trials > 5 * kills + len(moments):
                faults.append(f"only {killed} of {trials} runs could be killed")
                break
        result = {"points": points, "trials": trials, "killed": killed, "faults": faults}
        yield case.name, result


def kill(case: Case, folder: Path, trial: Any, seconds: float, dice: random.Random) -> bool:
    """Run a command and kill it at a step or at a random moment; return whether it was killed."""
    if trial == "random":
        child = call(case.arguments, folder)
        time.sleep(dice.random() * seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    else:
        step, after = trial
        child = call(case.arguments, folder, lambda: kill_at(step, after=after))
    return wait(child) == -signal.SIGKILL


def finish(case: Case, folder: Path, expected: dict[str, str], before: dict[str, str]) -> str:
    """Run a command again to its end; return what is wrong with the result."""
    code = wait(call([*case.arguments, *case.again], folder))
    complete = code == 2 and "nothing to resume" in tail(folder)
    if code and not complete:
        return f"exit code {code}: {tail(folder)}"
    actual = content_of(folder / case.out)
    if actual != expected:
        changed = [
            name
            for name in actual.keys() | expected.keys()
            if actual.get(name) != expected.get(name)
        ]
        return f"another result: {', '.join(sorted(changed)[:5])}"
    inputs = {name: value for name, value in content_of(folder).items() if name in before}
    if inputs != before:
        return "the input has changed"
    left = leftovers(folder)
    return f"left over: {', '.join(left[:3])}" if left else ""


# ---------------------------------------------------------------------- mutants
def try_mutants(work: Path, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Damage folders that commands write and load; yield what came out."""
    from fuzz import damaged_files

    inputs = work / "inputs"
    inputs.mkdir()
    make_inputs(inputs)
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


# ---------------------------------------------------------------------- formats
def try_formats(work: Path, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Damage models of all formats by the tests that do that; yield what they counted."""
    report = work / "report.xml"
    options = ["-q", "-m", "fuzz", "-p", "no:cacheprovider", "-o", "junit_logging=system-out"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", "tests/formats"],
        cwd=HERE.parent,
        env={**os.environ, "ELMOKIT_FUZZ": str(count)},
        check=False,  # What has failed is in the report.
    )
    for test in ElementTree.parse(report).iter("testcase"):
        if test.find("skipped") is None:
            yield counts_of_test(test)


def counts_of_test(test: ElementTree.Element) -> tuple[str, dict[str, Any]]:
    """Return the name of the format that a test has damaged, and what the test has printed."""
    function, _, name = test.get("name", "").rstrip("]").partition("[")
    if "original" in function:
        name += " of the original system"
    printed = test.findtext("system-out", "")
    outcomes = {key: int(n) for key, n in re.findall(r"'(loaded|refused)': (\d+)", printed)}
    faults = [line for line in printed.splitlines() if line.startswith("{'seed'")]
    failure = test.find("failure")
    if failure is not None and not faults:
        faults = [failure.get("message", "")[:300]]
    return name, {"mutants": sum(outcomes.values()), **outcomes, "faults": faults}


# ---------------------------------------------------------------------- all together
def main() -> int:
    """Run the chosen parts, print and write the results."""
    parser = described_parser(__doc__)
    parser.add_argument("--only", choices=["kills", "mutants", "formats", "misuse"])
    parser.add_argument("--commands", default="", help="kill or misuse only those that begin so")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--points", type=int, default=120, help="most steps to kill at")
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=str(HERE / "results" / "reliability.json"))
    options = parser.parse_args()
    out = Path(options.out)
    parts: dict[str, Callable[[Path], Iterator[tuple[str, dict[str, Any]]]]] = {
        "kills": lambda work: try_kills(
            work, options.commands, options.kills, options.points, random.Random(options.seed)
        ),
        "mutants": lambda work: try_mutants(work, options.mutants),
        "formats": lambda work: try_formats(work, options.mutants),
        "misuse": lambda work: try_misuse(work, options.commands),
    }
    faults = 0
    for part, run in parts.items():
        if options.only in (None, part):
            counts: dict[str, Any] = known(out, part) if options.commands else {}
            with tempfile.TemporaryDirectory() as folder:
                os.environ["ELMOKIT_CACHE"] = f"{folder}/cache"
                for name, result in run(Path(folder)):
                    counts[name] = result
                    faults += len(result["faults"])
                    print(part, name, json.dumps(result), flush=True)
            settings = {"max_points": options.points} if part == "kills" else {}
            write_counts(out, {"seed": options.seed, **settings, part: counts})
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
