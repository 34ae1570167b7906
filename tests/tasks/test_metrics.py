"""Scores against the reference implementations, and against definitions written another way."""

from __future__ import annotations

import lzma
import math
import re
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elmokit.errors import ElmokitError, MissingExtra
from elmokit.tasks.metrics import (
    Score,
    accuracy,
    answer_f1,
    bleu,
    classification,
    exact_match,
    gap_scores,
    normalized,
    relation_f1,
    rouge,
    span_f1,
    spans,
    tag_accuracy,
)

many = settings(max_examples=100)
Sentences = list[list[str]]

IOB_TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-C-ARG1", "I-C-ARG1"]
IOBES_TAGS = [*IOB_TAGS, "E-PER", "S-PER", "E-LOC", "S-LOC", "B", "I", "E", "S"]
RELATIONS = ["Cause-Effect", "Entity-Origin", "Message-Topic"]
DIRECTED = [f"{name}({ends})" for name in RELATIONS for ends in ("e1,e2", "e2,e1")]


def side_by_side(items: st.SearchStrategy[Any], least: int = 1) -> st.SearchStrategy[Any]:
    """Two lists of the same length, at most 20."""
    rows = st.lists(st.tuples(items, items), min_size=least, max_size=20)
    return rows.map(lambda some: ([row[0] for row in some], [row[1] for row in some]))


def tagged(tags: list[str]) -> st.SearchStrategy[Any]:
    """Tags of a few sentences, right and predicted."""
    sentences = st.lists(side_by_side(st.sampled_from(tags), least=0), min_size=1, max_size=5)
    return sentences.map(lambda some: ([row[0] for row in some], [row[1] for row in some]))


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def f1(correct: float, predicted: float, right: float) -> float:
    precision, recall = ratio(correct, predicted), ratio(correct, right)
    return ratio(2 * precision * recall, precision + recall)


def numbers(score: Score) -> tuple[float, float, float]:
    return score.precision, score.recall, score.f1


# Tags


@many
@given(tagged(IOBES_TAGS))
def test_span_scores_are_those_of_seqeval(both: tuple[Sentences, Sentences]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    report = span_f1(*both)
    if not report.each:  # seqeval has no report of nothing
        assert seqeval.f1_score(*both, zero_division=0) == report.micro.f1 == 0.0
        return
    expected = seqeval.classification_report(*both, output_dict=True, zero_division=0)
    ours = {**report.each, "micro avg": report.micro, "macro avg": report.macro}
    assert set(ours) == set(expected) - {"weighted avg"}
    for name, score in ours.items():
        theirs = expected[name]
        assert score.support == theirs["support"]
        assert numbers(score) == pytest.approx(
            (theirs["precision"], theirs["recall"], theirs["f1-score"])
        )


@many
@given(tagged(IOB_TAGS))
def test_span_scores_are_those_of_conlleval(both: tuple[Sentences, Sentences]) -> None:
    report = span_f1(*both)
    counts = conlleval(*both)
    assert set(report.each) == set(counts) - {None}
    for name, score in [*report.each.items(), (None, report.micro)]:
        correct, result, right = counts[name]
        assert score.support == right
        assert numbers(score) == pytest.approx(
            (ratio(correct, result), ratio(correct, right), f1(correct, result, right))
        )


def conlleval(gold: Sentences, predicted: Sentences) -> dict[str | None, list[int]]:
    """Correct, predicted and gold chunks of each type and, as None, of all, as conlleval counts.

    It reads line by line and remembers the line before and whether a chunk that began on both
    sides at once is the same until now.
    """
    counts: dict[str | None, list[int]] = defaultdict(lambda: [0, 0, 0])
    counts[None]

    def count(column: int, kind: str) -> None:
        counts[None][column] += 1
        counts[kind][column] += 1

    def ends(before: tuple[str, str], now: tuple[str, str]) -> bool:
        listed = before[0] + now[0] in ("BB", "BO", "IB", "IO")
        return listed or (before[0] != "O" and before[1] != now[1])

    def starts(before: tuple[str, str], now: tuple[str, str]) -> bool:
        listed = before[0] + now[0] in ("BB", "IB", "OB", "OI")
        return listed or (now[0] != "O" and before[1] != now[1])

    def split(tag: str) -> tuple[str, str]:
        match = re.fullmatch("([^-]*)-(.*)", tag)
        return (match[1], match[2]) if match else (tag, "")

    last_right = last_guess = ("O", "")
    same_until_now = False
    lines = [
        line
        for tags in zip(gold, predicted, strict=True)
        for line in [*zip(*tags, strict=True), ("O", "O")]  # an empty line between sentences
    ]
    for right, guess in (map(split, line) for line in lines):
        right_ends, guess_ends = ends(last_right, right), ends(last_guess, guess)
        if same_until_now:
            if right_ends and guess_ends and last_guess[1] == last_right[1]:
                same_until_now = False
                count(0, last_right[1])
            elif right_ends != guess_ends or guess[1] != right[1]:
                same_until_now = False
        right_starts, guess_starts = starts(last_right, right), starts(last_guess, guess)
        if right_starts and guess_starts and guess[1] == right[1]:
            same_until_now = True
        if guess_starts:
            count(1, guess[1])
        if right_starts:
            count(2, right[1])
        last_right, last_guess = right, guess
    return counts


@st.composite
def sentences_of_spans(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], int]:
    """Spans, some of them side by side, and the length of their sentence."""
    result, position = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=6)):
        first = position + gap
        position = first + length
        result.append((draw(st.sampled_from(["PER", "LOC"])), first, position))
    return result, position + draw(st.integers(0, 2))


def written(some: list[tuple[str, int, int]], length: int, scheme: str) -> list[str]:
    """The tags of spans in a scheme."""
    tags = ["O"] * length
    for kind, first, after in some:
        touches = any((kind, first) == (other, end) for other, _, end in some)
        begin = "B" if scheme != "iob1" or touches else "I"
        tags[first:after] = [f"I-{kind}"] * (after - first)
        tags[first] = f"{begin}-{kind}"
        if scheme == "iobes":
            tags[after - 1] = f"{'S' if after - first == 1 else 'E'}-{kind}"
    return tags


@many
@given(sentences_of_spans(), sentences_of_spans())
def test_all_schemes_say_the_same_spans(one: Any, other: Any) -> None:
    schemes = ("iob1", "iob2", "iobes")
    for some, length in (one, other):
        assert all(spans(written(some, length, scheme)) == some for scheme in schemes)
    length = max(one[1], other[1])
    in_iob1, in_iob2, in_iobes = (
        ([written(one[0], length, scheme)], [written(other[0], length, scheme)])
        for scheme in schemes
    )
    # conlleval reads files in IOB1 as they are
    correct, result, right = conlleval(*in_iob1)[None]
    assert span_f1(*in_iob2).micro.f1 == pytest.approx(f1(correct, result, right))
    assert span_f1(*in_iob1) == span_f1(*in_iob2) == span_f1(*in_iobes)


def test_conll_2003_has_its_published_numbers_of_entities(shared: Path) -> None:
    file = shared / "data" / "tag" / "conll2003.dev.conll.xz"
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        sentences = "".join(line if line.split() else "\n" for line in lines).split("\n\n")
    tags = [[line.split()[-1] for line in lines.split("\n") if line] for lines in sentences]
    tags = [sentence for sentence in tags if sentence and sentence != ["-X-"]]
    result = Counter(kind for sentence in tags for kind, _, _ in spans(sentence))
    assert result == {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}


def test_invalid_tags_begin_spans() -> None:
    assert spans("O I-PER I-LOC I-LOC B-LOC O".split()) == [
        ("PER", 1, 2),
        ("LOC", 2, 4),
        ("LOC", 4, 5),
    ]
    assert spans([]) == []


def test_a_span_of_another_type_or_length_is_wrong() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC"]]
    predicted = [["B-PER", "O", "O", "B-PER"], ["B-LOC"]]
    report = span_f1(gold, predicted)
    assert numbers(report.micro) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert numbers(report.each["LOC"]) == pytest.approx((1, 1 / 2, 2 / 3))
    assert numbers(report.each["PER"]) == (0, 0, 0)
    assert report.macro.f1 == pytest.approx(1 / 3)


def test_spans_do_not_go_over_the_end_of_a_sentence() -> None:
    assert span_f1([["B-X"], ["I-X"]], [["B-X"], ["I-X"]]).micro.support == 2


@pytest.mark.parametrize("predicted", ["O", "B-X"])
def test_without_right_spans_f1_is_zero(predicted: str) -> None:
    report = span_f1([["O", "O"]], [["O", predicted]])
    assert report.micro == Score(0.0, 0.0, 0.0, 0)
    assert report.macro == Score(0.0, 0.0, 0.0, 0)


def test_tags_of_words_are_not_spans() -> None:
    with pytest.raises(ElmokitError, match="'NOUN' is not a span tag"):
        span_f1([["NOUN"]], [["O"]])


@many
@given(tagged(IOB_TAGS))
def test_the_accuracy_of_tags_is_that_of_seqeval(both: tuple[Sentences, Sentences]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    assume(any(both[0]))
    assert tag_accuracy(*both) == pytest.approx(seqeval.accuracy_score(*both))


# Labels


@many
@given(side_by_side(st.sampled_from(["spam", "ham", "a label with spaces", "é"])))
def test_scores_of_labels_are_those_of_scikit_learn(both: tuple[list[str], list[str]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    report = classification(*both)
    assert accuracy(*both) == pytest.approx(sklearn.accuracy_score(*both))
    assert report.macro.f1 == pytest.approx(
        sklearn.f1_score(*both, average="macro", zero_division=0)
    )
    assert report.micro.f1 == pytest.approx(accuracy(*both))
    labels = sorted({*both[0], *both[1]})
    expected = sklearn.precision_recall_fscore_support(*both, labels=labels, zero_division=0)
    assert list(report.each) == labels
    for score, *theirs in zip(report.each.values(), *expected, strict=True):
        assert (*numbers(score), score.support) == pytest.approx(tuple(theirs))


def test_a_report_has_each_label_and_both_averages() -> None:
    report = classification(["yes", "no", "no", "no"], ["yes", "yes", "no", "no"])
    scores = {**report.each, "micro": report.micro, "macro": report.macro}
    rows = {name: [*numbers(score), score.support] for name, score in scores.items()}
    assert rows == {
        "no": pytest.approx([1, 2 / 3, 0.8, 3]),
        "yes": pytest.approx([0.5, 1, 2 / 3, 1]),
        "micro": pytest.approx([0.75, 0.75, 0.75, 4]),
        "macro": pytest.approx([0.75, 5 / 6, 11 / 15, 4]),
    }


# Relations


@many
@given(side_by_side(st.sampled_from([*DIRECTED, "Other"])))
def test_relation_scores_are_those_of_the_official_scorer(
    both: tuple[list[str], list[str]],
) -> None:
    assume(set(both[0]) != {"Other"})  # there it divides by zero
    report = relation_f1(*both)
    each, micro, macro = official_scorer(*both)
    assert {name: numbers(score) for name, score in report.each.items()} == {
        name: pytest.approx(score) for name, score in each.items()
    }
    assert numbers(report.micro) == pytest.approx(micro)
    assert numbers(report.macro) == pytest.approx(macro)


def ratios(correct: float, proposed: float, right: float) -> tuple[float, float, float]:
    return ratio(correct, proposed), ratio(correct, right), f1(correct, proposed, right)


def official_scorer(gold: list[str], predicted: list[str]) -> Any:
    """SemEval-2010 task 8, (9+1)-way with directions: from the confusion matrix, as described.

    Rows of the matrix are what was proposed: a relation, Other, or, for the right relation in the
    wrong direction, a row of its own.
    """
    names = sorted({label.partition("(")[0] for label in gold})
    everything = sorted({label.partition("(")[0] for label in [*gold, *predicted]})
    rows = {name: i for i, name in enumerate([*everything, "wrong direction"])}
    matrix = np.zeros((len(rows), len(everything)))
    for right, guess in zip(gold, predicted, strict=True):
        (relation, _, direction), (proposed, _, its) = right.partition("("), guess.partition("(")
        row = "wrong direction" if proposed == relation and direction != its else proposed
        matrix[rows[row], rows[relation]] += 1
    each, sums = {}, np.zeros(3)
    for name in names:
        i = rows[name]
        counts = matrix[i, i], matrix[i].sum() + matrix[-1, i], matrix[:, i].sum()
        each[name] = ratios(*counts)
        sums += counts if name != "Other" else (0, 0, 0)
    macro = tuple(np.mean([score for name, score in each.items() if name != "Other"], axis=0))
    return each, ratios(*sums), macro


def test_the_wrong_direction_is_wrong_for_both() -> None:
    gold = ["Cause-Effect(e1,e2)", "Cause-Effect(e1,e2)", "Other", "Entity-Origin(e1,e2)"]
    predicted = ["Cause-Effect(e1,e2)", "Cause-Effect(e2,e1)", "Other", "Other"]
    report = relation_f1(gold, predicted)
    assert numbers(report.each["Cause-Effect"]) == (0.5, 0.5, 0.5)
    assert numbers(report.each["Other"]) == pytest.approx((0.5, 1, 2 / 3))
    assert report.macro.f1 == 0.25  # Other is not in it
    assert relation_f1(["Other"], ["Other"]).macro.f1 == 0.0


# Answers

WORDS = "the The a an An cat Cat. theory the-cat 's – the–cat é".split()
answers = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join) | st.text(max_size=8)
questions = st.lists(
    st.tuples(st.lists(answers, min_size=1, max_size=3), answers), min_size=1, max_size=5
)


@many
@given(questions)
def test_answer_scores_are_those_of_squad(rows: list[tuple[list[str], str]]) -> None:
    gold, predicted = [row[0] for row in rows], [row[1] for row in rows]
    exact, overlap = 0.0, 0.0
    for right_ones, answer in rows:
        exact += any(slowly_normalized(right) == slowly_normalized(answer) for right in right_ones)
        overlap += max(slow_overlap(right, answer) for right in right_ones)
    assert exact_match(gold, predicted) == pytest.approx(exact / len(rows))
    assert answer_f1(gold, predicted) == pytest.approx(overlap / len(rows))


def slowly_normalized(answer: str) -> list[str]:
    """The words that are left."""
    kept = "".join(c for c in answer.lower() if c not in r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~""")
    pieces = re.split(r"(\w+)", kept)  # every second one is a run of letters and digits
    return "".join(" " if piece in ("a", "an", "the") else piece for piece in pieces).split()


def slow_overlap(right: str, answer: str) -> float:
    left, words = slowly_normalized(right), slowly_normalized(answer)
    length, common = len(left), 0
    for word in words:
        if word in left:
            left.remove(word)
            common += 1
    return f1(common, len(words), length)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("The Norman-French  Dynasty.", "normanfrench dynasty"),
        ("an A-Team", "ateam"),
        ("theatre, a", "theatre"),
        ("the–end", "–end"),
        ("the", ""),
    ],
)
def test_answers_are_compared_without_case_punctuation_and_articles(
    answer: str, words: str
) -> None:
    assert normalized(answer) == words


def test_the_best_of_the_right_answers_counts() -> None:
    gold = [["Denver Broncos", "The Broncos"], ["1990", "in 1990"]]
    assert exact_match(gold, ["broncos!", "1991"]) == 0.5
    assert answer_f1(gold, ["the Broncos team", "about 1990"]) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_two_answers_of_articles_alone_match_but_have_no_word_in_common() -> None:
    """As in the script of SQuAD 1.1."""
    assert exact_match([["the"]], ["a"]) == 1.0
    assert answer_f1([["the"]], ["a"]) == 0.0


def test_a_question_without_right_answers_is_refused() -> None:
    for score in (exact_match, answer_f1):
        with pytest.raises(ElmokitError, match="no gold answer"):
            score([["a"], []], ["a", "b"])


# Pronouns

rows_of_gap = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "NEITHER"]),
        st.sampled_from(["A", "B", "NEITHER"]),
        st.sampled_from(["he", "His", "him", "She", "her", "hers"]),
    ),
    min_size=1,
    max_size=20,
)


@many
@given(rows_of_gap)
def test_gap_scores_decide_for_each_name(rows: list[tuple[str, str, str]]) -> None:
    tables: dict[str, Counter[tuple[bool, bool]]] = defaultdict(Counter)
    for right, guess, pronoun in rows:
        gender = "masculine" if pronoun.lower().startswith("hi") or pronoun == "he" else "feminine"
        for name in ("A", "B"):
            for table in ("overall", gender):
                tables[table][right == name, guess == name] += 1

    def f1_of(table: str) -> float:
        cells = tables[table]
        result, right = (
            cells[True, True] + cells[False, True],
            cells[True, True] + cells[True, False],
        )
        return f1(cells[True, True], result, right)

    scores = gap_scores(*([row[i] for row in rows] for i in range(3)))
    assert scores["accuracy"] == pytest.approx(sum(row[0] == row[1] for row in rows) / len(rows))
    assert scores["f1"] == pytest.approx(f1_of("overall"))
    assert scores["f1_masculine"] == pytest.approx(f1_of("masculine"))
    assert scores["f1_feminine"] == pytest.approx(f1_of("feminine"))
    if f1_of("masculine") and f1_of("feminine"):
        assert scores["bias"] == pytest.approx(f1_of("feminine") / f1_of("masculine"))
    else:
        assert "bias" not in scores


def test_the_wrong_name_is_one_too_many_and_one_too_few() -> None:
    scores = gap_scores(["A", "B", "NEITHER"], ["B", "B", "NEITHER"], ["he", "she", "she"])
    together = {name: scores[name] for name in ("accuracy", "f1", "precision", "recall")}
    assert together == {
        "accuracy": pytest.approx(2 / 3),
        "f1": 0.5,
        "precision": 0.5,
        "recall": 0.5,
    }


# Written text

words = st.sampled_from("the cat sat on mat a dog . , Ü".split())
texts = st.lists(words, max_size=8).map(" ".join)


@many
@given(side_by_side(texts))
def test_bleu_is_that_of_its_definition(both: tuple[list[str], list[str]]) -> None:
    pytest.importorskip("sacrebleu")
    assert bleu(*both, tokenize="none") == pytest.approx(slow_bleu(*both))


def slow_bleu(hypotheses: list[str], references: list[str]) -> float:
    """n-gram precisions of the corpus up to 4, and the penalty for short output.

    An order without a match counts as 1/2, 1/4, … of a match, each half of the one before it.
    """
    rows = [(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
    precisions, smooth = [], 1.0
    for n in range(1, 5):
        pairs = [(ngrams(hypothesis, n), ngrams(reference, n)) for hypothesis, reference in rows]
        total = sum(len(result) for result, _ in pairs)
        matches = sum(min(f.count(g), r.count(g)) for f, r in pairs for g in set(f))
        if n == 1 and not matches:
            return 0.0
        if not matches:
            smooth /= 2
        precisions.append(ratio(matches or smooth, total))
    if not all(precisions):
        return 0.0
    length, expected = (sum(len(row[side]) for row in rows) for side in (0, 1))
    brevity = min(1.0, math.exp(1 - expected / length))
    return brevity * math.prod(precisions) ** 0.25


def ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


@many
@given(side_by_side(texts))
def test_bleu_of_plain_text_is_that_of_sacrebleu(both: tuple[list[str], list[str]]) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    hypotheses, references = both
    expected = sacrebleu.corpus_bleu(hypotheses, [references], force=True).score
    assert bleu(hypotheses, references) == pytest.approx(expected / 100)


def test_the_tokenizer_of_bleu_can_be_chosen() -> None:
    pytest.importorskip("sacrebleu")
    assert bleu(["one two three four, five"], ["one two three four , five"]) == 1.0
    assert bleu(["one two three four, five"], ["one two three four , five"], tokenize="none") < 1
    assert bleu(["我喜欢这本书"], ["我喜欢这部书"], tokenize="zh") > 0.3
    assert bleu(["我喜欢这本书"], ["我喜欢这部书"]) == 0.0


def test_tokenized_text_is_scored_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("sacrebleu")
    sentences = ["a cat sat on the mat ."] * 200
    assert bleu(sentences, sentences, tokenize="none") == pytest.approx(1.0)
    assert not caplog.records


@many
@given(side_by_side(texts))
def test_rouge_is_that_of_its_definition(both: tuple[list[str], list[str]]) -> None:
    pytest.importorskip("rouge_score")
    choices: tuple[Literal["english", "none"], ...] = ("english", "none")
    for tokenize in choices:
        expected: dict[str, float] = defaultdict(float)
        for hypothesis, reference in zip(*both, strict=True):
            h, r = (rouge_words(text, tokenize) for text in (hypothesis, reference))
            for n in (1, 2):
                result, right = ngrams(h, n), ngrams(r, n)
                common = (Counter(result) & Counter(right)).total()
                expected[f"rouge{n}"] += f1(common, len(result), len(right)) / len(both[0])
            common = longest_common(tuple(h), tuple(r))
            expected["rougeL"] += f1(common, len(h), len(r)) / len(both[0])
        assert rouge(*both, tokenize=tokenize) == pytest.approx(dict(expected))


def rouge_words(text: str, tokenize: str) -> list[str]:
    return text.split() if tokenize == "none" else re.findall("[a-z0-9]+", text.lower())


@cache
def longest_common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    if not one or not other:
        return 0
    if one[0] == other[0]:
        return 1 + longest_common(one[1:], other[1:])
    return max(longest_common(one[1:], other), longest_common(one, other[1:]))


@pytest.mark.parametrize(("package", "score"), [("sacrebleu", bleu), ("rouge_score", rouge)])
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, score: Any
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{package}: pip install 'elmokit\[tasks\]'"):
        score(["a"], ["a"])


# All of them


def gap_of_men(gold: Any, predicted: Any) -> Any:
    return gap_scores(gold, predicted, ["he"] * len(gold))


FLAT = [accuracy, classification, relation_f1, gap_of_men, bleu, rouge]


@pytest.mark.parametrize("score", [*FLAT, span_f1, tag_accuracy, exact_match, answer_f1])
def test_nothing_to_score_and_unequal_lengths_are_refused(score: Any) -> None:
    with pytest.raises(ElmokitError, match="there are no examples to score"):
        score([], [])
    with pytest.raises(ElmokitError, match=r"\d examples? cannot have \d predictions?"):
        score([1.0, 2.0], [1.0])
    with pytest.raises(ElmokitError, match=r"\d examples? cannot have \d predictions?"):
        score([1.0], [])


@pytest.mark.parametrize("score", [span_f1, tag_accuracy])
def test_a_sentence_with_too_few_tags_is_named(score: Any) -> None:
    with pytest.raises(ElmokitError, match="sentence 2 has 1 tag for 2 tokens"):
        score([["O"], ["O", "O"]], [["O"], ["O"]])
