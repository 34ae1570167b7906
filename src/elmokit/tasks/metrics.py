"""Scores of predictions: the final measure of a task model, and what early stopping watches.

Every function takes the gold answers first, then the predictions; only `bleu` and `rouge` take the
hypotheses first, as the libraries behind them do. Scores are fractions from 0 to 1. A division by
zero gives 0. Lists of different lengths and empty lists raise an error.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Literal

from elmokit.errors import ElmokitError, plural, require


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1."""

    precision: float
    recall: float
    f1: float
    support: int  # number of gold answers


@dataclass(frozen=True)
class Report:
    """Scores of each class (label, type of span, relation) and of all together."""

    each: dict[str, Score]
    micro: Score  # of the sums of all counts
    macro: Score  # the mean over the classes


def accuracy(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
    """Return the share of labels that are right."""
    _check(gold, predicted)
    return fmean(one == other for one, other in zip(gold, predicted, strict=True))


def tag_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the share of tokens with the right tag, over all sentences."""
    _check_sentences(gold, predicted)
    return accuracy([tag for tags in gold for tag in tags], [t for tags in predicted for t in tags])


def classification(gold: Sequence[str], predicted: Sequence[str]) -> Report:
    """Return the scores of each label that is in either list; micro F1 is the accuracy."""
    _check(gold, predicted)
    correct = Counter(one for one, other in zip(gold, predicted, strict=True) if one == other)
    return _report(correct, Counter(predicted), Counter(gold))


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Report:
    """Return the scores of spans by type; a span is right if its type and both ends are.

    The scores equal those of conlleval, and of seqeval without a mode, also for invalid tags.
    """
    _check_sentences(gold, predicted)
    in_gold = {(i, *span) for i, tags in enumerate(gold) for span in spans(tags)}
    in_predicted = {(i, *span) for i, tags in enumerate(predicted) for span in spans(tags)}
    sets = (in_gold & in_predicted, in_predicted, in_gold)
    return _report(*(Counter(span[1] for span in each) for each in sets))


def spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the spans of a sentence's tags: type, first token, and the token after the last.

    Read IOB2, IOB1 and IOBES, and invalid tags as conlleval and seqeval (without a mode) do: an I-X
    that nothing opened, or that follows another type, begins a span; a span that E- does not close
    ends before the next one. For S- and E-, which conlleval hardly knows, follow seqeval.
    """
    result = []
    before, kind_before, first = "O", "_", 0
    for i, tag in enumerate((*tags, "O")):
        prefix, _, kind = tag.partition("-")
        if prefix not in ("B", "I", "O", "E", "S"):
            raise ElmokitError(
                f"{tag!r} is not a span tag: use O, or tags that begin with B-, I-, …"
            )
        kind = kind or "_"  # as seqeval calls it
        unopened = before in ("O", "E", "S") or kind != kind_before
        begins = prefix in ("B", "S") or (prefix in ("I", "E") and unopened)
        if before != "O" and (begins or prefix == "O"):
            result.append((kind_before, first, i))
        if begins:
            first = i
        before, kind_before = prefix, kind
    return result


def relation_f1(gold: Sequence[str], predicted: Sequence[str]) -> Report:
    """Return the scores of SemEval-2010 task 8; the official one is `.macro.f1`.

    Cause-Effect(e1,e2) and Cause-Effect(e2,e1) are one relation, but the wrong direction is a wrong
    answer, which counts as a prediction and as a gold answer of the relation. Averages leave out
    Other, and relations that are not in `gold`.
    """
    _check(gold, predicted)
    correct = [one for one, other in zip(gold, predicted, strict=True) if one == other]
    counts = [
        Counter(re.sub(r"\(e[12],e[12]\)$", "", label) for label in labels)
        for labels in (correct, predicted, gold)
    ]
    return _report(*counts, names=counts[2], left_out="Other")


def exact_match(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> float:
    """Return SQuAD's exact match: the share of answers that equal a gold one, normalized."""
    return _mean_of_best(lambda right, answer: float(right == answer), gold, predicted)


def answer_f1(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> float:
    """Return SQuAD 1.1's F1: the mean over questions of the best word overlap with an answer."""

    def overlap(right: str, answer: str) -> float:  # 0 for two empty bags of words
        words = right.split(), answer.split()
        common = (Counter(words[0]) & Counter(words[1])).total()
        return _score(common, len(words[1]), len(words[0])).f1

    return _mean_of_best(overlap, gold, predicted)


def _mean_of_best(
    score: Callable[[str, str], float], gold: Sequence[Sequence[str]], predicted: Sequence[str]
) -> float:
    """Return the mean over questions of the best score of an answer with any gold answer."""
    _check(gold, predicted)
    if not all(gold):
        raise ElmokitError("a question has no gold answer to compare with")
    return fmean(
        max(score(normalized(right), normalized(answer)) for right in answers)
        for answers, answer in zip(gold, predicted, strict=True)
    )


def normalized(answer: str) -> str:
    """Return an answer without case, ASCII punctuation, articles and extra spaces, as in SQuAD."""
    plain = answer.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(?:an?|the)\b", " ", plain).split())


def gap_scores(
    gold: Sequence[str], predicted: Sequence[str], pronouns: Sequence[str]
) -> dict[str, float]:
    """Return the scores of GAP for labels A, B and NEITHER: accuracy, and F1 of its own scorer.

    There each of the two names is a separate decision, whether the pronoun refers to it. F1 is also
    that of masculine and of feminine pronouns alone. `bias` is feminine F1 divided by masculine F1
    (it can be above 1), if neither is 0.
    """
    _check(gold, pronouns)
    right, overall = accuracy(gold, predicted), _gap(gold, predicted)
    scores = {"f1": overall.f1, "accuracy": right}
    scores |= {"precision": overall.precision, "recall": overall.recall}
    for gender, words in _GENDERS.items():
        chosen = [i for i, pronoun in enumerate(pronouns) if pronoun.lower() in words]
        scores[f"f1_{gender}"] = _gap([gold[i] for i in chosen], [predicted[i] for i in chosen]).f1
    if scores["f1_masculine"] and scores["f1_feminine"]:
        scores["bias"] = scores["f1_feminine"] / scores["f1_masculine"]
    return scores


_GENDERS = {"masculine": ("he", "him", "his"), "feminine": ("she", "her", "hers")}


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> float:
    """Return the BLEU of a corpus by sacrebleu, divided by 100.

    `tokenize` is a tokenizer of sacrebleu: none for tokenized text, zh for Chinese.
    """
    _check(references, hypotheses)
    sacrebleu = require("sacrebleu", extra="tasks", purpose="BLEU")
    # `force` avoids a warning about text that looks tokenized; with "none" it is.
    metric = sacrebleu.BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return min(1.0, float(score) / 100)  # Rounding gives 1.0000000000000004.


def rouge(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: Literal["english", "none"] = "english",
) -> dict[str, float]:
    """Return the mean F1 of ROUGE-L, ROUGE-1 and ROUGE-2 by rouge-score.

    With `tokenize="english"` the words are those of rouge-score, lower-case a-z and 0-9 only,
    without stemming; "none" is for tokenized text of any language.
    """
    _check(references, hypotheses)
    rouge_scorer = require("rouge_score.rouge_scorer", extra="tasks", purpose="ROUGE")
    names = ["rougeL", "rouge1", "rouge2"]
    tokenizer = SimpleNamespace(tokenize=str.split) if tokenize == "none" else None
    scorer = rouge_scorer.RougeScorer(names, tokenizer=tokenizer)
    scores = [scorer.score(*pair) for pair in zip(references, hypotheses, strict=True)]
    return {name: float(fmean(score[name].fmeasure for score in scores)) for name in names}


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95% confidence interval of a share that was measured on `count` examples.

    >>> [round(bound, 3) for bound in wilson(1.0, 2)]
    [0.342, 1.0]
    """
    z2 = 1.959964**2 / count
    middle = (share + z2 / 2) / (1 + z2)
    around = math.sqrt(share * (1 - share) * z2 + z2**2 / 4) / (1 + z2)
    return middle - around, middle + around


def _score(correct: int, predicted: int, gold: int) -> Score:
    pairs = ((correct, predicted), (correct, gold), (2 * correct, predicted + gold))
    precision, recall, f1 = (part / whole if whole else 0.0 for part, whole in pairs)
    return Score(precision, recall, f1, gold)


def _report(
    *counts: Counter[str], names: Iterable[str] | None = None, left_out: str | None = None
) -> Report:
    """Return scores from counts of correct, predicted and gold names; see `relation_f1`."""
    names = sorted({*counts[1], *counts[2]} if names is None else names)
    each = {name: _score(*(count[name] for count in counts)) for name in names}
    averaged = [name for name in names if name != left_out]
    micro = _score(*(sum(count[name] for name in averaged) for count in counts))
    scores = [each[name] for name in averaged]
    columns = ([getattr(s, name) for s in scores] for name in ("precision", "recall", "f1"))
    precision, recall, f1 = (fmean(column) if column else 0.0 for column in columns)
    return Report(each, micro, Score(precision, recall, f1, micro.support))


def _gap(gold: Sequence[str], predicted: Sequence[str]) -> Score:
    correct = sum(a == b and a in ("A", "B") for a, b in zip(gold, predicted, strict=True))
    in_gold, in_predicted = (sum(x in ("A", "B") for x in labels) for labels in (gold, predicted))
    return _score(correct, in_predicted, in_gold)


def _check(gold: Sequence[Any], predicted: Sequence[Any]) -> None:
    if len(gold) != len(predicted):
        raise ElmokitError(
            f"{plural(len(gold), 'example')} cannot have {plural(len(predicted), 'prediction')}"
        )
    if not gold:
        raise ElmokitError("there are no examples to score")


def _check_sentences(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    _check(gold, predicted)
    for i, (right, tags) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(right) != len(tags):
            raise ElmokitError(
                f"sentence {i} has {plural(len(tags), 'tag')} for {plural(len(right), 'token')}"
            )
