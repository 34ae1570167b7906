"""`elmokit drift`: how differently two corpora use a word, ranked, with examples.

A, B ─► uses of the words (sampled_uses.py) ─► distances a layer (change.py) ─► tables, JSON
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from elmokit.analysis.drift.change import Change, measure_changes
from elmokit.analysis.sampling import Corpus, frequent_words
from elmokit.analysis.uses import Use, layer_names
from elmokit.cli.output import open_store, table, write_result
from elmokit.errors import ElmokitError
from elmokit.formats.detect import own_tokenizer
from elmokit.io.paths import check_output

CONTEXT = 12  # tokens that are shown on each side of a word


def drift(
    a: str,
    b: str,
    *,
    words: str | None = None,
    min_count: int = 5,
    most: int = 500,
    most_words: int = 200,
    skip_words: int = 100,
    layer: str = "average",
    measure: Literal["change", "apd", "prt"] = "change",
    show: int = 20,
    examples: int = 2,
    case: bool = False,
    kind: Literal["auto", "text", "jsonl", "conll", "conllu"] = "auto",
    split: bool = False,
    seed: int = 1,
    model: str = "shipped",
    tokenizer: Literal["elmokit", "whitespace", "chinese"] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Measure how differently two corpora use words.

    Args:
        a: a text file, a sentence a line; also .jsonl, .conll, .conllu, and .gz, .xz, .zst.
        b: another one, of another time or domain.
        words: the words, with commas between; the frequent ones of both if not given.
        min_count: uses that a word must have in each corpus.
        most: uses of a word in a corpus that are looked at, drawn at random if there are more.
        most_words: words that are looked at, where no --words are given.
        skip_words: the most frequent words to leave out then: most are function words.
        layer: what to rank by: a number, top or average.
        measure: what to rank by: apd (average pairwise distance), prt (prototype distance) or
            change (apd less the distances inside the corpora).
        show: words of the ranking that are printed; the JSON file has all.
        examples: sentences of each side that are shown.
        case: tell words with capitals from those without.
        kind: what the files are; by their extensions if auto.
        split: the files are running text, to be split into sentences.
        seed: of all that is drawn at random.
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        tokenizer: whitespace for text that is tokenized already; if not given, chinese for a model
            that was trained with it, and else elmokit.
        device: where to run, such as cpu or cuda.
        threads: threads to use; all cores if not given.
        json: file for the result with all settings.
        quiet: no progress.
    """
    settings = dict(locals())
    check_output(json)
    numbers = {"min_count": min_count, "most_words": most_words, "show": show}
    for name, value in numbers.items():
        if value < 1:
            raise ElmokitError(f"{name} must be at least 1, not {value}")
    if min_count < 2 or most < min_count:
        raise ElmokitError("min_count must be at least 2, and most not below it")
    reading = tokenizer or own_tokenizer(model)
    corpora = [
        Corpus(path, tokenizer=reading, kind=kind, split=split, case=case, quiet=quiet)
        for path in (a, b)
    ]
    if words is None:
        counts = [corpus.counts() for corpus in corpora]
        wanted = frequent_words(*counts, least=min_count, most=most_words, skip=skip_words)
    else:
        named = (corpora[0].folded(word.strip()) for word in words.split(","))
        wanted = list(dict.fromkeys(word for word in named if word))
    uses, left_out = sampled(corpora, wanted, min_count=min_count, most=most, seed=seed)
    store = open_store(model, device=device, threads=threads)
    names = layer_names(store.elmo.config.num_layers)
    ranked_by = layer_index(layer, store.elmo.config.num_layers)
    changes = measure_changes(store, uses, layer=ranked_by, seed=seed, quiet=quiet)
    changes.sort(key=lambda found: -getattr(found, measure)[ranked_by])
    shown = changes[:show]
    print(f"{names[ranked_by]}, by {measure}:")
    print(distance_table(shown, ranked_by))
    print(f"\n{measure} of every layer:")
    print(layer_table(shown, measure, names))
    for found in shown if examples > 0 else ():
        print("\n" + example_lines(found, (a, b), examples))
    if left_out:
        rare = ", ".join(
            f"{word} ({first}, {second})" for word, (first, second) in left_out.items()
        )
        print(f"\nleft out, as both corpora need {min_count} uses: {rare}")
    result = {
        "ranked_by": [names[ranked_by], measure],
        "words": [found.to_dict(examples) for found in changes],
        "left_out": left_out,
    }
    write_result(json, "drift", settings, result)


def sampled(
    corpora: Sequence[Corpus], words: Sequence[str], *, min_count: int, most: int, seed: int = 1
) -> tuple[dict[str, tuple[list[Use], list[Use]]], dict[str, list[int]]]:
    """The uses of each word in both corpora, and the words that are too rare, with their counts."""
    first, second = (
        corpus.sample(words, most=most, seed=2 * seed + side) for side, corpus in enumerate(corpora)
    )
    counts = {word: [first[1][word], second[1][word]] for word in words}
    rare = {word: found for word, found in counts.items() if min(found) < min_count}
    uses = {word: (first[0][word], second[0][word]) for word in words if word not in rare}
    if not uses:
        shown = ", ".join(f"{word} ({a} and {b})" for word, (a, b) in list(rare.items())[:5])
        raise ElmokitError(
            f"no word stands {min_count} times in both corpora: {shown}; lower --min-count"
            if rare
            else "name words with --words, with commas between"
        )
    return uses, rare


def layer_index(name: str, top: int) -> int:
    """The place of a layer among 0..top and their average."""
    known = {"average": top + 1, "top": top} | {str(number): number for number in range(top + 1)}
    if name not in known:
        raise ElmokitError(f"layer must be 0 to {top}, top or average, not {name!r}")
    return known[name]


# ---------------------------------------------------------------------- what is printed
def distance_table(changes: Sequence[Change], layer: int) -> str:
    """All distances of one layer, a word a row."""
    names = "word,uses A,uses B,change,apd,within A,within B,prt,halves A,halves B".split(",")
    rows = [
        [found.word, *map(len, found.uses)]
        + [
            _three(values[layer])
            for values in (found.change, found.apd, *found.within, found.prt, *found.halves)
        ]
        for found in changes
    ]
    return table(names, rows)


def layer_table(changes: Sequence[Change], measure: str, names: Sequence[str]) -> str:
    """One distance of all layers, a word a row."""
    rows = [[found.word, *map(_three, getattr(found, measure))] for found in changes]
    return table(["word", *names], rows)


def _three(value: Any) -> str:
    return f"{value:.3f}"


def example_lines(found: Change, names: Sequence[str], count: int) -> str:
    """The most typical uses of both sides, shortened."""
    lines = [f"{found.word}:"]
    for side, name in enumerate(names):
        seen = dict.fromkeys(_short(found.uses[side][number]) for number in found.typical[side])
        lines += [f"  {name}: {text}" for text in list(seen)[:count]]
    return "\n".join(lines)


def _short(use: Use) -> str:
    start, end = max(0, use.start - CONTEXT), min(len(use.tokens), use.end + CONTEXT)
    part = Use(use.tokens[start:end], use.start - start, use.end - start, use.lemma)
    return f"{'… ' * (start > 0)}{part.marked()}{' …' * (end < len(use.tokens))}"
