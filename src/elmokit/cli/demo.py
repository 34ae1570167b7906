"""`make demo`: words that are spelt alike and mean different things, seen by a model.

Three words with two senses each stand in four sentences a sense. For every layer the demo compares
a word's vectors within a sense and across senses, and looks whether the nearest other use has the
same sense. Layer 0 depends on the spelling alone and cannot know; the layers above have read the
sentence. ("play" is a noun in one sense and a verb in the other, which helps; "bank" and "cell" are
nouns in both.) `python -m elmokit.cli.demo MODEL` does the same with another model.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.uses import (
    principal_components,
    purity,
    same_label,
    similarities,
    with_average,
)
from elmokit.cli.main import BROKEN_PIPE, USER_ERROR
from elmokit.errors import ElmokitError, require

if TYPE_CHECKING:
    from elmokit.embed import Embedder, Sentence

Array = NDArray[np.float32]

# word: sense: sentences, in each of which the word stands once. Models with random weights find the
# same sense in them as often as a guess would: where the word stands and what stands beside it
# gives nothing away.
SENTENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "bank": {
        "river": (
            "They walked along the bank of the river until it was dark.",
            "The boat drifted towards the muddy bank of the stream.",
            "Tall trees grew on the east bank of the river.",
            "A path led along the bank to the old water mill.",
        ),
        "money": (
            "She owed the bank a large sum of money.",
            "He worked as a clerk in the largest bank of the city.",
            "The government promised to save the bank from its debts.",
            "She went to the bank to borrow money for the house.",
        ),
    },
    "play": {
        "theatre": (
            "The play was first performed in a London theatre.",
            "The audience loved the play and its young author.",
            "The actors read the play aloud before the first rehearsal.",
            "His second play was a comedy about two sisters.",
        ),
        "sport": (
            "They play football for the national team.",
            "The team will play its next match in March.",
            "He was too old to play another season for the club.",
            "She learned to play tennis when she was a child.",
        ),
    },
    "cell": {
        "biology": (
            "The nucleus of the cell contains most of its proteins.",
            "The virus enters a living cell and destroys its membrane.",
            "The membrane lets water and salt into the cell.",
            "Oxygen reaches every cell of the body through the blood.",
        ),
        "prison": (
            "He was locked in his cell and left alone.",
            "The cell had no window, only an iron door.",
            "She wrote letters from her cell to the other prisoners.",
            "Every cell of the prison was full that year.",
        ),
    },
}
COLOURS = {"right": "32", "wrong": "31", "bold": "1", "faint": "2"}  # as terminals number them


@dataclass(frozen=True)
class Use:
    """One word in one sentence."""

    sense: str
    sentence: Sentence
    place: int
    """The word is `sentence.tokens[place]`."""

    def text(self, paint: Paint) -> str:
        """The sentence with the word marked."""
        before, after = self.sentence.tokens[: self.place], self.sentence.tokens[self.place + 1 :]
        word = paint(f"[{self.sentence.tokens[self.place]}]", "bold")
        return " ".join([*before, word, *after])


class Paint:
    """Colours on a terminal, plain text elsewhere."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, text: str, colour: str) -> str:
        return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if self.on else text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m elmokit.cli.demo", description=__doc__)
    parser.add_argument("model", nargs="?", default="shipped", help="whatever elmokit.load takes")
    parser.add_argument("--figure", metavar="PNG", help="draw the vectors of the top layer too")
    options = parser.parse_args(arguments)
    try:
        demo(options.model, options.figure)
        sys.stdout.flush()  # a closed pipe shows here, not while the interpreter shuts down
    except ElmokitError as error:
        print(f"elmokit: error: {error}", file=sys.stderr)
        return USER_ERROR
    except BrokenPipeError:  # `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return 0


def demo(model: str, figure: str | None = None) -> None:
    """Load `model`, print the tables and, if asked for, draw the figure."""
    if figure is not None:
        require("matplotlib", extra="plots", purpose="A figure")  # before the work, not after
    from elmokit.loading import load

    elmo = load(model)
    paint = Paint(sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    uses = find_uses(elmo)
    vectors = use_vectors(uses)
    print("\n".join(report(f"{model}: {elmo.dim} columns", uses, vectors, paint)))
    if figure is not None:
        draw(uses, {word: found[-2] for word, found in vectors.items()}, figure)
        print(f"\nThe vectors of layer {elmo.config.num_layers} are drawn in {figure}.")


def find_uses(elmo: Embedder) -> dict[str, list[Use]]:
    """Embed all sentences and find the words in them."""
    rows = [
        (word, sense, text)
        for word, senses in SENTENCES.items()
        for sense, texts in senses.items()
        for text in texts
    ]
    uses: dict[str, list[Use]] = {word: [] for word in SENTENCES}
    found = elmo.embed([text for _, _, text in rows])
    for (word, sense, _), sentence in zip(rows, found, strict=True):
        uses[word].append(Use(sense, sentence, sentence.tokens.index(word)))
    return uses


def use_vectors(uses: dict[str, list[Use]]) -> dict[str, Array]:
    """The word's vector in every use, for layers 0..L and their average: (L + 2, uses, dim).

    The mean vector of all tokens is taken off each layer: what all tokens share hides what they
    differ in.
    """
    sentences = [use.sentence.layers for found in uses.values() for use in found]
    mean = with_average(np.concatenate(sentences, axis=1)).mean(axis=1, keepdims=True)
    return {
        word: with_average(np.stack([use.sentence.layers[:, use.place] for use in found], 1)) - mean
        for word, found in uses.items()
    }


def within_and_across(cosines: Array, senses: Sequence[str]) -> tuple[Array, Array]:
    """Mean cosine (layers,) between different uses of one sense, and between the senses."""
    same = same_label(senses)
    other = ~np.eye(len(same), dtype=bool)
    return cosines[:, same & other].mean(axis=1), cosines[:, ~same].mean(axis=1)


def report(
    title: str, uses: dict[str, list[Use]], vectors: dict[str, Array], paint: Paint
) -> Iterator[str]:
    """Everything that is printed, line by line."""
    top = len(next(iter(vectors.values()))) - 2
    names = [f"layer {layer}" for layer in range(top + 1)] + ["average"]
    yield paint(f"{title}, layers 0 to {top}", "faint")
    yield "Cosines of a word's vectors in different sentences; the mean of all tokens is taken off."
    pure = {}
    for word, found in uses.items():
        senses = [use.sense for use in found]
        cosines = similarities(vectors[word])
        pure[word] = purity(cosines, senses)
        yield ""
        yield paint(word, "bold") + f": {describe(senses)}"
        within, across = within_and_across(cosines, senses)
        yield row("", names)
        yield row("  within a sense", [f"{x:.2f}" for x in within])
        yield row("  across senses", [f"{x:.2f}" for x in across])
        yield row("  difference", [f"{x:+.2f}" for x in within - across])
        yield f"  each use and the nearest other use in layer {top}:"
        yield from neighbours(found, cosines[top], paint)
    yield ""
    yield paint("The nearest other use has the same sense", "bold")
    yield row("", names)
    for word, shares in pure.items():
        yield row(f"  {word}", [f"{x:.0%}" for x in shares])
    yield row("  all", [f"{x:.0%}" for x in np.mean(list(pure.values()), axis=0)])
    yield "Layer 0 is a static vector: one for all sentences, similarity 1.00, and so only a guess."
    yield from ["", *next_steps(paint)]


def describe(senses: Sequence[str]) -> str:
    """How many sentences each sense has."""
    counts = (f"{senses.count(sense)} about {sense}" for sense in dict.fromkeys(senses))
    return f"{len(senses)} sentences, {' and '.join(counts)}"


def row(label: str, cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"{label:<24}" + "".join(f"{cell:>10}" for cell in cells)


def neighbours(uses: list[Use], cosines: Array, paint: Paint) -> Iterator[str]:
    """Each use, and below it the nearest other use: cosines (uses, uses)."""
    width = max(len(use.sense) for use in uses)
    for number, use in enumerate(uses):
        others = np.where(np.arange(len(uses)) == number, -np.inf, cosines[number])
        near = uses[int(others.argmax())]
        verdict = "right" if near.sense == use.sense else "wrong"
        yield f"  {'':>5} {'':>5}  {use.sense:<{width}}  {use.text(paint)}"
        found = f"{near.sense:<{width}}  {near.text(paint)}"
        yield f"  {paint(verdict, verdict)} {others.max():5.2f}  {found}"


def next_steps(paint: Paint) -> list[str]:
    """Three commands to go on with."""
    steps = {
        "elmokit embed my.txt vectors.h5": "the vectors of a file, one sentence a line",
        "elmokit info shipped": "what the model is made of",
        "python -m elmokit.cli.demo --figure senses.png": "this demo with a picture",
    }
    width = max(map(len, steps))
    lines = [f"  {command:<{width}}  {paint(what, 'faint')}" for command, what in steps.items()]
    return [paint("Next", "bold"), *lines]


def draw(uses: dict[str, list[Use]], vectors: dict[str, Array], path: str) -> None:
    """One panel a word: its vectors (uses, dim) on their first two principal components."""
    require("matplotlib", extra="plots", purpose="A figure")
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(4 * len(uses), 4), layout="constrained")
    for panel, (word, found) in zip(figure.subplots(1, len(uses)), uses.items(), strict=True):
        points, shares = principal_components(vectors[word])
        senses = [use.sense for use in found]
        for sense, marker in zip(dict.fromkeys(senses), "os^v", strict=False):
            rows = [number for number, name in enumerate(senses) if name == sense]
            panel.scatter(*points[rows].T, marker=marker, s=60, label=sense)
        panel.set_title(word)
        panel.set_xlabel(f"component 1 ({shares[0]:.0%} of the variance)")
        panel.set_ylabel(f"component 2 ({shares[1]:.0%})")
        panel.legend()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ElmokitError(f"the figure cannot be written to {path}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
