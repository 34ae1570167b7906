"""`elmokit train`, `compare`, `predict` and `score`: task models from files.

`train` and `compare` have a command for each task, with the options of that task and no others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields, make_dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from cyclopts import Group, Parameter

from elmokit.cli.main import TASKS
from elmokit.cli.options import FileOrDash, Flag, ResultOptions, WriteOptions
from elmokit.progress import log_to_stderr
from elmokit.tasks.settings import (
    ClassifierSettings,
    CoreferenceSettings,
    PairSettings,
    QuestionSettings,
    RelationSettings,
    SummarizeSettings,
    TaggerSettings,
    TrainSettings,
    TranslateSettings,
)

if TYPE_CHECKING:
    from elmokit.tasks.task import TaskName

Data, Elmo, Network, Training, Output = (
    Parameter(group=Group(name, sort_key=index))
    for index, name in enumerate(("Data", "ELMo", "Network", "Training", "Output"), start=1)
)
# Groups of the settings; those that are not named here are of the network.
GROUPS = {
    **dict.fromkeys(
        """tokenizer target_tokenizer text_column second_column label_column predicate_column scheme
        max_tokens""".split(),
        Data,
    ),
    **dict.fromkeys(
        "layers placement l2 elmo_dropout layer_norm tune_elmo elmo_lr target_elmo".split(), Elmo
    ),
    **dict.fromkeys("epochs patience batch_size lr weight_decay clip seed".split(), Training),
}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options that `train` and `compare` share, besides the settings of a task."""

    train: Annotated[str, Data]
    """File of examples to learn from; also .gz, .xz, .zst."""
    dev: Annotated[str | None, Data] = None
    """File of examples for early stopping (default: a part of the training data)."""
    dev_fraction: Annotated[float, Data] = 0.1
    """Fraction of the training data to measure on, without --dev."""
    skip_bad: Annotated[Flag, Data] = False
    """Skip bad lines and count them, instead of stopping at the first."""
    jieba_dict: Annotated[str | None, Data] = None
    """Dictionary file for the tokenizer chinese, a word per line (default: the biLM's own)."""
    elmo: Annotated[str, Elmo] = "shipped"
    """A biLM folder, weights file, archive or Hub name; "shipped" is elmokit's own."""
    cache: Annotated[str | None, Elmo] = None
    """Folder of the vectors of a frozen biLM (default: ~/.cache/elmokit)."""
    cache_gb: Annotated[float, Elmo] = 8.0
    """Maximum size of that folder."""
    vectors: Annotated[str | None, Network] = None
    """Static word vectors: GloVe, word2vec (text or binary) or fastText .vec."""
    device: Annotated[str, Training] = "cpu"
    """Device to compute on, such as cpu or cuda."""
    threads: Annotated[int | None, Training] = None
    """Number of threads (default: all cores)."""
    out: Annotated[str, Output]
    """Folder to write."""
    quiet: Annotated[Flag, Output] = False
    """Show no progress and no messages."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """The options of `train`."""

    train_fraction: Annotated[float, Data] = 1.0
    """Fraction of the training data to learn from."""
    no_elmo: Annotated[Flag, Elmo] = False
    """Train without ELMo, for comparison, on the tokens of the tokenizer of --elmo."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompareOptions(RunOptions):
    """The options of `compare`."""

    vary: Annotated[tuple[Literal["layers", "placement", "elmo"], ...], Data] = ("layers",)
    """What to compare, one or more; elmo is only with and without."""
    seeds: Annotated[tuple[int, ...], Training] = (1, 2, 3)
    """Seeds of the runs of each condition."""
    sample_efficiency: Annotated[tuple[float, ...] | None, Data] = None
    """Percentages of the training data to train on too, such as 1 10 100 (default: none)."""


def train_command(task: TaskName, settings: type[TrainSettings]) -> Callable[..., int]:
    """Return the command that trains one task."""

    def command(*, run: TrainOptions, settings: Any) -> int:
        from elmokit.formats.detect import own_tokenizer
        from elmokit.tasks import train
        from elmokit.tasks.report import mixes_table, scores_table

        options = asdict(run) | asdict(settings)
        if options.pop("no_elmo"):
            options |= {"elmo": None, "tokenizer": settings.tokenizer or own_tokenizer(run.elmo)}
        log_to_stderr(quiet=run.quiet)
        result = train(task, **options)
        if result.stopped_by:
            return 128 + result.stopped_by
        if not run.quiet:
            print(scores_table(result.scores))
            print(mixes_table(result.mixes), end="")
            if result.report["note"]:
                print(result.report["note"])
        return 0

    return with_settings(command, settings, f"Train a task model: {TASKS[task]}.")


def compare_command(task: TaskName, settings: type[TrainSettings]) -> Callable[..., int]:
    """Return the command that compares one task with and without ELMo."""

    def command(*, run: CompareOptions, settings: Any) -> int:
        from elmokit.tasks.compare import compare

        options, own = asdict(run), asdict(settings)
        options["sample_efficiency"] = run.sample_efficiency or ()
        del own["seed"]
        log_to_stderr(quiet=run.quiet)
        comparison = compare(task, **options, **own)
        if comparison.stopped_by:
            return 128 + comparison.stopped_by
        print(comparison.table(), end="")
        return 0

    about = f"Compare ELMo's layers and placements in a task model: {TASKS[task]}."
    return with_settings(command, settings, about, hidden=("seed",))


def with_settings(
    command: Callable[..., int],
    settings: type[TrainSettings],
    about: str,
    *,
    hidden: tuple[str, ...] = (),
) -> Callable[..., int]:
    """Give a command the settings of a task as its options, without those that are `hidden`."""
    options = grouped(settings, hidden)
    command.__doc__ = f"{about}\n\nThe same command resumes a run that was stopped."
    command.__annotations__["settings"] = Annotated[options, Parameter(name="*")]
    command.__kwdefaults__ = {"settings": options()}
    return command


def grouped(settings: type[TrainSettings], hidden: tuple[str, ...]) -> type:
    """Return a subclass of the settings whose fields say their group of the help."""
    hints = get_type_hints(settings)
    annotated: list[Any] = []
    for field in fields(settings):
        assert field.default is not MISSING
        group = GROUPS.get(field.name, Network)
        parse = Parameter(parse=None if field.name not in hidden else False)
        annotated.append((field.name, Annotated[hints[field.name], group, parse], field.default))
    own = make_dataclass(settings.__name__, annotated, bases=(settings,), frozen=True, kw_only=True)
    own.__module__ = settings.__module__
    own.__doc__ = settings.__doc__
    return own


SETTINGS: dict[TaskName, type[TrainSettings]] = {
    "classifier": ClassifierSettings,
    "tagger": TaggerSettings,
    "pair": PairSettings,
    "relation": RelationSettings,
    "question": QuestionSettings,
    "coreference": CoreferenceSettings,
    "translate": TranslateSettings,
    "summarize": SummarizeSettings,
}
for _task, _settings in SETTINGS.items():  # The table in main.py has these names.
    globals()[f"train_{_task}"] = train_command(_task, _settings)
    globals()[f"compare_{_task}"] = compare_command(_task, _settings)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """The options that `predict` and `score` share."""

    elmo: str | None = None
    """The biLM, if it has moved since training."""
    skip_bad: Flag = False
    """Skip bad lines and count them, instead of stopping at the first."""
    device: str = "cpu"
    """Device to compute on, such as cpu or cuda."""
    threads: int | None = None
    """Number of threads (default: all cores)."""


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
    writing.check(input, model, model=options.elmo, file=file)
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
    from elmokit.tasks import score as run
    from elmokit.tasks.report import scores_table

    writing.check(test, model, model=options.elmo)
    log_to_stderr(quiet=writing.quiet)
    result = run(model, test, quiet=writing.quiet, **asdict(options))
    print(scores_table(result.scores))
    if result.note:
        print(result.note)
    if writing.json is not None:
        text = dumps(result.to_dict(), indent=2, ensure_ascii=False)
        write_file(Path(writing.json).expanduser().absolute(), [text + "\n"])
