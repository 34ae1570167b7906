"""Models on the Hugging Face Hub, through its own library: its cache, offline mode and tokens."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Literal

from elmokit.errors import ElmokitError, reason_of
from elmokit.formats import native
from elmokit.formats.checkpoint import Checkpoint

WANTED = ["*.json", "*.safetensors", "*.txt", "*.txt.gz", "*.hdf5", "*.h5", "*.md"]
WANTED += ["checkpoint", "*.index", "*.data-*-of-*", "saved_model.pb"]  # TensorFlow
WANTED += ["*.dic", "*token_embedder.pkl", "*encoder.pkl"]  # ELMoForManyLangs
WANTED += ["weights.th", "best.th", "fta/*options_file"]  # task models of AllenNLP


def is_repository(name: str) -> bool:
    """Whether a string can be the name `owner/name` of a repository."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None


def download(name: str, *, revision: str | None = None, cache: str | None = None) -> Path:
    """The local folder of a repository; fetched unless it is in the cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(name, revision=revision, cache_dir=cache, allow_patterns=WANTED)
        )
    except LocalEntryNotFoundError:
        raise ElmokitError(
            f"{name} is neither a file or folder here nor in the Hub's cache, "
            "and the Hub cannot be reached"
        ) from None
    except HfHubHTTPError as error:
        raise ElmokitError(f"the Hub does not give {name}: {reason_of(error)}") from None
    except Exception as error:  # its own, its HTTP client's, the system's
        raise ElmokitError(f"cannot fetch {name} from the Hub: {reason_of(error)}") from None


def push(
    checkpoint: Checkpoint,
    name: str,
    *,
    dtype: Literal["float32", "float16"] = "float32",
    private: bool = False,
    message: str = "Upload an elmokit model",
) -> str:
    """Upload a model as a native folder; gives its address."""
    from huggingface_hub import HfApi

    if not is_repository(name):
        raise ElmokitError(f"a Hub repository is named owner/name, not {name!r}")
    api = HfApi()
    with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
        folder = Path(temporary) / "model"
        native.write(checkpoint, folder, dtype=dtype)
        try:
            address = api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message=message)
        except Exception as error:  # its own, its HTTP client's, the system's
            raise ElmokitError(f"cannot upload {name}: {reason_of(error)}") from None
    return str(address)
