"""One service for all tests, with everything loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from serving import make_folders

from elmokit.serve.app import create_app
from elmokit.serve.service import Service, load_service


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `load_service` takes."""
    return make_folders(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="session")
def service(folders: dict[str, Any]) -> Iterator[Service]:
    """A service with a model, task models, senses and an index."""
    service = load_service(**folders)
    yield service
    service.close()


@pytest.fixture(scope="session")
def app(service: Service) -> FastAPI:
    """Its routes."""
    return create_app(service)


@pytest.fixture(scope="session")
def model_folder(folders: dict[str, Any]) -> Path:
    """The folder of the model."""
    return Path(folders["models"][0])
