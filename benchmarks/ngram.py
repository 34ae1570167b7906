"""How well does an n-gram model predict the same words? Modified Kneser-Ney, order 5.

    python benchmarks/ngram.py my-elmo --heldout '1 Billion Word, held-out part=news.txt'

`my-elmo` is the output of `elmokit pretrain`: the model is trained on its encoded corpus with its
vocabulary, forward, and backward on the reversed sentences. It predicts what the biLM does:
every word, `<UNK>` among them, and the end of every sentence. Held-out texts are tokenized,
one sentence per line. A context never crosses the start of its sentence, so the biLM knows more
where its state is carried from sentence to sentence.

The model is interpolated, after Chen & Goodman (1999): with c(hw) how often the word w follows the
context h, and h' the context without its first word,

    p(w|h) = (c(hw) - D(c(hw))) / c(h) + left(h) p(w|h')
    left(h) = sum over w of D(c(hw)) / c(h)

For contexts shorter than the longest, c counts the different words that precede hw, except where
hw begins with `<S>`, which nothing precedes. The last p is uniform. D is one of three
numbers, for counts of 1, 2 and 3 or more, from how many n-grams have the counts 1 to 4.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from parsers import described_parser

from elmokit.formats import native
from elmokit.language import Perplexity
from elmokit.pretrain.corpus import Corpus, Sentences, Types, prepare
from elmokit.text.vocabulary import SPECIAL, Vocabulary

HERE = Path(__file__).parent
ORDER = 5
BEGIN, END = 0, 1  # <S> and </S>
FALLBACK = (0.5, 1.0, 1.5)  # discounts if the counts of counts give none
HELDOUT = "held-out part of its text"


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("folder", help="the output of elmokit pretrain, with its corpus")
    parser.add_argument("--heldout", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--order", type=int, default=ORDER)
    parser.add_argument("--out", default=str(HERE / "results" / "ngram.json"))
    arguments = parser.parse_args()
    from speed import machine

    start = time.perf_counter()
    corpus = Corpus(Path(arguments.folder) / "training" / "corpus")
    vocabulary = Vocabulary.read(Path(arguments.folder) / native.VOCABULARY)
    if tuple(vocabulary.words[: len(SPECIAL)]) != SPECIAL:
        raise SystemExit(f"the vocabulary must begin with {', '.join(SPECIAL)}")
    texts = {}
    if len(corpus.heldout):
        texts[HELDOUT] = stream_of(corpus.heldout, targets(corpus.types, vocabulary))
    for heldout in arguments.heldout:
        name, _, path = heldout.partition("=")
        texts[name] = read_stream(path, vocabulary)
    train = stream_of(corpus.train, targets(corpus.types, vocabulary))
    models, losses = [], []
    for read in (np.asarray, reverse):
        model = fit(read(train), len(vocabulary), arguments.order)
        models.append(
            {
                "ngrams": [len(table.keys) for table in model.tables],
                "discounts": [table.discounts[1:].round(4).tolist() for table in model.tables],
            }
        )
        losses.append([-np.log(probabilities(model, read(text))).sum() for text in texts.values()])
        del model
    result = {
        "machine": machine(),
        "corpus": [entry["name"] for entry in corpus.manifest["corpus"]],
        "train_tokens": corpus.manifest["train_tokens"],
        "order": arguments.order,
        "words": len(vocabulary),
        "forward": models[0],
        "backward": models[1],
        "texts": [
            row(name, text, np.array([forward, backward]))
            for (name, text), forward, backward in zip(texts.items(), *losses, strict=True)
        ],
        "minutes": round((time.perf_counter() - start) / 60, 1),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


def row(name: str, text: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    """Return the row of one text."""
    tokens = int((text != BEGIN).sum())
    return {"text": name, "tokens": tokens, **Perplexity.of(losses, tokens).to_dict()}


def targets(types: Types, vocabulary: Vocabulary) -> np.ndarray:
    """Return the id in the vocabulary of each type of a corpus: (types,)."""
    return types.ids_in(vocabulary)


def read_stream(path: str, vocabulary: Vocabulary) -> np.ndarray:
    """Return the stream of a tokenized text with one sentence per line."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = prepare(
            path, Path(folder) / "corpus", valid_fraction=0, tokenizer="whitespace", quiet=True
        )
        return stream_of(corpus.train, targets(corpus.types, vocabulary))


def stream_of(sentences: Sentences, words: np.ndarray) -> np.ndarray:
    """Return all sentences as one array, each between `<S>` and `</S>`: (tokens,)."""
    shift = 2 * np.arange(len(sentences))
    stream = np.full(len(sentences.tokens) + 2 * len(sentences), -1, np.int32)
    stream[sentences.offsets[:-1] + shift] = BEGIN
    stream[sentences.offsets[1:] + shift + 1] = END
    stream[stream < 0] = words[sentences.tokens]
    return stream


def reverse(stream: np.ndarray) -> np.ndarray:
    """Reverse the sentences: a model of the result predicts backward."""
    stream = stream[::-1]
    return np.where(stream == BEGIN, END, np.where(stream == END, BEGIN, stream))


@dataclass(frozen=True)
class Table:
    """The n-grams of one length; the id of an n-gram is its index here."""

    keys: np.ndarray
    """Id of the context times the number of words, plus the word; sorted: (n-grams,)."""
    counts: np.ndarray
    """c(hw): (n-grams,)."""
    discounts: np.ndarray
    """D of the counts 0, 1, 2, and 3 or more: (4,)."""
    totals: np.ndarray
    """c(h): (contexts,)."""
    left: np.ndarray
    """Probability that the discounts leave for the shorter context: (contexts,)."""


@dataclass(frozen=True)
class Ngrams:
    """A trained model: a table for each length from 1 on."""

    words: int
    tables: list[Table]


def fit(stream: np.ndarray, words: int, order: int = ORDER) -> Ngrams:
    """Train on a stream of sentences whose word ids are below `words`."""
    tables, contexts = [], 1
    for keys, counts in count(stream, words, order):
        tables.append(smooth(keys, counts, words, contexts))
        contexts = len(keys)
    return Ngrams(words, tables)


def count(stream: np.ndarray, words: int, order: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the keys and the counts c(hw) of the n-grams of each length.

    The key of an n-gram contains the id of its context, the n-gram without its last word, so all
    n-grams of a length are one column of keys.
    """
    position = positions(stream)
    ids = stream  # id of the n-gram that ends at each token
    begins = np.arange(words) == BEGIN  # whether the n-gram begins with <S>
    keys, counts = np.arange(words), np.bincount(stream, minlength=words)
    result = []
    for length in range(2, order + 1):
        ends = np.flatnonzero(position >= length - 1)  # tokens with enough words before them
        longer, first, inverse, longer_counts = np.unique(
            ids[ends - 1].astype(np.int64) * words + stream[ends],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        first = ends[first]
        # Each distinct longer n-gram has a different word before the shorter one that it ends with.
        different = np.bincount(ids[first], minlength=len(keys))
        result.append((keys, np.where(begins, counts, different).astype(np.int32)))
        ids = np.full(len(stream), -1, np.int32)
        ids[ends] = inverse
        begins, keys, counts = position[first] == length - 1, longer, longer_counts
    result.append((keys, counts.astype(np.int32)))
    result[0][1][BEGIN] = 0  # <S> is never predicted.
    return result


def positions(stream: np.ndarray) -> np.ndarray:
    """Return the position of each token in its sentence, 0 for `<S>`: (tokens,)."""
    starts = np.flatnonzero(stream == BEGIN).astype(np.int32)
    lengths = np.diff(starts, append=np.int32(len(stream)))
    return np.arange(len(stream), dtype=np.int32) - np.repeat(starts, lengths)


def smooth(keys: np.ndarray, counts: np.ndarray, words: int, contexts: int) -> Table:
    """Return the table of one length; the ids of its contexts are below `contexts`."""
    discounts = discounts_of(counts)
    context = keys // words
    totals = np.bincount(context, counts, contexts)
    left = np.bincount(context, discounts[np.minimum(counts, 3)], contexts)
    return Table(keys, counts, discounts, totals, left / np.maximum(totals, 1))


def discounts_of(counts: np.ndarray) -> np.ndarray:
    """Return 0, D_1, D_2, D_3 with D_k = k - (k + 1) Y n_(k+1) / n_k, Y = n_1 / (n_1 + 2 n_2).

    n_k is the number of n-grams with the count k.
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    if not n.all():
        return np.array([0.0, *FALLBACK])
    k = np.arange(1, 4)
    discounts = k - (k + 1) * (n[0] / (n[0] + 2 * n[1])) * n[1:] / n[:3]
    return np.array([0.0, *(discounts if (discounts >= 0).all() else FALLBACK)])


def probabilities(model: Ngrams, stream: np.ndarray) -> np.ndarray:
    """Return the probability of every token but `<S>`, given the tokens before it."""
    position = positions(stream)
    result = np.full(len(stream), 1 / (model.words - 1))  # all words but <S>
    ids = np.zeros(len(stream), np.int64)  # id of the n-gram that ends at each token, -1: unseen
    for length, table in enumerate(model.tables, start=1):
        context = np.concatenate([[0], ids[:-1]])
        seen = np.flatnonzero((position >= length - 1) & (context >= 0))
        context = context[seen]
        keys = context * model.words + stream[seen]
        near = np.minimum(np.searchsorted(table.keys, keys), len(table.keys) - 1)
        hit = table.keys[near] == keys
        ids = np.full(len(stream), -1, np.int64)
        ids[seen[hit]] = near[hit]
        counts = np.where(hit, table.counts[near], 0)
        totals = table.totals[context]
        known = totals > 0  # A word of the vocabulary may not occur in the text.
        seen, counts, context = seen[known], counts[known], context[known]
        own = (counts - table.discounts[np.minimum(counts, 3)]) / totals[known]
        result[seen] = own + table.left[context] * result[seen]
    return result[position > 0]


if __name__ == "__main__":
    main()
