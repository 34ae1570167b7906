"""What the service has loaded, and its answers: requests of `schemas` in, plain values out.

Every vector comes from a model's `Batcher`; what is computed from vectors runs in its thread or, if
it is long, in another one, never in the event loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.geometry import Array, unit
from elmokit.analysis.neighbours import approximate
from elmokit.analysis.neighbours.index import Index, open_index
from elmokit.analysis.neighbours.nearest import check_model, neighbours_of
from elmokit.analysis.senses.find import tag_sentence
from elmokit.analysis.senses.inventory import Inventory, load_inventory
from elmokit.analysis.uses import Use, marked_use, span_vector, with_average
from elmokit.embed import Sentence
from elmokit.errors import ElmokitError, InvalidInput, plural
from elmokit.formats.detect import DEFAULT, SHIPPED, lasting_name, recorded_model
from elmokit.language import GAP
from elmokit.layers import Layers, Pooling, layer_names, layer_weights, pool
from elmokit.loading import load
from elmokit.serve import schemas
from elmokit.serve.batching import Batcher
from elmokit.serve.limits import Answers, Limits, NotLoaded, TooLarge
from elmokit.serve.predicting import ServedTask, load_tasks
from elmokit.serve.uses import find_all, make_use, map_all
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.tokenize import token_offsets
from elmokit.text.vocabulary import SPECIAL, UNKNOWN

if TYPE_CHECKING:
    from elmokit.analysis.neighbours.approximate import Graphs
    from elmokit.embed import Embedder

VERSION = version("elmokit")
LONG_TEXT = 20_000  # characters; more are tokenized in a thread
WARM_UP = "It is a warm day , and the model reads its first sentence ."
SOFTMAX_TOKENS = 8  # embedding so many tokens takes as long as scoring one
WHOLE = slice(None)
FILL_TOKENS = 250  # sentences with a gap are read about so many times

T = TypeVar("T")


@dataclass(frozen=True)
class ServedModel:
    """A model with its queue."""

    name: str
    elmo: Embedder
    batcher: Batcher
    created: int

    @property
    def num_layers(self) -> int:
        """Number of biLSTM layers."""
        return self.elmo.config.num_layers

    def card(self) -> schemas.ModelCard:
        """Return what /v1/models says about it."""
        elmo = self.elmo
        words = elmo.vocabulary
        return schemas.ModelCard(
            id=self.name,
            created=self.created,
            num_layers=self.num_layers,
            dimensions=elmo.dim,
            languages=languages_of(elmo),
            tokenizer=elmo.tokenizer_name,
            predicts_words=elmo.model.softmax is not None and words is not None,
            vocabulary_size=None if words is None else len(words),
            layer_names=layer_names(self.num_layers),
            architecture=asdict(elmo.config),
        )

    def warm_up(self) -> None:
        """Pack the weights and start the threads, so that the first request is not a slow one."""
        words = self.elmo.vocabulary
        # Words that the model knows: with others it would log that a text is foreign to it.
        sentence = WARM_UP.split() if words is None else words.words[len(SPECIAL) :][:12]
        for _ in range(2):
            self.elmo.layers_of([sentence] * 4)
        if self.card().predicts_words and self.elmo.dictionaries is None:
            self.elmo.surprisal([sentence])


def languages_of(elmo: Embedder) -> list[str]:
    """Return the languages of a model, as far as they are known."""
    known = elmo.metadata.get("languages") or elmo.metadata.get("language") or []
    if known:
        return [known] if isinstance(known, str) else [str(language) for language in known]
    if elmo.tokenizer_name == "chinese":
        return ["zh"]
    return ["en"] if Path(elmo.source) == SHIPPED["english"] else []


@dataclass
class Service:
    """Everything that is loaded."""

    models: dict[str, ServedModel] = field(default_factory=dict)
    tasks: dict[str, ServedTask] = field(default_factory=dict)
    senses: tuple[Inventory, ServedModel] | None = None
    index: tuple[Index, Graphs | None, ServedModel] | None = None
    limits: Limits = field(default_factory=Limits)
    is_warm: bool = False

    def __post_init__(self) -> None:
        self.answers = Answers(self.limits)

    # ------------------------------------------------------------------ loading
    def add_model(self, elmo: Embedder, name: str) -> ServedModel:
        """Serve a model under a name."""
        if name in self.models:
            raise ElmokitError(
                f"two models have the name {name}: give one another name with NAME={name}"
            )
        batcher = Batcher(
            elmo, max_waiting=8 * self.limits.max_tokens, max_seconds=self.limits.timeout / 2
        )
        self.models[name] = ServedModel(name, elmo, batcher, int(time.time()))
        return self.models[name]

    def warm_up(self) -> None:
        """Make all models ready."""
        for model in self.models.values():
            model.warm_up()
        for task in self.tasks.values():
            task.warm_up()
        self.is_warm = True

    def close(self) -> None:
        """End the threads of the models."""
        for model in self.models.values():
            model.batcher.close()

    def model(self, name: str | None = None) -> ServedModel:
        """Return the model of that name, the first one without a name."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            known = ", ".join(self.models)
            raise NotLoaded(f"there is no model {name!r}: this service has {known}")
        return self.models[name]

    # ------------------------------------------------------------------ texts and tokens
    async def tokenize(
        self,
        model: ServedModel,
        inputs: str | Sequence[str | Sequence[str]],
        cut: slice = WHOLE,
    ) -> list[list[str]]:
        """Return the tokens of each text, or a part of them; long texts are split in a thread."""
        texts = [inputs] if isinstance(inputs, str) else inputs
        self.limits.check_texts(len(texts))

        def split() -> list[list[str]]:
            return [
                (model.elmo.tokenize(text) if isinstance(text, str) else list(text))[cut]
                for text in texts
            ]

        is_long = sum(len(text) for text in texts if isinstance(text, str)) > LONG_TEXT
        sentences = await asyncio.to_thread(split) if is_long else split()
        self.limits.check_tokens(sentences)
        return sentences

    # ------------------------------------------------------------------ one vector a text
    async def vectors(
        self,
        model: ServedModel,
        inputs: str | Sequence[str],
        layers: Layers,
        pooling: Pooling,
        cut: slice = WHOLE,
    ) -> tuple[Array, int]:
        """Return a vector for each text: (texts, columns), and the number of tokens."""
        sentences = await self.tokenize(model, inputs, cut)
        rows = len(layer_weights(layers, model.num_layers))
        self.answers.reserve(len(sentences) * rows * model.elmo.dim)

        def finish(sentence: Sentence, _: int) -> NDArray[Any]:
            return pool(sentence.layers, pooling).reshape(-1)

        vectors = await model.batcher.embed(sentences, finish, layers)
        return np.array(vectors), sum(map(len, sentences))

    # ------------------------------------------------------------------ layers
    async def layers(self, request: schemas.LayersRequest) -> tuple[ServedModel, list[Sentence]]:
        """Return the chosen layers of each text."""
        model = self.model(request.model)
        sentences = await self.tokenize(model, request.inputs)
        needs_all = request.representations or request.similarity
        kept = len(layer_weights(request.layers, model.num_layers)) if request.vectors else 0
        kept += (model.num_layers + 1) * request.representations
        lengths = [len(sentence) + 2 * request.boundaries for sentence in sentences]
        held = max(kept, (model.num_layers + 1) * needs_all)
        pairs = (model.num_layers + 2) * math.prod(lengths) if request.similarity else 0
        self.answers.reserve(sum(lengths) * held * model.elmo.dim + pairs)

        def finish(sentence: Sentence, _: int) -> Sentence:
            return sentence if held else Sentence(sentence.tokens, sentence.layers[:0].copy())

        layers = "all" if needs_all else request.layers
        return model, await model.batcher.embed(
            sentences, finish, layers, boundaries=request.boundaries
        )

    async def layers_answer(self, request: schemas.LayersRequest) -> dict[str, Any]:
        """Return the answer in JSON to /v1/layers."""
        if request.similarity and (isinstance(request.inputs, str) or len(request.inputs) != 2):
            raise InvalidInput("similarity needs two texts")
        model, sentences = await self.layers(request)
        return await asyncio.to_thread(self._layers_answer, request, model, sentences)

    def _layers_answer(
        self, request: schemas.LayersRequest, model: ServedModel, sentences: list[Sentence]
    ) -> dict[str, Any]:
        weights = layer_weights(request.layers, model.num_layers)  # (K, L + 1)
        dim, half = model.elmo.dim, model.elmo.dim // 2
        similarity = None
        if request.similarity:
            one, other = (unit(with_average(sentence.layers)) for sentence in sentences)
            cosines = one @ other.swapaxes(1, 2)  # (L + 2, tokens, tokens)
            names = layer_names(model.num_layers)
            similarity = [
                {"name": name, "cosines": matrix}
                for name, matrix in zip(names, cosines, strict=True)
            ]
        answers: list[dict[str, Any]] = []
        for sentence in sentences:
            layers = sentence.layers
            if request.vectors and len(layers) != len(weights):  # All were computed.
                layers = np.einsum("kl,lnd->knd", weights, layers)
            halves = None
            if request.representations:
                halves = {
                    name: np.ascontiguousarray(sentence.representation(name))
                    for name in representation_names(model.num_layers)
                }
            answers.append(
                {
                    "tokens": sentence.tokens,
                    "layers": np.ascontiguousarray(layers) if request.vectors else None,
                    "representations": halves,
                }
            )
        return {
            "model": model.name,
            "num_layers": model.num_layers,
            "dimensions": dim,
            "names": selected_names(request.layers, model.num_layers),
            "forward": [0, half],
            "backward": [half, dim],
            "sentences": answers,
            "similarity": similarity,
        }

    # ------------------------------------------------------------------ language model
    async def surprisal(self, request: schemas.SurprisalRequest) -> dict[str, Any]:
        """Return the answer to /v1/surprisal."""
        model = self.model(request.model)
        sentences = await self.tokenize(model, request.inputs)
        tokens = sum(map(len, sentences))
        results = await model.batcher.call(
            lambda: model.elmo.surprisal(sentences), SOFTMAX_TOKENS * tokens
        )
        scored = [
            {
                "tokens": result.tokens,
                "forward": result.forward.astype(np.float32),
                "backward": result.backward.astype(np.float32),
                "average": result.average.astype(np.float32),
                "known": result.known.tolist(),
            }
            for result in results
        ]
        return {"model": model.name, "sentences": scored}

    async def fill(self, request: schemas.FillRequest) -> dict[str, Any]:
        """Return the answer to /v1/fill."""
        model = self.model(request.model)
        tokens = await self._with_gap(model, request)
        position = tokens.index(GAP)
        most = self.limits.max_tokens // FILL_TOKENS
        if len(tokens) > most:
            raise TooLarge(
                f"{len(tokens):,} tokens are too many around a gap: send at most {most:,}"
            )
        (words,) = await model.batcher.call(
            lambda: model.elmo.fill([tokens], request.k), FILL_TOKENS * len(tokens)
        )
        return {
            "model": model.name,
            "tokens": tokens,
            "position": position,
            "words": [asdict(word) for word in words],
        }

    async def _with_gap(self, model: ServedModel, request: schemas.FillRequest) -> list[str]:
        text, position = request.input, request.position
        if position is None:
            parts = text.split(GAP) if isinstance(text, str) else None
            if parts is None or len(parts) != 2:
                count = list(text).count(GAP) if parts is None else len(parts) - 1
                if count != 1:
                    raise InvalidInput(f"the text must have one gap {GAP}, not {count}")
                return list(text)
            before, after = await self.tokenize(model, parts)
            return [*before, GAP, *after]
        (tokens,) = await self.tokenize(model, [text])
        if position >= len(tokens):
            raise InvalidInput(f"the text has {plural(len(tokens), 'token')}, none at {position}")
        if GAP in tokens:
            raise InvalidInput(f"give a position or a gap {GAP}, not both")
        return [*tokens[:position], GAP, *tokens[position + 1 :]]

    # ------------------------------------------------------------------ uses
    async def uses(self, request: schemas.UsesRequest) -> dict[str, Any]:
        """Return the answer to /v1/uses."""
        model = self.model(request.model)
        if len(request.sentences) > schemas.MAX_USES:
            raise TooLarge(
                f"{len(request.sentences):,} sentences are too many: send at most "
                f"{schemas.MAX_USES}"
            )
        sentences = await self.tokenize(model, request.sentences)
        uses, rows, missing = find_all(request, sentences, model.elmo.tokenize)
        if request.vectors:
            self.answers.reserve((model.num_layers + 3) * len(uses) * model.elmo.dim)

        def finish(sentence: Sentence, i: int) -> tuple[list[Array], NDArray[np.float64]]:
            own = [use for use, row in zip(uses, rows, strict=True) if row == i]
            vectors = [span_vector(sentence.layers, use.start, use.end) for use in own]
            return vectors, sentence.layers.sum(axis=1, dtype=np.float64)

        # All sentences, also those without the word: their tokens belong to the mean.
        results = await model.batcher.embed(sentences, finish)
        tokens = max(sum(map(len, sentences)), 1)
        mean = np.sum([sums for _, sums in results], axis=0).astype(np.float32) / tokens
        arrays = [vector - mean for own, _ in results for vector in own]
        if not arrays:
            raise InvalidInput("none of the sentences has the word")
        vectors = with_average(np.stack(arrays, axis=1))  # (L + 2, uses, dim)
        answer = await asyncio.to_thread(map_all, request, uses, rows, vectors)
        return {"model": model.name, **answer, "missing": missing}

    # ------------------------------------------------------------------ tasks
    async def predict(self, name: str, request: schemas.PredictRequest) -> dict[str, Any]:
        """Return the answer to /v1/predict/{task}."""
        task = self.tasks.get(name)
        if task is None:
            known = ", ".join(self.tasks) or "none; start elmokit serve with --task FOLDER"
            raise NotLoaded(f"there is no task {name!r}: this service has {known}")
        self.limits.check_texts(len(request.inputs))
        examples = await asyncio.to_thread(task.examples, request.inputs)
        texts = [text for example in examples for text in example.texts]
        self.limits.check_tokens(texts)
        batcher = self.model(task.model).batcher
        tokens = 2 * sum(map(len, texts))
        predictions = await batcher.call(lambda: task.predict(examples), tokens)
        return {"task": name, "kind": task.kind, "predictions": predictions}

    # ------------------------------------------------------------------ senses and neighbours
    async def tag(self, request: schemas.SensesRequest) -> dict[str, Any]:
        """Return the answer to /v1/senses."""
        if self.senses is None:
            raise NotLoaded("no senses are loaded: start elmokit serve with --senses FOLDER")
        inventory, model = self.senses
        inventory.check_method(request.method)
        sentences = await self.tokenize(model, request.inputs)

        def finish(sentence: Sentence, _: int) -> dict[str, Any]:
            tags = tag_sentence(inventory, sentence.tokens, sentence.layers, request.method)
            return {"tokens": sentence.tokens, "senses": [asdict(tag) for tag in tags]}

        tagged = await model.batcher.embed(sentences, finish)
        return {"model": model.name, "method": request.method, "sentences": tagged}

    async def neighbours(self, request: schemas.NeighboursRequest) -> dict[str, Any]:
        """Return the answer to /v1/neighbours."""
        if self.index is None:
            raise NotLoaded("no index is loaded: start elmokit serve with --index FOLDER")
        index, graphs, model = self.index
        use = await self._query(model, request)

        def finish(sentence: Sentence, _: int) -> Array:
            return with_average(span_vector(sentence.layers, use.start, use.end)[:, None])

        (vectors,) = await model.batcher.embed([use.tokens], finish)
        (result,) = await asyncio.to_thread(
            neighbours_of,
            index,
            [use],
            vectors,
            k=request.k,
            only=request.only,
            graphs=None if request.only == "same-word" else graphs,
        )
        near = [{**in_sentence(one.use), "score": one.score} for one in result.neighbours]
        words = [{"word": word, "score": score} for word, score in result.static["layer 0"] or ()]
        return {
            "model": model.name,
            "query": in_sentence(use),
            "neighbours": near,
            "static": words,
        }

    async def _query(self, model: ServedModel, request: schemas.NeighboursRequest) -> Use:
        text, position = request.input, request.position
        if position is None:
            if not isinstance(text, str):
                raise InvalidInput("tokens need a position")
            use = marked_use(text, model.elmo.tokenize)
            self.limits.check_tokens([use.tokens])
            return use
        (tokens,) = await self.tokenize(model, [text])
        start, end = (position, position + 1) if isinstance(position, int) else position
        return make_use(tokens, start, end)

    # ------------------------------------------------------------------ cards
    def models_answer(self) -> schemas.ModelsAnswer:
        """Return the answer to /v1/models."""
        senses = index = None
        if self.senses is not None:
            inventory, model = self.senses
            size = {"words": len(inventory.words), "senses": len(inventory.senses)}
            senses = schemas.SensesCard(model=model.name, methods=inventory.methods, **size)
        if self.index is not None:
            opened, graphs, model = self.index
            index = schemas.IndexCard(
                model=model.name,
                layer=str(opened.settings["layer"]),
                uses=len(opened),
                sentences=opened.num_sentences,
                words=len(opened.words),
                search="exact" if graphs is None else "approximate",
            )
        limits = schemas.Limits(
            max_body_bytes=self.limits.max_body,
            max_texts=schemas.MAX_TEXTS,
            max_tokens=self.limits.max_tokens,
            max_values=self.limits.max_values,
            max_uses=schemas.MAX_USES,
        )
        return schemas.ModelsAnswer(
            data=[model.card() for model in self.models.values()],
            tasks=[task.card() for task in self.tasks.values()],
            senses=senses,
            index=index,
            limits=limits,
            version=VERSION,
        )

    # ------------------------------------------------------------------ tokens of TEI
    async def token_lists(self, request: schemas.TokenizeRequest) -> list[list[dict[str, Any]]]:
        """Return the answer to /tokenize."""
        model = self.model(request.model)
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        sentences = await self.tokenize(model, texts)
        words = model.elmo.vocabulary
        ids = {} if words is None else words.ids
        unknown = ids.get(UNKNOWN, 0)

        def token(text: str, span: tuple[int | None, int | None], special: bool) -> dict[str, Any]:
            row = ids.get(text, unknown)
            return {
                "id": row, "text": text, "special": special, "start": span[0], "stop": span[1],
            }  # fmt: skip

        answer = []
        for text, tokens in zip(texts, sentences, strict=True):
            spans = token_offsets(text, tokens)
            own = [token(t, span, False) for t, span in zip(tokens, spans, strict=True)]
            if request.add_special_tokens:
                first, last = (
                    token(mark, (None, None), True) for mark in (BEGIN_SENTENCE, END_SENTENCE)
                )
                own = [first, *own, last]
            answer.append(own)
        return answer


# ---------------------------------------------------------------------- loading
def load_service(
    models: Sequence[str],
    *,
    tasks: Sequence[str] = (),
    senses: str | None = None,
    index: str | None = None,
    limits: Limits | None = None,
    device: str = "cpu",
    precision: Any = "float32",
) -> Service:
    """Load everything that a service answers with, and warm it up.

    Args:
        models: Models of any format, each a path or NAME=PATH; the first is the default (default:
            elmokit's own).
        tasks: Folders of task models, each a path or NAME=PATH.
        senses: Folder of an inventory of senses.
        index: Folder of an index of uses.
        limits: What requests may have.
        device: Device to compute on, such as cpu or cuda.
        precision: Precision of the weights.
    """
    service = Service(limits=limits or Limits())
    for entry in models or included_models():
        name, path = named(entry)
        elmo = load(path, device=device, precision=precision)
        service.add_model(elmo, name)

    def find_model(fingerprint: str | None, recorded: str) -> ServedModel:
        """Return the model with these weights; load the recorded one if there is none."""
        for model in service.models.values():
            if model.elmo.fingerprint() == fingerprint:
                return model
        path = recorded_model(recorded)
        elmo = load(path, device=device, precision=precision)
        return service.add_model(elmo, named(path)[0])

    def find_pair(fingerprint: str | None, recorded: str) -> tuple[str, Embedder]:
        model = find_model(fingerprint, recorded)
        return model.name, model.elmo

    for task in load_tasks([named(entry) for entry in tasks], find_pair, device):
        if task.name in service.tasks:
            raise ElmokitError(
                f"two tasks have the name {task.name}: give one another name with --task NAME=PATH"
            )
        service.tasks[task.name] = task
    if senses is not None:
        inventory = load_inventory(senses)
        service.senses = inventory, find_model(inventory.fingerprint, inventory.model)
    if index is not None:
        opened = open_index(index)
        model = find_model(opened.settings.get("fingerprint"), opened.settings.get("model", ""))
        check_model(opened, model.elmo)
        has_graphs = approximate.has_graphs(opened) and approximate.available()
        graphs = approximate.open_graphs(opened) if has_graphs else None
        service.index = opened, graphs, model
    service.warm_up()
    return service


def included_models() -> list[str]:
    """Return the names of elmokit's own models; the Chinese one needs the extra `chinese`."""
    return [DEFAULT, *(["chinese"] if find_spec("jieba") else [])]


def named(entry: str) -> tuple[str, str]:
    """Return name and path of NAME=PATH, or of a path alone.

    >>> named("news=models/a"), named("/models/a"), named("owner/name")
    (('news', 'models/a'), ('a', '/models/a'), ('owner/name', 'owner/name'))
    """
    name, equals, path = entry.partition("=")
    if equals and not Path(entry).expanduser().exists():
        if not name or not path:
            raise ElmokitError(f"{entry!r} must be NAME=PATH")
        return name, path
    if entry in SHIPPED or (lasting_name(entry) == entry and not Path(entry).is_absolute()):
        return entry, entry  # a name on the Hub
    path_of = Path(entry).expanduser()
    return (path_of.name.partition(".")[0] if path_of.is_file() else path_of.name) or entry, entry


# ---------------------------------------------------------------------- parts of answers
def representation_names(num_layers: int) -> list[str]:
    """Return the names of the 2L + 1 vectors of a token.

    >>> representation_names(1)
    ['token', 'forward_1', 'backward_1']
    """
    layers = range(1, num_layers + 1)
    return ["token", *(f"{direction}_{i}" for i in layers for direction in ("forward", "backward"))]


def selected_names(layers: Layers, num_layers: int) -> list[str]:
    """Return what each layer of a selector is."""
    if layers == "all":
        return layer_names(num_layers)[:-1]
    if layers == "average":
        return ["average"]
    weights = layer_weights(layers, num_layers)[0]
    if isinstance(layers, str | int):
        return [f"layer {int(weights.argmax())}"]
    return ["mix"]


def in_sentence(use: Use) -> dict[str, Any]:
    """Return a use as JSON takes it."""
    span = {"start": use.start, "end": use.end}
    return {"tokens": list(use.tokens), **span, "word": use.word}
