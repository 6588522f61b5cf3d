"""A log whose start moves beyond an open transaction: DeleteRecords and retention, and what clients are told then."""

from __future__ import annotations

import pytest

from blumfeld.broker.upkeep.retention import retain
from blumfeld.config.values import TopicConfig
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from blumfeld.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.broker.batches import fetch
from tests.plugins.transactions.test_on_broker import NONE, Transacting

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
    (found,) = broker.ask(request, 0).topics[0].partitions
    return [one.current_txn_start_offset for one in found.active_producers]


def from_start(broker: Transacting, offset: int) -> tuple[int, int, list[tuple[int, int]]]:
    """(last stable offset, bytes, aborted transactions) for a committed reader at an offset."""
    answer = broker.ask(fetch(offset, isolation_level=1), 11).responses[0].partitions[0]
    assert answer.error_code == 0
    aborted = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions]
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
