"""A client may ask in any version that ApiVersions lists."""

from __future__ import annotations

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.api import API_BY_KEY, request_class, response_class
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.produce import ProduceRequest
from blumfeld.wire.schema import Message

TIMEOUT_S = 10.0


def connection(broker: EmbeddedBroker) -> BlockingConnection:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return BlockingConnection(host, int(port), "versions", TIMEOUT_S)


def smallest(key: int) -> Message:
    """A request that has an answer: that to acks=0 is none."""
    return ProduceRequest(acks=1) if key == ProduceRequest.meta.key else request_class(key)()


def test_every_listed_version_gets_an_answer_in_that_version() -> None:
    asked = 0
    with EmbeddedBroker() as broker:
        with connection(broker) as raw:
            listed = raw.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys
        for api in listed:
            low = max(
                api.min_version, API_BY_KEY[api.api_key].min_version
            )  # librdkafka wants Produce 0 to be listed
            for version in range(low, api.max_version + 1):
                with connection(broker) as raw:
                    raw.ask(smallest(api.api_key), response_class(api.api_key), version)
                asked += 1
    assert asked > len(listed)


def test_each_version_describes_the_quorum_as_it_can() -> None:
    topic = RequestTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[RequestPartitionData()])
    with EmbeddedBroker() as broker, connection(broker) as raw:
        answers = [
            raw.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, version)
            for version in range(3)
        ]
    for answer in answers:
        (partition,) = answer.topics[0].partitions
        assert partition.error_code == ErrorCode.NONE
        assert [voter.replica_id for voter in partition.current_voters] == [partition.leader_id]
    assert [len(answer.nodes) for answer in answers] == [0, 0, 1]
    assert answers[2].topics[0].partitions[0].current_voters[0].replica_directory_id != bytes(16)
