"""The command line: `elmokit <command> …`.

Each command is a function in this folder: its signature is the command line, its docstring the
help. Only the chosen command's module is imported, so that `elmokit --help` is immediate.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal

import elmokit
from elmokit.errors import ElmokitError
from elmokit.io.paths import check_no_input, is_file
from elmokit.progress import log_to_stderr

if TYPE_CHECKING:
    from cyclopts import App

ABOUT = "ELMo: contextual word vectors, from raw text to task models."
# Commands of one family have two words, such as `senses build`.
FAMILIES = {
    "train": "train a task model with or without ELMo",
    "compare": "train a task with and without ELMo, in several ways",
    "senses": "find the senses of words",
    "neighbours": "find uses of words that are alike",
    "plot": "draw what the layers know",
}
TASKS = {
    "classifier": "a label for a text",
    "tagger": "a tag for each token",
    "pair": "a label for two texts",
    "relation": "the relation of two marked entities",
    "question": "words of a passage that answer a question",
    "coreference": "the name that a pronoun refers to",
    "translate": "the text in another language",
    "summarize": "a short text for a long one",
}
# command: (module:function, help in one line)
COMMANDS = {
    command: (f"elmokit.cli.{function}", line)
    for command, function, line in (
        ("embed", "embed:embed", "write the contextual vectors of a text file"),
        ("pretrain", "pretrain:pretrain", "train a biLM on raw text"),
        ("adapt", "pretrain:adapt", "continue training a biLM on the text of a domain"),
        ("evaluate", "language:evaluate", "measure the perplexity of a text"),
        ("fill", "language:fill", "find words that fit a gap in a sentence"),
        *((f"train {task}", f"tasks:train_{task}", line) for task, line in TASKS.items()),
        ("predict", "tasks:predict", "write the predictions of a task model for a file"),
        ("score", "tasks:score", "measure a task model on a test file"),
        *((f"compare {task}", f"tasks:compare_{task}", line) for task, line in TASKS.items()),
        ("senses build", "analysis.senses:build", "average the vectors of each word sense"),
        ("senses tag", "analysis.senses:tag", "write the senses of the words of a text"),
        ("senses score", "analysis.senses:score", "measure how many senses are found"),
        ("senses induce", "analysis.senses:induce", "cluster the uses of a word in a corpus"),
        ("neighbours index", "analysis.neighbours:index", "index the uses of words in a corpus"),
        ("neighbours find", "analysis.neighbours:find", "find the uses nearest to a word"),
        ("plot uses", "analysis.plot:uses", "draw the uses of a word by sense"),
        ("plot weights", "analysis.plot:weights", "draw the layer weights of task models"),
        ("plot pair", "analysis.plot:pair", "draw how similar the words of two sentences are"),
        ("plot surprisal", "analysis.plot:surprisal", "draw how unexpected each word of a text is"),
        ("static", "analysis.static:static", "average the uses of each word in a corpus"),
        ("probe", "analysis.measure:probe", "measure what a linear classifier finds in each layer"),
        ("similarity", "analysis.measure:similarity", "compare cosines with human judgements"),
        ("drift", "analysis.measure:drift", "find words that two corpora use differently"),
        ("models", "models:models", "list the models that exist, by language and domain"),
        ("info", "models:info", "describe a checkpoint of any format"),
        ("convert", "models:convert", "rewrite a checkpoint in another format"),
        ("export", "models:export", "write a model as ONNX for other languages"),
        ("serve", "serve:serve", "answer requests over HTTP"),
    )
}
CONFIG_HELP = (
    "--config FILE reads options from a YAML file; options on the command line override it."
)

TORCH_OUT_OF_MEMORY = "DefaultCPUAllocator: can't allocate memory"

# Exit codes as shells know them: 2 for wrong use, 128 + the number of the signal that ended it.
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name and return the exit code of the process.

    An error that the user can cause or fix is one sentence on stderr, with a traceback only when
    ELMOKIT_DEBUG=1. Any other exception is a bug and always keeps its traceback.
    """
    try:
        code = run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()  # A closed pipe shows here, not while the interpreter shuts down.
        return code
    except KeyboardInterrupt:
        print("elmokit: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # `elmokit … | head` is not an error; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        sentence = explain(error)
        if sentence is None or os.environ.get("ELMOKIT_DEBUG") == "1":
            raise
        print(f"elmokit: error: {sentence}", file=sys.stderr)
        return USER_ERROR


def explain(error: Exception) -> str | None:
    """Return the sentence for an error that the user can fix, None for a bug."""
    if isinstance(error, ElmokitError):
        return str(error)
    code, name = getattr(error, "errno", None), getattr(error, "filename", None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        where = f" at {name}" if name else ""
        return f"the disk is full{where}: free some space or write to another disk"
    if code == errno.ENAMETOOLONG:
        return f"the file name {str(name)[:40]}… is too long"
    # Of torch running out of memory on the CPU only the text of its error says so.
    by_name = type(error).__name__ == "OutOfMemoryError" or TORCH_OUT_OF_MEMORY in str(error)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and by_name):
        return "out of memory: try a smaller batch or shorter texts"
    return None


def run(arguments: list[str]) -> int:
    """Parse the arguments, call the command and return its exit code."""
    # cyclopts takes 0.2 s to import: `elmokit --version` need not wait for it.
    if arguments == ["--version"]:
        print(f"elmokit {elmokit.__version__}")
        return 0
    # torch brings a million objects: each garbage collection among them takes a tenth of a second,
    # and there would be several while a command starts.
    gc.set_threshold(100_000, 50, 50)
    log_to_stderr()
    arguments, config = take_config(arguments)
    if config is not None:
        for argument in arguments:
            file = argument.rpartition("=")[2]
            if is_file(file):
                check_no_input(file, [config])
    from cyclopts import CycloptsError

    from elmokit.cli.usage import usage_error

    app = build_app(config)
    try:
        result = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        sentence = usage_error(error, app, arguments, [*COMMANDS, *FAMILIES])
        raise ElmokitError(sentence) from error
    except SystemExit as end:  # This is how rich ends when the reader of the help is gone.
        raise BrokenPipeError from end
    return result if isinstance(result, int) else 0


def build_app(config: str | None = None) -> App:
    """Return the cyclopts application of all commands; `config` names a YAML file of options."""
    from cyclopts import App, Parameter
    from cyclopts.config import Dict

    from elmokit.cli.usage import UnwrappingFormatter, check_integers
    from elmokit.io.jsonfile import read_yaml

    files = [] if config is None else [config]
    app = App(
        name="elmokit",
        help=ABOUT,
        help_formatter=UnwrappingFormatter(),
        help_epilogue="elmokit COMMAND --help shows the options of a command, elmokit --version "
        "shows the version.",
        help_format="plaintext",
        version_flags=[],
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(
            negative_iterable=(),
            consume_multiple=True,
            validator=check_number,
            show_default=default_text,
        ),
        config=[
            *(Dict(read_yaml(f), use_commands_as_keys=False, source=f) for f in files),
            check_integers,
        ],
    )
    parents = {"": app} | {name: App(name=name, help=line) for name, line in FAMILIES.items()}
    for name in FAMILIES:
        app.command(parents[name])
    for command, (function, line) in COMMANDS.items():
        family, _, name = command.rpartition(" ")
        parents[family].command(function, name=name, help=line, help_epilogue=CONFIG_HELP)

    def completion(shell: Literal["bash", "zsh", "fish"] = "bash", /) -> None:
        """Print a script that completes commands and options in a shell.

        Args:
            shell: Shell to write the script for.
        """
        print(app.generate_completion(prog_name="elmokit", shell=shell))

    app.command(completion, help="print the completion script of a shell")
    return app


def check_number(_: type, value: object) -> None:
    """Raise if the value of an option is infinite, not a number, or an enormous integer."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is not finite")
    if isinstance(value, int | float) and abs(value) >= 2**63:
        raise ValueError("the number is too large")
    parts = value if isinstance(value, list | tuple) else ()
    for part in vars(value).values() if is_dataclass(value) else parts:
        check_number(_, part)


def default_text(value: object) -> str | None:
    """Return a default as it is written on the command line, None if there is none.

    >>> default_text((1, 2, 3)), default_text(0.5), default_text(None)
    ('1 2 3', '0.5', None)
    """
    if value is None:
        return None
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def take_config(arguments: list[str]) -> tuple[list[str], str | None]:
    """Take `--config FILE` out of the arguments.

    >>> take_config(["in.txt", "--layers=top", "--config", "a.yaml"])
    (['in.txt', '--layers=top'], 'a.yaml')
    """
    rest: list[str] = []
    config = None
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if argument == "--":
            rest += [argument, *remaining]
        elif name != "--config":
            rest.append(argument)
        elif (config := value if equals else next(remaining, None)) is None:
            raise ElmokitError("--config needs the name of a YAML file")
    return rest, config
