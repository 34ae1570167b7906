"""Make the model that ships: a training folder to src/elmokit/pretrained, with its card.

    python benchmarks/release_model.py my-elmo --heldout news.txt

Weights are stored as float16. The card says what the training folder knows, and the perplexity of
the stored model on the held-out texts, each sentence read from a fresh state.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

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

| text | forward | backward | average |
|---|---:|---:|---:|
{rows}

The first line was measured while training, with the state carried from sentence to sentence; the
others with the stored weights, each sentence alone. Retrain it with

```text
{command}
```
"""

TEXT = (
    "English Wikipedia of 2006 (CC BY-SA) and English novels of the 19th and early 20th century "
    "(public domain)"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="the output of elmokit pretrain")
    parser.add_argument("--heldout", action="append", default=[], metavar="NAME=FILE")
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
    training, config = elmo.facts["training"], elmo.config
    rows = [row("held-out part of its text", training["heldout_perplexity"])]
    for heldout in arguments.heldout:
        name, _, path = heldout.partition("=")
        sentences = (line.tokens for line in read_sentences(path, tokenizer="whitespace"))
        rows.append(row(name, elmo.perplexity(sentences).to_dict()))
    parameters = sum(p.numel() for p in elmo.model.parameters())
    return CARD.format(
        size=f"{config.layers} layers of {config.lstm_dim} cells with projection "
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
        command=arguments.command,
    )


def row(name: str, found: dict[str, float]) -> str:
    return f"| {name} | {found['forward']:.1f} | {found['backward']:.1f} | {found['average']:.1f} |"


if __name__ == "__main__":
    main()
