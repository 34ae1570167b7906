"""`elmokit models`, `info`, `convert` and `export`: find, describe and rewrite a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit.cli.options import Flag, model_files
from elmokit.cli.output import write_result
from elmokit.io.paths import check_output

if TYPE_CHECKING:
    from elmokit.config import BiLMConfig
    from elmokit.conversion import Conversion
    from elmokit.formats.published import PublishedModel

MAX_NAMES = 8  # languages or files that are listed of a model


def models(
    *,
    language: str | None = None,
    domain: str | None = None,
    json: str | None = None,
    overwrite: Flag = False,
) -> None:
    """List the models in the package and those published elsewhere; nothing is downloaded.

    Args:
        language: Language, or part of its name, such as norwegian.
        domain: Text that the model was trained on, or part of its description, such as news.
        json: File to write the result to, as JSON.
        overwrite: Replace the output if it exists.
    """
    from elmokit.formats.published import published_models

    check_output(json, overwrite=overwrite)
    listed = published_models(language, domain)
    _print("\n".join(_published_lines(model)) + "\n" for model in listed)
    settings = {"language": language, "domain": domain}
    write_result(json, "models", settings, {"models": [asdict(model) for model in listed]})


def info(model: str, /, *, json: Flag = False) -> None:
    """Show the sizes, parameters, metadata and format of a model, read from its files.

    Args:
        model: A model folder, weights file, archive or Hub name; "english" and "chinese" are
            included.
        json: Print JSON.
    """
    from elmokit.loading import read_valid

    checkpoint = read_valid(model)
    description = checkpoint.describe()
    as_json = dumps(description, indent=2, ensure_ascii=False)
    _print([as_json] if json else _info_lines(description, checkpoint.config))


def convert(
    source: str,
    target: str,
    /,
    *,
    to: Literal["native", "bilm", "many_langs"] = "native",
    dtype: Literal["float32", "float16"] = "float32",
    overwrite: Flag = False,
) -> None:
    """Convert a model and check that the result gives the same vectors.

    Args:
        source: A model folder, weights file, archive or Hub name, of any format that is read.
        target: Folder to write.
        to: Format to write; many_langs is for models on Unicode characters.
        dtype: Type of the weights on disk; float16 halves the size and needs the native format.
        overwrite: Replace the target if it is a model.
    """
    from elmokit import conversion

    result = conversion.convert(source, target, to=to, dtype=dtype, overwrite=overwrite)
    _print(_conversion_lines(result))


def export(
    model: str,
    output: str,
    /,
    *,
    dtype: Literal["float32", "float16"] = "float32",
    softmax: Flag = False,
    overwrite: Flag = False,
) -> None:
    """Write a model as ONNX for other languages, and check it in onnxruntime.

    Args:
        model: A model folder, weights file, archive or Hub name; "english" and "chinese" are
            included.
        output: File to write, such as elmo.onnx; its description and a test vector go to elmo.json.
        dtype: Type of the stored weights; float16 halves the size.
        softmax: Add the log probabilities of all words as outputs.
        overwrite: Replace existing files.
    """
    from elmokit.integrations import onnx

    inputs = model_files(model)
    check_output(output, inputs=inputs, overwrite=overwrite)
    check_output(Path(output).with_suffix(".json"), inputs=inputs, overwrite=overwrite)
    result = onnx.export(model, output, dtype=dtype, softmax=softmax, overwrite=overwrite)
    size, difference = f"{result.graph_bytes / 1e6:.1f} MB", f"{result.max_difference:.1e}"
    facts = f"{result.dtype} weights; vectors differ by at most {difference} of their length"
    print(f"{result.graph}: {size}, {facts}")
    print(f"{result.description}: inputs, tokenizer and a test vector")


def _print(lines: Iterable[str]) -> None:
    """Print lines; a lone surrogate, which UTF-8 cannot hold, becomes an escape."""
    print("\n".join(lines).encode("utf-8", "backslashreplace").decode("utf-8"))


def _published_lines(model: PublishedModel) -> Iterator[str]:
    languages, first = list(model.load), next(iter(model.load.values()))
    yield f"{model.name}: {_names(languages)}; {model.domain} ({model.system})"
    yield f"  size: {model.size or 'see its page'}; license: {model.license}"
    files = f"download {_names(model.files)} from {model.address}"
    yield f"  {files if model.address else 'included'}"
    yield f'  elmokit.load("{first}")'
    if model.note:
        yield f"  {model.note}"


def _names(names: list[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _info_lines(info: dict[str, Any], config: BiLMConfig) -> Iterator[str]:
    yield f"model        {info['model']} ({info['format']} format)"
    yield f"layers       0 (token) to {config.num_layers}, {config.dim} columns each"
    clips = f"clips {config.cell_clip:g} and {config.projection_clip:g}"
    yield f"lstm         {config.lstm_dim} cells, projection {config.projection_dim}, {clips}"
    yield from _token_lines(config)
    if info["vocabulary_size"]:
        yield f"vocabulary   {info['vocabulary_size']:,} words"
    yield f"parameters   {info['parameters']:,}"
    for part, count in info["parameters_by_part"].items():
        yield f"  {part:<18} {count:>12,}  {count / info['parameters']:6.1%}"
    yield f"fingerprint  {info['fingerprint']}"
    for name, value in info["metadata"].items():
        if name == "meta" and isinstance(value, dict):  # Long, so one entry per line.
            for key, entry in value.items():
                yield f"meta         {key}: {dumps(entry, ensure_ascii=False)}"
        elif name != "options":  # The options of other formats repeat the configuration.
            yield f"{name:<12} {dumps(value, ensure_ascii=False)}"


def _token_lines(config: BiLMConfig) -> Iterator[str]:
    if config.token_encoder == "words":
        yield f"words        {config.n_words:,}"
        return
    filters = " ".join(f"{width}x{count}" for width, count in config.filters)
    encoder = f"filters {filters}, {config.activation}; {config.highway_layers} highway"
    if config.character_encoder == "lstm":
        encoder = "an LSTM in both directions"
    if config.character_dim:
        yield (
            f"characters   {config.n_characters} of {config.character_dim} columns, "
            f"{config.max_characters} per word; {encoder}"
        )
    if config.word_dim:
        yield f"words        {config.n_words:,} of {config.word_dim} columns"


def _conversion_lines(result: Conversion) -> Iterator[str]:
    config = result.config
    inputs = {"words": f"on {config.n_words:,} words", "characters": "on characters"}
    words = config.vocabulary_size
    summary = [
        f"{result.source_format} format",
        f"{config.num_layers} layers of {config.lstm_dim}/{config.projection_dim}",
        inputs.get(config.token_encoder, "on Unicode characters"),
        f"a softmax over {words:,} words" if words else "no softmax",
    ]
    yield f"{result.source}: {', '.join(summary)}"
    line = f"{result.target}: {result.format} format, {result.dtype}; "
    line += f"vectors differ by at most {result.max_difference:.1e}"
    if result.new_perplexity is not None:
        line += f", perplexity {result.perplexity:.2f} and {result.new_perplexity:.2f}"
    elif result.perplexity is not None:
        line += "; the softmax is not kept"
    yield line
