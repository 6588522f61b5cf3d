"""One metadata partition, as far as it is read."""

from __future__ import annotations

import pytest

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld_storage_tiered.catalog.records import encode_change
from blumfeld_storage_tiered.catalog.segment import (
    Change,
    PartitionDelete,
    PartitionDeleteState,
    SegmentState,
)
from blumfeld_storage_tiered.metadata_topic.metadata_partition import MetadataPartition, OtherHistoryError
from tests.plugins.storage_tiered.catalog.history import AT, remote_segment, update

SEGMENT = remote_segment([0] * 10, 0, 10, 1)


def batch(base_offset: int, *values: bytes) -> RecordBatch:
    records = [Record(value=value, timestamp=1) for value in values]
    return RecordBatch(memoryview(build_batch(records, base_offset=base_offset)))


def is_ready(partition: MetadataPartition) -> bool:
    ready = partition.ready(AT)
    return ready is not None and ready.done


def test_records_are_applied_once_however_often_they_are_read() -> None:
    partition, reports = MetadataPartition(0), []
    partition.assign(AT)
    first, second = batch(0, encode_change(SEGMENT), b"bad"), batch(2, b"bad")
    for batches in ([first], [first, second], [second]):
        partition.take(iter(batches), lambda place, error: reports.append(place))
    assert partition.position == 3
    assert reports == ["partition 0, offset 1", "partition 0, offset 2"]
    assert len(partition.catalog(AT)) == 1


def test_the_catalog_of_a_partition_that_is_deleted_for_ever_is_forgotten() -> None:
    partition = MetadataPartition(0)
    changes: list[Change] = [
        SEGMENT,
        *(update(SEGMENT, state) for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED)),
        *(
            PartitionDelete(partition=AT, broker_id=1, event_timestamp_ms=0, state=state)
            for state in (*PartitionDeleteState, PartitionDeleteState.FINISHED)  # the last one twice
        ),
    ]
    for offset, change in enumerate(changes):
        partition.take(iter([batch(offset, encode_change(change))]), lambda *_: None)
        assert len(partition.catalogs) == (offset < 5)


def test_records_that_a_new_leader_does_not_have_are_not_waited_for() -> None:
    partition = MetadataPartition(0)
    partition.assign(AT)
    partition.read_up_to(partition.waiting(), 5)  # the last leader had five, of which none was committed
    assert partition.waiting() == []
    assert not is_ready(partition)
    partition.led_by(2, 1)
    partition.read_up_to(partition.waiting(), 0)
    assert is_ready(partition)


def test_a_partition_that_is_read_anew_is_not_ready_until_then() -> None:
    partition = MetadataPartition(0)
    partition.assign(AT)
    partition.read_up_to(partition.waiting(), 0)
    assert is_ready(partition)
    partition.reset(0)
    assert not is_ready(partition)
    partition.read_up_to(partition.waiting(), 1)
    partition.take(iter([batch(0, encode_change(SEGMENT))]), lambda *_: None)
    assert is_ready(partition)


def test_what_was_read_is_compared_with_the_log_of_another_leader_epoch() -> None:
    """An unclean election may take what was read, and the log then grow over it: its end alone tells nothing."""
    partition = MetadataPartition(0)
    partition.assign(AT)
    first, read, other = batch(0, b"a", b"b"), batch(2, b"c"), batch(2, b"d")
    partition.led_by(1, 0)
    partition.take(iter([first, read]), lambda *_: None)
    assert partition.next_offset == 3
    partition.led_by(2, 1)
    assert partition.next_offset == 2, "that of the last batch"
    partition.read_up_to(partition.waiting(), 3)
    assert not is_ready(partition), "nobody knows yet whether the leader has it"
    partition.take(iter([read, batch(3, b"e")]), lambda *_: None)
    assert is_ready(partition)
    assert partition.next_offset == 4
    partition.led_by(2, 2)
    with pytest.raises(OtherHistoryError):
        partition.take(iter([other, batch(3, b"e")]), lambda *_: None)


def test_what_a_log_has_deleted_is_not_compared() -> None:
    partition = MetadataPartition(0)
    partition.led_by(1, 0)
    partition.take(iter([batch(0, b"a"), batch(1, b"b")]), lambda *_: None)
    partition.led_by(2, 1)
    partition.trust()
    assert partition.next_offset == 2
