"""`make demo`: words that are spelled alike and mean different things, as a model sees them.

    python examples/demo.py                 # the English model and examples/senses.tsv
    python examples/demo.py --chinese       # the Chinese model and examples/senses.zh.tsv

For each word and layer it prints how often the nearest other use of the word has the same sense.
Layer 0 depends on the spelling alone and can only guess; the layers above have read the sentence.
Then it shows a use of every sense, and below it the nearest other use.
"""

from __future__ import annotations

import argparse
import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import elmokit
from elmokit.analysis.geometry import Array, cosine_matrix, purity
from elmokit.analysis.uses import Use, embed_uses, read_uses
from elmokit.layers import layer_names

EXAMPLES = Path(__file__).parent
COLORS = {"right": "32", "wrong": "31", "bold": "1", "faint": "2"}  # codes of terminals
ENGLISH = {
    "title": "{model}: {dim} dimensions, layers 0 to {top}",
    "table": "How often the nearest other use of a word has the same sense",
    "all": "all",
    "guess": "Layer 0 sees the spelling alone, and so only guesses.",
    "pairs": "A use of each sense, and below it the nearest other use in layer {top}",
    "right": "right",
    "wrong": "wrong",
    "next": "Next",
    "steps": """\
  elmokit embed my.txt vectors.h5                  the vectors of a file, one sentence per line
  elmokit plot uses examples/senses.tsv uses.png   all uses as maps, a panel for each layer
  make serve                                       the same in the browser, with your own words""",
}
CHINESE = {
    "title": "{model}：{dim} 维，第 0 层到第 {top} 层",
    "table": "对每个词的用例，最近的另一个用例词义相同的比例",
    "all": "全部",
    "guess": "第 0 层只看词形，所以只能靠猜。",
    "pairs": "每个词义取一个用例，下一行是第 {top} 层中离它最近的另一个用例",
    "right": "对",
    "wrong": "错",
    "next": "接下来",
    "steps": """\
  elmokit embed my.txt vectors.h5 --model chinese                     文件的向量，每行一句
  elmokit plot uses examples/senses.zh.tsv uses.png --model chinese   用例的分布图，每层一幅
  make serve                                                          在浏览器里换自己的词试试""",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the demo."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chinese", action="store_true", help="Chinese model, words and output")
    parser.add_argument("--model", help="a model folder or name, instead of the included one")
    parser.add_argument("--uses", help="another file of uses, such as examples/senses.tsv")
    given = parser.parse_args(arguments)
    words = CHINESE if given.chinese else ENGLISH
    model = given.model or ("chinese" if given.chinese else "english")
    default = EXAMPLES / ("senses.zh.tsv" if given.chinese else "senses.tsv")
    try:
        uses = list(read_uses(given.uses or default))
        elmo = elmokit.load(model)
        vectors, mean = embed_uses(elmo, uses)
    except elmokit.ElmokitError as error:
        sys.exit(f"demo.py: error: {error}")
    title = words["title"].format(model=model, dim=elmo.dim, top=len(vectors) - 2)
    print("\n".join(report(title, uses, vectors - mean, words)))


def report(title: str, uses: list[Use], vectors: Array, words: dict[str, str]) -> Iterator[str]:
    """Yield the lines of the demo, from the vectors (L + 2, uses, dim) of all uses."""
    top = len(vectors) - 2
    names = layer_names(top)
    yield paint(title, "faint")
    yield ""
    yield paint(words["table"], "bold")
    lemmas = list(dict.fromkeys(use.lemma for use in uses))
    shares, pairs = [], []
    yield pad("", 32) + "".join(name.rjust(10) for name in names)
    for lemma in lemmas:
        mine = [i for i, use in enumerate(uses) if use.lemma == lemma]
        of_word = [uses[i] for i in mine]
        cosines = cosine_matrix(vectors[:, mine])
        shares.append(purity(cosines, [use.sense for use in of_word]))
        pairs += list(nearest(of_word, cosines[top], words))
        senses = ", ".join(dict.fromkeys(use.sense for use in of_word))
        yield pad(f"  {lemma}", 10) + pad(senses, 22) + percents(shares[-1])
    yield pad(f"  {words['all']}", 32) + percents(np.mean(shares, axis=0))
    yield words["guess"]
    yield ""
    yield paint(words["pairs"].format(top=top), "bold")
    yield from pairs
    yield ""
    yield paint(words["next"], "bold")
    yield words["steps"]


def nearest(uses: list[Use], cosines: Array, words: dict[str, str]) -> Iterator[str]:
    """Yield the first use of each sense, and below it the nearest other use."""
    others = np.where(np.eye(len(uses), dtype=bool), -np.inf, cosines)
    for sense in dict.fromkeys(use.sense for use in uses):
        i = next(i for i, use in enumerate(uses) if use.sense == sense)
        near = uses[int(others[i].argmax())]
        verdict = "right" if near.sense == sense else "wrong"
        yield f"  {pad('', 12)}{pad(sense, 12)}{uses[i].shortened(7).marked()}"
        label = pad(f"{words[verdict]} {others[i].max():.2f}", 12)
        yield f"  {paint(label, verdict)}{pad(near.sense, 12)}{near.shortened(7).marked()}"


def percents(shares: Array) -> str:
    """Return shares as cells of a table."""
    return "".join(f"{share:.0%}".rjust(10) for share in shares)


def pad(text: str, width: int) -> str:
    """Fill a text with spaces; a Chinese character is as wide as two others."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return text + " " * max(1, width - len(text) - wide)


def paint(text: str, color: str) -> str:
    """Return the text in color on a terminal, and as it is elsewhere."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{COLORS[color]}m{text}\x1b[0m"


if __name__ == "__main__":
    main()
