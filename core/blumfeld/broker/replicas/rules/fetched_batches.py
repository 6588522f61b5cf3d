"""Checks of what a leader answered to a follower's fetch, as in Kafka's ``UnifiedLog.appendAsFollower``. Pure."""

from __future__ import annotations

from blumfeld.log.producers.end_marker import end_marker_of
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.errors import CorruptBatch, InvalidRecord


def fetched_batches(data: memoryview, end_offset: int, leader_epoch: int) -> list[RecordBatch]:
    """Returns the batches that a follower whose log ends at ``end_offset`` may append.

    A batch that is cut off ends the data. So does a batch of a later epoch than ``leader_epoch``: it may come from a
    leader that this follower doesn't know yet, after a truncation that it hasn't made (KAFKA-18723).

    The first batch may begin below ``end_offset`` if it ends above: the caller decides on that.

    :raises CorruptBatch: CRC, length or format; a control batch whose record can't be read; offsets that don't
        ascend, or lie below ``end_offset``
    :raises UnsupportedMagic: format 0 or 1
    """
    new_batches: list[RecordBatch] = []
    for batch in split_batches(data, allow_partial=True):
        if batch.partition_leader_epoch > leader_epoch:
            break
        batch.verify_crc()
        if batch.is_control and batch.record_count:
            # The producer state reads it when the batch is placed, and that must not fail.
            try:
                end_marker_of(batch)
            except InvalidRecord as error:
                raise CorruptBatch(str(error)) from error
        end = new_batches[-1].next_offset if new_batches else min(end_offset, batch.base_offset)
        if batch.base_offset < end or batch.last_offset < max(batch.base_offset, end_offset):
            raise CorruptBatch(
                f"the leader sent a batch with the offsets {batch.base_offset} to {batch.last_offset}, where "
                f"{max(end, end_offset)} or a later offset comes next"
            )
        new_batches.append(batch)
    return new_batches
