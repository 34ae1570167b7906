"""Models on the Hub, without a network: its cache as it lies on the disk, its API played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import RepositoryNotFoundError
from reference import make_reference
from tiny import tiny_elmo

import elmokit
from elmokit.errors import ElmokitError
from elmokit.formats import native
from elmokit.formats.containers import hf_hub
from elmokit.formats.detect import read_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub's library, which is set to stay offline."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return folder


def snapshot(cache: Path, name: str) -> Path:
    """An empty snapshot of a repository, laid out as the library does."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "blobs").mkdir()
    folder = repository / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    return folder


def fill(folder: Path, source: Path) -> None:
    """Files as links to blobs, as the library keeps them."""
    for i, path in enumerate(source.iterdir()):
        blob = folder.parents[1] / "blobs" / f"{i:040d}"
        blob.write_bytes(path.read_bytes())
        (folder / path.name).symlink_to(Path("../../blobs") / blob.name)


@pytest.mark.parametrize("form", ["bilm", "native"])
def test_a_model_in_the_cache_is_loaded_by_its_name(tmp_path: Path, cache: Path, form: str) -> None:
    reference = make_reference()
    reference.save(tmp_path / "bilm")
    native.write(read_checkpoint(tmp_path / "bilm"), tmp_path / "native")
    fill(snapshot(cache, "somebody/small-elmo"), tmp_path / form)
    result = elmokit.load("somebody/small-elmo").embed_tokens(["the", "bank"]).layers
    np.testing.assert_allclose(result, reference.embed(["the", "bank"]), atol=1e-5)


def test_a_name_that_does_not_exist_is_reported(cache: Path) -> None:
    with pytest.raises(ElmokitError, match=r"somebody/nothing is neither a file or folder here"):
        elmokit.load("somebody/nothing")


def test_a_repository_without_a_model_is_reported(cache: Path) -> None:
    (snapshot(cache, "somebody/notes") / "README.md").write_text("hello")
    with pytest.raises(ElmokitError, match="is not a model folder"):
        elmokit.load("somebody/notes")


def test_a_folder_here_comes_before_the_hub(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_reference().save(tmp_path / "somebody" / "small-elmo")
    monkeypatch.chdir(tmp_path)
    assert read_checkpoint("somebody/small-elmo").format == "bilm"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with nothing in it or around it."""
    folder = tmp_path / "around" / "empty"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", ["a", "a/b/c", "/a/b", "a/", "a b/c", "", "a/b\n", "https://x/y"])
def test_what_cannot_be_a_name_on_the_hub_is_taken_for_a_path(
    cache: Path, name: str, empty: Path
) -> None:
    assert not hf_hub.is_repository(name)
    if name:  # an empty name is the current folder
        with pytest.raises(ElmokitError, match="there is no file or folder"):
            read_checkpoint(name)


@pytest.mark.parametrize("name", ["../x", "a..b/c", "-a/b", "a/.."])
def test_a_name_that_the_hub_would_refuse_is_reported(cache: Path, name: str, empty: Path) -> None:
    with pytest.raises(ElmokitError, match=r"Hub|is not a model|no file or folder"):
        read_checkpoint(name)


@pytest.mark.parametrize("error", [OSError(), ValueError("odd name\nmore"), RuntimeError("lost")])
def test_any_error_of_a_download_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*arguments: object, **settings: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ElmokitError, match="cannot download a/b from the Hub: ") as caught:
        hf_hub.download("a/b")
    assert "\n" not in str(caught.value)


class FakeApi:
    """Keeps what would be uploaded."""

    calls: list[tuple[str, dict[str, Any]]]
    error: Exception | None = None

    def create_repo(self, name: str, **settings: Any) -> str:
        self.calls.append(("create", {"name": name, **settings}))
        if self.error is not None:
            raise self.error
        return f"https://huggingface.co/{name}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        self.calls.append(("upload", {"name": repo_id, "files": files}))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> type[FakeApi]:
    FakeApi.calls, FakeApi.error = [], None
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeApi)
    return FakeApi


def test_a_pushed_model_is_a_native_folder(api: type[FakeApi], tmp_path: Path) -> None:
    elmo = tiny_elmo()
    address = elmo.push_to_hub("somebody/small-elmo", private=True)
    assert address == "https://huggingface.co/somebody/small-elmo"
    [(first, made), (second, sent)] = api.calls
    assert (first, second) == ("create", "upload")
    assert made == {"name": "somebody/small-elmo", "private": True, "exist_ok": True}
    assert sorted(sent["files"]) == ["config.json", "model.safetensors"]
    (tmp_path / "model").mkdir()
    for name, content in sent["files"].items():
        (tmp_path / "model" / name).write_bytes(content)
    result = read_checkpoint(tmp_path / "model")
    assert result.fingerprint() == elmo.checkpoint().fingerprint()


def test_a_push_may_be_of_half_the_size(api: type[FakeApi]) -> None:
    elmo = tiny_elmo()
    elmo.push_to_hub("a/b", dtype="float16")
    elmo.push_to_hub("a/c")
    half, full = (len(call["files"]["model.safetensors"]) for kind, call in api.calls[1::2])
    assert half < 0.6 * full


@pytest.mark.parametrize("error", [OSError(), RuntimeError("the connection\nwas lost")])
def test_a_push_that_fails_is_one_sentence(api: type[FakeApi], error: Exception) -> None:
    api.error = error
    with pytest.raises(ElmokitError, match="cannot upload a/b: ") as caught:
        tiny_elmo().push_to_hub("a/b")
    assert "\n" not in str(caught.value)


def test_a_push_needs_an_owner_and_a_name(api: type[FakeApi]) -> None:
    for name in ("small-elmo", "a/b/c", ""):
        with pytest.raises(ElmokitError, match="the name of a Hub repository is owner/name, not"):
            tiny_elmo().push_to_hub(name)
    assert api.calls == []


def test_a_repository_that_does_not_exist_is_a_missing_file(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match="somebody/nothing is neither a file or folder"):
        elmokit.load("somebody/nothing")

    def fail(*arguments: object, **settings: object) -> str:
        raise RepositoryNotFoundError.__new__(RepositoryNotFoundError, "404")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(FileNotFoundError, match="nor a repository on the Hub that you can read"):
        hf_hub.download("somebody/nothing")
