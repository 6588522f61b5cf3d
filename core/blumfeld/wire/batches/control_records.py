"""Control batches: records that the broker writes among a client's, and those of the metadata log.

The key of a control record is two int16: version and type. A transaction's marker ends it in one partition.
The types of KRaft (KIP-595, KIP-630, KIP-853) hold a message without a version before it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import NO_LEADER_EPOCH
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import InvalidRecord

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """Second int16 of a control record's key. A reader skips unknown types."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(control_type: ControlType) -> bytes:
    """Returns the key of a control record, version 0."""
    return _KEY.pack(0, control_type)


def control_type_of(key: bytes | None) -> ControlType | None:
    """Returns the type of a control record; ``None`` for an unknown type. A higher version is read as version
    0.

    :raises InvalidRecord: the key is missing, too short, or of a negative version
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("a control record without a type in its key")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"a control record's key of version {version}")
    return ControlType(number) if 0 <= number < len(ControlType) else None


def build_transaction_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Returns the batch that ends a producer's transaction in one partition; it takes one offset."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    return build_batch(
        [Record(key, _MARKER.pack(0, coordinator_epoch), timestamp=timestamp_ms)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def coordinator_epoch_of(value: bytes | None) -> int:
    """Returns the coordinator epoch in the value of an ABORT or COMMIT record. A higher version is read as
    version 0.

    :raises InvalidRecord: the value is missing, too short, or of a negative version
    """
    if value is None or len(value) < _MARKER.size:
        raise InvalidRecord("a transaction marker without a coordinator epoch")
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"a transaction marker of version {version}")
    return int(epoch)


def build_kraft_control_batch(
    controls: Sequence[tuple[ControlType, bytes]],
    *,
    timestamp_ms: int,
    base_offset: int,
    leader_epoch: int,
) -> bytearray:
    """Returns a control batch for the metadata log or a snapshot, without a producer.

    :param controls: type and encoded message (flexible, no version before it) of each record
    """
    made = [Record(control_key(kind), value, timestamp=timestamp_ms) for kind, value in controls]
    return build_batch(made, base_offset=base_offset, leader_epoch=leader_epoch, control=True)
