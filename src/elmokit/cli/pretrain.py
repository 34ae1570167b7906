"""`elmokit pretrain` and `elmokit adapt`: train a biLM on raw text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from elmokit.cli.main import USER_ERROR
from elmokit.config import BiLMConfig
from elmokit.errors import explained
from elmokit.pretrain.settings import MODEL, SAVING, TEXT, AdaptSettings, PretrainSettings
from elmokit.text.vocabulary import SPECIAL

if TYPE_CHECKING:
    from elmokit.pretrain.trainer import TrainingResult


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Fields of the model's configuration that differ from the preset; None is the preset's."""

    token_encoder: Literal["characters", "words"] | None = None
    """Token vectors from a CNN over characters, or from a table of word vectors."""
    character_dim: int | None = None
    """Dimension of a character vector."""
    max_characters: int | None = None
    """Maximum number of characters of a word, with its two boundary marks."""
    filters: list[tuple[int, int]] | None = None
    """Convolutions as pairs of width and number of filters, such as 1 32 2 64 3 128."""
    activation: Literal["relu", "tanh"] | None = None
    """Activation of the convolutions."""
    highway_layers: int | None = None
    """Number of highway layers after the convolutions."""
    project_tokens: bool | None = None
    """Project the filters to the projection dimension."""
    lstm_dim: int | None = None
    """Number of LSTM cells per layer and direction."""
    projection_dim: int | None = None
    """Dimension of each direction's output."""
    project_state: bool | None = None
    """Project the output of the LSTM to the projection dimension."""
    num_layers: int | None = None
    """Number of LSTM layers in each direction."""
    cell_clip: float | None = None
    """Bound of the cell state; 0 for none."""
    projection_clip: float | None = None
    """Bound of the projected output; 0 for none."""
    skip_connections: bool | None = None
    """Add the input of a layer to its output, from the second layer on."""
    forget_bias: float | None = None
    """Constant added to the forget gate."""
    dropout: Annotated[float | None, Parameter(name=("--dropout", "dropout"))] = None
    """Dropout of the input of each LSTM layer and of the output."""

    def apply(self, preset: str) -> BiLMConfig:
        """Return the configuration of a preset with these fields replaced."""
        changes = {name: value for name, value in asdict(self).items() if value is not None}
        if self.token_encoder == "words":
            changes["n_words"] = len(SPECIAL)  # Until the words of the text are counted.
        return BiLMConfig.from_dict({**BiLMConfig.preset(preset).to_dict(), **changes})


def pretrain(
    *,
    corpus: Annotated[list[str], TEXT],
    out: Annotated[str, SAVING],
    preset: Annotated[Literal["tiny", "small", "medium", "original"], MODEL] = "tiny",
    model: Annotated[ModelShape, MODEL] = ModelShape(),
    settings: PretrainSettings = PretrainSettings(),
) -> int:
    """Train a biLM on raw text; the same command resumes a run that was stopped.

    Args:
        corpus: Files, globs or folders of text, also .gz, .xz, .zst; with weights in a YAML list.
        out: Folder of the model and of everything that is needed to resume.
        preset: Size of the model.
    """
    from elmokit.pretrain import pretrain

    weights, config = read_weights(corpus), model.apply(preset)
    return run(lambda: pretrain(weights, out, settings, config=config))


def adapt(
    model: str,
    /,
    *,
    corpus: Annotated[list[str], TEXT],
    out: Annotated[str, SAVING],
    settings: AdaptSettings = AdaptSettings(),
) -> int:
    """Continue to train a model on the text of a domain; the best on held-out text is kept.

    Args:
        model: A model folder, weights file, archive or Hub name; "english" and "chinese" are
            included.
        corpus: Files, globs or folders of text, also .gz, .xz, .zst; with weights in a YAML list.
        out: Folder of the adapted model and of everything that is needed to resume.
    """
    from elmokit.pretrain import adapt

    return run(lambda: adapt(model, read_weights(corpus), out, settings))


def read_weights(corpus: list[str]) -> list[str] | dict[str, float]:
    """Return the weights of the patterns, if any; a pattern without weight is read once.

    An entry `pattern: weight` of a list in YAML arrives here as a JSON object.

    >>> read_weights(['{"wiki/*.txt": 0.3}', "books.txt"])
    {'wiki/*.txt': 0.3, 'books.txt': 1.0}
    """
    if not any(entry.startswith("{") for entry in corpus):
        return corpus
    weights: dict[str, float] = {}
    for entry in corpus:
        problem = f"{entry!r} is not a JSON object of a pattern and its weight"
        with explained(problem, ValueError, reason=False):
            weights |= json.loads(entry) if entry.startswith("{") else {entry: 1.0}
    return weights


def run(train: Callable[[], TrainingResult]) -> int:
    """Train; return 0, or 128 + the number of the signal that stopped the run, as shells do."""
    from elmokit.pretrain import OtherProcessFailed

    try:
        signal = train().stopped_by
    except OtherProcessFailed:  # The other process prints the error.
        return USER_ERROR
    return 128 + signal if signal else 0
