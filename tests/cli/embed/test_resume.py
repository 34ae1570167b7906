"""`elmokit embed` resumes a stopped run to the same bytes, or says why it does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from embed_command import (
    FORMATS,
    SENTENCES,
    TEXT,
    Run,
    as_standard_input,
    content_of,
    names_in,
    save_model,
    stop_after,
)

import elmokit.cli.embed
import elmokit.embed
import elmokit.embed_file
from elmokit.embed import Embedder
from elmokit.vectors.reader import read_vectors
from elmokit.vectors.writer import VectorWriter


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("name", FORMATS)
def test_a_stopped_run_resumes_where_it_was(
    embed: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "vectors.parquet":
        pytest.importorskip("pyarrow")
    options = ("--batch-tokens", 4)
    embed("text.txt", "whole-" + name, *options)
    stop_after(monkeypatch, embed, 2, "text.txt", name, *options)
    assert name not in names_in(Path())
    again: list[int] = []
    real = VectorWriter.write

    def write(writer: VectorWriter, *part: Any) -> None:
        again.append(writer.done)
        real(writer, *part)

    monkeypatch.setattr(VectorWriter, "write", write)
    embed("text.txt", name, *options, "--resume")
    assert again
    assert again[0] > 0
    assert content_of(Path(name)) == content_of(Path("whole-" + name))


@pytest.mark.usefixtures("small_windows")
def test_standard_input_resumes_only_with_the_same_text(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("-", "vectors.h5", "--batch-tokens", 4)
    as_standard_input(monkeypatch, TEXT.encode())
    stop_after(monkeypatch, embed, 2, *options)
    for other in (TEXT.replace("yet", "now"), "\n".join(SENTENCES[:2]), "one more\n" + TEXT):
        as_standard_input(monkeypatch, other.encode())
        refused = embed(*options, "--resume", code=2)
        assert "not the input that the unfinished run of vectors.h5 was started with" in refused
    as_standard_input(monkeypatch, TEXT.encode())
    embed(*options, "--resume")
    embed("text.txt", "whole.h5", "--batch-tokens", 4)
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


@pytest.mark.usefixtures("small_windows")
def test_an_input_changed_behind_its_first_megabyte_is_noticed(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elmokit.embed_file, "input_identity", lambda path: {"bytes": 0})
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    stop_after(monkeypatch, embed, 2, *options)
    Path("text.txt").write_text(TEXT.replace("bank", "back"), encoding="utf-8")
    assert "not the input" in embed(*options, "--resume", code=2)


@pytest.mark.usefixtures("small_windows")
def test_an_unfinished_run_is_an_error_without_resume_or_overwrite(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    stop_after(monkeypatch, embed, 2, *options)
    said = embed(*options, code=2)
    assert said == (
        "elmokit: error: vectors.h5.parts holds an unfinished run: continue it with --resume, or "
        "start again with --overwrite\n"
    )
    assert names_in(Path()) == ["text.txt", "vectors.h5.parts"]
    embed(*options, "--overwrite")
    assert names_in(Path()) == ["text.txt", "vectors.h5"]


CHANGES = {
    "--layers=top": 'layers was "all" and is now "top"',
    "--pooling=mean": "pooled was false and is now true",
    "--dtype=float16": 'dtype was "float32" and is now "float16"',
    "--precision=int8": 'precision was "float32" and is now "int8"',
    "--tokenizer=whitespace": 'tokenizer was "elmokit" and is now "whitespace"',
    "--split": "split was false and is now true",
    "--batch-size=3": "batch_size was null and is now 3",
    "--format=npz": 'format was "hdf5" and is now "npz"',
    "--model=another": 'model was "[0-9a-f]+" and is now "[0-9a-f]+"',
}


@pytest.mark.usefixtures("small_windows")
def test_a_run_is_not_resumed_with_other_settings(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(Path("another"), seed=2)
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    stop_after(monkeypatch, embed, 2, *options)
    for change, difference in CHANGES.items():
        said = embed(*options, change, "--resume", code=2)
        assert re.search(rf"started with other settings \({difference}\)", said), said
        assert said.count("\n") == 1
    embed(*options, "--resume")


@pytest.mark.usefixtures("small_windows")
def test_a_run_does_not_go_on_with_another_input(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(monkeypatch, embed, 2, "text.txt", "vectors.h5", "--batch-tokens", 4)
    Path("text.txt").write_text(TEXT + "more\n", encoding="utf-8")
    said = embed("text.txt", "vectors.h5", "--batch-tokens", 4, "--resume", code=2)
    assert re.search(r"other settings \(input was .* and is now", said)


@pytest.mark.usefixtures("small_windows")
def test_when_all_parts_are_done_they_are_only_put_together(
    embed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    embed("text.txt", "whole.h5", "--batch-tokens", 4)
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    with monkeypatch.context() as patch:
        patch.setattr(VectorWriter, "finish", stop)
        embed(*options, code=130)
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "stream", stop)
        patch.setattr("elmokit.vectors.shards.remove_parts", stop)
        embed(*options, "--resume", code=130)
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))
    with monkeypatch.context() as patch:  # now nothing is left but to delete the parts
        patch.setattr(Embedder, "skip", stop)
        embed(*options, "--resume")
    assert names_in(Path()) == ["text.txt", "vectors.h5", "whole.h5"]


@pytest.mark.usefixtures("small_windows")
def test_a_run_that_met_bad_bytes_resumes_with_them_replaced(embed: Run) -> None:
    Path("text.txt").write_bytes(TEXT.encode() + b"caf\xe9 au lait\n")
    options = ("text.txt", "vectors.h5", "--batch-tokens", 4)
    said = embed(*options, code=2)
    assert said.startswith("elmokit: error: line 12 of text.txt is not UTF-8 at its byte 4 (0xe9)")
    assert said.endswith("--errors replace\n")
    assert names_in(Path()) == ["text.txt", "vectors.h5.parts"]
    warned = "elmokit: 1 line of text.txt is not UTF-8: invalid bytes are read as U+FFFD\n"
    assert embed(*options, "--errors", "replace", "--resume") == warned
    assert embed("text.txt", "whole.h5", *options[2:], "--errors", "replace") == warned
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))
    assert list(read_vectors("vectors.h5"))[11][1] == ["caf", "\ufffd", "au", "lait"]
