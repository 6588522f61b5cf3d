"""The voters that control batches of the metadata log hold (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from blumfeld.wire.batches.control_records import ControlType, build_kraft_control_batch, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.raft_records import KRaftVersionRecord, VotersRecord


class RecordedVoters(msgspec.Struct, frozen=True):
    """A voter set, and the offset of the log from which on it counts."""

    offset: int
    voters: VotersRecord
    kraft_version: int


def recorded_changes(batch: RecordBatch, kraft_version: int) -> Iterator[RecordedVoters]:
    """Yields the voter sets of a control batch, each with the ``kraft.version`` that counts there.

    :param kraft_version: before the batch
    :raises DecodeError: a record can't be read
    """
    for offset, record in enumerate(records(batch), start=batch.base_offset):
        kind = control_type_of(record.key)
        if kind is ControlType.KRAFT_VERSION:
            kraft_version = decode(KRaftVersionRecord, record.value or b"", 0).kraft_version
        elif kind is ControlType.KRAFT_VOTERS:
            yield RecordedVoters(offset, decode(VotersRecord, record.value or b"", 0), kraft_version)


def voters_batch(voters: VotersRecord, *, epoch: int, timestamp_ms: int) -> bytearray:
    """Returns the control batch of another voter set. Its offset is patched in when it is placed."""
    controls = [(ControlType.KRAFT_VOTERS, encode(voters, 0))]
    return build_kraft_control_batch(controls, timestamp_ms=timestamp_ms, base_offset=0, leader_epoch=epoch)
