"""CRC-32C (Castagnoli), the checksum in TensorFlow's files, computed with NumPy.

A CRC shifts bits through a 32-bit register, and each step is linear over GF(2): a 32 x 32 matrix of
bits, as is any number of steps. So a long piece is split into lanes that are processed in parallel,
each from an empty register. Two neighbouring lanes are then joined: advance the left register by as
many zero bits as the right lane has, and xor it with the right register.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78  # bit-reversed
START = b"\x54\x64\x1f\x64"  # After these bytes, an empty register has only ones.
PIECE = 1 << 24  # bytes
MIN_LANE_BYTES, MAX_LANES = 64, 1 << 14

Registers = NDArray[np.uint32]


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """Return the checksum of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    content = np.frombuffer(data, np.uint8)
    first = len(content) % PIECE
    register = _extend(0, np.append(np.frombuffer(START, np.uint8), content[:first]))
    for start in range(first, len(content), PIECE):
        register = _extend(register, content[start : start + PIECE])
    return register ^ 0xFFFFFFFF


def masked(checksum: int) -> int:
    """Return a checksum as it is stored: rotated by 15 bits, plus a constant."""
    rotated = (checksum >> 15) | (checksum << 17)
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


def _extend(register: int, piece: NDArray[np.uint8]) -> int:
    """Return the register after another piece, of at least four bytes."""
    lanes = min(MAX_LANES, 1 << max(0, (len(piece) // MIN_LANE_BYTES).bit_length() - 1))
    words = -(-len(piece) // (4 * lanes))
    # Leading zeros do not change an empty register. The last 32 lanes advance each single bit.
    filled = np.zeros((lanes + 32, words), "<u4")
    content = filled[:lanes].reshape(-1).view(np.uint8)[-len(piece) :]
    content[:] = piece
    content[:4] ^= np.frombuffer(register.to_bytes(4, "little"), np.uint8)
    filled[lanes:, 0] = np.uint32(1) << np.arange(32, dtype=np.uint32)
    registers = np.zeros(lanes + 32, np.uint32)
    low, high = _tables()
    for column in np.ascontiguousarray(filled.T):
        registers = registers ^ column
        registers = low[registers & 0xFFFF] ^ high[registers >> 16]
    registers, matrix = registers[:lanes], registers[lanes:]
    while len(registers) > 1:
        registers = _times(registers[::2], matrix) ^ registers[1::2]
        matrix = _times(matrix, matrix)
    return int(registers[0])


def _times(registers: Registers, matrix: Registers) -> Registers:
    """Apply a linear step to registers; `matrix`, (32,), holds its result for each single bit."""
    bits = (registers[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    result: Registers = np.bitwise_xor.reduce(bits * matrix, axis=1)
    return result


@cache
def _tables() -> Registers:
    """Return the effect of 32 zero bits on each lower and upper half register: (2, 65536)."""
    halves = np.arange(1 << 16, dtype=np.uint32) << np.array([[0], [16]], np.uint32)
    for _ in range(32):
        halves = (halves >> np.uint32(1)) ^ (halves & np.uint32(1)) * np.uint32(POLYNOMIAL)
    return halves
