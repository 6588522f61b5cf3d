"""Throttled replicas (KIP-73): as Kafka's own tool sets them, and the same lists given to Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blumfeld.config.throttled_replicas import FOLLOWER_REPLICAS, KEYS, LEADER_REPLICAS
from blumfeld.spi.cluster import TOPIC_RESOURCE
from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from campaigns.raw_connection import RawConnection
from tests.kafka_peer import kafka_on, peer_script, tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "moving"
RATES = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = BrokerProcess(tmp_path_factory.mktemp("ours"))
    process.start()
    create(process.address)
    yield process.address
    process.stop()


def create(address: str) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    with RawConnection(address) as connection:
        answer = connection.ask(
            CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, CreateTopicsResponse
        )
    assert answer.topics[0].error_code == 0


def code_of(address: str, key: str, value: str) -> int:
    """The error of a change of the topic's configuration."""
    configs = [AlterableConfig(name=key, value=value)]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=configs)
    with RawConnection(address) as connection:
        answer = connection.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse
        )
    return answer.responses[0].error_code


def test_kafka_takes_and_refuses_the_same_lists(ours: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    taken = ("*", "0:1", "0:1,1:2", "0:1 , 1:2", "", "0:1,", "0:1,0:1")
    refused = ("none", "0", "0:1:2", "0:", ":1", "-1:2", "0:1,*", "*,0:1", "a:b")
    with kafka_on(peer_script(), tmp_path_factory.mktemp("kafka")) as kafka:
        create(kafka)
        for key in KEYS:
            theirs = {value: code_of(kafka, key, value) for value in (*taken, *refused)}
            assert {value: code_of(ours, key, value) for value in theirs} == theirs
            assert {value for value, code in theirs.items() if code} == set(refused)


def test_kafka_configs_sets_shows_and_takes_away_a_throttle(ours: str) -> None:
    peer = peer_script()
    node = ("--entity-type", "brokers", "--entity-name", "1")
    topic = ("--entity-type", "topics", "--entity-name", TOPIC)
    both = ((node, RATES, "1000"), (topic, (LEADER_REPLICAS, FOLLOWER_REPLICAS), "0:1"))
    for entity, keys, value in both:
        wanted = f"{keys[0]}={value},{keys[1]}={value}"
        tool(peer, CONFIGS, "--bootstrap-server", ours, "--alter", *entity, "--add-config", wanted)
        shown = tool(peer, CONFIGS, "--bootstrap-server", ours, "--describe", *entity)
        assert all(f"{key}={value} " in shown for key in keys), shown
    for entity, keys, _ in both:
        tool(peer, CONFIGS, "--bootstrap-server", ours, "--alter", *entity, "--delete-config", ",".join(keys))
        shown = tool(peer, CONFIGS, "--bootstrap-server", ours, "--describe", *entity)
        assert not any(f"{key}=" in shown for key in keys), shown
