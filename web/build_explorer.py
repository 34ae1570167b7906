"""Build the explorer as a page without a server: `make docs` puts it on the documentation's site.

    static files of `elmokit serve`, api.js replaced by web/api.js ─┐
    onnxruntime-web, from npm ──────────────────────────────────────┼─► OUTPUT
    models: graph, softmax, vocabulary, description ────────────────┘

Usage: python web/build_explorer.py OUTPUT [NAME=]MODEL ...
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from javascript import translate

import elmokit
from elmokit.analysis.senses.find import ENDINGS, MIN_STEM
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint
from elmokit.integrations.onnx import export
from elmokit.integrations.onnx_graph import IR_VERSION, OPSET
from elmokit.integrations.onnx_nodes import Graph, WeightType, onnx, typed_value
from elmokit.io.paths import check_output
from elmokit.serve.service import Service, load_service
from elmokit.text import tokenize
from elmokit.text.characters import (
    BEGIN_SENTENCE_ID,
    BEGIN_WORD_ID,
    END_SENTENCE_ID,
    END_WORD_ID,
    PADDING_ID,
)

HERE = Path(__file__).parent
STATIC = Path(elmokit.__file__).parent / "serve" / "static"
ONLY_SERVED = ("api.js", "docs.html", "docs.js")
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
TOLERANCE = 1e-4  # of vectors; float16 weights are used if they are as near as this
# blob: is a figure on its way to a PNG file, and the worker, for which this policy holds too.
POLICY = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; "
    "img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'"
)


def build(output: Path, models: list[str]) -> None:
    """Write the page with these models into a new folder."""
    check_output(output)
    runtime = fetch_runtime()
    service = load_service(models)
    try:
        with tempfile.TemporaryDirectory(dir=output.parent) as parent:
            folder = Path(parent) / output.name
            write_code(folder, runtime)
            (folder / "models").mkdir()
            write_models(folder, service)
            write_service_worker(folder)
            folder.rename(output)
    finally:
        service.close()


# ---------------------------------------------------------------------- code
def fetch_runtime() -> Path:
    """Return the folder of onnxruntime-web, fetched from npm in the version of package.json."""
    pinned = json.loads((HERE / "package.json").read_bytes())["dependencies"]["onnxruntime-web"]
    package = HERE / "node_modules" / "onnxruntime-web"
    if not is_version(package, pinned):
        npm = shutil.which("npm")
        if npm is None:
            raise ElmokitError(
                f"the explorer needs onnxruntime-web {pinned} from npm, and there is no npm: "
                "install Node.js 18 or newer"
            )
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "1"]
        result = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if result.returncode or not is_version(package, pinned):
            reason = (result.stderr.strip() or result.stdout.strip())[-500:]
            raise ElmokitError(f"npm cannot fetch onnxruntime-web {pinned}: {reason}")
    return package / "dist"


def is_version(package: Path, version: str) -> bool:
    """Tell whether a package of npm is there in a version."""
    description = package / "package.json"
    return description.is_file() and json.loads(description.read_bytes())["version"] == version


def write_code(folder: Path, runtime: Path) -> None:
    """Write the page, its modules and the runtime."""
    static = folder / "static"
    shutil.copytree(STATIC, static, ignore=shutil.ignore_patterns("index.html", *ONLY_SERVED))
    for path in HERE.glob("*.js"):
        shutil.copy(path, folder if path.name == "sw.js" else static)
    (static / "ort").mkdir()
    for name in RUNTIME:
        shutil.copy(runtime / name, static / "ort")
    constants = {
        "TOKEN": translate(tokenize._token_pattern(False).pattern),
        "ENDINGS": ENDINGS,
        "MIN_STEM": MIN_STEM,
    }
    lines = [f"export const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    (static / "elmokit.js").write_text("// What is written in Python.\n\n" + "".join(lines))
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    (folder / "index.html").write_text(adapt_page(page), encoding="utf-8")


def adapt_page(page: str) -> str:
    """Return the page of the service as a page without one."""
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    start, end = page.index("<noscript>"), page.index("</noscript>")
    loading = '<div id="loading" class="wait" hidden></div>\n'
    replaced = {
        '<meta name="viewport"': f'{policy}<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport"',
        page[start:end]: '<noscript><p class="empty">The explorer needs JavaScript.</p>',
        '<div id="app">': loading + '<div id="app">',
    }
    for old, new in replaced.items():
        if page.count(old) != 1:
            raise ElmokitError(f"index.html of the service must have {old!r} once")
        page = page.replace(old, new)
    return page


def write_service_worker(folder: Path) -> None:
    """Write the names of all files, and what changes if one of them does, into sw.js."""
    worker = folder / "sw.js"
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != worker)
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    files = ["./", *(path.relative_to(folder).as_posix() for path in paths)]
    text = worker.read_text(encoding="utf-8")
    text = text.replace("FILES = []", f"FILES = {json.dumps(files)}")
    text = text.replace('VERSION = ""', f'VERSION = "{digest.hexdigest()[:16]}"')
    worker.write_text(text, encoding="utf-8")


# ---------------------------------------------------------------------- models
def write_models(folder: Path, service: Service) -> None:
    """Write all models, and models.json: the answer to /v1/models with the files of each."""
    answer = service.models_answer().model_dump()
    answer["runtime"] = file_entry(folder, f"static/ort/{RUNTIME[1]}")
    for card in answer["data"]:
        card["created"] = 0  # Building again gives the same files.
        card |= write_model(folder, card["id"], service.models[card["id"]].elmo)
    (folder / "models.json").write_text(json.dumps(answer) + "\n", encoding="utf-8")


def write_model(folder: Path, name: str, elmo: Embedder) -> dict[str, Any]:
    """Write the files of a model; return what the page needs to run it."""
    if elmo.config.token_encoder != "characters":
        raise ElmokitError(f"{name} does not read characters: the explorer cannot run it")
    checkpoint = read_checkpoint(elmo.source)
    dtype = write_graph(elmo.source, folder / "models" / f"{name}.onnx")
    files = {"graph": f"models/{name}.onnx"}
    boundaries = None
    if elmo.model.softmax is not None and elmo.vocabulary is not None:
        files |= {"softmax": f"models/{name}-softmax.onnx", "words": f"models/{name}-words.json"}
        (folder / files["softmax"]).write_bytes(softmax_graph(checkpoint, dtype))
        words = json.dumps(elmo.vocabulary.words, ensure_ascii=False)
        (folder / files["words"]).write_text(words, encoding="utf-8")
        # What each direction knows of a sentence before its first word.
        (empty,) = elmo.stream([[]], "top", boundaries=True)
        forward, backward = np.split(empty.vectors, 2, axis=-1)
        boundaries = {"forward": forward[0].tolist(), "backward": backward[-1].tolist()}
    return {
        "files": {kind: file_entry(folder, file) for kind, file in files.items()},
        "characters": {
            "max_characters": elmo.config.max_characters,
            "first_byte": 1,
            "begin_sentence": BEGIN_SENTENCE_ID,
            "end_sentence": END_SENTENCE_ID,
            "begin_word": BEGIN_WORD_ID,
            "end_word": END_WORD_ID,
            "padding": PADDING_ID,
        },
        "boundaries": boundaries,
    }


def file_entry(folder: Path, file: str) -> dict[str, Any]:
    """Return a file with its size, for the progress bar."""
    return {"file": file, "bytes": (folder / file).stat().st_size}


def write_graph(model: str, path: Path) -> WeightType:
    """Write the graph without the softmax; return the type of its weights."""
    result = export(model, path, dtype="float16")
    if result.max_difference > TOLERANCE:  # The weights have more digits than float16.
        result = export(model, path, dtype="float32", overwrite=True)
    result.description.unlink()
    return result.dtype


def softmax_graph(checkpoint: Checkpoint, dtype: WeightType) -> bytes:
    """Return a graph that scores words after the states of one direction.

    Apart from the other one, since three of four views do without its weights, more than half of
    all. From states (rows, size) and words (rows, 1) come the losses (rows,) of these words and the
    log probabilities of all (rows, vocabulary).
    """
    graph = Graph(dtype=dtype)
    weight = graph.weight("softmax.weight", checkpoint.tensors["softmax.weight"].T)
    bias = graph.weight("softmax.bias", checkpoint.tensors["softmax.bias"])
    logits = graph.add("Add", graph.add("MatMul", "states", weight), bias)
    total = graph.add("ReduceLogSumExp", logits, graph.integers(1), keepdims=1)  # (rows, 1)
    chosen = graph.add("GatherElements", logits, "targets", axis=1)  # (rows, 1)
    losses = graph.add("Squeeze", graph.add("Sub", total, chosen), graph.integers(1))
    outputs = {"losses": losses, "log_probabilities": graph.add("Sub", logits, total)}
    for name, value in outputs.items():
        graph.nodes.append(onnx.helper.make_node("Identity", [value], [name], name=name))
    words, size = checkpoint.tensors["softmax.weight"].shape
    inputs = [
        typed_value("states", ["rows", size]),
        typed_value("targets", ["rows", 1], onnx.TensorProto.INT64),
    ]
    results = [typed_value("losses", ["rows"]), typed_value("log_probabilities", ["rows", words])]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "softmax", inputs, results, graph.initializers),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="elmokit",
    )
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString())


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("output", type=Path, help="new folder")
    parser.add_argument("models", nargs="*", help="as for elmokit serve")
    arguments = parser.parse_args()
    try:
        build(arguments.output, arguments.models)
    except ElmokitError as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    main()
