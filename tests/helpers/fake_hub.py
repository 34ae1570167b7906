"""A Hugging Face Hub without a network, to see what is asked of it and when."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub.errors import LocalEntryNotFoundError

from elmokit.integrations import models


class FakeHub:
    """A Hub with the repository bank/river, and its cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        """The repositories that the Hub was asked for."""
        self.has_cached = False

    def download(self, name: str, *, local_files_only: bool = False, **_: object) -> str:
        if not local_files_only:
            self.asked.append(name)
        if name != "bank/river" or (local_files_only and not self.has_cached):
            raise LocalEntryNotFoundError("not in the cache")
        self.has_cached = True
        return str(self.folder)

    def forget(self) -> None:
        """Be as a new process on another machine finds it: nothing is loaded or in the cache."""
        self.asked.clear()
        self.has_cached = False
        models._downloaded.clear()
        models._load.cache_clear()
