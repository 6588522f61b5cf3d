"""A decision's records as batches: one if they fit, else several, in a transaction if they must count together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blumfeld.metadata.image.record_frame import encode_record
from blumfeld.metadata.slices import BATCH_RECORDS_MAX, SLICE_RECORDS
from blumfeld.spi.completion import Steps
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata_records import BeginTransactionRecord, EndTransactionRecord
from blumfeld.wire.schema import Message

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 21
"""The most that length, attributes, deltas and sizes take before a record's value."""


class Batch(NamedTuple):
    """An encoded batch, with the records in it. Offset and epoch are patched in when it is placed."""

    data: bytearray
    records: list[Message]


def batches_of(
    records: Sequence[Message], *, atomic: bool, epoch: int, timestamp_ms: int, bytes_max: int
) -> Steps[list[Batch]]:
    """Encode records, with a ``yield`` after every ``SLICE_RECORDS`` of them. Nothing is changed.

    Records that fit one batch (``BATCH_RECORDS_MAX`` and ``bytes_max``) make one, without a ``yield``.

    :param atomic: put several batches between BeginTransactionRecord and EndTransactionRecord (KIP-868), so that a
        controller that dies between them leaves nothing
    :raises BrokerError: POLICY_VIOLATION: a single record is larger than a batch may be
    """
    groups: list[list[tuple[Message, bytes]]] = [[]]
    size = BATCH_OVERHEAD_BYTES
    for number, record in enumerate(records, start=1):
        value = encode_record(record)
        takes = len(value) + RECORD_OVERHEAD_BYTES
        if takes + BATCH_OVERHEAD_BYTES > bytes_max:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"a record of the change takes {len(value)} bytes of metadata, a batch of {bytes_max} is allowed",
            )
        if size + takes > bytes_max or len(groups[-1]) == BATCH_RECORDS_MAX:
            groups.append([])
            size = BATCH_OVERHEAD_BYTES
        size += takes
        groups[-1].append((record, value))
        if not number % SLICE_RECORDS and len(records) > BATCH_RECORDS_MAX:
            yield None
    if atomic and len(groups) > 1:
        begin, end = BeginTransactionRecord(name="one decision"), EndTransactionRecord()
        groups.insert(0, [(begin, encode_record(begin))])
        groups.append([(end, encode_record(end))])
    batches = []
    for group in groups:
        if len(groups) > 1:
            yield None
        made = [Record(None, value, timestamp=timestamp_ms) for _, value in group]
        batches.append(Batch(build_batch(made, leader_epoch=epoch), [record for record, _ in group]))
    return batches
