"""Question answering: the span of a passage that answers a question, after BiDAF and DocumentQA.

question, passage ─► vectors + matches ─► shared BiLSTM [; ELMo] ─► attention in both directions
─► BiLSTM ─► start ─► BiLSTM ─► end

In training, a passage longer than `max_tokens` is cut to a window that contains the answer. A
prediction always reads the whole passage: its softmax needs no comparison of windows.

Shapes: B questions, P tokens of the longest passage, Q of the longest question, D columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.data.examples import Question, Span, Tokens
from elmokit.data.squad import read_squad
from elmokit.tasks import metrics
from elmokit.tasks.layers.attention import MATCHES, TrilinearScores, masked_softmax, with_matches
from elmokit.tasks.layers.bilstm import BiLSTM
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.settings import QuestionSettings
from elmokit.tasks.task import Learned, Task, reader

MAX_BATCH_TOKENS = 25_600  # padded tokens of the passages of a prediction, unless it is one


class BiAttention(nn.Module):
    """Attention from each token of the passage to the question, and back."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = TrilinearScores(dim)
        self.dim = 4 * dim

    def forward(
        self, passage: Tensor, question: Tensor, passage_mask: Tensor, question_mask: Tensor
    ) -> Tensor:
        """Map (B, P, D) and (B, Q, D) to [passage; asked; passage * asked; passage * hit].

        The result is (B, P, 4D). `asked` is the mean of the question that each token attends to,
        `hit` the mean of the passage's tokens that match any word of the question best.
        """
        scores = self.scores(passage, question)  # (B, P, Q)
        asked = masked_softmax(scores, question_mask.unsqueeze(1)) @ question  # (B, P, D)
        lowest = torch.finfo(scores.dtype).min
        best = scores.masked_fill(~question_mask.unsqueeze(1), lowest).amax(2)  # (B, P)
        hit = masked_softmax(best, passage_mask).unsqueeze(1) @ passage  # (B, 1, D)
        return torch.cat([passage, asked, passage * asked, passage * hit], dim=-1)


class SpanReader(nn.Module):
    """Point to the first and to the last token of the answer."""

    def __init__(self, inputs: Inputs, settings: QuestionSettings, learned: Learned) -> None:
        super().__init__()
        self.inputs = inputs
        self.max_tokens, self.max_answer_tokens = settings.max_tokens, settings.max_answer_tokens
        hidden, dropout = settings.hidden, settings.dropout
        self.encoder = BiLSTM(inputs.dim + MATCHES, hidden, depth=settings.depth, dropout=dropout)
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
        """Return log p that the answer starts, or ends, with each token: (B, P), -inf if padded."""
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
        """Return the vectors of the tokens in context, (B, tokens, D), and the mask."""
        encoded = self.inputs(texts)
        vectors = with_matches(encoded.vectors, texts, others)
        return encoded.join(self.encoder(vectors, encoded.mask)), encoded.mask

    def loss(self, batch: Sequence[Question]) -> Tensor:
        """Return the mean of -log p(start) - log p(end) of the first answer."""
        cut = [window(example, self.max_tokens) for example in batch]
        start, end = self([example.texts[0] for example in batch], [tokens for tokens, _ in cut])
        spans = torch.tensor([span for _, span in cut], device=start.device)  # (B, 2)
        right = start.gather(1, spans[:, :1]) + end.gather(1, spans[:, 1:] - 1)  # (B, 1)
        return -right.mean()  # type: ignore[no-any-return]

    def predict(self, batch: Sequence[Question]) -> list[dict[str, Any]]:
        longest = max(len(example.texts[1]) for example in batch)
        if len(batch) > 1 and len(batch) * longest > MAX_BATCH_TOKENS:
            half = len(batch) // 2
            return self.predict(batch[:half]) + self.predict(batch[half:])
        questions, passages = zip(*(example.texts for example in batch), strict=True)
        start, end = self(questions, passages)
        best = best_spans(start, end, self.max_answer_tokens)
        return [answer(*spans) for spans in zip(batch, *best, strict=True)]


def answer(example: Question, span: Span, probability: float) -> dict[str, Any]:
    """Return the text of a span of the passage, as it was written, with its probability."""
    start, end = example.offsets[span[0]][0], example.offsets[span[1] - 1][1]
    position = {"start": start, "end": end}
    return {"answer": example.passage[start:end], **position, "probability": round(probability, 6)}


def window(example: Question, max_tokens: int) -> tuple[Tokens, Span]:
    """Return at most `max_tokens` tokens of the passage, and the position of the answer in them.

    Windows begin at multiples of half their length, so that the questions of a passage share a few
    windows and thus their cached vectors. An answer too long for its window is cut at the end.
    """
    tokens, span = example.texts[1], example.span
    assert span is not None  # A reader of labeled files has checked that.
    if not max_tokens or len(tokens) <= max_tokens:
        return tokens, span
    step = max(max_tokens // 2, 1)
    before = max((sum(span) - max_tokens) // 2, 0)  # with the answer in the middle
    begin = min(round(before / step) * step, span[0], len(tokens) - max_tokens)
    end = begin + max_tokens
    return tokens[begin:end], (span[0] - begin, min(span[1], end) - begin)


def best_spans(start: Tensor, end: Tensor, max_tokens: int) -> tuple[list[Span], list[float]]:
    """Return the most probable span of at most `max_tokens` per passage, and its probability."""
    width = min(max_tokens, end.shape[1])
    ends = F.pad(end, (0, width - 1), value=-torch.inf).unfold(1, width, 1)  # (B, P, width)
    best = (start.unsqueeze(2) + ends).flatten(1).max(1)  # at index start * width + further
    pairs = (divmod(index, width) for index in best.indices.tolist())
    return [(first, first + further + 1) for first, further in pairs], best.values.exp().tolist()


def learn(examples: Sequence[Question], settings: QuestionSettings) -> Learned:
    """Learn nothing: answers are spans."""
    return {}


def score(examples: Sequence[Question], predictions: Sequence[Any]) -> dict[str, float]:
    """Return F1 and exact match with the best of each question's answers."""
    gold = [example.answers for example in examples]
    predicted = [prediction["answer"] for prediction in predictions]
    f1, exact = metrics.answer_f1(gold, predicted), metrics.exact_match(gold, predicted)
    return {"f1": f1, "exact": exact}


def write(examples: Sequence[Question], predictions: Sequence[Any]) -> Iterator[str]:
    """Yield what SQuAD's own script reads: {identifier: answer}."""
    pairs = zip(examples, predictions, strict=True)
    answers = {example.identifier: prediction["answer"] for example, prediction in pairs}
    yield json.dumps(answers, ensure_ascii=False, indent=1) + "\n"


TASK = Task("question", QuestionSettings, reader(read_squad), learn, SpanReader, score, write)
