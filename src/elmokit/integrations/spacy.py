"""ELMo in spaCy: the pipe `elmo` and the trainable layer `elmokit.ElmoTok2Vec.v1`.

spaCy finds both by entry points. The tokens are spaCy's own; each sentence is read alone if
sentences are known, otherwise the whole document is one sentence.

`spacy.load` makes a pipe just as `nlp.add_pipe` does, and then calls `from_disk`. So a pipe asks
the Hub only at its first document, and not at all if `from_disk` has come before. The name of a
layer's model always stands in a configuration: the Hub is never asked for it.

    pipe     doc ─► layers ─► doc._.elmo, doc.tensor, hooks for vectors and similarity
    layer    docs ─► layers ─► scalar mix ─► maxout ─► tagger, parser, ner, textcat
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InvalidInput, UnsupportedFormat, explained, require
from elmokit.formats import detect
from elmokit.integrations.models import ModelSettings, recorded_model, shared_model
from elmokit.layers import Layers, layer_weights
from elmokit.model.kernels.linear import Precision

require("spacy", extra="spacy", purpose="elmokit.integrations.spacy")
from spacy.language import Language  # noqa: E402
from spacy.tokens import Doc, Span, Token  # noqa: E402
from spacy.util import registry  # noqa: E402
from thinc.api import Maxout, Model, chain, with_array  # noqa: E402

Floats = NDArray[np.float32]


# ---------------------------------------------------------------------- documents to layers
def embed_docs(
    settings: ModelSettings, fingerprint: str, docs: Sequence[Doc], layers: Layers = "all"
) -> list[Floats]:
    """Return the layers of each document: (layers, tokens, dim), with 0 for whitespace."""
    embedder = recorded_model(settings, fingerprint).embedder
    rows = len(layer_weights(layers, embedder.config.num_layers))
    results = [np.zeros((rows, len(doc), embedder.dim), np.float32) for doc in docs]
    places = [
        (result, [token.i for token in sentence])
        for doc, result in zip(docs, results, strict=True)
        for sentence in _sentences(doc)
    ]
    texts = [[token.text for token in sentence] for doc in docs for sentence in _sentences(doc)]
    for (result, positions), sentence in zip(places, embedder.stream(texts, layers), strict=True):
        result[:, positions] = sentence.layers
    return results


def _sentences(doc: Doc) -> Iterator[list[Token]]:
    """Yield the tokens of each sentence, without whitespace."""
    for span in doc.sents if doc.has_annotation("SENT_START") else [doc]:
        yield [token for token in span if not token.is_space]


# ---------------------------------------------------------------------- the pipe
class ElmoPipe:
    """Sets `doc._.elmo`, `doc.tensor` and the vectors of tokens, spans and documents."""

    def __init__(
        self, settings: ModelSettings, *, layers: Layers = "average", keep_layers: bool = False
    ) -> None:
        """Load the model, unless the Hub would be asked for it: `load` does that.

        Args:
            settings: Name and settings of the model.
            layers: What the vectors are: "top", "average", an index from 0, or a weight for each
                layer.
            keep_layers: Whether `doc._.elmo` has all layers instead of the vectors alone.
        """
        self.settings, self.layers, self.keep_layers = settings, layers, keep_layers
        self.fingerprint: str | None = None
        if not detect.is_on_hub(settings.model):
            self.load()

    def load(self) -> tuple[str, Floats]:
        """Return the fingerprint of the model and the weights of its layers: (1, L + 1)."""
        if self.fingerprint is None:
            shared = shared_model(self.settings)
        else:
            shared = recorded_model(self.settings, self.fingerprint)
        weights = layer_weights(self.layers, shared.embedder.config.num_layers)
        if len(weights) != 1:
            raise InvalidInput(
                "a token has one vector: choose one layer or 'average'; with keep_layers "
                "doc._.elmo has all layers"
            )
        self.fingerprint = shared.fingerprint
        return shared.fingerprint, weights

    def __getstate__(self) -> dict[str, Any]:
        self.load()  # A pickle has the fingerprint, so that whoever reads it downloads nothing.
        return self.__dict__

    def __call__(self, doc: Doc) -> Doc:
        """Embed one document.

        Args:
            doc: The document, which is changed and returned.
        """
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Embed documents, `batch_size` at a time.

        Args:
            stream: The documents, which are changed and yielded.
            batch_size: Number of documents that are embedded together.
        """
        remaining = iter(stream)
        while docs := list(itertools.islice(remaining, batch_size)):
            fingerprint, weights = self.load()
            selector = "all" if self.keep_layers else weights[0].tolist()
            results = embed_docs(self.settings, fingerprint, docs, selector)
            for doc, layers in zip(docs, results, strict=True):
                doc._.elmo = layers
                doc.tensor = layers[0]
                if self.keep_layers:
                    doc.tensor = np.einsum("l,ltd->td", weights[0], layers)
                set_hooks(doc)
                yield doc

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the fingerprint of the model; its name is in the configuration."""
        return json.dumps({"fingerprint": self.load()[0]}).encode()

    def from_bytes(self, content: bytes, *, exclude: Iterable[str] = ()) -> ElmoPipe:
        """Raise if the model is not here, or not the one that `to_bytes` was called with."""
        damage = (ValueError, KeyError, TypeError)
        with explained("the stored pipe elmo is damaged", *damage, raising=UnsupportedFormat):
            self.fingerprint = str(json.loads(content)["fingerprint"])
        self.load()
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the fingerprint of the model; its name is in the configuration."""
        Path(path).mkdir(exist_ok=True)
        (Path(path) / "elmo.json").write_bytes(self.to_bytes())

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> ElmoPipe:
        """Raise if the model is not here, or not the one that the folder was written with."""
        with explained("the stored pipe elmo is damaged", OSError, raising=UnsupportedFormat):
            content = (Path(path) / "elmo.json").read_bytes()
        return self.from_bytes(content)


def make_pipe(
    nlp: Language,
    name: str,
    model: str,
    layers: str | int | list[float],
    keep_layers: bool,
    precision: Precision,
    device: str,
) -> ElmoPipe:
    """Make the pipe that `nlp.add_pipe("elmo")` adds.

    Args:
        nlp: The pipeline.
        name: Name of the pipe in it.
        model: What `elmokit.load` takes: a folder, a file or a name on the Hub.
        layers: What the vectors are: "top", "average", an index from 0, or a weight for each layer.
        keep_layers: Whether `doc._.elmo` has all layers instead of the vectors alone.
        precision: Precision of the weights: "float32", "float16" or "int8".
        device: Device to compute on, such as "cpu" or "cuda".
    """
    settings = ModelSettings(model, precision, None, device)
    return ElmoPipe(settings, layers=layers, keep_layers=keep_layers)


# ---------------------------------------------------------------------- vectors and similarity
def set_hooks(doc: Doc) -> None:
    """Take the vectors of a document, its spans and its tokens from `doc.tensor`.

    Without the hook for similarity, two tokens of the same spelling would always be equal. spaCy
    loses the hooks when it stores a document or sends it to another process: set them again.

    Args:
        doc: A document that the pipe has embedded.
    """
    hooks = {"vector": vector, "has_vector": has_vector, "similarity": similarity}
    doc.user_span_hooks.update(hooks)  # spaCy would call `vector` for `vector_norm` of a span.
    for others in (doc.user_hooks, doc.user_token_hooks):
        others.update({**hooks, "vector_norm": vector_norm})


def vector(item: Doc | Span | Token) -> Floats:
    """Return the vector of a token, or the mean of those that are not whitespace: (dim,)."""
    if isinstance(item, Token):
        row: Floats = item.doc.tensor[item.i]
        return row
    rows = item.tensor[item.tensor.any(axis=1)]  # (tokens, dim)
    return rows.mean(axis=0) if len(rows) else item.tensor.sum(axis=0)  # type: ignore[no-any-return]


def has_vector(item: Doc | Span | Token) -> bool:
    """Tell whether a token, or one of several, is not whitespace."""
    return bool(vector(item).any())


def vector_norm(item: Doc | Span | Token) -> float:
    """Return the length of a vector."""
    return float(np.linalg.norm(vector(item)))


def similarity(item: Doc | Span | Token, other: Any) -> float:
    """Return the cosine of two vectors in their contexts, 0 if one has none."""
    one = vector(item)
    try:
        two = other.vector
    except ValueError:  # a word of a vocabulary without vectors
        two = np.zeros(0, np.float32)
    if one.shape != two.shape:
        raise InvalidInput(
            f"{getattr(other, 'text', other)!r:.60} has no ELMo vector to compare with: compare "
            "documents, spans and tokens of the same pipeline with the pipe elmo"
        )
    norms = float(np.linalg.norm(one) * np.linalg.norm(two))
    return float(one @ two) / norms if norms else 0.0


# ---------------------------------------------------------------------- the trainable layer
def build_tok2vec(
    width: int, model: str = "english", precision: Precision = "float32", device: str = "cpu"
) -> Any:
    """Return a layer from documents to a matrix for each: (tokens, width).

    The biLM is frozen and not stored. The scalar mix is trained, and so is the maxout layer with
    layer normalization that follows it, as in spaCy's own embedding layer. A model on the Hub must
    have been downloaded before.

    Args:
        width: Number of columns.
        model: What `elmokit.load` takes: a folder, a file or a name on the Hub.
        precision: Precision of the weights: "float32", "float16" or "int8".
        device: Device to compute on, such as "cpu" or "cuda".
    """
    mix = _mix_layer(ModelSettings(model, precision, None, device))
    layer = chain(mix, with_array(Maxout(nO=width, nI=mix.get_dim("nO"), nP=3, normalize=True)))
    layer.set_dim("nO", width)
    return layer


def _mix_layer(settings: ModelSettings) -> Any:
    """Return the layer that mixes the hidden states: gamma * sum over l of softmax(w)_l h_l."""
    embedder, fingerprint = recorded_model(settings)
    weights = np.zeros(embedder.config.num_layers + 1, np.float32)
    return Model(
        "elmo_mix",
        _mix,
        dims={"nO": embedder.dim},
        params={"weights": weights, "gamma": np.ones(1, np.float32)},
        attrs={"settings": list(settings), "fingerprint": fingerprint},
    )


def _mix(layer: Any, docs: Sequence[Doc], is_train: bool) -> tuple[list[Any], Callable[..., Any]]:
    """Return the mixes (tokens, dim), and the function that computes the gradients."""
    settings = ModelSettings(*layer.attrs["settings"])
    ops, xp = layer.ops, layer.ops.xp
    states = [ops.asarray3f(s) for s in embed_docs(settings, layer.attrs["fingerprint"], docs)]
    weights, gamma = layer.get_param("weights"), layer.get_param("gamma")
    exponentials = xp.exp(weights - weights.max())
    shares = exponentials / exponentials.sum()  # (layers,)

    def backprop(gradients: list[Any]) -> list[Any]:
        pairs = zip(states, gradients, strict=True)
        # How much the loss changes with the share of each layer, if gamma is 1: (layers,)
        slopes = sum(xp.einsum("ltd,td->l", state, gradient) for state, gradient in pairs)
        mean = (shares * slopes).sum()
        layer.inc_grad("weights", (gamma * shares * (slopes - mean)).astype("float32"))
        layer.inc_grad("gamma", xp.asarray([mean], dtype="float32"))
        return []

    return [gamma * xp.einsum("l,ltd->td", shares, state) for state in states], backprop


# ---------------------------------------------------------------------- registration
Language.factory(
    "elmo",
    func=make_pipe,
    assigns=["doc._.elmo", "doc.tensor"],
    default_config={
        "model": "english",
        "layers": "average",
        "keep_layers": False,
        "precision": "float32",
        "device": "cpu",
    },
)
registry.architectures("elmokit.ElmoTok2Vec.v1", func=build_tok2vec)
if not Doc.has_extension("elmo"):
    Doc.set_extension("elmo", default=None)
