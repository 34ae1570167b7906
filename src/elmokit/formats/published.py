"""Which ELMo models exist: in the package, and published elsewhere. Nothing is downloaded.

The facts are in published.json; docs/how-to/published-models.md has the same. A license is the one
that the publisher states, or that of the program in brackets, in whose repository the model is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from elmokit.errors import InvalidInput


@dataclass(frozen=True)
class PublishedModel:
    """A model, or the models that one publisher made for several languages."""

    name: str
    domain: str
    """The text that it was trained on."""
    system: str
    """The program that wrote the files."""
    load: dict[str, str]
    """By language, what `elmokit.load` takes."""
    license: str = "see its page"
    size: str = ""
    """Layers × cells/projection, and the number of parameters, where they are known."""
    address: str = ""
    """Where to download it; empty if it is in the package."""
    files: list[str] = field(default_factory=list)
    """What to download from there."""
    note: str = ""


def published_models(
    language: str | None = None, domain: str | None = None
) -> list[PublishedModel]:
    """Return the known models, or those for a language or a domain.

    Args:
        language: Part of the name of a language, such as "norwegian"; of a model for several
            languages, only those that match are kept.
        domain: Part of the description of the training text, such as "news".
    """
    text = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    models = [PublishedModel(**entry) for entry in json.loads(text)]
    domains = sorted({model.domain for model in models})
    models = [model for model in models if (domain or "").lower() in model.domain.lower()]
    if not models:
        raise InvalidInput(f"no model for {domain!r} is known; domains are {', '.join(domains)}")
    languages = sorted({name for model in models for name in model.load})
    models = [model for one in models if (model := _narrow(one, language or "")).load]
    if not models:
        similar = get_close_matches(str(language).title(), languages, n=1)
        known = (
            f"did you mean {similar[0]}?" if similar else f"languages are {', '.join(languages)}"
        )
        raise InvalidInput(f"no model for {language!r} is known; {known}")
    return models


def _narrow(model: PublishedModel, language: str) -> PublishedModel:
    """Return a model with only the languages whose name contains `language`."""
    load = {name: path for name, path in model.load.items() if language.lower() in name.lower()}
    has_file_each = model.files == list(model.load.values())
    return replace(model, load=load, files=list(load.values()) if has_file_each else model.files)
