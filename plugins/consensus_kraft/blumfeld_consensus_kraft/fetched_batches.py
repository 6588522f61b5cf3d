"""Checks of the batches that a quorum's leader sent, as in Kafka's ``KafkaRaftLog.appendAsFollower``. Pure."""

from __future__ import annotations

from blumfeld.wire.batches.record_batch import RecordBatch, split_batches


def fetched_batches(
    data: bytes | memoryview, end_offset: int, last_epoch: int, leader_epoch: int | None = None
) -> list[RecordBatch]:
    """Returns the batches that a log may append which ends at ``end_offset`` in ``last_epoch``.

    A batch that is cut off ends the data. So does a batch of a later epoch than ``leader_epoch``: it comes from a
    leader that this voter doesn't know yet (KAFKA-18723).

    :raises CorruptBatch: CRC, length or format
    :raises UnsupportedMagic: format 0 or 1
    :raises ValueError: a batch does not begin where the one before it ends, or its epoch is an earlier one
    """
    new_batches: list[RecordBatch] = []
    for batch in split_batches(memoryview(data), allow_partial=True):
        epoch = batch.partition_leader_epoch
        if leader_epoch is not None and epoch > leader_epoch:
            break
        batch.verify_crc()
        if batch.base_offset != end_offset or batch.next_offset <= end_offset:
            raise ValueError(
                f"the leader sent metadata records {batch.base_offset} to {batch.last_offset}, where offset "
                f"{end_offset} comes next: nothing was appended, fetch again from {end_offset}"
            )
        if epoch < max(last_epoch, 0):
            raise ValueError(
                f"the leader sent metadata records of epoch {epoch} at offset {batch.base_offset}, behind records of "
                f"epoch {last_epoch}: nothing was appended, epochs never go back in a log"
            )
        end_offset, last_epoch = batch.next_offset, epoch
        new_batches.append(batch)
    return new_batches
