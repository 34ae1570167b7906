"""Do older systems read what `elmokit convert --to bilm` writes and get the same vectors?

    python benchmarks/export.py --text news.txt --peers ../shared/bench \
        --allennlp /venvs/allennlp/bin/python --bilm /venvs/tf/bin/python

A native folder is converted to the bilm format by the command. AllenNLP and bilm-tf, each in its
own process and environment, read the files and embed some sentences, and elmokit embeds them with
the native folder. The largest difference of each layer is recorded; more than 1e-5 is an error. The
models are the shipped one and one of the published size `small` with random weights. --peers is the
folder of run_peers.py, which calls the older systems.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from parsers import described_parser
from speed import machine, make_checkpoint, read_sentences, stand_in_text

import elmokit
from elmokit.cli.main import main as run_command

HERE = Path(__file__).parent
TOLERANCE = 1e-5
# Run by the interpreters of the older systems; one batch, because they carry state between batches.
PEER = """
import argparse, json, sys
import numpy as np

peers, name, model, sentences, out = sys.argv[1:]
sys.path.insert(0, peers)
from run_peers import PEERS

with open(sentences, encoding="utf-8") as file:
    batch = json.load(file)
system = PEERS[name]()
system.threads(2)
settings = argparse.Namespace(ckpt=model, batch_size=len(batch), tmp=model, checkout=None)
system.load(settings, batch)
system.reset()
result = system.embed(batch, len(batch))
np.savez(out, version=system.version, **{str(i): layers for i, layers in enumerate(result)})
"""


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", help="tokenized sentences, one per line")
    parser.add_argument("--sentences", type=int, default=36)
    parser.add_argument("--peers", required=True, help="the folder of run_peers.py")
    parser.add_argument("--allennlp", metavar="PYTHON", help="an interpreter that has AllenNLP")
    parser.add_argument("--bilm", metavar="PYTHON", help="an interpreter that has bilm-tf")
    parser.add_argument("--out", default=str(HERE / "results" / "export.json"))
    arguments = parser.parse_args()
    systems = {name: getattr(arguments, name) for name in ("allennlp", "bilm")}
    systems = {name: python for name, python in systems.items() if python}
    if not systems:
        parser.error("name an interpreter with --allennlp, --bilm or both")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        text = arguments.text or stand_in_text(folder)
        sentences = read_sentences(text, arguments.sentences)
        (folder / "sentences.json").write_text(json.dumps(sentences))
        for model in ("english", "small"):
            rows += compare(model, systems, sentences, arguments.peers, folder)
    result = {"machine": machine(), "tolerance": TOLERANCE, "rows": rows}
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    worst = max(max(row["largest_difference"]) for row in rows)
    if worst > TOLERANCE:
        sys.exit(f"the vectors differ by {worst:.1e}, which is more than {TOLERANCE:g}")


def compare(
    model: str, systems: dict[str, str], sentences: list[list[str]], peers: str, folder: Path
) -> list[dict[str, Any]]:
    """Return a row for each older system, with the largest difference of each layer."""
    native, exported = folder / f"{model}-native", folder / f"{model}-bilm"
    source = model
    if model != "english":
        make_checkpoint(model, folder / model)
        source = str(folder / model)
    for command in (["convert", source, native], ["convert", native, exported, "--to", "bilm"]):
        if run_command([str(part) for part in command]):
            sys.exit(f"elmokit {' '.join(map(str, command))} failed")
    ours = [sentence.layers for sentence in elmokit.load(native).embed(sentences)]
    rows = []
    for name, python in systems.items():
        version, theirs = run(name, python, peers, exported, folder)
        assert [layers.shape for layers in theirs] == [layers.shape for layers in ours]
        pairs = zip(ours, theirs, strict=True)
        differences = np.max([np.abs(a - b).max(axis=(1, 2)) for a, b in pairs], axis=0)
        rows.append(
            {
                "model": model,
                "system": name,
                "version": version,
                "sentences": len(sentences),
                "tokens": sum(map(len, sentences)),
                "largest_difference": [float(f"{value:.2e}") for value in differences],
                "largest_value": round(float(max(np.abs(layers).max() for layers in ours)), 2),
            }
        )
        print(json.dumps(rows[-1]))
    return rows


def run(
    name: str, python: str, peers: str, exported: Path, folder: Path
) -> tuple[str, list[np.ndarray]]:
    """Return the version of an older system and its layers of every sentence."""
    out = folder / f"{name}.npz"
    command = [python, "-c", PEER, peers, name, exported, folder / "sentences.json", out]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    with np.load(out) as arrays:
        return str(arrays["version"]), [arrays[str(i)] for i in range(len(arrays.files) - 1)]


if __name__ == "__main__":
    main()
