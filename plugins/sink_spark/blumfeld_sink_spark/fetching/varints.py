"""Zigzag varints at many places at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from blumfeld.wire.batches.varint import BadVarintError

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


def read_varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The 32-bit numbers that begin at these places, and the places behind them.

    :raises BadVarintError: one doesn't end, or doesn't fit
    :raises IndexError: the data end before one does
    """
    return _read(data, at, 5, 0x0F)


def read_varlongs(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """64-bit numbers; otherwise as :func:`read_varints`."""
    return _read(data, at, 10, 0x01)


def _read(data: Bytes, at: Numbers, bytes_max: int, last_byte_max: int) -> tuple[Numbers, Numbers]:
    byte = data[at]
    raw = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    going = np.flatnonzero(byte & 0x80)
    for nth in range(1, bytes_max):
        if not going.size:
            break
        # The lengths of values mostly have as many bytes each: nothing to pick out then.
        lanes = slice(None) if going.size == at.size else going
        byte = data[after[lanes]]
        raw[lanes] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * nth)
        after[lanes] += 1
        going = going[byte >= 0x80]
    else:
        if (byte > last_byte_max).any():
            raise BadVarintError(f"a varint of more than {bytes_max} bytes or its bits")
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after
