"""The command line, seen from outside: what is printed, where, and the exit code."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from children import HANGS

from elmokit.cli.main import COMMANDS, FAMILIES, main

Run = Callable[..., tuple[int, str, str]]

TOY = '''
import errno, os
from pathlib import Path
from elmokit.errors import ElmokitError

def embed(
    text: Path, out: Path, /, *, layers: str = "all", batch_size: int = 32, cache: bool = True
):
    """Write vectors.

    Args:
        text: The sentences to read.
        out: The file to write,
            in any format.
        batch_size: How many sentences at a time.
    """
    print(text, out, layers, batch_size, cache)

def three() -> int:
    return 3

def join(*parts: str, sign: str = "+"):
    print(parts, sign)

def fail(how: str, /):
    if how == "user":
        raise ElmokitError("line 3 of a.txt is empty: delete it.")
    if how == "disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "vectors.h5")
    if how == "memory":
        raise MemoryError
    if how == "torch":
        raise RuntimeError("[alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried")
    if how == "stop":
        raise KeyboardInterrupt
    if how == "file":
        open("no such file")
    raise ValueError("a defect")
'''


@pytest.fixture
def elmokit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the command line with the toy commands: exit code, stdout, stderr."""
    (tmp_path / "toy_commands.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_commands", raising=False)
    monkeypatch.delenv("ELMOKIT_DEBUG", raising=False)
    monkeypatch.setitem(FAMILIES, "toy", "toy commands")
    for name in ("embed", "three", "fail", "join", "toy embed", "toy three"):
        target = name.split()[-1]
        line = "toy vectors" if target == "embed" else f"toy {target}"
        monkeypatch.setitem(COMMANDS, name, (f"toy_commands:{target}", line))

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # how --help ends
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def with_command(name: str, target: str, folder: Path) -> list[str]:
    """How to run one more command, defined in `folder`, in a process of its own."""
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from elmokit.cli import main as cli\n"
        f"cli.COMMANDS[{name!r}] = ({target!r}, '')\n"
        f"sys.exit(cli.main([{name!r}]))\n"
    )
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_with_its_line(elmokit: Run, arguments: list[str]) -> None:
    code, out, err = elmokit(*arguments)
    assert (code, err) == (0, "")
    shown = {" ".join(row.strip("│ ").split()) for row in out.splitlines()}
    single = {name: line for name, (_, line) in COMMANDS.items() if " " not in name}
    for name, line in (single | FAMILIES).items():
        assert f"{name} {line}" in shown
    assert "elmokit --version" in out


def test_version_is_that_of_the_package(elmokit: Run) -> None:
    from elmokit import __version__

    assert elmokit("--version") == (0, f"elmokit {__version__}\n", "")


def test_python_m_elmokit_is_the_same_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elmokit", "convrt"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "elmokit: error: there is no command 'convrt': did you mean 'convert'?\n"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_a_documented_function_with_typed_parameters(name: str) -> None:
    module, _, function_name = COMMANDS[name][0].partition(":")
    function = getattr(importlib.import_module(module), function_name)
    assert function.__doc__
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_answers_help(elmokit: Run, name: str) -> None:
    code, out, err = elmokit(*name.split(), "--help")
    assert (code, err) == (0, "")
    assert f"Usage: elmokit {name}" in out
    assert "_" not in "".join(word for word in out.split() if word.startswith("--"))


def test_no_command_imports_torch_before_it_runs() -> None:
    modules = sorted({row.partition(":")[0] for row, _ in COMMANDS.values()})
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not set(done.stdout.split()) & {"torch", "matplotlib", "h5py"}


def test_only_the_chosen_command_is_imported(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text("def look():\n    import sys; print(*sys.modules)\n")
    done = subprocess.run(
        with_command("look", "toy:look", tmp_path), capture_output=True, text=True
    )
    loaded = set(done.stdout.split())
    assert "toy" in loaded
    assert not loaded & {"torch", "numpy", *(row.partition(":")[0] for row, _ in COMMANDS.values())}


def test_a_command_may_have_two_words(elmokit: Run) -> None:
    assert elmokit("toy", "embed", "a", "--batch-size=8", "b") == (0, "a b all 8 True\n", "")
    assert elmokit("toy", "three") == (3, "", "")
    code, out, err = elmokit("toy", "embed", "a")
    assert (code, out) == (2, "")
    assert err == "elmokit: error: OUT is missing (elmokit toy embed --help lists the options)\n"


@pytest.mark.parametrize("arguments", [["toy"], ["toy", "--help"], ["toy", "-h"]])
def test_the_first_word_alone_lists_its_commands(elmokit: Run, arguments: list[str]) -> None:
    code, out, err = elmokit(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: elmokit toy COMMAND\n")
    assert "toy vectors" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["toy", "embd", "a"], "there is no command 'toy embd': did you mean 'toy embed'?"),
        (["xyzzy"], "there is no command 'xyzzy': elmokit --help lists the commands."),
        (["embed toy"], "there is no command 'embed toy': "),
    ],
)
def test_a_wrong_command_is_one_sentence(elmokit: Run, arguments: list[str], sentence: str) -> None:
    code, out, err = elmokit(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"elmokit: error: {sentence}")


def test_a_parameter_that_is_a_list_takes_several_arguments(elmokit: Run) -> None:
    assert elmokit("join", "a", "b", "c") == (0, "('a', 'b', 'c') +\n", "")
    assert elmokit("join", "--sign=-", "a", "c") == (0, "('a', 'c') -\n", "")


def test_the_exit_code_is_what_the_function_returns(elmokit: Run) -> None:
    assert elmokit("three") == (3, "", "")


def test_parameters_become_positional_arguments_and_options(elmokit: Run) -> None:
    assert elmokit("embed", "a.txt", "b.h5") == (0, "a.txt b.h5 all 32 True\n", "")
    code, out, _ = elmokit(
        "embed", "--layers=top", "a.txt", "--batch-size", 8, "b.h5", "--no-cache"
    )
    assert (code, out) == (0, "a.txt b.h5 top 8 False\n")


def test_options_may_be_written_with_dashes(elmokit: Run) -> None:
    _, out, _ = elmokit(
        "embed", "--no-cache", "--batch-size=8", "--layers", "a-b", "--", "-a", "--b-c"
    )
    assert out == "-a --b-c a-b 8 False\n"


def test_the_docstring_becomes_the_help(elmokit: Run) -> None:
    code, out, _ = elmokit("embed", "--help")
    assert code == 0
    words = " ".join(out.replace("│", " ").split())
    assert "The sentences to read. [required]" in words
    assert "The file to write, in any format. [required]" in out  # on one line
    assert "--batch-size INT How many sentences at a time. [default: 32]" in words
    assert "--config FILE reads options from a YAML file" in words


def test_a_config_file_gives_options_and_the_command_line_wins(
    elmokit: Run, tmp_path: Path
) -> None:
    config = tmp_path / "small.yaml"
    config.write_text("layers: top\nbatch_size: 4\ncache: false\n")
    assert elmokit("embed", "a", "b", "--config", config)[1] == "a b top 4 False\n"
    assert elmokit("embed", "a", "b", "--layers=2", "--config", config)[1] == "a b 2 4 False\n"
    assert elmokit("embed", f"--config={config}", "a", "b", "--cache")[1] == "a b top 4 True\n"
    assert elmokit("embed", "a", "--layers=2", f"--config={config}", "b")[1] == "a b 2 4 False\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["a"], "OUT is missing (elmokit embed --help lists the options)"),
        (["a", "b", "--batch-size", "many"], "--batch-size must be an integer, not 'many' ("),
        (["a", "b", "--batch-size"], "--batch-size needs a value ("),
        (
            ["a", "b", "--batch-sise", "2"],
            "there is no option --batch-sise: did you mean --batch-size? (",
        ),
        (["a", "b", "--xyzzy", "red"], "there is no option --xyzzy ("),
        (["--laers", "top", "a", "b"], "there is no option --laers: did you mean --layers? ("),
        (["a", "--laers=top", "b"], "there is no option --laers: did you mean --layers? ("),
        (["a", "b", "c"], "unexpected argument 'c' ("),
        (["a", "b", "--config", "no-such.yaml"], "cannot read no-such.yaml: No such file"),
        (["a", "b", "--config"], "--config needs the name of a YAML file"),
    ],
)
def test_a_wrong_option_is_one_sentence(elmokit: Run, options: list[str], sentence: str) -> None:
    code, out, err = elmokit("embed", *options)
    assert (code, out) == (2, "")
    assert err.startswith(f"elmokit: error: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"[1, 2]", b"a: [", b"\xff\xfe", b"1: 2"])
def test_a_config_file_that_is_not_a_mapping_is_one_sentence(
    elmokit: Run, tmp_path: Path, content: bytes
) -> None:
    config = tmp_path / "small.yaml"
    config.write_bytes(content)
    code, _, err = elmokit("embed", "a", "b", "--config", config)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{config} is not" in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(elmokit: Run, shell: str) -> None:
    code, out, err = elmokit("completion", shell)
    assert (code, err) == (0, "")
    assert "batch-size" in out
    assert "neighbours" in out


def test_a_config_file_with_an_unknown_option_is_one_sentence(elmokit: Run, tmp_path: Path) -> None:
    config = tmp_path / "small.yaml"
    config.write_text("colour: red\n")
    code, _, err = elmokit("embed", "a", "b", "--config", config)
    assert (code, err.count("\n")) == (2, 1)
    assert "colour" in err


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("user", 2, "elmokit: error: line 3 of a.txt is empty: delete it."),
        ("disk", 2, "elmokit: error: the disk is full at vectors.h5: free some space or write to"),
        ("memory", 2, "elmokit: error: out of memory: "),
        ("torch", 2, "elmokit: error: out of memory: "),
        ("stop", 130, "elmokit: interrupted."),
    ],
)
def test_what_a_user_can_cause_is_a_sentence_without_a_traceback(
    elmokit: Run, how: str, code: int, message: str
) -> None:
    got, out, err = elmokit("fail", how)
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(message)


@pytest.mark.parametrize(("how", "error"), [("other", ValueError), ("file", FileNotFoundError)])
def test_a_defect_keeps_its_traceback(elmokit: Run, how: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        elmokit("fail", how)


def test_debugging_shows_the_traceback_of_a_user_error_too(
    elmokit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMOKIT_DEBUG", "1")
    with pytest.raises(Exception, match="line 3 of"):
        elmokit("fail", "user")


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "elmokit", "--help"]
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, text=True) as child:
        os.close(write)
        _, err = child.communicate()
    assert (child.returncode, err) == (141, "")


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_control_c_stops_with_one_word(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(
        "import time\ndef wait():\n    print('ready', flush=True)\n    time.sleep(6000)\n"
    )
    command = with_command("wait", "toy:wait", tmp_path)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=HANGS)
    assert (child.returncode, err) == (130, "elmokit: interrupted.\n")


@pytest.mark.parametrize("module", ["elmokit.cli.main", "elmokit.errors"])
def test_the_examples_in_the_docstrings_hold(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
