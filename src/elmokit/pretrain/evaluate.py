"""`elmokit evaluate MODEL TEXT`: how well a biLM predicts a text, by the full softmax.

The text is one stream cut into a few stretches that run side by side, the LSTM state carried from
sentence to sentence as in training; only the start of each stretch lacks what came before it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from elmokit.errors import ElmokitError
from elmokit.io.atomic import write_file
from elmokit.language import Perplexity, sentence_losses
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.pretrain.corpus import Corpus, Sentences, prepare
from elmokit.pretrain.distributed import Ranks
from elmokit.pretrain.objective import Batcher, targets_of_vocabulary, window_losses
from elmokit.pretrain.windows import Windows
from elmokit.progress import use_threads
from elmokit.text.indexers import make_indexer

if TYPE_CHECKING:
    from elmokit.embed import Embedder

ROWS, UNROLL = 32, 50


def perplexity(
    model: BiLM,
    sentences: Sentences,
    batcher: Batcher,
    *,
    rows: int = ROWS,
    unroll: int = UNROLL,
    ranks: Ranks | None = None,
) -> Perplexity:
    """Measure the perplexity of encoded sentences, read in `rows` stretches that `ranks` share."""
    share = slice(None) if ranks is None else ranks.rows
    losses = carried_losses(model, sentences, batcher, rows=rows, unroll=unroll, share=share).sum(1)
    if ranks is not None:
        ranks.add(torch.from_numpy(losses))
    return Perplexity.of(losses, _predictions(sentences))


def carried_losses(
    model: BiLM,
    sentences: Sentences,
    batcher: Batcher,
    *,
    rows: int = ROWS,
    unroll: int = UNROLL,
    share: slice = slice(None),
    on_tokens: Callable[[int], object] = lambda _: None,
) -> NDArray[np.float64]:
    """The negative log likelihood of each sentence in both directions: (2, sentences).

    With a `share` of the stretches only what is in these counts.
    """
    predictions = _predictions(sentences)
    windows = Windows(sentences, rows=max(1, min(rows, predictions // unroll)), unroll=unroll)
    ends = sentences.offsets[1:] + np.arange(1, len(sentences) + 1)  # of each in the stream
    device = next(model.parameters()).device
    sums = np.zeros((2, len(sentences)))
    mine = len(range(windows.rows)[share])
    if not mine:
        return sums
    state = BiLMState.zeros(model.config, mine, device)
    training = model.training
    model.eval()
    for step in range(windows.steps):
        batch = batcher.batch(windows.window(0, step, share))
        losses, state = window_losses(model, batch, state)
        places = windows.places(step)[:, share]  # (steps, rows), -1 where a row has ended
        real = places >= 0
        found = losses.view(2, *places.shape).cpu().numpy()
        number = np.searchsorted(ends, places[real], side="right")
        for way in range(2):
            np.add.at(sums[way], number, found[way][real])
        on_tokens(int(real.sum()))
    model.train(training)
    return sums


def _predictions(sentences: Sentences) -> int:
    return int(sentences.offsets[-1]) + len(sentences)


def evaluate(
    model: str,
    text: str,
    *,
    tokenizer: Literal["elmokit", "whitespace", "chinese"] | None = None,
    state: Literal["carry", "fresh"] = "carry",
    stretches: int = ROWS,
    sentences: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    quiet: bool = False,
) -> None:
    """Print the perplexity of a text in both directions, by the full softmax.

    Args:
        model: a model folder or Hub name with a softmax; "shipped" is elmokit's own.
        text: a file, glob or folder of text, also .gz, .xz, .zst.
        tokenizer: elmokit or chinese for running text; whitespace for text that is tokenized, a
            sentence a line; if not given, chinese for a model that was trained with it, and else
            elmokit.
        state: carry what was read from sentence to sentence, or read each sentence afresh.
        stretches: parts of the text that are read side by side when the state is carried; 1 reads
            it in one go, exactly but slowly.
        sentences: a .tsv file to write, with the perplexity of every sentence.
        threads: to compute with; all cores if not given.
        device: cpu or cuda.
        quiet: no progress bar.
    """
    from elmokit.loading import load

    if stretches < 1:
        raise ElmokitError(f"stretches must be at least 1, not {stretches}")
    target = None if sentences is None else Path(sentences).expanduser()
    if target is not None and not target.parent.is_dir():
        raise ElmokitError(f"there is no folder {target.parent} to write {target.name} into")
    elmo = load(model, device=device, tokenizer=tokenizer)
    with tempfile.TemporaryDirectory() as folder, use_threads(threads):
        corpus = prepare(
            text,
            Path(folder) / "corpus",
            valid_fraction=0,
            tokenizer=elmo.tokenizer_name,
            as_written="training" not in elmo.metadata,  # only our own have read <unk> as <UNK>
            quiet=True,
        )
        losses, unknown = text_losses(
            elmo, corpus, carry=state == "carry", stretches=stretches, quiet=quiet
        )
        tokens = _predictions(corpus.train)
        found = Perplexity.of(losses.sum(1), tokens)
        print(report(found, words=tokens - len(corpus.train), unknown=unknown))
        if target is not None:
            write_file(target, sentence_rows(corpus, losses))


def text_losses(
    elmo: Embedder, corpus: Corpus, *, carry: bool, stretches: int = ROWS, quiet: bool = True
) -> tuple[NDArray[np.float64], int]:
    """Each sentence's losses, (2, sentences), and how many words the model does not know."""
    from elmokit.pretrain.objective import softmax_of

    softmax_of(elmo.model)
    vocabulary = elmo.vocabulary
    if vocabulary is None:
        raise ElmokitError(f"{elmo.source} has no vocabulary, and so cannot predict words")
    targets = targets_of_vocabulary(corpus.types, vocabulary.ids, vocabulary.unknown)
    unknown = int(corpus.types.counts[targets == vocabulary.unknown].sum())
    total = _predictions(corpus.train)
    with tqdm(total=total, unit=" tokens", unit_scale=True, disable=quiet) as bar:
        if carry:
            indexer = make_indexer(elmo.config, vocabulary)
            batcher = Batcher(corpus.types, targets, indexer, torch.device(elmo.device))
            losses = carried_losses(
                elmo.model, corpus.train, batcher, rows=stretches, on_tokens=bar.update
            )
            return losses, unknown
        found = []
        for tokens, loss in sentence_losses(elmo, sentences_of(corpus)):
            found.append(loss)
            bar.update(len(tokens) + 1)
        return np.stack(found, 1), unknown


def sentences_of(corpus: Corpus) -> Iterator[list[str]]:
    """The tokens of every sentence, in order."""
    for start, end in zip(corpus.train.offsets[:-1], corpus.train.offsets[1:], strict=True):
        yield corpus.types.words(corpus.train.tokens[start:end])


def report(found: Perplexity, *, words: int, unknown: int) -> str:
    """What `elmokit evaluate` prints."""
    ways = {"forward": found.forward, "backward": found.backward, "average": found.average}
    lines = ["", *(f"{name:>10}" for name in ways)], ["perplexity"], ["bits a word"]
    for value in ways.values():
        lines[1].append(f"{value:10.2f}")
        lines[2].append(f"{math.log2(value):10.3f}")
    table = "\n".join(f"{line[0]:<12}" + " ".join(line[1:]) for line in lines)
    return (
        f"{table}\n{words:,} words and {found.tokens - words:,} sentence ends; "
        f"{unknown / max(words, 1):.1%} of the words are outside the vocabulary, counted as <UNK>"
    )


def sentence_rows(corpus: Corpus, losses: NDArray[np.float64]) -> Iterator[str]:
    """Yield a row for every sentence: index, tokens, perplexities, text."""
    yield "sentence\ttokens\tforward\tbackward\taverage\ttext\n"
    for number, words in enumerate(sentences_of(corpus)):
        found = Perplexity.of(losses[:, number], len(words) + 1)
        figures = "\t".join(
            f"{value:.3f}" for value in (found.forward, found.backward, found.average)
        )
        yield f"{number}\t{len(words)}\t{figures}\t{' '.join(words)}\n"
