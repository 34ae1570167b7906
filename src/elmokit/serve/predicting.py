"""Task models behind the service: examples from requests, predictions with all that they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from elmokit.data.examples import Labeled, Pronoun, Question, Related, Tagged, Translated
from elmokit.data.lines import BadRecord
from elmokit.data.marked import tokens_and_spans, unmarked
from elmokit.data.schemes import PLAIN, scheme_of
from elmokit.errors import InvalidInput, plural
from elmokit.serve import schemas
from elmokit.tasks.folder import TrainedTask, load_task, read_config
from elmokit.tasks.layers.labels import LabelModel
from elmokit.tasks.metrics import spans
from elmokit.tasks.models.coreference import cut_sentences
from elmokit.tasks.task import cut_texts
from elmokit.text.tokenize import token_offsets

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.embed import Embedder

FindModel: TypeAlias = "Callable[[str | None, str], tuple[str, Embedder]]"
"""Returns name and model for a fingerprint, and for the name that a folder recorded."""
# kind of task: the fields of an input
FIELDS = {
    "classifier": ["text"],
    "tagger": ["text"],
    "pair": ["first", "second"],
    "relation": ["text"],
    "question": ["question", "passage"],
    "coreference": ["text", "pronoun", "a", "b"],
    "translate": ["text"],
    "summarize": ["text"],
}
CUT = ("classifier", "pair", "translate", "summarize")  # Their texts have a maximum length.
# kind of task: an example that warms it up
SAMPLES: dict[str, dict[str, Any]] = {
    "pair": {"first": "It rains .", "second": "It is wet ."},
    "relation": {"text": "The <e1>cup</e1> holds <e2>tea</e2> ."},
    "question": {"question": "Who came ?", "passage": "Anna came ."},
    "coreference": {"text": "Anna saw Bo as she left .", "pronoun": [15, 18], "a": [0, 4],
                    "b": [9, 11]},
}  # fmt: skip


@dataclass(frozen=True)
class ServedTask:
    """A task model under a name."""

    name: str
    trained: TrainedTask
    model: str | None
    """Name of the biLM in whose thread it runs; None for a task without ELMo."""

    @property
    def kind(self) -> str:
        """Kind of the task, such as tagger."""
        return self.trained.task.name

    @property
    def has_predicates(self) -> bool:
        """Whether it tags the roles of a predicate."""
        return bool(self.trained.learned.get("predicates"))

    def card(self) -> schemas.TaskCard:
        """Return what /v1/models says about it."""
        learned = self.trained.learned
        fields = [*FIELDS[self.kind], *(["predicate"] if self.has_predicates else [])]
        return schemas.TaskCard(
            name=self.name,
            task=self.kind,
            model=self.model,
            labels=learned.get("labels") or learned.get("tags") or [],
            fields=fields,
        )

    def warm_up(self) -> None:
        """Predict once."""
        sample = schemas.TaskInput.model_validate(SAMPLES.get(self.kind, {"text": "It is warm ."}))
        if self.has_predicates:
            sample.predicate = 1
        self.predict(self.examples([sample]))

    # ------------------------------------------------------------------ examples
    def examples(self, inputs: Sequence[str | schemas.TaskInput]) -> list[Any]:
        """Return the examples that the task model reads."""
        examples = [self._example(given, f"input {i}") for i, given in enumerate(inputs)]
        if self.kind in CUT:
            return list(cut_texts(examples, getattr(self.trained.settings, "max_tokens", 0)))
        return examples

    def _example(self, given: str | schemas.TaskInput, where: str) -> Any:
        """Return one example; raise if a field is missing, empty or not one of the task."""
        values = {"text": given} if isinstance(given, str) else given
        fields = schemas.TaskInput.model_validate(values)
        tokenize = self.trained.settings.tokenize
        self._check_fields(fields, where)
        if self.kind == "pair":
            first, second = (
                tuple(split(text, tokenize, f"{where}.{name}"))
                for name, text in (("first", fields.first), ("second", fields.second))
            )
            return Labeled((first, second), where, None)
        if self.kind == "question":
            return question(fields, tokenize, where)
        if self.kind in ("relation", "coreference"):
            return marked(self.kind, fields, tokenize, where)
        tokens = tuple(fields.tokens or split(fields.text, tokenize, where))
        if self.kind == "classifier":
            return Labeled((tokens,), where, None)
        if self.kind == "tagger":
            if fields.predicate is not None and fields.predicate >= len(tokens):
                raise InvalidInput(
                    f"{where} has {plural(len(tokens), 'token')}, none at {fields.predicate}"
                )
            return Tagged((tokens,), where, None, fields.predicate)
        return Translated((tokens,), where, None, None)

    def _check_fields(self, fields: schemas.TaskInput, where: str) -> None:
        given = {name for name, value in fields if value is not None}
        needed = set(self.card().fields)
        if "tokens" in given and self.kind in ("classifier", "tagger", "translate", "summarize"):
            given = given - {"tokens"} | {"text"} if "text" not in given else given
        if given != needed:
            names = ", ".join(self.card().fields)
            raise InvalidInput(f"{where}: the {self.kind} {self.name} needs {names} and no more")

    # ------------------------------------------------------------------ predictions
    def predict(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the prediction for each example, as JSON takes it."""
        model = self.trained.model
        if isinstance(model, LabelModel):
            predictions = self._label(examples)
        else:
            predictions = [
                {"tags": one} if isinstance(one, list) else one
                for one in self.trained.predict(examples)
            ]
        return [
            {**self._details(example, one), **one}
            for example, one in zip(examples, predictions, strict=True)
        ]

    def _details(self, example: Any, prediction: dict[str, Any]) -> dict[str, Any]:
        tokens = [token for text in example.texts for token in text]
        if self.kind in ("pair", "question"):
            tokens = list(example.texts[-1] if self.kind == "question" else example.texts[0])
        details: dict[str, Any] = {"tokens": tokens}
        tags = prediction.get("tags")
        if tags is not None and scheme_of([self.trained.learned["tags"]]) != PLAIN:
            details["spans"] = [
                {"start": start, "end": end, "label": label, "text": " ".join(tokens[start:end])}
                for label, start, end in spans(tags)
            ]
        return details

    def _label(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """Return all labels with their probabilities, the most probable first."""
        model, size = self.trained.model, self.trained.settings.batch_size
        result = []
        model.eval()
        for start in range(0, len(examples), size):
            with torch.inference_mode():
                shares = model(examples[start : start + size]).softmax(-1)  # (examples, labels)
            for row in shares.tolist():
                ranked = sorted(zip(model.labels, row, strict=True), key=lambda pair: -pair[1])
                pairs = [{"label": label, "probability": share} for label, share in ranked]
                result.append({**pairs[0], "probabilities": pairs})
        return result


def split(text: str | None, tokenize: Callable[[str], list[str]], where: str) -> list[str]:
    """Return the tokens of a text; raise if it has none."""
    tokens = tokenize(text or "")
    if not tokens:
        raise InvalidInput(f"{where} is empty")
    return tokens


def question(
    fields: schemas.TaskInput, tokenize: Callable[[str], list[str]], where: str
) -> Question:
    """Return a question about a passage."""
    passage = fields.passage or ""
    asked = tuple(split(fields.question, tokenize, f"{where}.question"))
    tokens = tuple(split(passage, tokenize, f"{where}.passage"))
    offsets = tuple(token_offsets(passage, tokens))
    return Question((asked, tokens), where, where, passage, offsets, (), None)


def marked(
    kind: str, fields: schemas.TaskInput, tokenize: Callable[[str], list[str]], where: str
) -> Related | Pronoun:
    """Return a sentence with two entities, or a passage with a pronoun and two names."""
    text = fields.text or ""
    try:
        if kind == "relation":
            plain, characters = unmarked(text)
            tokens, (first, second) = tokens_and_spans(plain, characters, tokenize)
            return Related((tokens,), where, first, second, None, where)
        characters = []
        for name in ("pronoun", "a", "b"):
            start, end = getattr(fields, name)
            if not 0 <= start < end <= len(text) or not text[start:end].strip():
                raise BadRecord(f"{name} must be characters of the text, not {start} to {end}")
            characters.append((start, end))
        tokens, (pronoun, first, second) = tokens_and_spans(text, characters, tokenize)
        return Pronoun(cut_sentences(tokens), where, where, pronoun[0], first, second, None)
    except BadRecord as problem:
        raise InvalidInput(f"{where}: {problem}") from None


def load_tasks(
    folders: Sequence[tuple[str, str]], find_model: FindModel, device: str
) -> Iterator[ServedTask]:
    """Load task models by name and folder; one that reads with a loaded biLM shares it."""
    for name, folder in folders:
        config = read_config(Path(folder).expanduser())
        model, elmo = None, None
        if config.get("elmo") is not None:
            model, elmo = find_model(config.get("elmo_fingerprint"), config["elmo"])
        yield ServedTask(name, load_task(folder, elmo=elmo, device=device), model)
