"""The command line: `elmokit <command> …`, one row of a table for each command.

A row names the function that does the work, and that function's signature is the command
line: parameters without a default are positional, the others are options, the docstring is
the help. Only the chosen command's module is imported, so `elmokit --help` is immediate.
Commands of one family have two words, as `senses build` and `senses tag`.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from elmokit.errors import ElmokitError

# command: (module:function, help in one line)
COMMANDS = {
    "embed": ("elmokit.cli.embed:embed_file", "write the contextual vectors of a text file"),
    "pretrain": ("elmokit.pretrain.train:pretrain", "train a biLM on raw text"),
    "adapt": ("elmokit.pretrain.adapt:adapt", "go on training a biLM on the text of a domain"),
    "evaluate": ("elmokit.pretrain.evaluate:evaluate", "measure the perplexity of a text"),
    "fill": ("elmokit.cli.fill:fill_gap", "find words that fit a gap in a sentence"),
    "train": ("elmokit.cli.tasks:train", "train a task model with or without ELMo"),
    "predict": ("elmokit.cli.tasks:predict", "write what a task model says of a file"),
    "score": ("elmokit.cli.tasks:score", "measure a task model on a test file"),
    "compare": (
        "elmokit.tasks.compare.compare:compare",
        "train a task with and without ELMo, many ways",
    ),
    "senses build": ("elmokit.cli.senses:build", "average the vectors of each word sense"),
    "senses tag": ("elmokit.cli.senses:tag", "write the senses of the words of a text"),
    "senses score": ("elmokit.cli.senses:score", "measure how many senses are found"),
    "senses induce": ("elmokit.cli.senses:induce", "cluster the uses of a word in a corpus"),
    "plot uses": ("elmokit.cli.plot:plot_uses", "draw a word's uses by sense"),
    "plot weights": (
        "elmokit.cli.plot:plot_weights",
        "draw the layers' weights in task models",
    ),
    "plot pair": (
        "elmokit.cli.plot:plot_pair",
        "draw how alike the words of two sentences are",
    ),
    "plot surprisal": (
        "elmokit.cli.plot:plot_surprisal",
        "draw how unexpected the words of a text are",
    ),
    "probe": ("elmokit.cli.probe:probe", "find what a linear classifier sees in each layer"),
    "neighbours index": (
        "elmokit.cli.neighbours:index",
        "index the uses of words in a corpus",
    ),
    "neighbours find": (
        "elmokit.cli.neighbours:find",
        "find the uses nearest to a word in a sentence",
    ),
    "similarity": (
        "elmokit.cli.similarity:similarity",
        "compare cosines with what people say of words and sentences",
    ),
    "drift": ("elmokit.cli.drift:drift", "find words that two corpora use differently"),
    "info": ("elmokit.cli.info:info", "say what a checkpoint is, whatever its format"),
    "convert": ("elmokit.cli.convert:convert", "rewrite a checkpoint in another format"),
}

# Exit codes as shells know them: 2 for wrong use, 128 + the number of the signal that ended it.
USER_ERROR, STOPPED, BROKEN_PIPE = 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name and return the exit code of the process.

    What the user can cause or mend ends as one sentence on stderr, with a traceback only
    when ELMOKIT_DEBUG=1. Any other exception is a defect and always keeps its traceback.
    """
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()  # a closed pipe shows here, not while the interpreter shuts down
        return code
    except KeyboardInterrupt:
        print("elmokit: stopped.", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:
        # `elmokit … | head` is no error; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        sentence = explain(error)
        if sentence is None or os.environ.get("ELMOKIT_DEBUG") == "1":
            raise
        print(f"elmokit: error: {sentence}", file=sys.stderr)
        return USER_ERROR


def explain(error: Exception) -> str | None:
    """The sentence for an error that the user can mend, None for a defect of ours."""
    if isinstance(error, ElmokitError):
        return str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" at {error.filename}" if error.filename else ""
        return f"the disk is full{where}: free some space or write to another disk"
    if isinstance(error, MemoryError) or is_torch_out_of_memory(error):
        return "the memory is full: try a smaller batch or shorter texts"
    return None


def is_torch_out_of_memory(error: Exception) -> bool:
    """Whether torch found no memory; on the CPU only the text of its error tells."""
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError"
        or "DefaultCPUAllocator: can't allocate memory" in str(error)
    )


def run(arguments: Sequence[str]) -> int:
    """Find the command, let jsonargparse read its options, call its function."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        import elmokit

        print(f"elmokit {elmokit.__version__}")
        return 0
    command, options = split_command(arguments)
    if command not in COMMANDS:
        if options and options[0] not in ("-h", "--help"):
            raise ElmokitError(no_such_command(f"{command} {options[0]}"))
        print(usage(command))
        return 0
    # torch brings a million objects: looking for garbage among them takes a tenth of a second each
    # time, several times while a command starts.
    gc.set_threshold(100_000, 50, 50)
    module, _, name = COMMANDS[command][0].partition(":")
    function = getattr(importlib.import_module(module), name)
    return call(function, config_first(with_underscores(options)), program=f"elmokit {command}")


def split_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command and its options; of a family that has no such command, the first word alone."""
    for words in (2, 1):
        command = " ".join(arguments[:words])
        if command in COMMANDS:
            return command, list(arguments[words:])
    if not any(command.startswith(f"{arguments[0]} ") for command in COMMANDS):
        raise ElmokitError(no_such_command(arguments[0]))
    return arguments[0], list(arguments[1:])


def usage(family: str = "") -> str:
    """The text of `elmokit --help`, or of one family's."""
    begin = f"{family} " if family else ""
    listed = {name: line for name, (_, line) in COMMANDS.items() if name.startswith(begin)}
    width = max(map(len, listed))
    rows = [f"  {command:<{width}}  {line}" for command, line in listed.items()]
    return "\n".join(
        [
            f"usage: elmokit {begin}<command> [options]",
            "",
            "ELMo: contextual word vectors, from raw text to task models.",
            "",
            "commands:",
            *rows,
            "",
            "elmokit <command> --help gives the command's options, elmokit --version the version.",
        ]
    )


def no_such_command(command: str) -> str:
    """One sentence with the command that was probably meant."""
    import difflib

    near = difflib.get_close_matches(command, COMMANDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "elmokit --help lists the commands."
    return f"there is no command {command!r}: {hint}"


def call(function: Callable[..., int | None], options: list[str], *, program: str) -> int:
    """Call `function` with the values that `options` give to its parameters."""
    # Imported and subclassed only here: `elmokit --help` need not pay 0.1 s for it.
    from jsonargparse import ActionYesNo, ArgumentParser, auto_cli

    class CommandParser(ArgumentParser):
        def add_argument(self, *names: str, **settings: Any) -> Any:
            # A boolean option takes no value: it is the pair --name and --no_name.
            kind = getattr(settings.get("action"), "_typehint", settings.get("type"))
            if kind in (bool, bool | None) and names[0].startswith("--"):
                settings.pop("type", None)
                alone = names[0].startswith("--no_")
                settings["action"] = "store_true" if alone else ActionYesNo
            if kind == list[str] and not names[0].startswith("-"):  # `elmokit plot weights A B OUT`
                settings.pop("action", None)
                settings |= {"type": str, "nargs": "+"}
            return super().add_argument(*names, **settings)

        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            sentence = reworded(" ".join(message.split()).rstrip("."))
            raise ElmokitError(f"{sentence} ({program} --help gives the options)") from ex

    config_help = "A YAML file with options; what the command line says wins."
    code: int | None = auto_cli(
        function, args=options, prog=program, config_help=config_help, parser_class=CommandParser
    )
    return code or 0


def reworded(message: str) -> str:
    r"""jsonargparse's complaint about a value, in words that a user of the command knows.

    >>> reworded('Parser key "layers": Expected a <class \'int\'>. Got value: x')
    "--layers must be a whole number, not 'x'"
    >>> reworded('Parser key "lr": Does not validate against any of the Union subtypes Subtypes: '
    ...     "[<class 'float'>, <class 'NoneType'>] Errors: - Expected a <class 'float'> - Expected "
    ...     "a <class 'NoneType'> Given value type: <class 'str'> Given value: x")
    "--lr must be a number, not 'x'"
    """
    found = re.match(r'Parser key "(\w+)": Expected a (.+?)\. Got value: (.*)', message)
    found = found or re.match(
        r'Parser key "(\w+)": Does not validate .* Errors: - Expected a (<class \'\w+\'>) '
        r"- Expected a <class 'NoneType'> .*Given value: (.*)",
        message,
    )
    if not found:
        return message
    name, kind, value = found.groups()
    choices = re.findall(r"'([^']*)'", kind) if "Literal" in kind else []
    kinds = {"<class 'int'>": "a whole number", "<class 'float'>": "a number"}
    wanted = f"one of {', '.join(choices)}" if choices else kinds.get(kind, f"of type {kind}")
    return f"--{name.replace('_', '-')} must be {wanted}, not {value!r}"


def with_underscores(options: list[str]) -> list[str]:
    """Let `--batch-size=8` stand for `--batch_size=8`; what follows a bare `--` stays.

    >>> with_underscores(["--batch-size", "8", "--", "--as-it-is"])
    ['--batch_size', '8', '--', '--as-it-is']
    """
    end = options.index("--") if "--" in options else len(options)
    return [
        re.sub(r"^--[^=]+", lambda name: "--" + name[0][2:].replace("-", "_"), option)
        for option in options[:end]
    ] + options[end:]


def config_first(options: list[str]) -> list[str]:
    """Move `--config FILE` to the front, since jsonargparse lets the later value win.

    >>> config_first(["in.txt", "--layers=top", "--config", "a.yaml"])
    ['--config', 'a.yaml', 'in.txt', '--layers=top']
    """
    first: list[str] = []
    rest: list[str] = []
    remaining = iter(options)
    for option in remaining:
        file = next(remaining, None) if option == "--config" else None
        if file is not None:
            first += [option, file]
        else:
            (first if option.startswith("--config=") else rest).append(option)
    return first + rest
