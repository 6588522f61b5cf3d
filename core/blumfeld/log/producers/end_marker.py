"""Transaction markers: the control records COMMIT and ABORT, the only ones that a log must understand
(KIP-98). Pure.
"""

from __future__ import annotations

import struct

import msgspec

from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import InvalidRecord
from blumfeld.wire.primitives import uvarint

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_USUAL = struct.Struct(">5s2xhB2xiB")
_USUAL_BYTES = _USUAL.size
_USUAL_START = b"\x20\x00\x00\x00\x08"  # 16 bytes follow; attributes, timestamp and offset deltas; a key of 4
_USUAL_VALUE = 12  # 6 bytes, as a zigzag varint
_ABORT = 0
_COMMIT = 1


class EndMarker(msgspec.Struct, frozen=True):
    """Outcome of a transaction, and the epoch of the coordinator that decided it."""

    committed: bool
    coordinator_epoch: int


def end_marker_of(batch: RecordBatch) -> EndMarker | None:
    """Returns the marker in a control batch; ``None`` for other control records.

    :raises InvalidRecord: the bytes are not a control record
    """
    try:
        return _read(batch.records_data)
    except (struct.error, ValueError, IndexError):
        raise InvalidRecord(
            f"the control batch at offset {batch.base_offset} does not hold a control record"
        ) from None


def _read(record: memoryview) -> EndMarker | None:
    # Nearly every marker has this form, ours and Kafka's. To read it field by field takes ten times as long.
    if len(record) == _USUAL_BYTES:
        start, kind, value_length, coordinator_epoch, headers = _USUAL.unpack_from(record)
        if (
            start == _USUAL_START
            and value_length == _USUAL_VALUE
            and kind in (_ABORT, _COMMIT)
            and not headers
        ):
            return EndMarker(kind == _COMMIT, coordinator_epoch)
    _, at = uvarint(record, 0)
    at = _skip_varlong(record, at + 1)
    _, at = uvarint(record, at)
    key_length, at = _length(record, at)
    _, kind = _KEY.unpack_from(record[at : at + key_length])
    if kind not in (_ABORT, _COMMIT):
        return None
    value_length, at = _length(record, at + key_length)
    _, coordinator_epoch = _VALUE.unpack_from(record[at : at + value_length])
    return EndMarker(kind == _COMMIT, coordinator_epoch)


def _skip_varlong(data: memoryview, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _length(data: memoryview, at: int) -> tuple[int, int]:
    """Returns a record's length (zigzag varint) and the position after it."""
    value, at = uvarint(data, at)
    length = (value >> 1) ^ -(value & 1)
    if length < 0:
        raise ValueError("null where a control record has bytes")
    return length, at
