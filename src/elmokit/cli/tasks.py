"""`elmokit train`, `compare`, `predict` and `score`: task models from files.

`train` and `compare` have a command for each task, with the options of that task and no others.
"""

from __future__ import annotations

import json as as_json
import sys
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from cyclopts import Group, Parameter

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

DATA, ELMO, NETWORK, TRAINING, OUTPUT = (
    Group(name, sort_key=index)
    for index, name in enumerate(("Data", "ELMo", "Network", "Training", "Output"), start=1)
)
Data, Elmo, Network, Training, Output = (
    Parameter(group=group) for group in (DATA, ELMO, NETWORK, TRAINING, OUTPUT)
)
FileOrDash = Annotated[str, Parameter(allow_leading_hyphen=True)]
# Groups of the settings; those that are not named here are of the network.
GROUPS = {
    **dict.fromkeys(
        """tokenizer text_column second_column label_column predicate_column scheme
        max_tokens""".split(),
        DATA,
    ),
    **dict.fromkeys(
        "layers placement l2 elmo_dropout layer_norm tune_elmo elmo_lr target_elmo".split(), ELMO
    ),
    **dict.fromkeys("epochs patience batch_size lr weight_decay clip seed".split(), TRAINING),
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
    skip_bad: Annotated[bool, Data, Parameter(negative="")] = False
    """Skip bad lines and count them, instead of stopping at the first."""
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
    quiet: Annotated[bool, Output, Parameter(negative="")] = False
    """Show no progress and no messages."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """The options of `train`."""

    train_fraction: Annotated[float, Data] = 1.0
    """Fraction of the training data to learn from."""
    no_elmo: Annotated[bool, Elmo, Parameter(negative="")] = False
    """Train without ELMo, for comparison."""


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
        from elmokit.tasks import train
        from elmokit.tasks.report import mixes_table, scores_table

        options = asdict(run)
        if options.pop("no_elmo"):
            options["elmo"] = None
        log_to_stderr(quiet=run.quiet)
        result = train(task, **options, **asdict(settings))
        if result.stopped_by:
            return 128 + result.stopped_by
        if not run.quiet:
            print(scores_table(result.scores))
            print(mixes_table(result.mixes), end="")
        return 0

    return with_settings(command, settings, f"train_{task}", f"Train {ABOUT[task]}.")


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

    about = f"Compare ELMo's layers and placements: train {ABOUT[task]}."
    return with_settings(command, settings, f"compare_{task}", about, hidden=("seed",))


def with_settings(
    command: Callable[..., int],
    settings: type[TrainSettings],
    name: str,
    about: str,
    *,
    hidden: tuple[str, ...] = (),
) -> Callable[..., int]:
    """Give a command the settings of a task as its options, in the groups of the help.

    Args:
        command: Function with a parameter `settings`.
        settings: Dataclass of the settings.
        name: Name of the function.
        about: First sentence of the help.
        hidden: Settings that are not options.
    """
    command.__name__ = command.__qualname__ = name
    command.__doc__ = f"{about}\n\nThe same command resumes a run that was stopped."
    options = grouped(settings, hidden)
    command.__annotations__["settings"] = Annotated[options, Parameter(name="*")]
    command.__kwdefaults__ = {"settings": options()}
    return command


def grouped(settings: type[TrainSettings], hidden: tuple[str, ...]) -> type:
    """Return a subclass of the settings whose fields say their group of the help."""
    hints = get_type_hints(settings)
    annotated: list[Any] = []
    for field in fields(settings):
        assert field.default is not MISSING
        parse = None if field.name not in hidden else False
        group = Parameter(group=GROUPS.get(field.name, NETWORK), parse=parse)
        annotated.append((field.name, Annotated[hints[field.name], group], field.default))
    own = make_dataclass(settings.__name__, annotated, bases=(settings,), frozen=True, kw_only=True)
    own.__module__ = settings.__module__
    own.__doc__ = settings.__doc__
    return own


def predict(
    model: str,
    input: FileOrDash,
    output: FileOrDash,
    /,
    *,
    elmo: str | None = None,
    skip_bad: Annotated[bool, Parameter(negative="")] = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write the predictions of a task model for a file.

    Args:
        model: Folder of a task model.
        input: File like the training data, with or without answers, or plain text, one per line.
        output: File to write, in the usual format of the task; - for standard output.
        elmo: The biLM, if it has moved since training.
        skip_bad: Skip bad lines and count them, instead of stopping at the first.
        device: Device to compute on, such as cpu or cuda.
        threads: Number of threads (default: all cores).
        quiet: Show no progress and no messages.
    """
    from elmokit.tasks import predict as run

    log_to_stderr(quiet=quiet)
    predictions = run(
        model,
        input,
        None if output == "-" else output,
        elmo=elmo,
        skip_bad=skip_bad,
        device=device,
        threads=threads,
        quiet=quiet,
    )
    if output == "-":
        sys.stdout.writelines(predictions.lines())


def score(
    model: str,
    test: str,
    /,
    *,
    json: str | None = None,
    elmo: str | None = None,
    skip_bad: Annotated[bool, Parameter(negative="")] = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Measure a task model on a test file.

    Args:
        model: Folder of a task model.
        test: File like the training data.
        json: File for the scores as JSON.
        elmo: The biLM, if it has moved since training.
        skip_bad: Skip bad lines and count them, instead of stopping at the first.
        device: Device to compute on, such as cpu or cuda.
        threads: Number of threads (default: all cores).
        quiet: Show no progress and no messages.
    """
    from elmokit.io.atomic import write_file
    from elmokit.io.paths import check_output
    from elmokit.tasks import score as run
    from elmokit.tasks.report import scores_table

    check_output(json)
    log_to_stderr(quiet=quiet)
    result = run(
        model,
        test,
        elmo=elmo,
        skip_bad=skip_bad,
        device=device,
        threads=threads,
        quiet=quiet,
    )
    print(scores_table(result.scores))
    if json is not None:
        text = as_json.dumps(result.to_dict(), indent=2, ensure_ascii=False)
        write_file(Path(json).expanduser().absolute(), [text + "\n"])


# The words that follow "Train" in the help of each task.
ABOUT: dict[TaskName, str] = {
    "classifier": "a classifier: a label for a text",
    "tagger": "a tagger: a tag for each token, such as names or parts of speech",
    "pair": "a model of text pairs: a label for two texts",
    "relation": "a model of the relation between two marked entities",
    "question": "a model that answers questions with words of a passage",
    "coreference": "a model that finds the name that a pronoun refers to",
    "translate": "a model that translates",
    "summarize": "a model that summarizes",
}
train_classifier = train_command("classifier", ClassifierSettings)
train_tagger = train_command("tagger", TaggerSettings)
train_pair = train_command("pair", PairSettings)
train_relation = train_command("relation", RelationSettings)
train_question = train_command("question", QuestionSettings)
train_coreference = train_command("coreference", CoreferenceSettings)
train_translate = train_command("translate", TranslateSettings)
train_summarize = train_command("summarize", SummarizeSettings)
compare_classifier = compare_command("classifier", ClassifierSettings)
compare_tagger = compare_command("tagger", TaggerSettings)
compare_pair = compare_command("pair", PairSettings)
compare_relation = compare_command("relation", RelationSettings)
compare_question = compare_command("question", QuestionSettings)
compare_coreference = compare_command("coreference", CoreferenceSettings)
compare_translate = compare_command("translate", TranslateSettings)
compare_summarize = compare_command("summarize", SummarizeSettings)
