"""`elmokit drift`: how differently two corpora use words, ranked, with examples.

A, B ─► uses of the words ─► distances in each layer ─► tables, JSON
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from elmokit import analysis
from elmokit.cli.options import Flag, ModelOptions, ResultOptions, Seed, TextOptions
from elmokit.cli.output import table, write_result
from elmokit.errors import ElmokitError

COLUMNS = "word,uses A,uses B,change,apd,within A,within B,prt,halves A,halves B".split(",")
EXPLAINED = """\
uses: number of uses that were compared, in A and in B
change: apd minus the mean of within A and within B; near 0 if both corpora use the word alike
apd: average pairwise distance, 1 - cosine, of a use in A and a use in B
within: average pairwise distance of two uses in the same corpus
prt: prototype distance, 1 - cosine of the mean vectors of A and B
halves: prt of random halves of one corpus, which is what chance alone gives"""


def drift(
    a: str,
    b: str,
    /,
    *,
    words: str | None = None,
    min_count: int = 5,
    max_uses: int = 500,
    max_words: int = 200,
    skip_words: int = 100,
    layer: str = "average",
    measure: Literal["change", "apd", "prt"] = "change",
    show: int = 20,
    examples: int = 2,
    case_sensitive: Flag = False,
    seed: Seed = 1,
    writing: ResultOptions = ResultOptions(),
    text: TextOptions = TextOptions(),
    options: ModelOptions = ModelOptions(),
) -> None:
    """Measure how differently two corpora use words.

    Args:
        a: Text file with a sentence per line; also .jsonl, .conll, .conllu, and .gz, .xz, .zst.
        b: Text file of another time or domain.
        words: Comma-separated words (default: words that are frequent in both).
        min_count: Minimum number of uses of a word in each corpus.
        max_uses: Maximum number of uses of a word in a corpus; more are sampled at random.
        max_words: Maximum number of words, if no --words are given.
        skip_words: Number of most frequent words to skip then; most are function words.
        layer: Layer to rank by: a number, top or average.
        measure: Distance to rank by: apd (average pairwise distance), prt (prototype distance) or
            change (apd minus the distances inside the corpora).
        show: Number of words to print; the JSON file has all.
        examples: Number of sentences to print of each word and corpus.
        case_sensitive: Distinguish upper and lower case.
        seed: Seed of the random numbers.
    """
    settings = dict(locals())
    writing.check(a, b, model=options.model)
    for name, value in {"--max-words": max_words, "--show": show}.items():
        if value < 1:
            raise ElmokitError(f"{name} must be at least 1, not {value}")
    if min_count < 2 or max_uses < min_count:
        raise ElmokitError("--min-count must be at least 2, and --max-uses at least --min-count")

    reading: dict[str, Any] = {"case_sensitive": case_sensitive, "quiet": writing.quiet}
    reading |= {"tokenizer": options.tokenizer_name(), **asdict(text)}
    uses, left_out = analysis.sample_both(
        analysis.Corpus(a, **reading),
        analysis.Corpus(b, **reading),
        None if words is None else [word.strip() for word in words.split(",")],
        min_count=min_count,
        max_uses=max_uses,
        max_words=max_words,
        skip_words=skip_words,
        seed=seed,
    )
    ranking: Any = {"layer": layer, "measure": measure, "seed": seed}
    result = analysis.measure_drift(options.open_store(), uses, **ranking, quiet=writing.quiet)
    print(report(result, (a, b), show=show, examples=examples))
    if left_out:
        rare = ", ".join(f"{word} ({m}, {n})" for word, (m, n) in left_out.items())
        print(f"\nleft out, because both corpora need {min_count} uses: {rare}")
    content = {**result.to_dict(examples), "left_out": left_out}
    write_result(writing.json, "drift", settings, content)


def report(result: analysis.DriftResult, names: Sequence[str], *, show: int, examples: int) -> str:
    """Format the first words of the ranking: all distances, all layers, and examples."""
    from elmokit.layers import layer_names

    shown = result.words[:show]
    layers = layer_names(len(shown[0].apd) - 2)
    layer, distances, in_layers = layers.index(result.layer), [], []
    for word in shown:
        measures = (word.change, word.apd, *word.within, word.prt, *word.halves)
        distances.append([word.word, *map(len, word.uses), *(f"{m[layer]:.3f}" for m in measures)])
        in_layers.append([word.word, *map("{:.3f}".format, getattr(word, result.measure))])
    parts = [
        f"{result.layer}, ranked by {result.measure}:",
        table(COLUMNS, distances),
        EXPLAINED,
        f"\n{result.measure} in every layer:",
        table(["word", *layers], in_layers),
    ]
    if examples > 0:
        parts += ["\n" + example_lines(change, names, examples) for change in shown]
    return "\n".join(parts)


def example_lines(change: analysis.WordChange, names: Sequence[str], count: int) -> str:
    """Format the most typical uses of both sides, shortened."""
    lines = [f"{change.word}:"]
    for side, name in enumerate(names):
        if typical := change.words[side]:
            lines.append(f"  {name}, typical words: {', '.join(typical)}")
        lines += [f"  {name}: {use.shortened().marked()}" for use in change.examples(side, count)]
    return "\n".join(lines)
