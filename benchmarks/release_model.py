"""Make the shipped model: from a training folder to src/elmokit/pretrained/english, with its card.

    python benchmarks/release_model.py my-elmo --heldout NAME=news.txt --ngram results/ngram.json

Weights are stored as float16. The card has the metadata of the training folder and the perplexity
of the stored model on the held-out texts, each sentence read from a fresh state. With --ngram, the
result of ngram.py on the same folder and texts, the card also has a 5-gram model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ngram import HELDOUT

import elmokit
from elmokit.formats import native
from elmokit.formats.detect import SHIPPED
from elmokit.text.readers import read_sentences

CARD = """# The English model of elmokit

A small biLM for the first minutes, for teaching, and for machines without a network. It ships
inside the package and is what `elmokit.load()` gives. It is far smaller than the published ELMo
models and was trained on far less text: for the best vectors, load one of those.

| | |
|---|---|
| size | {size} |
| on disk | {megabytes:.1f} MB, float16 |
| vocabulary of the softmax | {words:,} words; any word can be embedded |
| text | {corpus}, {train_tokens:,} tokens: {text} |
| training | {tokens_read:,} tokens read in {hours:.1f} hours on 2 CPU cores |
| settings | {settings} |

Perplexity by the full softmax, words outside the vocabulary counted as `<UNK>`:

| text | model | forward | backward | average |
|---|---|---:|---:|---:|
{rows}

On the held-out part of its text it was measured while training, with the state carried from
sentence to sentence; on other texts with the stored weights, each sentence alone.{ngram} Retrain it
with

```text
{command}
```
"""

NGRAM = """
The {order}-gram model (interpolated, modified Kneser-Ney) was trained on the same tokens and
predicts the same words and sentence ends; it starts every sentence afresh."""

TEXT = (
    "English Wikipedia of 2006 (CC BY-SA) and English novels of the 19th and early 20th century "
    "(public domain)"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="the output of elmokit pretrain")
    parser.add_argument("--heldout", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--ngram", metavar="RESULT", help="what ngram.py wrote")
    parser.add_argument("--command", default="elmokit pretrain --config configs/tiny.yaml")
    arguments = parser.parse_args()
    checkpoint = native.read(Path(arguments.folder))
    target = SHIPPED["english"]
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
    training, config = elmo.metadata["training"], elmo.config
    ngram = json.loads(Path(arguments.ngram).read_text()) if arguments.ngram else None
    if ngram:
        check_same(ngram, training, config.vocabulary_size)
    rows = table_rows(HELDOUT, training["heldout_perplexity"], ngram)
    for heldout in arguments.heldout:
        name, _, path = heldout.partition("=")
        lines = (line.tokens for line in read_sentences(path, tokenizer="whitespace"))
        perplexity = elmo.perplexity(tokens for tokens in lines if tokens)
        rows += table_rows(name, perplexity.to_dict(), ngram, perplexity.tokens)
    parameters = sum(p.numel() for p in elmo.model.parameters())
    return CARD.format(
        size=f"{config.num_layers} layers of {config.lstm_dim} cells with projection "
        f"{config.projection_dim}, {config.dim} columns; {parameters / 1e6:.1f} M parameters",
        megabytes=sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        words=config.vocabulary_size,
        corpus=", ".join(Path(name).name for name in training["corpus"]),
        train_tokens=training["train_tokens"],
        text=TEXT,
        tokens_read=training["tokens_read"],
        hours=training["hours"],
        settings="`" + json.dumps(training["settings"]) + "`",
        rows="\n".join(rows),
        ngram=NGRAM.format(order=ngram["order"]) if ngram else "",
        command=arguments.command,
    )


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
