"""`elmokit train`, `compare`, `predict` and `score`: task models from files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from cyclopts import Group, Parameter

from elmokit.cli.main import TASKS
from elmokit.cli.options import DeviceOptions, FileOrDash, Flag, ResultOptions, WriteOptions
from elmokit.progress import log_to_stderr
from elmokit.tasks.settings import SETTINGS, RunOptions, TaskName, TrainSettings

Data, Elmo, Network, Training, Output = (
    Parameter(group=Group(name, sort_key=index))
    for index, name in enumerate(("Data", "ELMo", "Network", "Training", "Output"), start=1)
)
# Groups of the options; those that are not named here are of the network.
GROUPS = {
    Data: """train dev dev_fraction train_fraction skip_bad jieba_dict vary sample_efficiency
        tokenizer target_tokenizer text_column second_column label_column predicate_column scheme
        max_tokens""",
    Elmo: """elmo no_elmo cache cache_gb layers placement l2 elmo_dropout layer_norm tune_elmo
        elmo_lr target_elmo""",
    Training: "device threads seeds epochs patience batch_size lr weight_decay clip seed",
    Output: "out quiet",
}
FLAGS = ("skip_bad", "quiet", "no_elmo")  # They have no --no-quiet.


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """The options of `train`."""

    out: str
    """Folder to write."""
    train_fraction: float = 1.0
    """Fraction of the training data to learn from."""
    no_elmo: bool = False
    """Train without ELMo, for comparison, on the tokens of the tokenizer of --elmo."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions(RunOptions):
    """The options of `compare`."""

    out: str
    """Folder to write."""
    vary: tuple[Literal["layers", "placement", "elmo"], ...] = ("layers",)
    """What to compare, one or more; elmo is only with and without."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of the runs of each condition."""
    sample_efficiency: tuple[float, ...] | None = None
    """Percentages of the training data to train on too, such as 1 10 100 (default: none)."""


def train(task: TaskName, run: TrainOptions, settings: TrainSettings) -> int:
    """Train a task model; return an exit code."""
    from elmokit.formats.detect import own_tokenizer
    from elmokit.tasks import train
    from elmokit.tasks.report import mixes_table, scores_table

    options = asdict(run) | asdict(settings)
    if options.pop("no_elmo"):
        options |= {"elmo": None, "tokenizer": settings.tokenizer or own_tokenizer(run.elmo)}
    log_to_stderr(quiet=run.quiet)
    result = train(task, **options)
    if not result.stopped_by and not run.quiet:
        print(scores_table(result.scores))
        print(mixes_table(result.mixes), end="")
        if result.report["note"]:
            print(result.report["note"])
    return 128 + result.stopped_by if result.stopped_by else 0


def compare(task: TaskName, run: CompareOptions, settings: TrainSettings) -> int:
    """Compare one task with and without ELMo; return an exit code."""
    from elmokit.tasks.compare import compare

    options = asdict(run) | asdict(settings)
    options["sample_efficiency"] = run.sample_efficiency or ()
    del options["seed"]
    log_to_stderr(quiet=run.quiet)
    comparison = compare(task, **options)
    print(comparison.table(), end="")
    return 128 + comparison.stopped_by if comparison.stopped_by else 0


def make_command(
    function: Callable[..., int], task: TaskName, about: str, run: type, settings: type
) -> Callable[..., int]:
    """Return the command of a task, with the fields of two dataclasses as its options."""

    def command(*, run: Any, settings: Any) -> int:
        return function(task, run, settings)

    command.__doc__ = f"{about}: {TASKS[task]}.\n\nThe same command resumes a run that was stopped."
    for name, options in (("run", run), ("settings", settings)):
        command.__annotations__[name] = Annotated[options, Parameter(name="*")]
    command.__kwdefaults__ = {"settings": settings()}
    return command


def grouped(options: type[Any], hidden: tuple[str, ...] = ()) -> type:
    """Return a subclass of a dataclass whose fields say their group of the help."""
    groups = {name: group for group, names in GROUPS.items() for name in names.split()}
    annotated: list[Any] = []  # They keep the defaults of the fields that they replace.
    for name, hint in get_type_hints(options).items():
        parse, negative = False if name in hidden else None, "" if name in FLAGS else None
        more = Parameter(parse=parse, negative=negative)
        annotated.append((name, Annotated[hint, groups.get(name, Network), more]))
    own = make_dataclass(options.__name__, annotated, bases=(options,), frozen=True, kw_only=True)
    own.__module__, own.__doc__ = options.__module__, options.__doc__
    return own


_TRAIN, _COMPARE = grouped(TrainOptions), grouped(CompareOptions)
for _task, _settings in SETTINGS.items():  # The table in main.py has these names.
    _about = "Train a task model", "Compare ELMo's layers and placements in a task model"
    _own = grouped(_settings), grouped(_settings, hidden=("seed",))
    globals()[f"train_{_task}"] = make_command(train, _task, _about[0], _TRAIN, _own[0])
    globals()[f"compare_{_task}"] = make_command(compare, _task, _about[1], _COMPARE, _own[1])


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ApplyOptions(DeviceOptions):
    """The options that `predict` and `score` share."""

    elmo: str | None = None
    """The biLM, if it has moved since training."""
    skip_bad: Annotated[Flag, Parameter(group="Parameters")] = False
    """Skip bad lines and count them, instead of stopping at the first."""


def predict(
    model: str,
    input: FileOrDash,
    output: FileOrDash,
    /,
    *,
    writing: WriteOptions = WriteOptions(),
    options: ApplyOptions = ApplyOptions(),
) -> None:
    """Write the predictions of a task model for a file.

    Args:
        model: Folder of a task model.
        input: File like the training data, with or without answers, or plain text, one per line.
        output: File to write, in the usual format of the task; - for standard output.
    """
    from elmokit.tasks import predict as run

    file = None if output == "-" else output
    writing.check(input, model, *options.inputs, file=file)
    log_to_stderr(quiet=writing.quiet)
    predictions = run(model, input, file, quiet=writing.quiet, **asdict(options))
    if file is None:
        sys.stdout.writelines(predictions.lines())


def score(
    model: str,
    test: str,
    /,
    *,
    writing: ResultOptions = ResultOptions(),
    options: ApplyOptions = ApplyOptions(),
) -> None:
    """Measure a task model on a test file.

    Args:
        model: Folder of a task model.
        test: File like the training data.
    """
    from elmokit.io.atomic import write_file
    from elmokit.io.jsonfile import as_json
    from elmokit.tasks import score as run
    from elmokit.tasks.report import scores_table

    writing.check(test, model, *options.inputs)
    log_to_stderr(quiet=writing.quiet)
    result = run(model, test, quiet=writing.quiet, **asdict(options))
    print(scores_table(result.scores))
    if result.note:
        print(result.note)
    if writing.json is not None:
        write_file(Path(writing.json).expanduser().absolute(), [as_json(result.to_dict())])
