"""Writes TensorFlow's checkpoint files, so that they can be read: written from the format alone.

Slow, plain and with nothing of elmokit in it. TensorFlow reads what comes out too: see the tests
that ask for its interpreter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from reference import Reference
from tiny import WORDS

TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}
MAGIC = bytes.fromhex("57fb808b247547db")
Pair = tuple[bytes, bytes]


# ---------------------------------------------------------------------- bytes
def after_byte(register: int) -> int:
    """CRC-32C, bit by bit."""
    for _ in range(8):
        register = (register >> 1) ^ (0x82F63B78 * (register & 1))
    return register


AFTER = [after_byte(byte) for byte in range(256)]


def checksum(data: bytes) -> int:
    """CRC-32C, byte by byte."""
    register = 0xFFFFFFFF
    for byte in data:
        register = AFTER[(register ^ byte) & 255] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def stored(data: bytes) -> bytes:
    """The checksum as the files have it."""
    value = checksum(data)
    turned = (value >> 15 | value << 17) & 0xFFFFFFFF
    return ((turned + 0xA282EAD8) % (1 << 32)).to_bytes(4, "little")


def varint(value: int) -> bytes:
    """Seven bits a byte."""
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, value: int | bytes, fixed: bool = False) -> bytes:
    """A field of a protocol buffer."""
    if fixed:
        assert isinstance(value, bytes)
        return varint(number << 3 | 5) + value
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


# ---------------------------------------------------------------------- the table
def block(pairs: Iterable[Pair], restart_every: int = 16) -> bytes:
    """Entries that share the beginnings of their keys, and where none is shared."""
    content, restarts, before = b"", [], b""
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % restart_every == 0:
            restarts.append(len(content))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        content += varint(shared) + varint(len(key) - shared) + varint(len(value))
        content += key[shared:] + value
        before = key
    places = [*(restarts or [0]), len(restarts or [0])]
    return content + b"".join(offset.to_bytes(4, "little") for offset in places)


def sealed(content: bytes, kind: bytes = b"\0") -> bytes:
    """A block with its kind and its checksum."""
    return content + kind + stored(content + kind)


def table(pairs: list[Pair], *, block_entries: int = 5, kind: bytes = b"\0") -> bytes:
    """An index file with these entries."""
    content, handles = b"", []
    for start in range(0, len(pairs), block_entries):
        part = pairs[start : start + block_entries]
        body = block(part)
        handles.append((part[-1][0], varint(len(content)) + varint(len(body))))
        content += sealed(body, kind)
    content, empty = with_block(content, block([]))
    content, index = with_block(content, block(handles, 1))
    return content + (empty + index).ljust(40, b"\0") + MAGIC


def with_block(content: bytes, body: bytes) -> tuple[bytes, bytes]:
    return content + sealed(body), varint(len(content)) + varint(len(body))


# ---------------------------------------------------------------------- tensors
def header(files: int = 1, endianness: int = 0) -> Pair:
    value = field(1, files) + (field(2, endianness) if endianness else b"")
    return b"", value + field(3, field(1, 1))


def entry(name: str, array: np.ndarray, file: int, offset_in_file: int, **other: Any) -> Pair:
    """What the index says of a tensor; `other` says otherwise."""
    offset = other.get("offset", offset_in_file)
    data = array.tobytes()
    shape = b"".join(field(2, field(1, length)) for length in other.get("shape", array.shape))
    value = field(1, other.get("dtype", TYPES[array.dtype.name])) + field(2, shape)
    value += field(3, file) if file else b""
    value += field(4, offset) if offset else b""
    value += field(5, other.get("size", len(data))) + field(6, stored(data), fixed=True)
    return name.encode(), value + other.get("more", b"")


def write_bundle(
    prefix: Path, tensors: Mapping[str, np.ndarray], *, files: int = 1, **other: Any
) -> None:
    """`PREFIX.index` and its data files; `other` lies about the first tensor or the table."""
    about_table = {key: other.pop(key) for key in ("block_entries", "kind") if key in other}
    first = header(other.pop("header_files", files), other.pop("endianness", 0))
    data = [bytearray() for _ in range(files)]
    pairs = [first]
    for number, name in enumerate(sorted(tensors, key=str.encode)):
        array, file = tensors[name], number % files
        pairs.append(entry(name, array, file, len(data[file]), **(other if number == 0 else {})))
        data[file] += array.tobytes()
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(pairs, **about_table))
    for file in range(files):
        path = prefix.with_name(f"{prefix.name}.data-{file:05d}-of-{files:05d}")
        path.write_bytes(bytes(data[file]))


# ---------------------------------------------------------------------- models
def trained_name(dataset: str, layers: int) -> str:
    """What training calls a dataset: RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B and so on."""
    if not dataset.startswith("RNN_"):
        return f"lm/{dataset}"
    way, _, _, cell, _, part = dataset.split("/")
    middle = f"multi_rnn_cell/cell_{cell[4:]}/" if layers > 1 else ""
    return f"lm/{way}/rnn/{middle}lstm_cell/{NEW_PARTS[part]}"


def module_name(dataset: str) -> str:
    """What the module of TensorFlow Hub calls it."""
    for old, new in NEW_PARTS.items():
        if dataset.endswith(f"/LSTMCell/{old}"):
            return f"bilm/{dataset.removesuffix(f'/LSTMCell/{old}')}/rnn/lstm_cell/{new}"
    return f"bilm/{dataset}"


NEW_PARTS = {"W_P_0": "projection/kernel", "W_0": "kernel", "B": "bias"}


def with_softmax(reference: Reference, *, shared: bool = False) -> Reference:
    """The same model with a softmax over WORDS, or with the biases of one that it shares."""
    random = np.random.default_rng(5)
    if not shared:
        shape = (len(WORDS), reference.size)
        reference.stored["softmax/W"] = random.normal(size=shape).astype(np.float32)
    reference.stored["softmax/b"] = random.normal(size=len(WORDS)).astype(np.float32)
    reference.vocabulary = WORDS
    return reference


def trained_tensors(reference: Reference) -> dict[str, np.ndarray]:
    """A training checkpoint's variables, with what the training adds to them."""
    tensors: dict[str, np.ndarray] = {}
    for dataset, array in reference.stored.items():
        name = trained_name(dataset, reference.layers)
        tensors[name], tensors[f"{name}/Adagrad"] = array, np.full_like(array, 7)
    tensors["global_step"] = np.array(117, np.int64)
    tensors["train_perplexity"] = np.array(50.0, np.float32)
    return tensors


def save_training(reference: Reference, folder: Path, name: str = "model.ckpt-117") -> Path:
    """A folder as the training of bilm-tf leaves it; gives the folder."""
    write_bundle(folder / name, trained_tensors(reference))
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
    (folder / "options.json").write_text(json.dumps(reference.options))
    if reference.vocabulary is not None:
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in reference.vocabulary))
    return folder


def module_tensors(
    reference: Reference, weights: np.ndarray | None, scaling: float
) -> dict[str, np.ndarray]:
    """A module's variables; its table of characters has a row for padded words before all."""
    tensors = {module_name(dataset): array for dataset, array in reference.stored.items()}
    characters = tensors["bilm/char_embed"]
    tensors["bilm/char_embed"] = np.concatenate([np.zeros_like(characters[:1]), characters])
    if weights is not None:
        tensors["aggregation/weights"] = weights.astype(np.float32)
        tensors["aggregation/scaling"] = np.array(scaling, np.float32)
    return tensors


def save_module(
    reference: Reference, folder: Path, *, weights: np.ndarray | None = None, scaling: float = 1.0
) -> Path:
    """A folder as TensorFlow Hub has it, its program left empty; gives the folder."""
    write_bundle(folder / "variables" / "variables", module_tensors(reference, weights, scaling))
    (folder / "saved_model.pb").write_bytes(b"")
    return folder
