"""The help of arguments, and what is wrong with them: a sentence that names what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Literal, get_args, get_origin

import cyclopts
from cyclopts import App, ArgumentCollection, CycloptsError
from cyclopts.help import DefaultFormatter

KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}


class UnwrappingFormatter(DefaultFormatter):
    """Formats help without the line breaks of docstrings."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if text is not None:
                text.plain = text.plain.replace("\n", " ")
        super().__call__(console, options, panel)


def usage_error(
    error: CycloptsError, app: App, arguments: Sequence[str], commands: Iterable[str]
) -> str:
    """Return the sentence for an error of cyclopts; `commands` are those that exist."""
    chain = list(error.command_chain or ())
    if isinstance(error, cyclopts.UnknownCommandError):  # Its own text would import every command.
        return unknown_command(chain, (error.unused_tokens or ["?"])[0], commands)
    # cyclopts may complain of the value of an unknown option first.
    message = unknown_option(app, chain, arguments) or complaint(error)
    help_line = " ".join(["elmokit", *chain, "--help"])
    return f"{message} ({help_line} lists the options)"


def unknown_command(chain: Sequence[str], word: str, commands: Iterable[str]) -> str:
    """Return one sentence with the command or option that was probably meant.

    >>> unknown_command([], "convrt", ["convert", "info"])
    "there is no command 'convrt': did you mean 'convert'?"
    >>> unknown_command(["train"], "--epochs", ["train tagger"])
    'the option --epochs must follow a command: elmokit train --help lists the commands'
    """
    group = " ".join(["elmokit", *chain])
    if word.startswith("-"):
        if hint := did_you_mean(word, ["--version", "--help"]):
            return f"there is no option {word}{hint}"
        return f"the option {word} must follow a command: {group} --help lists the commands"
    command = " ".join([*chain, word])
    similar = get_close_matches(command, commands, n=1)
    hint = f"did you mean {similar[0]!r}?" if similar else f"{group} --help lists the commands."
    return f"there is no command {command!r}: {hint}"


def unknown_option(app: App, chain: Sequence[str], arguments: Sequence[str]) -> str | None:
    """Return a sentence about the first option that a command does not have, or None."""
    for word in chain:
        app = app[word]
    options = app.assemble_argument_collection()
    names = ["--help"]
    names += [name for option in options for name in (*option.names, *option.negatives)]
    given = [argument.partition("=")[0] for argument in takewhile("--".__ne__, arguments)]
    for name in given:
        if name.startswith("--") and name.replace("_", "-") not in names:
            return f"there is no option {name}{did_you_mean(name, names)}"
    return None


def complaint(error: CycloptsError) -> str:
    """Return what an error of cyclopts says about one option or argument."""
    argument = error.argument
    token = getattr(error, "token", None) or next(iter(argument.tokens if argument else ()), None)
    name = argument.name if argument is not None else ""
    if token is not None and token.keyword:
        name = token.keyword
        if token.source != "cli":  # cyclopts writes the names in a file as [model][lstm-dim].
            name = f"{name.strip('[]').replace('][', '.')} in {token.source}"
    match error:
        case cyclopts.CoercionError() if token is not None:
            return f"{name} must be {expected(error.target_type, token.value)}"
        case cyclopts.ValidationError() if token is not None:
            reason = error.exception_message.rstrip(".")
            return f"{name} cannot be {token.value}: {reason[:1].lower()}{reason[1:]}"
        case cyclopts.RepeatArgumentError():
            return f"{name} is given more than once"
        case cyclopts.UnknownOptionError() if error.token.source == "cli":  # such as -x
            return f"there is no option {error.token.keyword or error.token.value}"
        case cyclopts.UnknownOptionError():
            names = [n for option in error.argument_collection for n in option.names]
            option, _, file = name.partition(" in ")
            hint = did_you_mean(f"--{option}", names)
            return f"there is no option {option}, which {file} sets{hint}"
        case cyclopts.UnusedCliTokensError():
            return f"unexpected argument {' '.join(error.unused_tokens or [])!r}"
        case cyclopts.MissingArgumentError() if argument is not None:
            return f"{error.keyword} needs a value" if error.keyword else f"{name} is missing"
    message = " ".join(str(error).split()).rstrip(".")
    return message[:1].lower() + message[1:]


def expected(kind: Any, value: str) -> str:
    """Say what a value must be and what it is, with the choice that was probably meant."""
    if get_origin(kind) is not Literal:
        return f"{KINDS.get(kind, 'another value')}, not {value!r}"
    choices = [str(choice) for choice in get_args(kind)]
    similar = get_close_matches(value.lower(), choices, n=1)
    hint = f": did you mean {similar[0]!r}?" if similar else ""
    return f"one of {', '.join(choices)}, not {value!r}{hint}"


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return the end of a sentence about an option that does not exist."""
    similar = get_close_matches(name.replace("_", "-"), names, n=1, cutoff=0.7)
    return f": did you mean {similar[0]}?" if similar else ""


def check_integers(_app: App, _commands: object, arguments: ArgumentCollection) -> None:
    """Raise if an integer has a fraction, such as 1.5, which cyclopts would round."""
    for argument in arguments:
        if re.search(r"\bint\b", str(argument.hint)):  # also list[tuple[int, int]], for instance
            for token in argument.tokens:
                if re.fullmatch(r"[-+]?\d*\.\d*[1-9]\d*", token.value):
                    raise cyclopts.CoercionError(argument=argument, token=token, target_type=int)
