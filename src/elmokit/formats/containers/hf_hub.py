"""Models on the Hugging Face Hub, with the cache, offline mode and tokens of its library."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Literal

from elmokit.errors import ElmokitError, InvalidInput, MissingFile, explained, reason_of
from elmokit.formats import native
from elmokit.formats.checkpoint import Checkpoint

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.txt.gz", "*.hdf5", "*.h5", "*.md"]
PATTERNS += ["checkpoint", "*.index", "*.data-*-of-*", "saved_model.pb"]  # TensorFlow
PATTERNS += ["*.dic", "*token_embedder.pkl", "*encoder.pkl"]  # ELMoForManyLangs
PATTERNS += ["weights.th", "best.th", "fta/*options_file"]  # task models of AllenNLP


def is_repository(name: str) -> bool:
    """Tell whether a string has the form `owner/name` of a repository."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None


def download(name: str, *, local_files_only: bool = False) -> Path:
    """Return the local folder of a repository, downloading it unless it is in the cache."""
    from huggingface_hub import errors, snapshot_download

    try:
        only = local_files_only
        return Path(snapshot_download(name, allow_patterns=PATTERNS, local_files_only=only))
    except (errors.LocalEntryNotFoundError, errors.RepositoryNotFoundError) as error:
        missing = "nor in the Hub's cache, and the Hub cannot be reached"
        if local_files_only:
            missing = "nor in the Hub's cache, and a model that only a file names is not downloaded"
        elif isinstance(error, errors.RepositoryNotFoundError):
            missing = "nor a repository on the Hub that you can read"
        raise MissingFile(f"{name} is neither a file or folder here {missing}") from None
    except errors.HfHubHTTPError as error:
        raise ElmokitError(f"the Hub refuses {name}: {reason_of(error)}") from None
    except Exception as error:  # from the library, its HTTP client or the system
        raise ElmokitError(f"cannot download {name} from the Hub: {reason_of(error)}") from None


def push(
    checkpoint: Checkpoint,
    name: str,
    *,
    dtype: Literal["float32", "float16"] = "float32",
    private: bool = False,
    commit_message: str = "Upload an elmokit model",
) -> str:
    """Upload a native folder to the repository `name`, which may be new; return its address."""
    from huggingface_hub import HfApi

    if not is_repository(name):
        raise InvalidInput(f"the name of a Hub repository is owner/name, not {name!r}")
    api = HfApi()
    with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
        folder = Path(temporary) / "model"
        native.write(checkpoint, folder, dtype=dtype)
        with explained(f"cannot upload {name}", Exception):  # of the library, HTTP or the system
            address = api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message=commit_message)
    return str(address)
