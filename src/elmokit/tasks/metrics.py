"""Scores of predictions: the last look at a task model, and what early stopping watches.

Every function takes what is right first, then what was predicted; only `bleu` and `rouge` take
the hypotheses first, as the libraries behind them do. Scores are fractions from 0 to 1. What is
divided by zero is 0. Lists of different lengths, or empty ones, are an error.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import correlation, fmean
from typing import Any, Literal

from elmokit.errors import ElmokitError, require


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1."""

    precision: float
    recall: float
    f1: float
    support: int
    """How many there are in what is right."""


@dataclass(frozen=True)
class Report:
    """Scores of each class (label, type of span, relation) and of all together."""

    each: dict[str, Score]
    micro: Score
    """Of the sums of all counts."""
    macro: Score
    """The plain mean over classes."""

    def table(self) -> str:
        """The report as text, one line a class."""
        rows = {**self.each, "micro": self.micro, "macro": self.macro}
        width = max(map(len, rows))
        lines = [f"{'':{width}}  precision  recall      f1  support"]
        for name, score in rows.items():
            numbers = f"{score.precision:9.4f}  {score.recall:6.4f}  {score.f1:6.4f}"
            lines.append(f"{name:{width}}  {numbers}  {score.support:7}")
        return "\n".join(lines)


def accuracy(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
    """The share of labels that are right."""
    _check(gold, predicted)
    return fmean(one == other for one, other in zip(gold, predicted, strict=True))


def tag_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The share of tokens with the right tag, over the tags of sentences."""
    _check_sentences(gold, predicted)
    return accuracy([tag for tags in gold for tag in tags], [t for tags in predicted for t in tags])


def classification(gold: Sequence[str], predicted: Sequence[str]) -> Report:
    """Scores of each label; micro F1 is then the accuracy."""
    _check(gold, predicted)
    correct = Counter(one for one, other in zip(gold, predicted, strict=True) if one == other)
    return _report(correct, Counter(predicted), Counter(gold))


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean of the labels' F1, over all that are in either list."""
    return classification(gold, predicted).macro.f1


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Report:
    """Scores of spans, of each type: one is right if its type and both its ends are.

    Equal to conlleval's, and to seqeval's without a mode; see `spans` for tags out of place.
    """
    _check_sentences(gold, predicted)
    in_gold = {(i, *span) for i, tags in enumerate(gold) for span in spans(tags)}
    found = {(i, *span) for i, tags in enumerate(predicted) for span in spans(tags)}
    by_type = (Counter(span[1] for span in some) for some in (in_gold & found, found, in_gold))
    return _report(*by_type)


def spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Spans of a sentence's tags: their type, first token, and the token after their last.

    Reads IOB2, IOB1 and IOBES, and tags out of place as conlleval and seqeval (without a mode) do:
    an I-X that nothing opened, or that follows another type, begins a span; a span that E- does
    not close ends before the next one. (seqeval's strict mode would drop such spans.) The
    original conlleval knows no S- and only some E-: there this function goes with seqeval.
    """
    found = []
    before, kind_before, first = "O", "_", 0
    for i, tag in enumerate((*tags, "O")):
        prefix, _, kind = tag.partition("-")
        if prefix not in ("B", "I", "O", "E", "S"):
            raise ElmokitError(f"{tag!r} is no tag of a span: those are O or begin with B-, I-, …")
        kind = kind or "_"  # as seqeval calls it
        unopened = before in ("O", "E", "S") or kind != kind_before
        begins = prefix in ("B", "S") or (prefix in ("I", "E") and unopened)
        if before != "O" and (begins or prefix == "O"):
            found.append((kind_before, first, i))
        if begins:
            first = i
        before, kind_before = prefix, kind
    return found


def relation_f1(gold: Sequence[str], predicted: Sequence[str]) -> Report:
    """Scores of SemEval-2010 task 8; the official one is `.macro.f1`.

    That is the (9+1)-way evaluation with direction taken into account: Cause-Effect(e1,e2) and
    Cause-Effect(e2,e1) are one relation, but the wrong direction is a wrong answer, which counts
    among what was predicted as well as among what is right. Averages leave out Other, and
    relations that are not in `gold`.
    """
    _check(gold, predicted)
    right = [one for one, other in zip(gold, predicted, strict=True) if one == other]
    counts = [
        Counter(re.sub(r"\(e[12],e[12]\)$", "", label) for label in labels)
        for labels in (right, predicted, gold)
    ]
    return _report(*counts, names=counts[2], left_out="Other")


def exact_match(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> float:
    """SQuAD's exact match: the share of answers that are one of the right ones, normalised."""
    _check_answers(gold, predicted)
    return fmean(
        normalised(answer) in map(normalised, answers)
        for answers, answer in zip(gold, predicted, strict=True)
    )


def answer_f1(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> float:
    """SQuAD 1.1's F1: the mean over questions of the best word overlap with a right answer."""
    _check_answers(gold, predicted)
    return fmean(
        max(_overlap(normalised(right).split(), normalised(answer).split()) for right in answers)
        for answers, answer in zip(gold, predicted, strict=True)
    )


def normalised(answer: str) -> str:
    """An answer without case, ASCII punctuation, articles and extra spaces, as SQuAD has it."""
    plain = answer.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(?:an?|the)\b", " ", plain).split())


def gap_scores(
    gold: Sequence[str], predicted: Sequence[str], pronouns: Sequence[str] | None = None
) -> dict[str, float]:
    """Scores of GAP, for labels A, B and NEITHER: accuracy, and F1 as its own scorer has it.

    There each of the two names is a decision of its own, whether the pronoun means it. With the
    pronouns of the examples also `f1_masculine` and `f1_feminine`, and `bias`, feminine F1 divided
    by masculine F1 (it can be above 1), where neither is 0.
    """
    _check(gold, predicted)
    overall = _gap(gold, predicted)
    scores = {"accuracy": accuracy(gold, predicted), "f1": overall.f1}
    scores |= {"precision": overall.precision, "recall": overall.recall}
    if pronouns is None:
        return scores
    _check(gold, pronouns)
    for gender, words in _GENDERS.items():
        chosen = [i for i, pronoun in enumerate(pronouns) if pronoun.lower() in words]
        scores[f"f1_{gender}"] = _gap([gold[i] for i in chosen], [predicted[i] for i in chosen]).f1
    if scores["f1_masculine"] and scores["f1_feminine"]:
        scores["bias"] = scores["f1_feminine"] / scores["f1_masculine"]
    return scores


_GENDERS = {"masculine": ("he", "him", "his"), "feminine": ("she", "her", "hers")}


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson's correlation, from -1 to 1; 0 where either side is constant."""
    _check(gold, predicted)
    if min(gold) == max(gold) or min(predicted) == max(predicted):
        return 0.0
    return max(-1.0, min(1.0, correlation(gold, predicted)))


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: Literal["13a", "intl", "zh", "char", "none"] = "13a",
) -> float:
    """BLEU of a corpus, by sacrebleu, divided by 100.

    Args:
        hypotheses: what was predicted.
        references: one for each hypothesis.
        tokenize: sacrebleu's tokenizer; none for text that is tokenized already, zh for Chinese.
    """
    _check(references, hypotheses)
    sacrebleu = require("sacrebleu", extra="tasks", purpose="BLEU")
    # force: no warning about text that looks tokenized; with "none" it is meant to be
    metric = sacrebleu.BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return min(1.0, float(score) / 100)  # rounding makes it 1.0000000000000004


def rouge(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: Literal["english", "none"] = "english",
) -> dict[str, float]:
    """Mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L, by rouge-score: `rouge1`, `rouge2`, `rougeL`.

    Args:
        hypotheses: what was predicted.
        references: one for each hypothesis.
        tokenize: english for rouge-score's own words, lower-case a-z and 0-9 only, without
            stemming; none for text of any language that is tokenized already.
    """
    _check(references, hypotheses)
    rouge_scorer = require("rouge_score.rouge_scorer", extra="tasks", purpose="ROUGE")
    names = ["rouge1", "rouge2", "rougeL"]
    scorer = rouge_scorer.RougeScorer(names, tokenizer=_Spaces() if tokenize == "none" else None)
    scores = [scorer.score(*pair) for pair in zip(references, hypotheses, strict=True)]
    return {name: float(fmean(score[name].fmeasure for score in scores)) for name in names}


class _Spaces:
    """The tokenizer of tokenized text, as rouge-score calls it."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


def _score(correct: int, predicted: int, gold: int) -> Score:
    return Score(
        precision=_ratio(correct, predicted),
        recall=_ratio(correct, gold),
        f1=_ratio(2 * correct, predicted + gold),
        support=gold,
    )


def _report(
    correct: Mapping[str, int],
    predicted: Mapping[str, int],
    gold: Mapping[str, int],
    *,
    names: Iterable[str] | None = None,
    left_out: str | None = None,
) -> Report:
    """Scores out of counts, of all names that occur or some; averages without one of them."""
    names = sorted({*predicted, *gold} if names is None else names)
    each = {n: _score(correct.get(n, 0), predicted.get(n, 0), gold.get(n, 0)) for n in names}
    averaged = [name for name in names if name != left_out]
    counts = (sum(some.get(n, 0) for n in averaged) for some in (correct, predicted, gold))
    return Report(each, _score(*counts), _mean([each[name] for name in averaged]))


def _mean(scores: Sequence[Score]) -> Score:
    if not scores:
        return Score(0.0, 0.0, 0.0, 0)
    return Score(
        precision=fmean(score.precision for score in scores),
        recall=fmean(score.recall for score in scores),
        f1=fmean(score.f1 for score in scores),
        support=sum(score.support for score in scores),
    )


def _overlap(right: Sequence[str], answer: Sequence[str]) -> float:
    """F1 of two bags of words; two empty ones have nothing in common, as in SQuAD 1.1."""
    common = (Counter(right) & Counter(answer)).total()
    return _score(common, len(answer), len(right)).f1


def _gap(gold: Sequence[str], predicted: Sequence[str]) -> Score:
    correct = sum(a == b and a in ("A", "B") for a, b in zip(gold, predicted, strict=True))
    named, found = (sum(label in ("A", "B") for label in labels) for labels in (gold, predicted))
    return _score(correct, found, named)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _check(gold: Sequence[Any], predicted: Sequence[Any]) -> None:
    if len(gold) != len(predicted):
        raise ElmokitError(f"there are {len(predicted)} predictions for {len(gold)} examples")
    if not gold:
        raise ElmokitError("there are no examples to score")


def _check_sentences(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    _check(gold, predicted)
    for number, (right, tags) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(right) != len(tags):
            raise ElmokitError(f"sentence {number} has {len(tags)} tags for {len(right)} tokens")


def _check_answers(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> None:
    _check(gold, predicted)
    if not all(gold):
        raise ElmokitError("a question has no right answer to compare with")
