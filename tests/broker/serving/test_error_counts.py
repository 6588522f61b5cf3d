"""Errors of answers by API and code, as Kafka's ErrorsPerSec, on every way that an answer takes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from blumfeld.broker.serving.counts import NodeMetrics
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.first_error import errors_in
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from blumfeld.wire.messages.heartbeat import HeartbeatResponse
from blumfeld.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from blumfeld.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness, failing

UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Measured(BrokerHarness):
    """A broker whose counts somebody reads, with the topic ``t`` of one partition."""

    def __init__(self) -> None:
        self.counts = NodeMetrics()
        self.counts.measure_latencies()
        super().__init__({"auto.create.topics.enable": False}, metrics=self.counts)
        self.create_topic("t")

    def errors(self, api: ApiKey) -> dict[int, int]:
        return self.counts.counts_of(int(api)).errors


def test_answers_without_an_error_count_none() -> None:
    broker = Measured()
    for acks in (1, -1):
        broker.ask(produce(batch(), acks=acks), 9)
    broker.ask(fetch(), 12)
    broker.ask(fetch(partitions=(0, 0)), 12)
    broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    assert not any(counts.errors for counts in broker.counts.apis.values())


def test_each_partition_with_an_error_counts() -> None:
    broker = Measured()
    missing = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in (0, 7, 8)]
    broker.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=missing)]), 6)
    assert broker.errors(ApiKey.LIST_OFFSETS) == {UNKNOWN: 2}
    broker.ask(produce(batch(), partition=9), 9)
    assert broker.errors(ApiKey.PRODUCE) == {UNKNOWN: 1}


def test_fetch_counts_its_own_errors() -> None:
    broker = Measured()
    broker.ask(fetch(partitions=(0, 3, 4)), 12)
    broker.ask(fetch(99), 12)
    broker.ask(fetch(session_id=5, session_epoch=1), 12)
    assert broker.errors(ApiKey.FETCH) == {
        UNKNOWN: 2,
        int(ErrorCode.OFFSET_OUT_OF_RANGE): 1,
        int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND): 1,
    }


@pytest.mark.parametrize("acks", [0, 1])
def test_a_write_that_fails_on_the_straight_way_counts(acks: int) -> None:
    broker = Measured()
    broker.ask(produce(batch()), 9)
    broker.log_of("t").fail_next_write = True
    broker.send(produce(batch(), acks=acks), 9)
    assert broker.errors(ApiKey.PRODUCE) == {int(ErrorCode.KAFKA_STORAGE_ERROR): 1}


@pytest.mark.parametrize(
    ("error", "code"), [(BrokerError(ErrorCode.INVALID_REQUEST), 42), (ValueError(), -1)]
)
@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_a_request_that_fails_as_a_whole_counts(api: ApiKey, error: Exception, code: int) -> None:
    broker = Measured()
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    look_up = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    route: Any = broker.broker._dispatchers["broker"].route(int(api), 6)
    route._handler = msgspec.structs.replace(route._handler, handle=failing(error))
    broker.send(fetch() if api is ApiKey.FETCH else look_up, 6)
    assert broker.errors(api) == {code: 1}


def test_a_large_request_counts_too() -> None:
    broker = Measured()
    names = [MetadataRequestTopic(name=f"none-{n:04}") for n in range(900)]
    exchange = broker.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    while not exchange.settled:
        broker.runtime.run_turn()
    assert broker.errors(ApiKey.METADATA) == {UNKNOWN: 900}


def test_errors_are_found_wherever_a_message_has_them() -> None:
    """Lists that can't have one aren't walked, and an answer of our own is looked at as the message that it extends."""
    assert list(errors_in(HeartbeatResponse(error_code=27))) == [27]
    partitions = [PartitionData(partition_index=n, error_code=code) for n, code in enumerate((0, 1, 0, 6))]
    answer = FetchResponse(error_code=70, responses=[FetchableTopicResponse(partitions=partitions)])
    assert list(errors_in(answer)) == [70, 1, 6]

    class Own(PartitionProduceResponse, kw_only=True):
        more: object

    own = ProduceResponse(
        responses=[TopicProduceResponse(partition_responses=[Own(error_code=3, more=object())])]
    )
    assert list(errors_in(own)) == [3]
    assert list(errors_in(object())) == []
