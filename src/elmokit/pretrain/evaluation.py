"""How well a biLM predicts a text, by the full softmax.

The text is one stream cut into a few stretches that are read in parallel, with the LSTM state
carried from sentence to sentence as in training; only the start of each stretch lacks its context.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.io.atomic import write_file
from elmokit.language import Perplexity, sentence_losses, vocabulary_of
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.pretrain.corpus import Corpus, Sentences, prepare
from elmokit.pretrain.distributed import ProcessGroup
from elmokit.pretrain.objective import Batcher, softmax_of, top_outputs
from elmokit.pretrain.sources import Paths
from elmokit.pretrain.windows import Windows
from elmokit.text.indexers import make_indexer

ROWS, UNROLL = 32, 50


@dataclass(frozen=True)
class EvaluationResult:
    """How well a model predicts a text."""

    perplexity: Perplexity
    words: int
    """Number of words, without sentence ends."""
    unknown: int
    """Number of words outside the vocabulary, counted as `<UNK>`."""


def perplexity(
    model: BiLM,
    sentences: Sentences,
    batcher: Batcher,
    *,
    group: ProcessGroup | None = None,
    rows: int = ROWS,
    on_tokens: Callable[[int], object] = lambda _: None,
) -> Perplexity:
    """Return the perplexity of encoded sentences in `rows` stretches, split over `group`."""
    part: Any = {"rows": rows, "share": slice(None) if group is None else group.rows}
    losses = carried_losses(model, sentences, batcher, **part, on_tokens=on_tokens).sum(1)
    if group is not None:
        group.all_reduce(torch.from_numpy(losses))
    return Perplexity.of(losses, sentences.predictions)


def carried_losses(
    model: BiLM,
    sentences: Sentences,
    batcher: Batcher,
    *,
    rows: int = ROWS,
    share: slice = slice(None),
    on_tokens: Callable[[int], object] = lambda _: None,
) -> NDArray[np.float64]:
    """Return the losses of each sentence, (2, sentences); read only a `share` of the stretches."""
    rows = max(1, min(rows, sentences.predictions // UNROLL))
    windows = Windows(sentences, rows=rows, unroll=UNROLL)
    ends = sentences.offsets[1:] + np.arange(1, len(sentences) + 1)  # In the stream of pairs.
    device = next(model.parameters()).device
    sums = np.zeros((2, len(sentences)))
    if not (own_rows := len(range(windows.rows)[share])):
        return sums
    state = BiLMState.zeros(model.config, own_rows, device)
    training = model.training
    model.eval()
    for step in range(windows.steps):
        batch = batcher.batch(windows.window(0, step, share))
        with torch.no_grad():
            top, state = top_outputs(model, batch, state)
            losses = softmax_of(model).losses(top.flatten(0, 1), batch.targets.flatten())
        positions = windows.positions(step)[:, share]  # (steps, rows), -1 where a row has ended
        real = positions >= 0
        values = losses.view(2, *positions.shape).cpu().numpy()  # (2, steps, rows)
        index = np.searchsorted(ends, positions[real], side="right")
        for direction in range(2):
            np.add.at(sums[direction], index, values[direction][real])
        on_tokens(int(real.sum()))
    model.train(training)
    return sums


def evaluate(
    elmo: Embedder,
    text: Paths,
    *,
    state: Literal["carry", "fresh"] = "carry",
    stretches: int = ROWS,
    sentences: str | Path | None = None,
    quiet: bool = True,
) -> EvaluationResult:
    """Measure the perplexity of a text in both directions, by the full softmax.

    Args:
        elmo: A model with a softmax.
        text: Files, globs or folders of text, also .gz, .xz, .zst.
        state: "carry" the LSTM state from sentence to sentence, or begin each with a "fresh" one.
        stretches: Number of parts that are read in parallel if the state is carried; 1 is exact.
        sentences: A .tsv file to write, with the perplexity of each sentence.
        quiet: Show no progress bar.
    """
    if stretches < 1:
        raise ElmokitError(f"stretches must be at least 1, not {stretches}")
    options: Any = {"valid_fraction": 0, "tokenizer": elmo.tokenizer_name, "quiet": True}
    options["as_written"] = "training" not in elmo.metadata  # Only our own read <unk> as <UNK>.
    with tempfile.TemporaryDirectory() as folder:
        corpus = prepare(text, Path(folder) / "corpus", **options)
        carry = state == "carry"
        losses, unknown = text_losses(elmo, corpus, carry=carry, stretches=stretches, quiet=quiet)
        if sentences is not None:
            write_file(Path(sentences).expanduser(), sentence_table(corpus, losses))
        measured = Perplexity.of(losses.sum(1), corpus.train.predictions)
        return EvaluationResult(measured, len(corpus.train.tokens), unknown)


def text_losses(
    elmo: Embedder, corpus: Corpus, *, carry: bool, stretches: int = ROWS, quiet: bool = True
) -> tuple[NDArray[np.float64], int]:
    """Return the losses of each sentence, (2, sentences), and the number of unknown words."""
    softmax_of(elmo.model)
    vocabulary = vocabulary_of(elmo)
    targets = corpus.types.ids_in(vocabulary)
    unknown = int(corpus.types.counts[targets == vocabulary.unknown].sum())
    total = corpus.train.predictions
    with tqdm(total=total, unit=" tokens", unit_scale=True, disable=quiet) as bar:
        if carry:
            indexer = make_indexer(elmo.config, vocabulary)
            batcher = Batcher(corpus.types, targets, indexer, torch.device(elmo.device))
            report: Any = {"rows": stretches, "on_tokens": bar.update}
            return carried_losses(elmo.model, corpus.train, batcher, **report), unknown
        columns = []
        for tokens, loss in sentence_losses(elmo, sentences_of(corpus)):
            columns.append(loss)
            bar.update(len(tokens) + 1)
        return np.stack(columns, 1), unknown


def sentences_of(corpus: Corpus) -> Iterator[list[str]]:
    """Yield the tokens of each sentence, in order."""
    for start, end in zip(corpus.train.offsets[:-1], corpus.train.offsets[1:], strict=True):
        yield corpus.types.words(corpus.train.tokens[start:end])


def sentence_table(corpus: Corpus, losses: NDArray[np.float64]) -> Iterable[str]:
    """Yield the lines of a table with the index, length, perplexities and text of sentences."""
    yield "sentence\ttokens\tforward\tbackward\taverage\ttext\n"
    for index, words in enumerate(sentences_of(corpus)):
        measured = Perplexity.of(losses[:, index], len(words) + 1)
        figures = f"{measured.forward:.3f}\t{measured.backward:.3f}\t{measured.average:.3f}"
        yield f"{index}\t{len(words)}\t{figures}\t{' '.join(words)}\n"
