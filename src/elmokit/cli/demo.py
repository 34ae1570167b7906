"""`make demo`: words that are spelled alike and mean different things, as a model sees them.

Three words with two senses each occur in four sentences per sense. For every layer the demo
compares a word's vectors within a sense and across senses, and checks whether the nearest other use
has the same sense. Layer 0 depends on the spelling alone and cannot know; the layers above have
read the sentence. ("play" is a noun in one sense and a verb in the other, which helps; "bank" and
"cell" are nouns in both.) `python -m elmokit.cli.demo MODEL` does the same with another model.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from elmokit.cli.main import APP_SETTINGS, call, guard
from elmokit.cli.options import WriteOptions
from elmokit.figures import write_figure

if TYPE_CHECKING:
    from elmokit.analysis.geometry import Array
    from elmokit.analysis.uses import Use
    from elmokit.embed import Embedder

# Word, sense and a sentence, in which the word occurs once. Models with random weights find the
# same sense in them as often as a guess does: the position of the word and the words beside it do
# not give the sense away.
TEXT = """
bank river: They walked along the bank of the river until it was dark.
bank river: The boat drifted towards the muddy bank of the stream.
bank river: Tall trees grew on the east bank of the river.
bank river: A path led along the bank to the old water mill.
bank money: She owed the bank a large sum of money.
bank money: He worked as a clerk in the largest bank of the city.
bank money: The government promised to save the bank from its debts.
bank money: She went to the bank to borrow money for the house.
play theatre: The play was first performed in a London theatre.
play theatre: The audience loved the play and its young author.
play theatre: The actors read the play aloud before the first rehearsal.
play theatre: His second play was a comedy about two sisters.
play sport: They play football for the national team.
play sport: The team will play its next match in March.
play sport: He was too old to play another season for the club.
play sport: She learned to play tennis when she was a child.
cell biology: The nucleus of the cell contains most of its proteins.
cell biology: The virus enters a living cell and destroys its membrane.
cell biology: The membrane lets water and salt into the cell.
cell biology: Oxygen reaches every cell of the body through the blood.
cell prison: He was locked in his cell and left alone.
cell prison: The cell had no window, only an iron door.
cell prison: She wrote letters from her cell to the other prisoners.
cell prison: Every cell of the prison was full that year.
"""
SENTENCES: list[tuple[str, str, str]] = re.findall(r"(\w+) (\w+): (.+)", TEXT)
COLORS = {"right": "32", "wrong": "31", "bold": "1", "faint": "2"}  # codes of terminals
NEXT = """\
  elmokit embed my.txt vectors.h5                 the vectors of a file, one sentence per line
  elmokit info english                            the parts of the model
  python -m elmokit.cli.demo --figure senses.png  this demo with a figure"""


def paint(text: str, color: str) -> str:
    """Return the text in color on a terminal, and as it is elsewhere."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{COLORS[color]}m{text}\x1b[0m"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    from cyclopts import App

    app = App(name="python -m elmokit.cli.demo", **APP_SETTINGS)
    app.default(demo)
    return guard(lambda: call(app, sys.argv[1:] if arguments is None else arguments))


def demo(
    model: str = "english",
    /,
    *,
    figure: str | None = None,
    writing: WriteOptions = WriteOptions(),
) -> None:
    """Print how well a model separates the senses of three words.

    Args:
        model: A model folder, weights file, archive or Hub name; "english" is elmokit's own.
        figure: File to draw the vectors of all layers to, .png or .svg.
    """
    writing.check(model=model, figure=figure)
    from elmokit.loading import load

    elmo = load(model)
    uses = find_uses(elmo.tokenize)
    vectors = use_vectors(elmo, uses)
    print("\n".join(report(f"{model}: {elmo.dim} dimensions", uses, vectors)))
    if figure is not None:
        from elmokit.analysis.plots.draw import draw_uses
        from elmokit.analysis.plots.maps import map_word

        maps = [map_word(word, of_word, vectors[word]) for word, of_word in uses.items()]
        write_figure(draw_uses(maps), figure)
        print(f"\nThe vectors of all layers are drawn in {figure}.")


def find_uses(tokenize: Callable[[str], Sequence[str]]) -> dict[str, list[Use]]:
    """Find the words in their sentences."""
    from elmokit.analysis.uses import Use

    uses: dict[str, list[Use]] = {}
    for word, sense, text in SENTENCES:
        tokens = tuple(tokenize(text))
        start = tokens.index(word)
        uses.setdefault(word, []).append(Use(tokens, start, start + 1, word, sense))
    return uses


def use_vectors(elmo: Embedder, uses: dict[str, list[Use]]) -> dict[str, Array]:
    """Return the vectors of each word's uses in layers 0..L and their average: (L + 2, uses, dim).

    The mean vector of all tokens is subtracted: what they have in common hides how they differ.
    """
    from elmokit.analysis.uses import embed_uses

    flat = [use for of_word in uses.values() for use in of_word]
    vectors, mean = embed_uses(elmo, flat)
    return {word: (vectors - mean)[:, [use.lemma == word for use in flat]] for word in uses}


def within_and_across(cosines: Array, senses: Sequence[str]) -> tuple[Array, Array]:
    """Return the mean cosines (layers,) of different uses of one sense, and of different senses."""
    import numpy as np

    from elmokit.analysis.geometry import same_label

    same = same_label(senses)
    other = ~np.eye(len(same), dtype=bool)
    return cosines[:, same & other].mean(axis=1), cosines[:, ~same].mean(axis=1)


def report(title: str, uses: dict[str, list[Use]], vectors: dict[str, Array]) -> Iterator[str]:
    """Yield everything that is printed, line by line."""
    import numpy as np

    from elmokit.analysis.geometry import cosine_matrix, purity
    from elmokit.layers import layer_names

    def row(label: str, cells: Iterable[object], form: str = "") -> str:
        return f"{label:<24}" + "".join(f"{cell:{form}}".rjust(10) for cell in cells)

    top = len(next(iter(vectors.values()))) - 2
    names = layer_names(top)
    yield paint(f"{title}, layers 0 to {top}", "faint")
    yield "Cosines of a word's vectors in different sentences, minus the mean vector of all tokens."
    purities = {}
    for word, of_word in uses.items():
        senses = [use.sense for use in of_word]
        cosines = cosine_matrix(vectors[word])
        purities[word] = purity(cosines, senses)
        counts = (f"{senses.count(sense)} about {sense}" for sense in dict.fromkeys(senses))
        yield f"\n{paint(word, 'bold')}: {len(senses)} sentences, {' and '.join(counts)}"
        within, across = within_and_across(cosines, senses)
        yield row("", names)
        yield row("  within a sense", within, ".2f")
        yield row("  across senses", across, ".2f")
        yield row("  difference", within - across, "+.2f")
        yield f"  each use and the nearest other use in layer {top}:"
        yield from neighbours(of_word, cosines[top])
    yield "\n" + paint("The nearest other use has the same sense", "bold")
    yield row("", names)
    for word, shares in purities.items():
        yield row(f"  {word}", shares, ".0%")
    yield row("  all", np.mean(list(purities.values()), axis=0), ".0%")
    yield "Layer 0 is a static vector: one for all sentences, cosine 1.00, and so only a guess."
    yield f"\n{paint('Next', 'bold')}\n{NEXT}"


def neighbours(uses: list[Use], cosines: Array) -> Iterator[str]:
    """Yield each use, and below it the nearest other use by cosines (uses, uses)."""
    import numpy as np

    width = max(len(use.sense) for use in uses)
    for use, others in zip(uses, np.where(np.eye(len(uses)), -np.inf, cosines), strict=True):
        near = uses[int(others.argmax())]
        verdict = "right" if near.sense == use.sense else "wrong"
        yield f"  {'':>5} {'':>5}  {use.sense:<{width}}  {use.marked()}"
        nearest = f"{near.sense:<{width}}  {near.marked()}"
        yield f"  {paint(verdict, verdict)} {others.max():5.2f}  {nearest}"


if __name__ == "__main__":
    sys.exit(main())
