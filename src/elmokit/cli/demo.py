"""`make demo`: words that are spelled alike and mean different things, as a model sees them.

Three words with two senses each occur in four sentences per sense. For every layer the demo
compares a word's vectors within a sense and across senses, and checks whether the nearest other use
has the same sense. Layer 0 depends on the spelling alone and cannot know; the layers above have
read the sentence. ("play" is a noun in one sense and a verb in the other, which helps; "bank" and
"cell" are nouns in both.) `python -m elmokit.cli.demo MODEL` does the same with another model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.cli.main import APP_SETTINGS, call, guard
from elmokit.cli.options import WriteOptions
from elmokit.figures import write_figure

if TYPE_CHECKING:
    from elmokit.analysis.geometry import Array
    from elmokit.analysis.uses import Use
    from elmokit.embed import Embedder

# The word occurs once in each sentence. Models with random weights find the same sense in them as
# often as a guess does: its position and the words beside it do not give the sense away.
USES = Path(__file__).with_name("demo.tsv")
COLORS = {"right": "32", "wrong": "31", "bold": "1", "faint": "2"}  # codes of terminals
NEXT = """\
  elmokit embed my.txt vectors.h5                 the vectors of a file, one sentence per line
  elmokit info shipped                            the parts of the model
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
    model: str = "shipped",
    /,
    *,
    figure: str | None = None,
    writing: WriteOptions = WriteOptions(),
) -> None:
    """Print how well a model separates the senses of three words.

    Args:
        model: A model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        figure: File to draw the vectors of all layers to, .png or .svg.
    """
    writing.check(model=model, figure=figure)
    from elmokit.loading import load

    elmo = load(model)
    uses = find_uses()
    vectors = use_vectors(elmo, uses)
    print("\n".join(report(f"{model}: {elmo.dim} dimensions", uses, vectors)))
    if figure is not None:
        from elmokit.analysis.plots.draw import draw_uses
        from elmokit.analysis.plots.maps import map_word

        maps = [map_word(word, of_word, vectors[word]) for word, of_word in uses.items()]
        write_figure(draw_uses(maps), figure)
        print(f"\nThe vectors of all layers are drawn in {figure}.")


def find_uses() -> dict[str, list[Use]]:
    """Return the words in their sentences."""
    from elmokit.analysis.uses import read_uses

    uses: dict[str, list[Use]] = {}
    for use in read_uses(USES):
        uses.setdefault(use.lemma, []).append(use)
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
