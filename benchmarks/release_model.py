"""Make the model that ships: a training folder to src/elmokit/pretrained, with its card.

    python benchmarks/release_model.py my-elmo --heldout NAME=news.txt --ngram results/ngram.json

Weights are stored as float16. The card says what the training folder knows, and the perplexity of
the stored model on the held-out texts, each sentence read from a fresh state. With --ngram, the
result of ngram.py on the same folder and texts, a 5-gram model stands beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from ngram import HELDOUT

import elmokit
from elmokit.formats import native
from elmokit.formats.detect import PRETRAINED
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
    with tempfile.TemporaryDirectory(dir=PRETRAINED.parent) as folder:
        made = Path(folder) / "pretrained"
        native.write(checkpoint, made, dtype="float16")
        card = model_card(arguments, made)
        (made / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        shutil.rmtree(PRETRAINED, ignore_errors=True)
        made.rename(PRETRAINED)
    print(card)


def model_card(arguments: argparse.Namespace, folder: Path) -> str:
    elmo = elmokit.load(folder, tokenizer="whitespace")
    training, config = elmo.metadata["training"], elmo.config
    ngram = json.loads(Path(arguments.ngram).read_text()) if arguments.ngram else None
    if ngram:
        check_same(ngram, training, config.vocabulary_size)
    rows = table_rows(HELDOUT, training["heldout_perplexity"], ngram)
    for heldout in arguments.heldout:
        name, _, path = heldout.partition("=")
        lines = (line.tokens for line in read_sentences(path, tokenizer="whitespace"))
        found = elmo.perplexity(tokens for tokens in lines if tokens)
        rows += table_rows(name, found.to_dict(), ngram, found.tokens)
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


def check_same(ngram: dict, training: dict, words: int) -> None:
    """The n-gram model has read and predicts the same."""
    ours = {key: training[key] for key in ("corpus", "train_tokens")} | {"words": words}
    for key, value in ours.items():
        if ngram[key] != value:
            sys.exit(f"the n-gram model's {key} is {ngram[key]!r}, but the biLM's {value!r}")


def table_rows(
    name: str, found: dict[str, float], ngram: dict | None, tokens: int | None = None
) -> list[str]:
    """The lines of one text: the model's, and the n-gram model's if there is one."""
    rows = [row(name, "this", found)]
    if ngram:
        beside = next((text for text in ngram["texts"] if text["text"] == name), None)
        if beside is None or tokens not in (None, beside["tokens"]):
            sys.exit(f"the n-gram model was not measured on {name!r}: give ngram.py the same text")
        rows.append(row(name, f"{ngram['order']}-gram", beside))
    return rows


def row(name: str, model: str, found: dict[str, float]) -> str:
    figures = " | ".join(f"{found[way]:.1f}" for way in ("forward", "backward", "average"))
    return f"| {name} | {model} | {figures} |"


if __name__ == "__main__":
    main()
