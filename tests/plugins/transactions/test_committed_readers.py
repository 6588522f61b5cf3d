"""Readers of committed records while a transaction is open and when it ends: look-ups by time, long polls, sessions."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.broker.upkeep.retention import retain
from blumfeld.config.values import TopicConfig
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from blumfeld.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from blumfeld.wire.messages.fetch import FetchRequest
from blumfeld.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from blumfeld_kit.fakes.runtime import EPOCH_MS
from tests.broker.batches import fetch
from tests.plugins.transactions.test_on_broker import NONE, Transacting

MAX_TIMESTAMP = -3
NOTHING = (-1, -1)


@pytest.fixture
def broker() -> Transacting:
    """A transaction is open in ``t-0``, at offset 0."""
    started = Transacting()
    started.runtime.advance(2_000)
    assert started.init() == NONE
    assert [*started.add(0), started.produce()] == [NONE, NONE]
    return started


def by_time(broker: Transacting, timestamp: int, isolation_level: int) -> tuple[int, int]:
    """(offset, timestamp) as ListOffsets tells."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    (partition_answer,) = broker.ask(request, 7).topics[0].partitions
    assert partition_answer.error_code == 0
    return partition_answer.offset, partition_answer.timestamp


@pytest.mark.parametrize("timestamp", [EPOCH_MS, MAX_TIMESTAMP])
def test_a_look_up_by_time_finds_nothing_behind_the_last_stable_offset(
    broker: Transacting, timestamp: int
) -> None:
    assert by_time(broker, timestamp, 0) == (0, EPOCH_MS)
    assert by_time(broker, timestamp, 1) == NOTHING
    assert broker.end(True) == NONE
    offset, found_ms = by_time(broker, timestamp, 1)
    assert offset >= 0
    assert found_ms >= EPOCH_MS


def records_of(answer: Any) -> list[int]:
    """Base offsets of the batches in an answer."""
    offsets = []
    for topic in answer.responses:
        for partition in topic.partitions:
            data = memoryview(bytearray(partition.records or b""))
            offsets += [batch.base_offset for batch in split_batches(data)]
    return offsets


@pytest.mark.parametrize("commit", [True, False])
def test_a_long_poll_waits_for_the_marker(broker: Transacting, commit: bool) -> None:
    request = fetch(0, isolation_level=1, max_wait_ms=30_000)
    waiting = broker.send(request, 12)
    assert broker.produce() == NONE
    assert not waiting.settled
    assert broker.end(commit) == NONE
    answer = broker.response(waiting, request, 12)
    assert records_of(answer) == [0, 1, 2]
    aborted_pairs = [
        (a.producer_id, a.first_offset) for a in answer.responses[0].partitions[0].aborted_transactions
    ]
    assert aborted_pairs == ([] if commit else [(broker.producer_id, 0)])


def test_a_session_tells_of_the_marker_and_of_aborted_transactions(broker: Transacting) -> None:
    """An incremental fetch of nothing new names the partition only because its high watermark moved."""
    first = broker.ask(fetch(0, isolation_level=1, session_epoch=0), 12)
    assert (first.session_id > 0, records_of(first)) == (True, [])

    def again(epoch: int, offset: int | None = None) -> Any:
        request = FetchRequest(
            max_wait_ms=0, isolation_level=1, session_id=first.session_id, session_epoch=epoch
        )
        if offset is not None:
            request.topics = fetch(offset).topics
        return broker.ask(request, 12)

    assert again(1).responses == []
    assert broker.produce() == NONE
    (partition,) = again(2).responses[0].partitions
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    assert broker.end(False) == NONE
    ended = again(3)
    (partition,) = ended.responses[0].partitions
    assert (records_of(ended), partition.last_stable_offset) == ([0, 1, 2], 3)
    assert [(a.producer_id, a.first_offset) for a in partition.aborted_transactions] == [
        (broker.producer_id, 0)
    ]
    assert again(4, offset=3).responses == []


# The log start


WRITTEN = 4


def delete_records(broker: Transacting, offset: int) -> None:
    topic = DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    answer = broker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    assert answer.topics[0].partitions[0].error_code == 0


def drop_first_segment(broker: Transacting, offset: int) -> None:
    """By retention, which goes by the high watermark, as in Kafka."""
    partition = broker.broker.partitions.find("t", 0)
    assert partition is not None
    size_bytes = broker.log_of("t").segments()[1].size_bytes
    partition.config = TopicConfig({"retention.bytes": str(size_bytes)})
    assert retain(partition, broker.runtime.now_ms()) == 1
    assert broker.log_of("t").log_start_offset == offset


def open_since(broker: Transacting) -> list[int]:
    """Where DescribeProducers says that transactions began; -1 for none."""
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    (description,) = broker.ask(request, 0).topics[0].partitions
    return [producer.current_txn_start_offset for producer in description.active_producers]


def from_start(broker: Transacting, offset: int) -> tuple[int, int, list[tuple[int, int]]]:
    """(last stable offset, bytes, aborted transactions) for a committed reader at an offset."""
    answer = broker.ask(fetch(offset, isolation_level=1), 11).responses[0].partitions[0]
    assert answer.error_code == 0
    aborted = [
        (transaction.producer_id, transaction.first_offset) for transaction in answer.aborted_transactions
    ]
    return answer.last_stable_offset, len(answer.records), aborted


@pytest.mark.parametrize("way", [delete_records, drop_first_segment], ids=["DeleteRecords", "retention"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_log_start_is_the_end_for_committed_readers_until_the_transaction_ends(
    way: object, commit: bool
) -> None:
    """The last stable offset never lies below the log start."""
    broker = Transacting(topics=False)
    for name in ("__consumer_offsets", "__transaction_state"):
        broker.create_topic(name)
    broker.create_topic("t")
    broker.runtime.advance(2_000)
    assert broker.init() == NONE
    assert [*broker.add(0), broker.produce(), broker.produce()] == [NONE] * 3
    broker.log_of("t").roll()
    assert [broker.produce(), broker.produce()] == [NONE, NONE]
    assert (broker.stable(), open_since(broker)) == (0, [0])
    assert callable(way)
    way(broker, 2)
    assert from_start(broker, 2) == (2, 0, [])
    assert (broker.latest(1), broker.latest(0)) == (2, WRITTEN)
    assert open_since(broker) == [0]
    assert broker.produce() == NONE, "the transaction goes on"
    assert broker.end(commit) == NONE
    stable, size_bytes, aborted = from_start(broker, 2)
    assert (stable, size_bytes > 0) == (WRITTEN + 2, True)
    assert aborted == ([] if commit else [(broker.producer_id, 0)])
    assert open_since(broker) == [-1]
    delete_records(broker, WRITTEN + 2)
    assert from_start(broker, WRITTEN + 2) == (WRITTEN + 2, 0, [])
    (refused,) = broker.ask(fetch(0, isolation_level=1), 11).responses[0].partitions
    assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
