"""TensorFlow's checkpoint files: what was written is read, and nothing else is."""

from __future__ import annotations

import random
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import (
    block,
    checksum,
    entry,
    field,
    header,
    sealed,
    stored,
    table,
    varint,
    with_block,
    write_bundle,
)
from tiny import complaint

from elmokit.errors import ElmokitError
from elmokit.formats.tensorflow.bundle import open_bundle
from elmokit.formats.tensorflow.crc32c import crc32c, masked

SMALL = {
    "a/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([1, 2], np.float32),
}
CHECKED = {  # published with the definition of iSCSI, RFC 3720
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "model", SMALL)
    return tmp_path / "model"


def index_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")


def data_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.data-00000-of-00001")


def write_index(prefix: Path, content: bytes, data: bytes = b"") -> None:
    index_of(prefix).write_bytes(content)
    data_of(prefix).write_bytes(data)


def read_all(prefix: Path) -> dict[str, np.ndarray]:
    bundle = open_bundle(prefix)
    return {name: bundle.read(name) for name in bundle.entries}


def refusal(prefix: Path) -> str:
    """What reading a whole checkpoint complains of."""
    return complaint(lambda: read_all(prefix))


# ---------------------------------------------------------------------- checksums
@pytest.mark.parametrize("data", CHECKED)
def test_the_checksum_is_that_of_the_standard(data: bytes) -> None:
    assert crc32c(data) == checksum(data) == CHECKED[data]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 1000, 4097, 33_333])
def test_the_checksum_is_right_for_every_length(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == checksum(data)
    assert masked(crc32c(data)).to_bytes(4, "little") == stored(data)


def test_pieces_of_a_long_content_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random.Random(1).randbytes(10_001)
    monkeypatch.setattr("elmokit.formats.tensorflow.crc32c.PIECE", 1000)
    assert crc32c(data) == checksum(data)


# ---------------------------------------------------------------------- what is read
@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("block_entries", [1, 7, 1000])
def test_what_was_written_is_read(tmp_path: Path, files: int, block_entries: int) -> None:
    numbers = np.random.default_rng(files)
    tensors = {
        f"lm/scope_{i % 5}/variable_{i}": numbers.normal(size=(i % 4, 3, i % 3 + 1))
        .astype(("float32", "float16", "float64")[i % 3])
        for i in range(40)
    }  # fmt: skip
    tensors |= {"scalar": np.array(3.5, np.float32), "变量": np.array([1], np.float32)}
    write_bundle(tmp_path / "model", tensors, files=files, block_entries=block_entries)
    bundle = open_bundle(tmp_path / "model")
    assert set(bundle.entries) == set(tensors)
    assert len(bundle.files) == files
    for name, array in tensors.items():
        result = bundle.read(name)
        assert result.dtype == np.float32
        assert bundle.entries[name].shape == result.shape == array.shape
        np.testing.assert_array_equal(result, array.astype(np.float32))


def test_the_checkpoint_of_the_original_is_read_as_it_exported_it(shared: Path) -> None:
    h5py = pytest.importorskip("h5py")
    folder = shared / "golden" / "tf_checkpoint"
    bundle = open_bundle(folder / "model.ckpt-117")
    assert len(bundle.entries) == 56
    assert bundle.read("global_step") == 117
    with h5py.File(folder / "weights.hdf5") as file:
        for name in ("char_embed", "CNN/W_cnn_2", "CNN_high_0/b_carry", "CNN_proj/W_proj"):
            np.testing.assert_array_equal(bundle.read(f"lm/{name}"), file[name][...])


# ---------------------------------------------------------------------- what is refused
def test_an_index_cut_anywhere_is_refused(small: Path) -> None:
    whole = index_of(small).read_bytes()
    for size in range(len(whole)):
        index_of(small).write_bytes(whole[:size])
        assert "model.index is not a readable TensorFlow index" in refusal(small)


def test_no_single_changed_byte_of_the_index_changes_a_tensor(small: Path) -> None:
    whole = index_of(small).read_bytes()
    refused = 0
    for position in range(len(whole)):
        for change in (1, 0x80):
            changed = bytearray(whole)
            changed[position] ^= change
            index_of(small).write_bytes(bytes(changed))
            if refusal(small):
                refused += 1
                continue
            result = read_all(small)
            for name, array in SMALL.items():
                np.testing.assert_array_equal(result[name], array)
    # All but the zeros that fill the footer, and the empty block that TensorFlow adds.
    assert refused > 2 * (len(whole) - 40 - 13)


def test_a_changed_byte_of_the_data_is_found(small: Path) -> None:
    content = bytearray(data_of(small).read_bytes())
    content[9] ^= 4
    data_of(small).write_bytes(content)
    assert "'a/kernel' is damaged (its checksum differs)" in refusal(small)
    np.testing.assert_array_equal(open_bundle(small).read("b"), SMALL["b"])


def test_data_that_is_too_short_or_missing_is_refused(small: Path) -> None:
    content = data_of(small).read_bytes()
    data_of(small).write_bytes(content[:-1])
    assert "00001 is truncated: it has 31 bytes, and the tensor 'b' ends at 32" in refusal(small)
    data_of(small).unlink()
    assert "there is no file" in refusal(small)
    index_of(small).unlink()
    assert "there is no file" in refusal(small)


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ({"kind": b"\1"}, "it is compressed, which TensorFlow does not do"),
        ({"endianness": 1}, "its tensors are big-endian"),
        ({"header_files": 0}, "its number of data files is invalid"),
        ({"header_files": 1 << 40}, "its number of data files is invalid"),
        ({"header_files": 2}, "there is no file .*model.data-00000-of-00002"),
        ({"shape": (2, 4)}, r"'a/kernel' of shape \[2, 4\] has 24 bytes"),
        ({"shape": (1 << 39, 1 << 39)}, "'a/kernel' of shape .* has 24 bytes"),
        ({"shape": (1 << 63,)}, "a dimension of invalid size"),
        ({"shape": (1,) * 9}, "'a/kernel' has 9 dimensions"),
        ({"dtype": 7}, "'a/kernel' is not of float16, float32 or float64"),
        ({"size": 1 << 40}, "is truncated"),
        ({"offset": 1 << 63}, "is truncated"),
        ({"more": field(3, 9)}, "'a/kernel' is in data file 9"),
        ({"more": field(7, b"")}, "'a/kernel' is stored in slices"),
        ({"more": field(3, b"x")}, "the entry of the tensor 'a/kernel' is invalid"),
        ({"more": b"\x0b"}, "a field of unknown kind"),
        ({"more": b"\x12\x05ab"}, "an entry ends too early"),
        ({"more": b"\x08" + b"\xff" * 12}, "a number is too long"),
        ({"more": b"\x08\xff"}, "it ends in the middle of a number"),
    ],
)
def test_a_wrong_index_is_reported_in_one_sentence(
    tmp_path: Path, lie: dict[str, Any], sentence: str
) -> None:
    write_bundle(tmp_path / "model", SMALL, **lie)
    with pytest.raises(ElmokitError, match=sentence):
        read_all(tmp_path / "model")


def test_fields_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    write_bundle(tmp_path / "model", SMALL, more=field(9, b"later") + field(10, 3))
    np.testing.assert_array_equal(open_bundle(tmp_path / "model").read("b"), SMALL["b"])


def test_a_repeated_name_is_refused(tmp_path: Path) -> None:
    one = np.array([1], np.float32)
    pairs = [header(), entry("a", one, 0, 0), entry("a", one, 0, 4)]
    write_index(tmp_path / "model", table(pairs), one.tobytes() * 2)
    assert "it has the tensor 'a' twice" in refusal(tmp_path / "model")


def test_an_index_without_a_header_is_refused(tmp_path: Path) -> None:
    one = np.array([1], np.float32)
    write_index(tmp_path / "model", table([entry("a", one, 0, 0)]), bytes(4))
    assert "it has no header" in refusal(tmp_path / "model")
    write_index(tmp_path / "model", table([]))
    assert "it has no header" in refusal(tmp_path / "model")


def test_tensors_that_share_their_bytes_cannot_multiply(tmp_path: Path) -> None:
    array = np.zeros(1000, np.float32)
    pairs = [header(), *(entry(f"{i:04d}", array, 0, 0) for i in range(50))]
    write_index(tmp_path / "model", table(pairs), array.tobytes())
    assert "declares more tensors than its data files can hold" in refusal(tmp_path / "model")


def test_blocks_cannot_be_read_again_and_again(tmp_path: Path) -> None:
    content, handle = with_block(b"", block([header()]))
    content, empty = with_block(content, block([]))
    content, index = with_block(content, block([(b"a", handle), (b"b", handle)], 1))
    footer = (empty + index).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
    write_index(tmp_path / "model", content + footer)
    assert "its blocks overlap" in refusal(tmp_path / "model")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"\x03\x01\x00a" + bytes(4), "an entry does not fit into its block"),  # shares with none
        (b"\x00\x09\x00a" + bytes(4), "an entry does not fit into its block"),  # key is too long
        (b"\x00\x00\x09a" + bytes(4), "an entry does not fit into its block"),  # value is too long
        (b"\x00" + bytes(4), "it ends in the middle of a number"),
        (b"\x00\x00\x00" + (1 << 31).to_bytes(4, "little"), "more restarts than bytes"),
    ],
)
def test_an_entry_outside_of_its_block_is_refused(
    tmp_path: Path, body: bytes, sentence: str
) -> None:
    content, handle = sealed(body), varint(0) + varint(len(body))
    content, index = with_block(content, block([(b"a", handle)], 1))
    footer = (handle + index).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
    write_index(tmp_path / "model", content + footer)
    assert sentence in refusal(tmp_path / "model")


def test_an_index_with_very_many_entries_takes_neither_time_nor_memory(tmp_path: Path) -> None:
    name = b"x" * 900  # shared by all: a few bytes of the file make a long name each
    body = varint(0) + varint(900) + varint(0) + name + (varint(900) + b"\0\0") * 20_000
    write_index(tmp_path / "model", table([]))
    content, handle = with_block(b"", body + bytes(4))
    content, index = with_block(content, block([(b"a", handle)], 1))
    footer = (handle + index).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
    index_of(tmp_path / "model").write_bytes(content + footer)
    tracemalloc.start()
    try:
        assert "more than 10,000 entries" in refusal(tmp_path / "model")
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    index_of(tmp_path / "model").write_bytes(bytes((1 << 24) + 1))
    assert "is too large for an index" in refusal(tmp_path / "model")


def test_files_of_other_formats_are_recognized(tmp_path: Path) -> None:
    write_index(tmp_path / "model", b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert "it is truncated or of another format" in refusal(tmp_path / "model")


# ---------------------------------------------------------------------- TensorFlow itself
WRITE = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
numbers = np.random.default_rng(0)
arrays = {f"lm/scope_{i % 7}/variable_{i}": numbers.normal(size=(i % 5 + 1, 3)) for i in range(300)}
types = (np.float32, np.float64, np.float16)
arrays = {name: a.astype(types[i % 3]) for i, (name, a) in enumerate(arrays.items())}
arrays["large"] = numbers.normal(size=(700, 800)).astype(np.float32)
arrays["scalar"] = np.float32(2.5)
with tf.Session() as session:
    variables = [tf.Variable(array, name=name) for name, array in arrays.items()]
    session.run(tf.global_variables_initializer())
    tf.train.Saver(variables).save(session, sys.argv[1])
np.savez(sys.argv[2], **{name.replace("/", "|"): array for name, array in arrays.items()})
"""

READ = """
import sys
import numpy as np
import tensorflow as tf

reader = tf.train.load_checkpoint(sys.argv[1])
names = reader.get_variable_to_shape_map()
np.savez(sys.argv[2], **{name.replace("/", "|"): reader.get_tensor(name) for name in names})
"""


def run_tensorflow(python: str, program: str, *arguments: Path) -> None:
    command = [python, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_what_tensorflow_writes_is_read_as_it_was(tmp_path: Path, tensorflow_python: str) -> None:
    run_tensorflow(tensorflow_python, WRITE, tmp_path / "model.ckpt-3", tmp_path / "arrays.npz")
    bundle = open_bundle(tmp_path / "model.ckpt-3")
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert {name.replace("/", "|") for name in bundle.entries} == set(arrays.files)
        for name in bundle.entries:
            expected = arrays[name.replace("/", "|")].astype(np.float32)
            np.testing.assert_array_equal(bundle.read(name), expected)


@pytest.mark.slow
def test_what_these_tests_write_is_read_by_tensorflow(
    tmp_path: Path, tensorflow_python: str
) -> None:
    """Whoever checks others has to be checked."""
    tensors = {f"lm/variable_{i}": np.full((i, 2), i, np.float32) for i in range(1, 60)}
    write_bundle(tmp_path / "model", tensors, files=2, block_entries=7)
    run_tensorflow(tensorflow_python, READ, tmp_path / "model", tmp_path / "arrays.npz")
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert len(arrays.files) == len(tensors)
        for name, array in tensors.items():
            np.testing.assert_array_equal(arrays[name.replace("/", "|")], array)
