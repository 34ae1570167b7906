"""Make a shipped model: from a training folder to src/elmokit/pretrained, with its card.

    python benchmarks/release_model.py english my-elmo --heldout NAME=news.txt --ngram ngram.json

Weights are stored as float16. The card has the metadata of the training folder, and of the runs
that it goes on from by `elmokit adapt`, and the perplexity of the stored model on the held-out
texts, each sentence read from a fresh state. With --ngram, the result of ngram.py on the same
folder and texts, the card also has a 5-gram model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngram import HELDOUT

import elmokit
from elmokit.formats import native
from elmokit.formats.detect import SHIPPED
from elmokit.text.readers import read_sentences

ENGLISH = """# The English model of elmokit

A biLM of modern English for the first minutes, for teaching, and for machines without a network. It
ships inside the package: `elmokit.load()` and `elmokit.load("english")` give it. The published ELMo
models are larger and have read more text: for the best vectors, load one of those.
"""

CHINESE = """# The Chinese model of elmokit

A biLM of modern Chinese in simplified characters, on words as jieba segments them, for the first
minutes, for teaching, and for machines without a network. It ships inside the package:
`elmokit.load("chinese")` gives it. It is small: a model of ELMoForManyLangs has read more text.

elmokit 自带的中文模型，用简体字文本训练，以 jieba 分出的词为单位，适合入门、教学和没有网络的机器。
用 `elmokit.load("chinese")` 加载。
"""

CARD = """{introduction}
| | |
|---|---|
| size | {size} |
| on disk | {megabytes:.1f} MB, float16 |
| vocabulary of the softmax | {words:,} words; any word can be embedded |
| text | {train_tokens:,} tokens, see below |
| training | {tokens_read:,} tokens read in {hours:.1f} hours on 2 CPU cores |
{settings}

Perplexity by the full softmax, words outside the vocabulary counted as `<UNK>`:

| text | model | forward | backward | average |
|---|---|---:|---:|---:|
{rows}

On the held-out part of its text it was measured while training, with the state carried from
sentence to sentence; on other texts with the stored weights, each sentence alone.{ngram}

## Text

*Times* is how often the mixture reads a source. {mixture}

| source | licence | times |
|---|---|---:|
{sources}

Retrain it with

```text
elmokit pretrain --config configs/{name}.yaml --out my-elmo
```
"""

NGRAM = """
The {order}-gram model (interpolated, modified Kneser-Ney) was trained on the same tokens and
predicts the same words and sentence ends; it starts every sentence afresh."""


@dataclass(frozen=True)
class Text:
    """What a card says about the text of a model: why this mixture, and source, licence, times."""

    introduction: str
    mixture: str
    sources: Sequence[tuple[str, str, float]]


TEXTS = {
    "english": Text(
        ENGLISH,
        "Everyday sentences and\nmodern fiction are few and concrete, so they count several times; "
        "talk, law, diplomacy and technical\ntext are many and alike, so a part of them is enough.",
        (
            ("Wikipedia of 2018, two random choices of articles", "CC BY-SA 3.0", 1.0),
            ("Wikipedia of 2006 (enwik8)", "CC BY-SA 3.0", 0.6),
            ("95 English novels of the 19th and early 20th century", "public domain", 1.0),
            ("SCP Foundation: tales of 2008-2011", "CC BY-SA 3.0", 2.0),
            ("MASC (open part, without the Wall Street Journal)", "CC BY 3.0 US", 4.0),
            ("Common Voice: sentences to read aloud", "CC0", 4.0),
            ("Tatoeba: everyday sentences", "CC BY 2.0 FR", 5.0),
            ("Wikinews of 2019-2020", "CC BY 2.5", 5.0),
            ("OpenStax: 28 college textbooks", "CC BY 4.0", 1.5),
            ("White House: briefings and remarks of 2021-2026", "public domain", 0.6),
            ("Changelog podcasts: transcripts", "CC BY-SA 4.0", 0.4),
            ("Transcripts of meetings with Audrey Tang", "CC0", 0.6),
            ("Federal Open Market Committee: transcripts", "public domain", 0.2),
            ("eLife: research articles", "CC BY 4.0, CC BY 3.0, CC0", 0.6),
            ("arXiv: abstracts", "CC0", 0.7),
            ("ACL Anthology: abstracts of 2016-2026", "CC BY 4.0", 0.3),
            ("Supreme Court of the United States: opinions from 1960 on", "public domain", 0.5),
            ("Foreign Relations of the United States, 1948-1980", "public domain", 0.4),
            ("digital.gov and 18F: guides and blogs", "public domain, CC0", 0.6),
            ("State of the Union, inaugural addresses, World Factbook", "public domain", 0.8),
            ("MDN", "CC BY-SA 2.5", 0.4),
            ("Kubernetes, Programming Historian", "CC BY 4.0", 0.4),
            ("The Turing Way", "CC BY 4.0", 0.5),
            ("Sourcegraph's handbook", "Apache-2.0", 0.5),
            ("Python PEPs, NIST SP 800-63-3", "public domain, CC0", 0.5),
        ),
    ),
    "chinese": Text(
        CHINESE,
        "Modern literature and\neveryday sentences are few and concrete, so they count several "
        "times; law, old novels and technical\ntext count less. Text whose licence is not clear "
        "everywhere stays out.",
        (
            ("Transcripts of meetings with Audrey Tang, in simplified characters", "CC0", 1.0),
            (
                "Literature of 1918-1950: 鲁迅, 郁达夫, 朱自清, 许地山, 萧红, 林徽因",
                "public domain",
                2.0,
            ),
            ("红楼梦, 西游记, 水浒传, 三国演义, 儒林外史, 老残游记", "public domain", 0.3),
            ("Tatoeba: everyday sentences", "CC BY 2.0 FR", 3.0),
            ("Reports of 31 provincial governments, 2026", "not under copyright", 3.0),
            ("Common Voice: sentences to read aloud", "CC0", 3.0),
            ("MDN", "CC BY-SA 2.5", 0.5),
            ("Kubernetes, Mixed Reality and Azure documentation", "CC BY 4.0", 0.5),
            ("Dive into Deep Learning", "Apache-2.0", 0.5),
            ("HowToCook: recipes", "Unlicense", 0.5),
            ("Laws and regulations of the PRC", "not under copyright", 0.3),
        ),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TEXTS)
    parser.add_argument("folder", help="the output of elmokit pretrain")
    parser.add_argument("--heldout", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--ngram", metavar="RESULT", help="what ngram.py wrote")
    arguments = parser.parse_args()
    checkpoint = native.read(Path(arguments.folder))
    target = SHIPPED[arguments.name]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        release = Path(folder) / target.name
        native.write(checkpoint, release, dtype="float16")
        card = model_card(arguments, release)
        (release / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        release.rename(target)
    print(card)


def model_card(arguments: argparse.Namespace, folder: Path) -> str:
    """Return the model card of the stored model."""
    elmo = elmokit.load(folder, tokenizer="whitespace")
    runs, config = training_runs(elmo.metadata), elmo.config
    training = runs[-1]
    ngram = json.loads(Path(arguments.ngram).read_text()) if arguments.ngram else None
    if ngram:
        check_same(ngram, training, config.vocabulary_size)
    rows = table_rows(HELDOUT, training["heldout_perplexity"], ngram)
    for heldout in arguments.heldout:
        name, _, path = heldout.partition("=")
        lines = (line.tokens for line in read_sentences(path, tokenizer="whitespace"))
        perplexity = elmo.perplexity(tokens for tokens in lines if tokens)
        rows += table_rows(name, perplexity.to_dict(), ngram, perplexity.tokens)
    text = TEXTS[arguments.name]
    parameters = sum(p.numel() for p in elmo.model.parameters())
    return CARD.format(
        size=f"{config.num_layers} layers of {config.lstm_dim} cells with projection "
        f"{config.projection_dim}, {config.dim} columns; {parameters / 1e6:.1f} M parameters",
        megabytes=sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        words=config.vocabulary_size,
        train_tokens=training["train_tokens"],
        tokens_read=sum(run["tokens_read"] for run in runs),
        hours=sum(run["hours"] for run in runs),
        settings="\n".join(
            f"| settings{f' of run {i}' if len(runs) > 1 else ''} "
            f"| {run['tokens_read']:,} tokens: `{json.dumps(run['settings'])}` |"
            for i, run in enumerate(runs, 1)
        ),
        rows="\n".join(rows),
        ngram=NGRAM.format(order=ngram["order"]) if ngram else "",
        introduction=text.introduction,
        mixture=text.mixture,
        sources="\n".join(
            f"| {name} | {licence} | {times:g} |" for name, licence, times in text.sources
        ),
        name=arguments.name,
    )


def training_runs(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the training of a model and before it those of the models that it goes on from."""
    origin = metadata.get("adapted_from")
    earlier = training_runs(origin["metadata"]) if origin else []
    return [*earlier, metadata["training"]]


def check_same(ngram: dict[str, Any], training: dict[str, Any], words: int) -> None:
    """Exit if the n-gram model was trained on another text or predicts other words."""
    ours = {key: training[key] for key in ("corpus", "train_tokens")} | {"words": words}
    for key, value in ours.items():
        if ngram[key] != value:
            sys.exit(f"the n-gram model's {key} is {ngram[key]!r}, but the biLM's {value!r}")


def table_rows(
    name: str, perplexity: dict[str, float], ngram: dict[str, Any] | None, tokens: int | None = None
) -> list[str]:
    """Return the rows of one text: of the model, and of the n-gram model if there is one."""
    rows = [row(name, "this", perplexity)]
    if ngram:
        other = next((text for text in ngram["texts"] if text["text"] == name), None)
        if other is None or tokens not in (None, other["tokens"]):
            sys.exit(f"the n-gram model was not measured on {name!r}: give ngram.py the same text")
        rows.append(row(name, f"{ngram['order']}-gram", other))
    return rows


def row(name: str, model: str, perplexity: dict[str, float]) -> str:
    """Return a row of the table of perplexities."""
    cells = " | ".join(f"{perplexity[key]:.1f}" for key in ("forward", "backward", "average"))
    return f"| {name} | {model} | {cells} |"


if __name__ == "__main__":
    main()
