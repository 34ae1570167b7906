"""Translation and summarization: a BiLSTM reads the text, a decoder with attention rewrites it.

    source ─► vectors, ELMo ─► BiLSTM ─► decoder ─► beam search ─► target

With `copy` the decoder may take any word from the source, even one that is not in the training data
(a pointer-generator). Without it, an unknown word is replaced by the source's word with the highest
attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elmokit.data.examples import Translated
from elmokit.data.labeled import Reading, read_parallel, read_summaries
from elmokit.data.tables import kind_of
from elmokit.errors import ElmokitError
from elmokit.formats.detect import recorded_model
from elmokit.loading import load
from elmokit.tasks import metrics
from elmokit.tasks.layers.bilstm import BiLSTM
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.seq2seq import targets
from elmokit.tasks.seq2seq.beam import search
from elmokit.tasks.seq2seq.decoder import Decoder, Source, State
from elmokit.tasks.seq2seq.forward_elmo import ForwardElmo
from elmokit.tasks.seq2seq.targets import BEGIN, END, TargetWords, padded
from elmokit.tasks.settings import SETTINGS, Seq2SeqSettings, TaskName
from elmokit.tasks.task import Learned, Task, reader


@dataclass(frozen=True)
class Writing:
    """The texts that are being written, for the beam search."""

    source: Source
    state: State
    beam: int

    def take(self, rows: Tensor) -> Writing:
        """Return these hypotheses; examples without any are dropped."""
        texts = rows[:: self.beam] // self.beam
        return Writing(self.source.take(texts), self.state.take(rows), self.beam)


class Rewriter(nn.Module):
    """An attention encoder-decoder."""

    def __init__(self, inputs: Inputs, settings: Seq2SeqSettings, learned: Learned) -> None:
        super().__init__()
        self.inputs, self.settings = inputs, settings
        self.beam = settings.beam  # may be changed at any time
        self.words = TargetWords(learned["words"], case=learned["case"], copy=settings.copy)
        self.elmo: ForwardElmo | None = None
        if settings.target_elmo is not None:
            elmo = load(recorded_model(settings.target_elmo))  # `learn` has downloaded it.
            if elmo.fingerprint() != learned["target_elmo"]:
                other = f"another biLM than {settings.target_elmo}"
                raise ElmokitError(f"the decoder was trained with {other}")
            self.elmo = ForwardElmo(elmo, learned["words"], settings)
        hidden, depth, dropout = settings.hidden, settings.depth, settings.dropout
        self.encoder = BiLSTM(inputs.dim, hidden, depth=depth, dropout=dropout)
        elmo_dim = 0 if self.elmo is None else self.elmo.dim
        memory_dim = self.encoder.dim + inputs.late_dim
        self.decoder = Decoder(self.words.size, memory_dim, elmo_dim, settings)

    def loss(self, batch: Sequence[Translated]) -> Tensor:
        source, state = self.read(batch)
        words, mask = self.targets(batch)  # (T, B)
        before = torch.cat([words.new_full((1, len(batch)), BEGIN), words[:-1]])
        vectors, state = self.vectors(before, state, source)
        loss = self.decoder.loss(self.decoder(vectors, state, source), words, mask, source)
        return loss if self.elmo is None else loss + self.elmo.mix.penalty()

    def predict(self, batch: Sequence[Translated]) -> list[dict[str, Any]]:
        """Return the best target of each text, with the mean log probability of its words."""
        source, state = self.read(batch)
        rows = torch.arange(len(batch), device=self.inputs.device)
        writing = Writing(source, state.take(rows.repeat_interleave(self.beam)), self.beam)
        begin, limit = torch.full_like(rows, BEGIN), self.settings.max_target_tokens
        hypotheses = search(
            self.next_words, writing, begin, end=END, beam=self.beam, max_words=limit
        )
        own_words = [self.words.own_words(example.texts[0]) for example in batch]
        return [
            {"text": self.words.text(best.words, own), "score": round(best.score, 6)}
            for own, (best, *_) in zip(own_words, hypotheses, strict=True)
        ]

    def next_words(self, last: Tensor, writing: Writing) -> tuple[Tensor, Writing]:
        """Return the log probabilities of all words after the last ones (n,), and the state."""
        source = writing.source
        vectors, state = self.vectors(last.unsqueeze(0), writing.state, source)
        written = self.decoder(vectors, state, source)
        log_probabilities = self.decoder.probabilities(written, source).log()  # (n, V + own words)
        return log_probabilities, Writing(source, written.state, writing.beam)

    def read(self, batch: Sequence[Translated]) -> tuple[Source, State]:
        """Encode the sources; return them and the decoder's state before the first word."""
        elmo = [] if self.elmo is None else self.elmo.start(len(batch))
        texts = [example.texts[0] for example in batch]
        encoded = self.inputs(texts)
        outputs = self.encoder(encoded.vectors, encoded.mask)  # (B, S, 2 * hidden)
        forward, backward = outputs.chunk(2, dim=2)
        rows = torch.arange(len(batch), device=outputs.device)
        summary = torch.cat([forward[rows, encoded.mask.sum(1) - 1], backward[:, 0]], dim=1)
        memory = encoded.join(outputs)
        own_words = [self.words.own_words(text) for text in texts]
        spelled = None
        if self.elmo is not None and self.settings.copy:
            spelled = pad_sequence([self.elmo.spell(own) for own in own_words], batch_first=True)
        source = Source(
            memory=memory,
            keys=self.decoder.keys(memory),
            mask=encoded.mask,
            indices=padded([self.words.of_source(text) for text in texts], memory.device)[0],
            own_words=max(map(len, own_words)),
            spelled=spelled,
        )
        return source, self.decoder.start(summary, elmo)

    def targets(self, batch: Sequence[Translated]) -> tuple[Tensor, Tensor]:
        """Return the words to write with their ends, and a mask: (T, B) each."""
        limit = self.settings.max_target_tokens
        rows = [self.words.of_target(e.target or (), e.texts[0], limit) for e in batch]
        words, mask = padded(rows, self.inputs.device)
        return words.t(), mask.t()

    def vectors(self, words: Tensor, state: State, source: Source) -> tuple[Tensor, State]:
        """Return the decoder's input after words (T, n): (T, n, columns), and the state then."""
        vectors = self.decoder.embed(words)
        if self.elmo is None:
            return vectors, state
        in_context, after = self.elmo(self.elmo.tokens(words, source.spelled), state.elmo)
        return torch.cat([vectors, in_context], dim=-1), replace(state, elmo=after)


# ---------------------------------------------------------------------- files, scores
def read_translations(path: str, reading: Reading, **columns: Any) -> Iterator[Translated]:
    """Read the lines of "source,target", of a source alone, or a table with both."""
    source, comma, target = path.rpartition(",")
    if not comma and kind_of(path) != "text":
        return read_summaries(path, reading, **columns)
    if not comma or Path(path).expanduser().exists():  # The comma is part of a name.
        source, target = path, ""
    if reading.labeled and not target:
        raise ElmokitError(f"name both files, separated by a comma: {path},TARGET")
    return read_parallel(source, target if reading.labeled else None, reading)


def learn(examples: Sequence[Translated], settings: Seq2SeqSettings) -> Learned:
    """Return the words that can be written, and the fingerprint of the target's biLM."""
    texts = [example.target or () for example in examples]
    learned: Learned = {"words": targets.frequent_words(texts, settings.target_vocab_size)}
    learned["case"] = targets.common_case(texts)
    if settings.target_elmo is not None:
        learned["target_elmo"] = load(settings.target_elmo).fingerprint()
    return learned


def bleu_scores(examples: Sequence[Translated], predictions: Sequence[Any]) -> dict[str, float]:
    """Return case-sensitive BLEU: of the target's tokens, and of plain text by sacrebleu's 13a."""
    predicted, tokens, written = _texts(examples, predictions)
    bleu = metrics.bleu(predicted, tokens, tokenize="none")
    return {"bleu": bleu, "bleu_13a": metrics.bleu(predicted, written)}


def rouge_scores(examples: Sequence[Translated], predictions: Sequence[Any]) -> dict[str, float]:
    """Return the mean F1 of ROUGE-L, ROUGE-1 and ROUGE-2, ignoring case.

    Text with mostly Latin letters a-z is compared by these and digits only, as rouge-score does;
    other text by its tokens.
    """
    predicted, tokens, written = _texts(examples, predictions)
    letters = [letter for text in written for letter in text if letter.isalpha()]
    if 2 * sum(letter.isascii() for letter in letters) >= len(letters):
        return metrics.rouge(predicted, written)
    lower = [[text.lower() for text in texts] for texts in (predicted, tokens)]
    return metrics.rouge(*lower, tokenize="none")


def _texts(
    examples: Sequence[Translated], predictions: Sequence[Any]
) -> tuple[list[str], list[str], list[str]]:
    """Return the predicted texts, and the right ones by their tokens and as they were written."""
    tokens = [" ".join(example.target or ()) for example in examples]
    return [one["text"] for one in predictions], tokens, [e.reference or "" for e in examples]


def write(examples: Sequence[Translated], predictions: Sequence[Any]) -> Iterator[str]:
    """Yield a line for each text, its words separated by spaces."""
    for prediction in predictions:
        yield " ".join(prediction["text"].split()) + "\n"


def make_task(name: TaskName, read: Any, score: Any) -> Task:
    """Return a task that differs in these from the other."""
    own_reader = reader(read, "text_column", "label_column", cut=True)
    return Task(name, SETTINGS[name], own_reader, learn, Rewriter, score, write)


TASKS = {
    "translate": make_task("translate", read_translations, bleu_scores),
    "summarize": make_task("summarize", read_summaries, rouge_scores),
}
