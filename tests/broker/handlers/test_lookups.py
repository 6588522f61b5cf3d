"""ListOffsets and OffsetForLeaderEpoch (KIP-79, KIP-101, KIP-320)."""

from __future__ import annotations

from typing import cast

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TimestampOffset
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from blumfeld_kit.fakes.runtime import EPOCH_MS
from tests.broker.batches import batch, produce
from tests.broker.harness import BrokerHarness

VERSIONS = range(1, 12)


@pytest.fixture
def broker() -> BrokerHarness:
    """Topic ``t``: offsets 0, 1, 2 at 100, 300, 200 ms after the epoch of the clock."""
    harness = BrokerHarness(partitions=1)
    for delay in (100, 300, 200):
        harness.ask(produce(batch(timestamp=EPOCH_MS + delay)), 9)
    return harness


def look_up(
    timestamp: int,
    *,
    partition: int = 0,
    topic: str = "t",
    epoch: int = -1,
    replica_id: int = -1,
    isolation: int = 0,
) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )


def answer_to(
    broker: BrokerHarness, request: ListOffsetsRequest, version: int = 11
) -> ListOffsetsPartitionResponse:
    """The answer of the first partition."""
    return cast("ListOffsetsPartitionResponse", broker.ask(request, version).topics[0].partitions[0])


def offset_at(broker: BrokerHarness, timestamp: int, version: int = 11) -> tuple[int, int, int]:
    """(error, timestamp, offset)."""
    answer = answer_to(broker, look_up(timestamp), version)
    return answer.error_code, answer.timestamp, answer.offset


@pytest.mark.parametrize("version", VERSIONS)
def test_ends_and_times_in_every_version(broker: BrokerHarness, version: int) -> None:
    assert offset_at(broker, -1, version) == (0, -1, 3)
    assert offset_at(broker, -2, version) == (0, -1, 0)
    assert offset_at(broker, EPOCH_MS + 101, version) == (0, EPOCH_MS + 300, 1)
    assert offset_at(broker, EPOCH_MS + 301, version) == (0, -1, -1)
    assert answer_to(broker, look_up(-1), version).leader_epoch == (0 if version >= 4 else -1)


@pytest.mark.parametrize(
    ("timestamp", "since", "offset"), [(-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 99, -1)]
)
def test_special_times_came_with_versions(
    broker: BrokerHarness, timestamp: int, since: int, offset: int
) -> None:
    for version in VERSIONS:
        code, _, got = offset_at(broker, timestamp, version)
        assert code == (0 if version >= since else ErrorCode.UNSUPPORTED_VERSION)
        assert got == (offset if version >= since else -1)


def test_a_consumer_is_shown_the_high_watermark_and_a_replica_the_log_end(broker: BrokerHarness) -> None:
    broker.change_partition(replicas=(1, 2))
    broker.ask(produce(batch(timestamp=EPOCH_MS + 900)), 9)
    assert offset_at(broker, -1) == (0, -1, 3)
    assert offset_at(broker, EPOCH_MS + 900) == (0, -1, -1)
    assert answer_to(broker, look_up(-1, replica_id=-2)).offset == 4
    assert answer_to(broker, look_up(EPOCH_MS + 900, replica_id=-2)).offset == 3


def test_a_new_leader_that_may_know_too_little_says_so(broker: BrokerHarness) -> None:
    """Its high watermark must reach the start of its epoch first."""
    broker.change_partition(replicas=(1, 2))
    broker.ask(produce(batch()), 9)
    broker.change_partition(replicas=(1, 2), epoch=1)
    assert answer_to(broker, look_up(-1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert answer_to(broker, look_up(-1), 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert offset_at(broker, -2) == (0, -1, 0)
    assert offset_at(broker, EPOCH_MS + 100) == (0, EPOCH_MS + 100, 0)


def test_unknown_places_and_epochs(broker: BrokerHarness) -> None:
    def code(request: ListOffsetsRequest) -> ErrorCode:
        return ErrorCode(answer_to(broker, request).error_code)

    assert code(look_up(-1, topic="no")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(look_up(-1, partition=3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(look_up(-1, epoch=5)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    broker.change_partition(replicas=(1, 2), epoch=7)
    assert code(look_up(-2, epoch=5)) == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("others", [0, 5000], ids=["few", "many"])
def test_a_partition_named_twice_is_refused_in_one_entry(broker: BrokerHarness, others: int) -> None:
    """And each topic has one entry. A client would see the second one of a partition, or of a topic, alone."""

    def topic(name: str, *partitions: tuple[int, int]) -> ListOffsetsTopic:
        asked = [ListOffsetsPartition(partition_index=p, timestamp=time) for p, time in partitions]
        return ListOffsetsTopic(name=name, partitions=asked)

    request = ListOffsetsRequest(
        topics=[
            topic("t", (0, -1), (0, -2)),
            topic("t", (1, -1), (0, -1)),
            topic("none"),
            topic("others", *((number, -1) for number in range(others))),
            topic("no", (3, -1), (3, -1), (4, -1)),
            topic("t", (0, -1)),
        ]
    )
    answer = broker.ask(request, 5)
    assert [topic.name for topic in answer.topics] == ["t", *(["others"] if others else []), "no"]
    codes = {t.name: [(p.partition_index, p.error_code) for p in t.partitions] for t in answer.topics}
    invalid, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes["t"] == [(0, invalid), (1, unknown)]
    assert codes["no"] == [(3, invalid), (4, unknown)]
    assert len(codes.get("others", ())) == others


def test_a_look_up_of_cold_bytes_is_waited_for(broker: BrokerHarness) -> None:
    cold: list[Completion[TimestampOffset | None]] = [Completion(), Completion(), Completion()]
    handed = iter(cold)
    broker.log_of("t").offset_for_time = lambda timestamp_ms: next(handed)  # type: ignore[method-assign]
    request = look_up(5)
    request.topics += look_up(6, topic="no").topics
    waiting = [broker.send(request, 5) for _ in cold]
    assert not any(exchange.settled for exchange in waiting)
    cold[0].complete(TimestampOffset(5, 2, 0))
    cold[1].fail(OSError("far away"))
    cold[2].fail(IndexError("a defect"))
    answers = [broker.response(exchange, request, 5).topics[0].partitions[0] for exchange in waiting]
    assert [(answer.offset, answer.error_code) for answer in answers] == [
        (2, ErrorCode.NONE),
        (-1, ErrorCode.KAFKA_STORAGE_ERROR),
        (-1, ErrorCode.UNKNOWN_SERVER_ERROR),
    ]


def end_of_epoch(
    broker: BrokerHarness, leader_epoch: int, current: int = -1, version: int = 4
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=leader_epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
    end: EpochEndOffset = broker.ask(request, version).topics[0].partitions[0]
    return end


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ended(broker: BrokerHarness, version: int) -> None:
    broker.change_partition(epoch=4)
    broker.ask(produce(batch()), 9)

    def end(epoch: int) -> tuple[int, int, int]:
        answer = end_of_epoch(broker, epoch, version=version)
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end(0) == (0, 0, 3)
    assert end(2) == (0, 0, 3)
    assert end(4) == (0, 4, 4)
    assert end(5) == (0, -1, -1)
    assert end_of_epoch(broker, 0, current=9).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_epoch_of_an_unknown_topic(broker: BrokerHarness) -> None:
    broker.metadata.delete_topic("t")
    answer = end_of_epoch(broker, 0)
    assert (answer.error_code, answer.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
