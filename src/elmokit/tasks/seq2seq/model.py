"""Translation and summarization: a BiLSTM reads the text, a decoder with attention rewrites it.

    source ─► vectors, ELMo ─► BiLSTM ─► decoder ─► beam search ─► target

With `copy` the decoder may take any word out of the source, also one that it never met in training
(a pointer-generator). Without it, where it would write an unknown word it writes the source's word
with the highest attention instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.data.examples import Translated
from elmokit.data.labelled import BadLines, read_parallel, read_summaries
from elmokit.data.tables import kind_of
from elmokit.errors import ElmokitError
from elmokit.tasks import metrics
from elmokit.tasks.layers.bilstm import BiLSTM
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.seq2seq.beam import search
from elmokit.tasks.seq2seq.decoder import Decoder, Source, State
from elmokit.tasks.seq2seq.forward_elmo import ForwardElmo
from elmokit.tasks.seq2seq.targets import (
    BEGIN,
    END,
    TargetWords,
    common_case,
    frequent_words,
    padded,
)
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task
from elmokit.text.tokenize import tokenizer


@dataclass(frozen=True)
class Writing:
    """Texts that are being written, for the beam search."""

    source: Source
    state: State
    beam: int

    def take(self, rows: Tensor) -> Writing:
        """Some of the hypotheses; examples without any are gone."""
        texts = rows[:: self.beam] // self.beam
        return Writing(self.source.take(texts), self.state.take(rows), self.beam)


class Rewriter(nn.Module):
    """An attention encoder-decoder."""

    def __init__(self, inputs: Inputs, settings: Settings, facts: dict[str, Any]) -> None:
        """A new one for the target's words that the facts name."""
        super().__init__()
        self.inputs, self.settings = inputs, settings
        self.beam = settings.beam  # may be changed at any time
        self.words = TargetWords(facts["words"], case=facts["case"], copy=settings.copy)
        self.elmo = _target_elmo(settings, facts)
        self.encoder = BiLSTM(
            inputs.dim, settings.hidden, depth=settings.depth, dropout=settings.dropout
        )
        self.decoder = Decoder(
            self.words.size,
            encoder_dim=self.encoder.dim,
            memory_dim=self.encoder.dim + inputs.late_dim,
            elmo_dim=0 if self.elmo is None else self.elmo.dim,
            settings=settings,
        )

    def loss(self, batch: Sequence[Translated]) -> Tensor:
        """The mean loss of the targets' words and ends."""
        source, state = self.read(batch)
        words, mask = self.targets(batch)  # (T, B)
        before = torch.cat([words.new_full((1, len(batch)), BEGIN), words[:-1]])
        vectors, state = self.vectors(before, state, source)
        loss = self.decoder.loss(self.decoder(vectors, state, source), words, mask, source)
        return loss if self.elmo is None else loss + self.elmo.penalty()

    def predict(self, batch: Sequence[Translated]) -> list[dict[str, Any]]:
        """The best target of each text, with the mean log probability of its words."""
        source, state = self.read(batch)
        rows = torch.arange(len(batch), device=self.inputs.device)
        found = search(
            self.next_words,
            Writing(source, state.take(rows.repeat_interleave(self.beam)), self.beam),
            torch.full_like(rows, BEGIN),
            end=END,
            beam=self.beam,
            longest=self.settings.longest_target,
        )
        return [
            {
                "text": self.words.text(best.words, self.words.own_words(example.texts[0])),
                "score": round(best.score, 6),
            }
            for example, (best, *_) in zip(batch, found, strict=True)
        ]

    def next_words(self, last: Tensor, writing: Writing) -> tuple[Tensor, Writing]:
        """Log probabilities of all words after the last one, (n,), of each hypothesis."""
        source = writing.source
        vectors, state = self.vectors(last.unsqueeze(0), writing.state, source)
        written = self.decoder(vectors, state, source)
        log_probabilities = self.decoder.probabilities(written, source).log()  # (n, V + own words)
        return log_probabilities, Writing(source, written.state, writing.beam)

    def read(self, batch: Sequence[Translated]) -> tuple[Source, State]:
        """The encoder's work, and the decoder's state before the first word."""
        texts = [example.texts[0] for example in batch]
        encoded = self.inputs(texts)
        outputs = self.encoder(encoded.vectors, encoded.mask)  # (B, S, 2 * hidden)
        forward, backward = outputs.chunk(2, dim=2)
        rows = torch.arange(len(batch), device=outputs.device)
        last = encoded.mask.sum(1) - 1
        summary = torch.cat([forward[rows, last], backward[:, 0]], dim=1)
        memory = encoded.join(outputs)
        own_words = [self.words.own_words(text) for text in texts]
        source = Source(
            memory=memory,
            keys=self.decoder.keys(memory),
            mask=encoded.mask,
            numbers=padded([self.words.of_source(text) for text in texts], memory.device)[0],
            own_words=max(map(len, own_words)),
            spelled=self.spelled(own_words),
        )
        elmo = [] if self.elmo is None else self.elmo.start(len(batch))
        return source, self.decoder.start(summary, elmo)

    def targets(self, batch: Sequence[Translated]) -> tuple[Tensor, Tensor]:
        """The words to be written with their ends, and a mask: (T, B) each."""
        longest = self.settings.longest_target
        rows = [self.words.of_target(e.target or (), e.texts[0], longest) for e in batch]
        words, mask = padded(rows, self.inputs.device)
        return words.t(), mask.t()

    def vectors(self, words: Tensor, state: State, source: Source) -> tuple[Tensor, State]:
        """The decoder's input after some words (T, n): (T, n, columns), and the state then."""
        vectors = self.decoder.embed(words)
        if self.elmo is None:
            return vectors, state
        in_context, after = self.elmo(self.elmo.tokens(words, source.spelled), state.elmo)
        return torch.cat([vectors, in_context], dim=-1), replace(state, elmo=after)

    def spelled(self, own_words: Sequence[list[str]]) -> Tensor | None:
        """Token vectors of words that may be copied, for the target's ELMo: (B, words, dim)."""
        if self.elmo is None or not self.settings.copy:
            return None
        rows = [self.elmo.spell(own) for own in own_words]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def _target_elmo(settings: Settings, facts: dict[str, Any]) -> ForwardElmo | None:
    """The model of the target's language, if one is wanted."""
    if settings.target_elmo is None:
        return None
    from elmokit.loading import load

    elmo = load(settings.target_elmo)
    if elmo.fingerprint() != facts["target_elmo"]:
        raise ElmokitError(f"{settings.target_elmo} is another biLM than the decoder learned with")
    return ForwardElmo(elmo, facts["words"], settings)


# ---------------------------------------------------------------------- files, scores


def read_translations(
    path: str, settings: Settings, bad: BadLines, labelled: bool
) -> Iterator[Translated]:
    """Lines of "source,target", of a source alone, or a table with both."""
    source, comma, target = path.rpartition(",")
    if not comma and kind_of(path) != "text":
        return read_texts(path, settings, bad, labelled)
    if not comma or Path(path).expanduser().exists():  # the comma is in a name
        source, target = path, ""
    if labelled and not target:
        raise ElmokitError(f"name both files, with a comma between them: {path},TARGET")
    tokenize = tokenizer(settings.tokenizer)
    examples = read_parallel(source, target if labelled else None, tokenize=tokenize, bad=bad)
    return cut(examples, settings.longest_text)


def read_texts(
    path: str, settings: Settings, bad: BadLines, labelled: bool
) -> Iterator[Translated]:
    """Texts with what they are to become, out of JSON lines, TSV or CSV; or texts, one a line."""
    examples = read_summaries(
        path,
        tokenize=tokenizer(settings.tokenizer),
        text_column=settings.text_column,
        summary_column=settings.label_column,
        labelled=labelled,
        bad=bad,
    )
    return cut(examples, settings.longest_text)


def cut(examples: Iterable[Translated], longest: int) -> Iterator[Translated]:
    """The examples with sources that are no longer than they may be; 0 for no bound."""
    for example in examples:
        yield replace(example, texts=(example.texts[0][: longest or None],))


def learn(examples: Sequence[Translated], settings: Settings) -> dict[str, Any]:
    """The words that can be written, and which model of the target's language there is."""
    targets = [example.target or () for example in examples]
    facts: dict[str, Any] = {
        "words": frequent_words(targets, settings.target_words),
        "case": common_case(targets),
    }
    if settings.target_elmo is not None:
        from elmokit.loading import load

        facts["target_elmo"] = load(settings.target_elmo).fingerprint()
    return facts


def bleu_scores(examples: Sequence[Translated], predictions: Sequence[Any]) -> dict[str, float]:
    """BLEU, case and all: over the target's tokens, and by sacrebleu's own 13a as it was written.

    The first is the usual one for files that are tokenized already; the second can be compared
    with scores of other systems for text that is not.
    """
    found, tokens, written = _texts(examples, predictions)
    return {
        "bleu": metrics.bleu(found, tokens, tokenize="none"),
        "bleu_13a": metrics.bleu(found, written),
    }


def rouge_scores(examples: Sequence[Translated], predictions: Sequence[Any]) -> dict[str, float]:
    """Mean F1 of ROUGE-L, ROUGE-1 and ROUGE-2, case ignored.

    Text with mostly Latin letters a-z is compared by these and digits alone, as rouge-score does;
    other text by its tokens.
    """
    found, tokens, written = _texts(examples, predictions)
    letters = [letter for text in written for letter in text if letter.isalpha()]
    if 2 * sum(letter.isascii() for letter in letters) >= len(letters):
        scores = metrics.rouge(found, written)
    else:
        lower = [[text.lower() for text in texts] for texts in (found, tokens)]
        scores = metrics.rouge(*lower, tokenize="none")
    return {name: scores[name] for name in ("rougeL", "rouge1", "rouge2")}


def _texts(
    examples: Sequence[Translated], predictions: Sequence[Any]
) -> tuple[list[str], list[str], list[str]]:
    """What was predicted, and what is right, by its tokens and as it was written."""
    tokens = [" ".join(example.target or ()) for example in examples]
    return [one["text"] for one in predictions], tokens, [e.reference or "" for e in examples]


def write(examples: Sequence[Translated], predictions: Sequence[Any]) -> Iterator[str]:
    """A line for each text, its words with spaces between them."""
    for _, found in zip(examples, predictions, strict=True):
        yield " ".join(found["text"].split()) + "\n"


TASKS = {
    "translate": Task(
        name="translate",
        read=read_translations,
        learn=learn,
        model=Rewriter,
        score=bleu_scores,
        write=write,
        defaults={
            "word_dim": 256,
            "hidden": 256,
            "dropout": 0.3,
            "batch_size": 64,
            "epochs": 20,
            "patience": 3,
        },
    ),
    "summarize": Task(
        name="summarize",
        read=read_texts,
        learn=learn,
        model=Rewriter,
        score=rouge_scores,
        write=write,
        defaults={
            "word_dim": 128,
            "hidden": 256,
            "dropout": 0.3,
            "epochs": 20,
            "patience": 3,
            "copy": True,
            "longest_text": 100,
        },
    ),
}
