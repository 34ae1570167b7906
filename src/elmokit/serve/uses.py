"""A word in many sentences: found, then mapped in every layer and in a mix of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from elmokit.analysis.geometry import Array, cosine_matrix
from elmokit.analysis.plots.maps import MIN_USES, SEED, WordMap, map_word
from elmokit.analysis.sampling import find_uses
from elmokit.analysis.senses.find import find_lemma
from elmokit.analysis.senses.induce import cluster_uses
from elmokit.analysis.uses import Use
from elmokit.errors import InvalidInput, plural
from elmokit.layers import layer_names, layer_weights
from elmokit.serve import schemas
from elmokit.serve.limits import TooLarge


def map_all(
    request: schemas.UsesRequest, uses: Sequence[Use], rows: Sequence[int], vectors: Array
) -> dict[str, Any]:
    """Return the answer to /v1/uses.

    Args:
        request: The request.
        uses: Uses of the word.
        rows: Index of the sentence of each use.
        vectors: Their vectors in layers 0..L and the average, the mean subtracted: (L + 2, uses,
            dim).
    """
    if len(uses) < MIN_USES:
        raise InvalidInput(
            f"a map needs at least {MIN_USES} uses of the word, and these sentences have "
            f"{len(uses)}"
        )
    num_layers, names = len(vectors) - 2, layer_names(len(vectors) - 2)
    clusters = cluster(request.clusters, vectors)
    if request.weights is not None:
        weights = layer_weights(request.weights, num_layers)  # (1, L + 1)
        mixed = np.einsum("kl,lnd->knd", weights, vectors[:-1])  # (1, uses, dim)
        vectors, names = np.concatenate([vectors, mixed]), [*names, "mix"]
    maps = panels(map_word(uses[0].lemma, list(uses), vectors), vectors, names, request)
    mix = None if request.weights is None else scaled(maps.pop(), request.gamma)
    described = [
        {
            "sentence": row,
            "tokens": list(use.tokens),
            "start": use.start,
            "end": use.end,
            "word": use.word,
            "label": use.sense if request.labels is not None else None,
            "cluster": label,
        }
        for use, row, label in zip(uses, rows, clusters, strict=True)
    ]
    return {
        "word": uses[0].lemma,
        "uses": described,
        "layers": maps,
        "mix": mix,
        "static": static_points(uses, maps[0]["points"]),
        "clusters": None if request.clusters is None else len(set(clusters)),
    }


def cluster(count: int | None, vectors: Array) -> Sequence[int | None]:
    """Return the cluster of each use in the average of the layers; None for all without a count."""
    uses = vectors.shape[1]
    if count is None:
        return [None] * uses
    if count == 1 or count > uses:
        raise InvalidInput(f"clusters must be 0, or from 2 to {uses}")
    labels, _, _ = cluster_uses(vectors, len(vectors) - 1, count or None, SEED)
    return labels.tolist()  # type: ignore[no-any-return]


def scaled(panel: dict[str, Any], gamma: float) -> dict[str, Any]:
    """Multiply the points and vectors of a mix."""
    vectors = panel["vectors"]
    return {
        **panel,
        "points": panel["points"] * np.float32(gamma),
        "vectors": None if vectors is None else vectors * np.float32(gamma),
    }


def make_use(tokens: Sequence[str], start: int, end: int, sense: str = "") -> Use:
    """Return the use of tokens start:end; raise if they are not in the sentence."""
    if not 0 <= start < end <= len(tokens):
        raise InvalidInput(
            f"the sentence has {plural(len(tokens), 'token')}, none at {start} to {end}"
        )
    return Use(tuple(tokens), start, end, " ".join(tokens[start:end]).lower(), sense)


def find_all(
    request: schemas.UsesRequest,
    sentences: list[list[str]],
    tokenize: Callable[[str], list[str]],
) -> tuple[list[Use], list[int], list[int]]:
    """Return the uses, the sentence of each, and the sentences without the word."""
    if (request.word is None) == (request.positions is None):
        raise InvalidInput("give either a word or positions")
    for name, values in (("positions", request.positions), ("labels", request.labels)):
        if values is not None and len(values) != len(sentences):
            raise InvalidInput(
                f"there are {plural(len(sentences), 'sentence')} and {len(values)} {name}"
            )
    matches: list[list[Use]]
    if request.positions is not None:
        matches = [
            [] if span is None else [make_use(tokens, span[0], span[1])]
            for tokens, span in zip(sentences, request.positions, strict=True)
        ]
    else:
        word = tokenize(request.word or "")
        if not word:
            raise InvalidInput("the word is empty")
        matches = [list(uses_in(tokens, word, request.inflected)) for tokens in sentences]
    uses, rows = [], []
    for row, own in enumerate(matches):
        sense = "" if request.labels is None else request.labels[row]
        uses += [Use(use.tokens, use.start, use.end, use.lemma, sense) for use in own]
        rows += [row] * len(own)
    if len(uses) > schemas.MAX_USES:
        raise TooLarge(f"{len(uses):,} uses are too many: at most {schemas.MAX_USES} are mapped")
    return uses, rows, [row for row, own in enumerate(matches) if not own]


def uses_in(tokens: Sequence[str], word: list[str], inflected: bool) -> Iterator[Use]:
    """Yield the uses of a word in a sentence, with its English forms if `inflected`."""
    if not inflected:
        yield from find_uses([tokens], word)
        return
    # The last token of the word may have an ending; a form is replaced by what it is a form of.
    last = word[-1].lower()
    plain = [last if find_lemma(token, {last}) else token for token in tokens]
    for use in find_uses([plain], word):
        yield Use(tuple(tokens), use.start, use.end, use.lemma)


def panels(
    word_map: WordMap, vectors: Array, names: Sequence[str], request: schemas.UsesRequest
) -> list[dict[str, Any]]:
    """Return the map of each layer (layers, uses, dim); each is turned like the one before."""
    points = word_map.points.copy()  # (layers, uses, 2)
    for i in range(1, len(points)):
        # The direction of a principal component is arbitrary: mirror it if that moves less.
        points[i] *= np.where((points[i] * points[i - 1]).sum(axis=0) < 0, -1, 1)
    cosines = cosine_matrix(vectors)
    measures = word_map.purity, word_map.silhouette
    return [
        {
            "name": name,
            "points": np.ascontiguousarray(points[i]),
            "variance": word_map.shares[i].tolist(),
            "one_point": bool(word_map.is_one_point[i]),
            "neighbours": nearest(cosines[i], request.neighbours),
            "purity": None if measures[0] is None else float(measures[0][i]),
            "silhouette": None if measures[1] is None else float(measures[1][i]),
            "vectors": np.ascontiguousarray(vectors[i]) if request.vectors else None,
        }
        for i, name in enumerate(names)
    ]


def nearest(cosines: Array, k: int) -> list[list[dict[str, Any]]]:
    """Return the `k` other uses with the highest cosine to each, from a matrix (uses, uses)."""
    others = cosines.copy()
    np.fill_diagonal(others, -np.inf)
    k = min(k, len(others) - 1)
    order = np.argsort(-others, axis=1, kind="stable")[:, :k]
    return [
        [{"use": int(use), "cosine": float(cosines[i, use])} for use in row]
        for i, row in enumerate(order)
    ]


def static_points(uses: Sequence[Use], points: Array) -> list[dict[str, Any]]:
    """Return each distinct form of the word with its point in layer 0 (uses, 2)."""
    forms: dict[str, list[int]] = {}
    for i, use in enumerate(uses):
        forms.setdefault(use.word, []).append(i)
    return [
        {"word": word, "point": points[rows[0]].tolist(), "uses": len(rows)}
        for word, rows in forms.items()
    ]
