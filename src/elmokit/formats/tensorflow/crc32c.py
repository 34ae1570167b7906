"""CRC-32C (Castagnoli), the checksum in TensorFlow's files, computed with NumPy.

A register of 32 bits takes one bit after the other, and each step is linear: it is known by what it
makes of single bits, and many steps are one such matrix again. So a long piece is cut into lanes
that run side by side from an empty register, and neighbours are joined: the left register, moved on
by as many zeros as the right lane is long, plus (xor) the right one.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78  # bits reversed
PIECE = 1 << 24  # bytes at a time
SHORTEST_LANE, MOST_LANES = 64, 1 << 14  # bytes, lanes

Registers = NDArray[np.uint32]


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """The checksum of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    content = np.frombuffer(data, np.uint8)
    register = 0xFFFFFFFF
    for start in range(0, len(content), PIECE):
        register = _extend(register, content[start : start + PIECE])
    return register ^ 0xFFFFFFFF


def masked(checksum: int) -> int:
    """A checksum as it is stored: turned by 15 bits, plus a constant."""
    turned = (checksum >> 15) | (checksum << 17)
    return (turned + 0xA282EAD8) & 0xFFFFFFFF


def _extend(register: int, piece: NDArray[np.uint8]) -> int:
    """The register after another piece."""
    if len(piece) < 4:
        for bit in np.unpackbits(piece, bitorder="little").tolist():
            register = (register >> 1) ^ (POLYNOMIAL if (register ^ bit) & 1 else 0)
        return register
    lanes = min(MOST_LANES, 1 << max(0, (len(piece) // SHORTEST_LANE).bit_length() - 1))
    words = -(-len(piece) // (4 * lanes))
    filled = np.zeros(4 * words * lanes, np.uint8)
    start = len(filled) - len(piece)  # zeros in front do nothing to an empty register
    filled[start:] = piece
    # What the register holds is met by the first 4 bytes, so it may as well start empty.
    filled[start : start + 4] ^= np.frombuffer(register.to_bytes(4, "little"), np.uint8)
    registers = np.zeros(lanes, np.uint32)
    low, high = _tables()
    for column in np.ascontiguousarray(filled.view("<u4").reshape(lanes, words).T):
        registers = registers ^ column
        registers = low[registers & 0xFFFF] ^ high[registers >> 16]
    matrix = _zeros(32 * words)
    while len(registers) > 1:
        registers = _times(registers[::2], matrix) ^ registers[1::2]
        matrix = _times(matrix, matrix)
    return int(registers[0])


def _times(registers: Registers, matrix: Registers) -> Registers:
    """What a linear step makes of registers, given what it makes of each single bit: (32,)."""
    bits = (registers[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    result: Registers = np.bitwise_xor.reduce(bits * matrix, axis=1)
    return result


def _zeros(number: int) -> Registers:
    """The step of so many zero bits: the step of one, to that power."""
    result = np.uint32(1) << np.arange(32, dtype=np.uint32)
    power = np.concatenate([np.array([POLYNOMIAL], np.uint32), result[:-1]])
    while number:
        if number & 1:
            result = _times(result, power)
        power = _times(power, power)
        number >>= 1
    return result


@cache
def _tables() -> tuple[Registers, Registers]:
    """What 32 zeros make of the lower and of the upper half of a register: (65536,) each."""
    values, matrix = np.arange(1 << 16, dtype=np.uint32), _zeros(32)
    return _times(values, matrix), _times(values << np.uint32(16), matrix)
