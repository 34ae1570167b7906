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
PIECE = 1 << 24  # bytes
MIN_LANE_BYTES, MAX_LANES = 64, 1 << 14

Registers = NDArray[np.uint32]


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """Return the checksum of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    content = np.frombuffer(data, np.uint8)
    register = 0xFFFFFFFF
    for start in range(0, len(content), PIECE):
        register = _extend(register, content[start : start + PIECE])
    return register ^ 0xFFFFFFFF


def masked(checksum: int) -> int:
    """Return a checksum as it is stored: rotated by 15 bits, plus a constant."""
    rotated = (checksum >> 15) | (checksum << 17)
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


def _extend(register: int, piece: NDArray[np.uint8]) -> int:
    """Return the register after another piece.

    That is the register of the piece alone, from zero, xor the old one advanced by as many bits.
    """
    lanes = min(MAX_LANES, 1 << max(0, (len(piece) // MIN_LANE_BYTES).bit_length() - 1))
    words = -(-len(piece) // (4 * lanes))
    filled = np.zeros(4 * words * lanes, np.uint8)
    filled[len(filled) - len(piece) :] = piece  # Leading zeros do not change an empty register.
    registers = np.zeros(lanes, np.uint32)
    low, high = _tables()
    for column in np.ascontiguousarray(filled.view("<u4").reshape(lanes, words).T):
        registers = registers ^ column
        registers = low[registers & 0xFFFF] ^ high[registers >> 16]
    matrix = _zeros(32 * words)
    while len(registers) > 1:
        registers = _times(registers[::2], matrix) ^ registers[1::2]
        matrix = _times(matrix, matrix)
    before = _times(np.array([register], np.uint32), _zeros(8 * len(piece)))
    return int(registers[0] ^ before[0])


def _times(registers: Registers, matrix: Registers) -> Registers:
    """Apply a linear step to registers; `matrix`, (32,), holds its result for each single bit."""
    bits = (registers[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    result: Registers = np.bitwise_xor.reduce(bits * matrix, axis=1)
    return result


def _zeros(count: int) -> Registers:
    """Return the matrix of `count` zero bits: that of one, to the power of `count`."""
    result = np.uint32(1) << np.arange(32, dtype=np.uint32)
    power = np.concatenate([np.array([POLYNOMIAL], np.uint32), result[:-1]])
    while count:
        if count & 1:
            result = _times(result, power)
        power = _times(power, power)
        count >>= 1
    return result


@cache
def _tables() -> tuple[Registers, Registers]:
    """Return the effect of 32 zero bits on each lower and upper half register: (65536,) each."""
    values, matrix = np.arange(1 << 16, dtype=np.uint32), _zeros(32)
    return _times(values, matrix), _times(values << np.uint32(16), matrix)
