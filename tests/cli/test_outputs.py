"""One rule for every command: no input is overwritten, and no other file without --overwrite."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from tiny import complaint, softmax_elmo

from elmokit.cli.main import COMMANDS, build_app, main
from elmokit.cli.options import WriteOptions, model_files

SENTENCE = "the river bank sat on the boat ."
FILES = {
    "text.txt": f"{SENTENCE}\nhe sat on the bank .\n" * 6,
    "uses.tsv": "".join(f"{SENTENCE}\t2\t{sense}\tbank\n" for sense in "abaab"),
    "reviews.txt": "good the boat sat .\npoor the bank sat .\n" * 8,
    "tags.conll": "the D\nbank N\n. P\n\nhe R\nsat V\n. P\n",
    "pairs.tsv": "the bank\tthe boat\t1\nhe sat\tthe river\t2\nhe sat\ton it\t3\n",
    "words.vec": "the 0.1 0.2\nbank 0.3 0.1\nboat 0.2 0.5\n",
}
# The arguments of each command, with OUT for the output and P.png for the figure that is tested.
CASES = [
    "predict task text.txt OUT --elmo model",
    "score task reviews.txt --json OUT --elmo model",
    "evaluate model text.txt --sentences OUT",
    "senses build uses.tsv built --json OUT --model model",
    "senses score inventory uses.tsv --json OUT --model model",
    "senses tag inventory text.txt --out OUT --model model",
    "senses induce bank text.txt --clusters 2 --out OUT --model model",
    "senses induce bank text.txt --clusters 2 --json OUT --model model",
    "neighbours index text.txt made --json OUT --model model",
    "neighbours find bank.index the*bank*sat --vectors words.vec --json OUT --model model",
    "plot uses uses.tsv P.png --model model",
    "plot uses uses.tsv new.png --json OUT --model model",
    "plot weights task P.png",
    "plot weights task new.png --json OUT",
    "plot pair the-bank the-boat P.png --model model",
    "plot pair the-bank the-boat new.png --json OUT --model model",
    "plot surprisal text.txt P.png --model model",
    "plot surprisal text.txt new.png --json OUT --model model",
    "probe tags.conll tags.conll --epochs 1 --figure P.png --model model",
    "probe tags.conll tags.conll --epochs 1 --json OUT --vectors words.vec --model model",
    "similarity pairs.tsv --kind sentences --json OUT --vectors words.vec --model model",
    "drift text.txt text.txt --words bank --json OUT --model model",
    "models --language french --json OUT",
]
# What can be resumed is replaced only if it is the output of such a command.
RESUMABLE = [
    "embed text.txt OUT --format hdf5 --model model",
    "neighbours index text.txt OUT --model model",
    "senses build uses.tsv OUT --model model",
    "static text.txt OUT --vocabulary words.vec --model model",
]
FOLDERS = {"task": "config.json", "inventory": "senses.tsv", "bank.index": "index.json"}
FOLDERS |= {"model": "config.json"}


@pytest.fixture
def garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with inputs that every command would complain of if it read them."""
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        Path(name).write_bytes(b"\xff\xfe\x00")
    for name, file in FOLDERS.items():
        Path(name).mkdir()
        (Path(name) / file).write_bytes(b"\xff\xfe\x00")
    return tmp_path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good inputs of all commands."""
    folder = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ELMOKIT_CACHE", str(folder / "cache"))
        for name, content in FILES.items():
            Path(name).write_text(content)
        softmax_elmo().save_pretrained("model")
        train = "train classifier --train reviews.txt --out task --epochs 1 --elmo model --quiet"
        for command in (
            f"{train} --dev-fraction 0.5",
            "senses build uses.tsv inventory --model model --quiet",
            "neighbours index text.txt bank.index --model model --quiet",
        ):
            assert main(command.split()) == 0
    return folder


def run(command: str, out: str, *options: str) -> int:
    """Run a command of the table with another name for its output."""
    words = [out if word in ("OUT", "P.png") else word for word in command.split()]
    return main([*words, *options])


def files_of(command: str) -> list[str]:
    """The inputs of a command: files, and a file in each folder."""
    words = [word for word in command.split()[1:] if word in FILES or word in FOLDERS]
    return [f"{word}/{FOLDERS[word]}" if word in FOLDERS else word for word in dict.fromkeys(words)]


@pytest.mark.parametrize("command", CASES)
def test_an_existing_file_is_kept_before_anything_is_read(
    command: str, garbage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = "P.png" if "P.png" in command else "OUT"
    Path(out).write_text("mine")
    assert run(command, out) == 2
    assert f"{out} already exists: " in capsys.readouterr().err
    assert Path(out).read_text() == "mine"
    Path(f"folder-{out}").mkdir()
    Path(f"device-{out}").symlink_to(os.devnull)
    Path(f"lost-{out}").symlink_to("nowhere")
    for name, sentence in (
        (f"folder-{out}", "is a folder"),
        (f"device-{out}", "is not a regular file"),
    ):
        assert run(command, name, "--overwrite") == 2
        assert sentence in capsys.readouterr().err
    assert run(command, f"lost-{out}") == 2  # It would replace a link of the user's.
    assert "already exists" in capsys.readouterr().err
    assert run(command, f"no/{out}") == 2
    assert "there is no folder" in capsys.readouterr().err
    assert run(command, 300 * "x" + ".png") == 2
    err = capsys.readouterr().err
    assert "File name too long" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [*CASES, *RESUMABLE])
def test_an_input_is_never_the_output(
    command: str, garbage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = ".png" if "P.png" in command else ""
    for input in files_of(command):
        Path(f"soft{suffix}").unlink(missing_ok=True)
        Path(f"hard{suffix}").unlink(missing_ok=True)
        Path(f"soft{suffix}").symlink_to(input)
        Path(f"hard{suffix}").hardlink_to(input)
        outputs = [f"soft{suffix}", f"hard{suffix}"] + (
            [] if suffix else [input, str(garbage / input)]
        )
        for out in outputs:
            for options in ((), ("--overwrite",)):
                assert run(command, out, *options) == 2
                assert f"{Path(out)} would overwrite the input" in capsys.readouterr().err
        assert Path(input).read_bytes() == b"\xff\xfe\x00"


@pytest.mark.parametrize("command", CASES)
def test_with_overwrite_the_file_is_replaced(
    command: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(inputs, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setenv("ELMOKIT_CACHE", str(inputs / "cache"))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    out = "P.png" if "P.png" in command else "OUT"
    quiet = () if command.startswith("models") else ("--quiet",)
    assert run(command, out, *quiet) == 0
    content = Path(out).read_bytes()
    Path(out).write_text("mine")
    assert run(command, out, *quiet, "--overwrite") == 0
    assert Path(out).read_bytes()[:4] == content[:4] != b"mine"
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("command", RESUMABLE)
def test_a_foreign_file_is_no_output_that_can_be_resumed_or_replaced(
    command: str, garbage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("OUT").write_text("mine")
    assert run(command, "OUT") == 2
    assert "OUT already exists: " in capsys.readouterr().err
    assert run(command, "OUT", "--overwrite") == 2
    assert Path("OUT").read_text() == "mine"


@pytest.mark.parametrize("command", RESUMABLE[:2])
def test_an_input_is_not_deleted_with_the_parts_of_an_earlier_run(
    command: str, garbage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "vectors.f16" if "index" in command else "part-000000000000.npy"
    Path("OUT.parts").mkdir()
    (Path("OUT.parts") / name).write_bytes(Path("text.txt").read_bytes())
    command = command.replace("text.txt", f"OUT.parts/{name}")
    for options in ((), ("--overwrite",), ("--resume",), ("--resume", "--overwrite")):
        assert run(command, "OUT", *options) == 2
        assert "OUT.parts would overwrite the input" in capsys.readouterr().err
    assert (Path("OUT.parts") / name).is_file()


def test_two_outputs_need_two_places(garbage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("built").mkdir()
    Path("link.png").symlink_to("same.png")
    for command in (
        "plot uses uses.tsv P.png --json P.png --model model",
        "plot uses uses.tsv P.png --json model/../same.png --model model",
        "plot uses uses.tsv P.png --json link.png --overwrite --model model",
        "senses induce bank text.txt --out OUT --json OUT --model model",
        "senses build uses.tsv OUT --json OUT --model model",
        "senses build uses.tsv built --json built/OUT --overwrite --model model",
        "neighbours index text.txt OUT --json OUT --model model",
        "neighbours index text.txt built --json built/OUT --overwrite --model model",
    ):
        assert run(command.replace("built/OUT", "built/same.png"), "same.png") == 2
        assert "are in one place: choose another name" in capsys.readouterr().err
    assert list(Path("built").iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "embed text.txt OUT --format hdf5",
        "static text.txt OUT",
        "neighbours index text.txt OUT",
        "neighbours index text.txt made --json OUT",
        "senses build uses.tsv made --json OUT",
        "senses induce bank text.txt --out OUT",
        "plot surprisal text.txt new.png --json OUT",
        "similarity pairs.tsv --kind sentences --json OUT",
        "drift text.txt text.txt --json OUT",
        "probe tags.conll tags.conll --json OUT",
        "evaluate model text.txt --sentences OUT",
        "senses tag inventory text.txt --out OUT",
    ],
)
def test_the_dictionary_of_the_tokenizer_is_an_input(
    command: str, garbage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("words.txt").write_text("mine")
    Path("link.txt").symlink_to("words.txt")
    for out in ("words.txt", "link.txt"):
        options = ["--tokenizer", "chinese", "--jieba-dict", "words.txt", "--overwrite"]
        model = [] if command.startswith("evaluate") else ["--model", "model"]
        assert run(command, out, *options, *model) == 2
        assert f"{out} would overwrite the input words.txt" in capsys.readouterr().err
    assert Path("words.txt").read_text() == "mine"


def test_a_file_beside_the_weights_is_an_input_of_embed(
    garbage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("weights.hdf5", "options.json"):
        (garbage / name).write_text("mine")
    command = "embed text.txt OUT --format hdf5 --model weights.hdf5 --overwrite"
    for out in ("weights.hdf5", "options.json"):
        assert run(command, out) == 2
        assert f"{out} would overwrite the input" in capsys.readouterr().err
        assert Path(out).read_text() == "mine"


def test_every_file_of_a_model_is_an_input(garbage: Path) -> None:
    (garbage / "weights.hdf5").touch()
    for name in ("options.json", "vocab.txt", "notes.txt"):
        (garbage / name).touch()
    files = {Path(str(file)).name for file in model_files(str(garbage / "weights.hdf5"))}
    assert files == {"weights.hdf5", "options.json", "vocab.txt"}
    assert model_files("english") == ["english"]


def test_the_model_that_a_folder_names_is_an_input(garbage: Path) -> None:
    (garbage / "bilm").mkdir()
    (garbage / "bilm" / "vocab.txt").write_text("mine")
    for file, values in (
        ("config.json", {"elmo": str(garbage / "bilm")}),
        ("index.json", {"settings": {"model": str(garbage / "bilm")}}),
    ):
        folder = garbage / file.partition(".")[0]
        folder.mkdir()
        (folder / file).write_text(json.dumps(values))
        check = partial(WriteOptions(overwrite=True).check, folder, file="bilm/vocab.txt")
        assert "would overwrite the input" in complaint(check)
        (folder / file).write_bytes(b"\xff")
        check()  # Whoever reads the folder says that it is damaged.


def test_the_file_of_options_is_an_input(garbage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (garbage / "run.yaml").write_text("overwrite: true\n")
    (garbage / "text.txt").write_text("a b\n")
    (garbage / "link.json").symlink_to(garbage / "run.yaml")
    for words in (["text.txt", "run.yaml"], ["text.txt", "v.h5", "--json=link.json"]):
        assert main(["embed", *words, "--config", "run.yaml"]) == 2
        assert "would overwrite the input run.yaml" in capsys.readouterr().err
    assert (garbage / "run.yaml").read_text() == "overwrite: true\n"


def test_the_table_has_every_command_that_writes() -> None:
    def names(command: str) -> set[str]:
        app = build_app()
        for word in command.split():
            app = app[word]
        arguments = app.assemble_argument_collection()
        return {name for argument in arguments for name in argument.names}

    tested = {command for command in COMMANDS if any(c.startswith(command) for c in CASES)}
    # The last two are in tests/test_conversion.py and tests/integrations/test_onnx.py.
    tested |= {"embed", "static", "convert", "export"}
    folders = {c for c in COMMANDS if c.startswith(("train ", "compare ", "pretrain", "adapt"))}
    outputs = {"--json", "--out", "--sentences", "--figure"}
    for command in set(COMMANDS) - folders - {"info"}:
        given = names(command)
        writes = bool(outputs & given) or command in tested
        assert ("--overwrite" in given) == writes, command
        assert (command in tested) == writes, command
