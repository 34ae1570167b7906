"""Question answering: the span of a passage that answers a question, after BiDAF and DocumentQA.

question, passage ─► vectors + matches ─► shared BiLSTM [; ELMo] ─► attention both ways ─► BiLSTM
─► start ─► BiLSTM ─► end

In training, a passage longer than `longest_text` is cut to a window that has the answer in it.
A prediction always reads the whole passage: the tensors grow with passage times question tokens
only, and a softmax over the whole needs no comparing of windows. Long passages are read a few at a
time.

Shapes: B questions, P tokens of the longest passage, Q of the longest question, D columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.data.examples import Question, Span, Tokens
from elmokit.data.labelled import BadLines
from elmokit.data.squad import read_squad, write_answers
from elmokit.errors import ElmokitError
from elmokit.tasks import metrics
from elmokit.tasks.layers.attention import MATCHES, TrilinearScores, masked_softmax, matches
from elmokit.tasks.layers.bilstm import BiLSTM
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task
from elmokit.text.tokenize import tokenizer

TOGETHER = 25_600  # tokens of passages that a prediction reads at once, or one passage


class BiAttention(nn.Module):
    """Each token of the passage with what of the question, and of the whole, concerns it."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = TrilinearScores(dim)
        self.dim = 4 * dim

    def forward(
        self, passage: Tensor, question: Tensor, passage_mask: Tensor, question_mask: Tensor
    ) -> Tensor:
        """(B, P, D) and (B, Q, D) to [passage; asked; passage * asked; passage * hit]: (B, P, 4D).

        `asked` is the mean of the question that each token attends to, `hit` the mean of the
        passage's tokens that go best with any word of the question.
        """
        scores = self.scores(passage, question)  # (B, P, Q)
        asked = masked_softmax(scores, question_mask.unsqueeze(1)) @ question  # (B, P, D)
        lowest = torch.finfo(scores.dtype).min
        best = scores.masked_fill(~question_mask.unsqueeze(1), lowest).amax(2)  # (B, P)
        hit = masked_softmax(best, passage_mask).unsqueeze(1) @ passage  # (B, 1, D)
        return torch.cat([passage, asked, passage * asked, passage * hit], dim=-1)


class SpanReader(nn.Module):
    """Points to the first and to the last token of the answer."""

    def __init__(self, inputs: Inputs, settings: Settings, facts: dict[str, Any]) -> None:
        """`facts` are none: there is nothing to know beforehand."""
        super().__init__()
        self.inputs = inputs
        self.longest_text, self.longest_answer = settings.longest_text, settings.longest_answer
        hidden, dropout = settings.hidden, settings.dropout
        columns = inputs.dim + MATCHES
        self.encoder = BiLSTM(columns, hidden, depth=settings.depth, dropout=dropout)
        self.attention = BiAttention(self.encoder.dim + inputs.late_dim)
        self.merge = nn.Linear(self.attention.dim, 2 * hidden)
        self.dropout = nn.Dropout(dropout)
        self.start_layer = BiLSTM(2 * hidden, hidden, dropout=dropout)
        self.start = nn.Linear(2 * hidden, 1)
        self.end_layer = BiLSTM(4 * hidden, hidden, dropout=dropout)
        self.end = nn.Linear(2 * hidden, 1)

    def forward(
        self, questions: Sequence[Tokens], passages: Sequence[Tokens]
    ) -> tuple[Tensor, Tensor]:
        """Log p that the answer starts, and that it ends, with each token: (B, P) each.

        -inf where a passage has ended.
        """
        question, question_mask = self._encode(questions, passages)
        passage, mask = self._encode(passages, questions)
        attended = self.attention(passage, question, mask, question_mask)  # (B, P, 4D)
        merged = self.dropout(self.merge(attended).relu())  # (B, P, 2 * hidden)
        starting = self.start_layer(merged, mask)  # (B, P, 2 * hidden)
        ending = self.end_layer(torch.cat([merged, starting], dim=-1), mask)
        logits = self.start(starting).squeeze(-1), self.end(ending).squeeze(-1)  # (B, P) each
        start, end = (scores.masked_fill(~mask, -torch.inf).log_softmax(1) for scores in logits)
        return start, end

    def _encode(self, texts: Sequence[Tokens], others: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """Vectors of the tokens in their context, (B, tokens, D), and the mask."""
        encoded = self.inputs(texts)
        pairs = zip(texts, others, strict=True)
        found = nn.utils.rnn.pad_sequence([matches(*pair) for pair in pairs], batch_first=True)
        vectors = torch.cat([encoded.vectors, found.to(encoded.vectors)], dim=-1)
        return encoded.join(self.encoder(vectors, encoded.mask)), encoded.mask

    def loss(self, batch: Sequence[Question]) -> Tensor:
        """The mean of -log p(start) - log p(end) of the first answer."""
        cut = [window(example, self.longest_text) for example in batch]
        start, end = self([example.texts[0] for example in batch], [tokens for tokens, _ in cut])
        spans = torch.tensor([span for _, span in cut], device=start.device)  # (B, 2)
        right = start.gather(1, spans[:, :1]) + end.gather(1, spans[:, 1:] - 1)  # (B, 1)
        return -right.mean()  # type: ignore[no-any-return]

    def predict(self, batch: Sequence[Question]) -> list[dict[str, Any]]:
        """The best answer to each question, its characters in the passage and its probability."""
        longest = max(len(example.texts[1]) for example in batch)
        if len(batch) > 1 and len(batch) * longest > TOGETHER:
            half = len(batch) // 2
            return self.predict(batch[:half]) + self.predict(batch[half:])
        questions, passages = zip(*(example.texts for example in batch), strict=True)
        start, end = self(questions, passages)
        best = best_spans(start, end, self.longest_answer)
        return [answer(*found) for found in zip(batch, *best, strict=True)]


def answer(example: Question, span: Span, probability: float) -> dict[str, Any]:
    """Some tokens of the passage, as it was written."""
    start, end = example.offsets[span[0]][0], example.offsets[span[1] - 1][1]
    text, probability = example.passage[start:end], round(probability, 6)
    return {"answer": text, "start": start, "end": end, "probability": probability}


def window(example: Question, longest: int) -> tuple[Tokens, Span]:
    """At most so many tokens of the passage, and where the answer is among them.

    Windows begin at multiples of half their length, so that the questions of a passage share a
    few of them and with them their kept vectors. Of an answer too long for its window, the
    beginning is taken.
    """
    tokens, span = example.texts[1], example.span
    assert span is not None  # `learn` has seen to that
    if not longest or len(tokens) <= longest:
        return tokens, span
    step = max(longest // 2, 1)
    before = max((sum(span) - longest) // 2, 0)  # with the answer in the middle
    begin = min(round(before / step) * step, span[0], len(tokens) - longest)
    return tokens[begin : begin + longest], (span[0] - begin, min(span[1] - begin, longest))


def best_spans(start: Tensor, end: Tensor, longest: int) -> tuple[list[Span], list[float]]:
    """The most probable span of at most `longest` tokens of each passage, and its probability.

    Args:
        start: log p that the answer starts with a token: (B, P), -inf where padded.
        end: log p that it ends with a token: (B, P), -inf where padded.
        longest: tokens of an answer.
    """
    longest = min(longest, end.shape[1])
    ends = F.pad(end, (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)  # (B, P, longest)
    best = (start.unsqueeze(2) + ends).flatten(1).max(1)  # at the place start * longest + further
    places = (divmod(place, longest) for place in best.indices.tolist())
    spans = [(first, first + further + 1) for first, further in places]
    return spans, best.values.exp().tolist()


def read(path: str, settings: Settings, bad: BadLines, labelled: bool) -> Iterator[Question]:
    """Questions of a file of SQuAD's format, with their answers if they are wanted."""
    return read_squad(path, tokenize=tokenizer(settings.tokenizer), labelled=labelled, bad=bad)


def learn(examples: Sequence[Question], settings: Settings) -> dict[str, Any]:
    """Nothing; every question must have an answer."""
    for example in examples:
        if example.span is None:
            raise ElmokitError(f"{example.where}: the question has no answer to learn from")
    return {}


def score(examples: Sequence[Question], predictions: Sequence[Any]) -> dict[str, float]:
    """F1 and exact match with the best of each question's answers."""
    gold = [example.answers for example in examples]
    found = [prediction["answer"] for prediction in predictions]
    return {"f1": metrics.answer_f1(gold, found), "exact": metrics.exact_match(gold, found)}


def write(examples: Sequence[Question], predictions: Sequence[Any]) -> Iterator[str]:
    """What SQuAD's own script reads: {identifier: answer}."""
    return write_answers(examples, [prediction["answer"] for prediction in predictions])


TASK = Task(
    name="question",
    read=read,
    learn=learn,
    model=SpanReader,
    score=score,
    write=write,
    defaults={
        "hidden": 100,
        "dropout": 0.2,
        "epochs": 20,
        "patience": 3,
        "batch_size": 32,
        "lr": 0.001,
        "longest_text": 400,
    },
)
